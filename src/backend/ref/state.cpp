// Sequence state of the reference: allocation, copies, serialised form.
#include "backend/ref/state.h"

#include <cstring>
#include <type_traits>

#include "base/check.h"

namespace lily::ref {
namespace {

constexpr char kMagic[8] = {'L', 'I', 'L', 'Y', 'R', 'E', 'F', 'S'};
constexpr std::uint32_t kVersion = 1;

struct Header {
  char magic[8];
  std::uint32_t version;
  std::uint32_t n_layers;
  std::uint64_t identity;  // of shape and weights
  std::int64_t length;     // tokens
  std::uint64_t checksum;  // of everything after the header
};
static_assert(sizeof(Header) == 40 && std::is_trivially_copyable_v<Header>);

// FNV-1a over 64-bit words, the last one padded with zeros: finds damage, guards against nobody.
std::uint64_t checksum(std::span<const std::byte> bytes, std::uint64_t hash = 0xcbf29ce484222325u) {
  for (std::size_t i = 0; i < bytes.size(); i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, std::min<std::size_t>(8, bytes.size() - i));
    hash = (hash ^ word) * 0x100000001b3u;
    hash ^= hash >> 32;
  }
  return hash;
}

std::uint64_t identity(const Shape& shape, std::string_view model_key) {
  const std::uint64_t hash = checksum(std::as_bytes(std::span(model_key)));
  return checksum(std::as_bytes(std::span(shape.name)), hash);
}

// Calls visit(vector) for every array of the state, in the order of the file.
template <class AnyState, class Visit>
void for_each_array(AnyState& state, Visit visit) {
  for (auto& layer : state.attention) {
    visit(layer.keys);
    visit(layer.values);
  }
  for (auto& layer : state.gdn) {
    visit(layer.memory);
    visit(layer.tail);
  }
}

}  // namespace

State::State(const Shape& shape, std::int64_t capacity) {
  attention.resize(static_cast<std::size_t>(shape.n_attention_layers()));
  for (KvCache& layer : attention) {
    layer.keys.reserve(static_cast<std::size_t>(capacity * shape.kv_dim()));
    layer.values.reserve(static_cast<std::size_t>(capacity * shape.kv_dim()));
  }
  gdn.resize(static_cast<std::size_t>(shape.n_gdn_layers()));
  for (GdnState& layer : gdn) {
    layer.memory.resize(static_cast<std::size_t>(shape.gdn_value_dim()) * static_cast<std::size_t>(shape.gdn_head_dim));
    layer.tail.resize(static_cast<std::size_t>((shape.conv_width - 1) * shape.conv_dim()));
  }
}

void State::copy_from(const State& other) {
  LILY_CHECK(attention.size() == other.attention.size() && gdn.size() == other.gdn.size());
  length = other.length;
  for (std::size_t i = 0; i < attention.size(); ++i) {
    attention[i].keys.assign(other.attention[i].keys.begin(), other.attention[i].keys.end());
    attention[i].values.assign(other.attention[i].values.begin(), other.attention[i].values.end());
  }
  gdn = other.gdn;
}

std::size_t State::bytes() const {
  std::size_t total = 0;
  for_each_array(*this, [&](const auto& array) { total += std::as_bytes(std::span(array)).size(); });
  return total;
}

std::size_t state_bytes(const Shape& shape, std::int64_t length) {
  const std::int64_t kv = 2 * length * shape.kv_dim() * std::int64_t{sizeof(std::uint16_t)};
  const std::int64_t gdn = (std::int64_t{shape.gdn_value_dim()} * shape.gdn_head_dim +
                            std::int64_t{shape.conv_width - 1} * shape.conv_dim()) *
                           std::int64_t{sizeof(float)};
  return static_cast<std::size_t>(shape.n_attention_layers() * kv + shape.n_gdn_layers() * gdn);
}

std::vector<std::byte> serialize_state(const Shape& shape, std::string_view model_key, const State& state) {
  std::vector<std::byte> bytes(sizeof(Header) + state.bytes());
  std::byte* end = bytes.data() + sizeof(Header);
  for_each_array(state, [&](const auto& array) {
    const auto raw = std::as_bytes(std::span(array));
    if (!raw.empty()) std::memcpy(end, raw.data(), raw.size());
    end += raw.size();
  });
  Header header{.magic = {},
                .version = kVersion,
                .n_layers = static_cast<std::uint32_t>(shape.n_layers),
                .identity = identity(shape, model_key),
                .length = state.length,
                .checksum = checksum(std::span(bytes).subspan(sizeof(Header)))};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

Result<State> deserialize_state(const Shape& shape, std::string_view model_key, std::span<const std::byte> bytes) {
  Header header;
  if (bytes.size() < sizeof header) return fail(ErrorCode::Corrupt, "saved state: {} bytes are too few", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return fail(ErrorCode::Corrupt, "saved state: not a state of the reference backend");
  if (header.version != kVersion)
    return fail(ErrorCode::Unsupported, "saved state: version {}, this build reads {}", header.version, kVersion);
  if (header.identity != identity(shape, model_key) || header.n_layers != static_cast<std::uint32_t>(shape.n_layers))
    return fail(ErrorCode::InvalidArgument, "saved state: belongs to another checkpoint");
  if (header.length < 0 || header.length > shape.max_positions)
    return fail(ErrorCode::Corrupt, "saved state: length {} is outside 0..{}", header.length, shape.max_positions);
  const auto payload = bytes.subspan(sizeof header);
  const std::size_t expected = state_bytes(shape, header.length);
  if (payload.size() != expected)
    return fail(ErrorCode::Corrupt, "saved state: {} bytes of data, expected {}", payload.size(), expected);
  if (header.checksum != checksum(payload)) return fail(ErrorCode::Corrupt, "saved state: checksum does not match");

  State state(shape, header.length);
  state.length = header.length;
  for (KvCache& layer : state.attention) {
    layer.keys.resize(static_cast<std::size_t>(header.length * shape.kv_dim()));
    layer.values.resize(layer.keys.size());
  }
  const std::byte* begin = payload.data();
  for_each_array(state, [&](auto& array) {
    const auto raw = std::as_writable_bytes(std::span(array));
    if (!raw.empty()) std::memcpy(raw.data(), begin, raw.size());
    begin += raw.size();
  });
  return state;
}

}  // namespace lily::ref

// Pages, copy on write and the form on disk.
#include "backend/cpu/state.h"

#include <array>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace lily::cpu {

namespace {

constexpr std::array<char, 8> kMagic{'L', 'I', 'L', 'Y', 'C', 'P', 'U', 'S'};
constexpr std::uint32_t kVersion = 1;

struct FileHeader {
  std::array<char, 8> magic;
  std::uint32_t version;
  std::uint32_t key_bytes;  // the model key follows the header
  std::int64_t length;
  std::uint64_t page_bytes;
  std::uint64_t recurrent_bytes;
};

std::int64_t pages_for(std::int64_t length) {
  return (length + kPageTokens - 1) / kPageTokens;
}

Result<std::shared_ptr<AlignedMemory>> make_memory(std::size_t bytes, const AlignedMemory* copy_of, const char* what) {
  LILY_TRY(AlignedMemory memory, AlignedMemory::allocate(bytes, what));
  if (copy_of != nullptr) std::memcpy(memory.data(), copy_of->data(), bytes);
  return std::make_shared<AlignedMemory>(std::move(memory));
}

// Zeroes the positions of a page from `first` on; the page need not be aligned.
void clear_positions(const StateLayout& layout, std::byte* page, std::int64_t first) {
  constexpr std::size_t kElement = sizeof(std::uint16_t), kKeyRow = kPageTokens * kElement;
  const std::size_t head_bytes = layout.head_elements * kElement;
  const std::size_t kept_bytes = static_cast<std::size_t>(first) * (head_bytes / kPageTokens);
  for (std::byte* keys = page; keys != page + layout.page_bytes; keys += 2 * head_bytes) {
    for (std::byte* row = keys; row != keys + head_bytes; row += kKeyRow)
      for (int slot = static_cast<int>(first); slot < kPageTokens; ++slot)
        std::memset(row + static_cast<std::size_t>(paired_index(slot)) * kElement, 0, kElement);
    std::memset(keys + head_bytes + kept_bytes, 0, head_bytes - kept_bytes);
  }
}

}  // namespace

StateLayout::StateLayout(const Shape& s)
    : memory_floats(static_cast<std::size_t>(s.gdn_v_heads) *
                    static_cast<std::size_t>(s.gdn_head_dim * s.gdn_head_dim)),
      tail_floats(static_cast<std::size_t>(s.conv_width - 1) * static_cast<std::size_t>(s.conv_dim())),
      head_elements(static_cast<std::size_t>(kPageTokens * s.head_dim)),
      n_kv_heads(s.n_kv_heads) {
  page_bytes = head_offset(s.n_attention_layers(), 0) * sizeof(std::uint16_t);
  recurrent_bytes = static_cast<std::size_t>(s.n_gdn_layers()) * (memory_floats + tail_floats) * sizeof(float);
}

Result<void> CpuSequence::prepare(std::int64_t n_tokens) {
  LILY_CHECK(n_tokens > 0 && length_ + n_tokens <= capacity_);
  // A count of one cannot grow behind our back: only the thread that steps makes snapshots of this sequence.
  const bool own_state = recurrent_ != nullptr && recurrent_.use_count() == 1;
  std::shared_ptr<AlignedMemory> recurrent;
  if (!own_state) {
    LILY_TRY(recurrent, make_memory(layout_.recurrent_bytes, recurrent_.get(), "a sequence's recurrent state"));
  }
  const std::size_t first = static_cast<std::size_t>(length_ / kPageTokens);
  const std::size_t end = static_cast<std::size_t>(pages_for(length_ + n_tokens));
  std::vector<std::shared_ptr<Page>> fresh;
  for (std::size_t i = first; i < end; ++i) {
    const bool exists = i < pages_.size();
    if (exists && pages_[i].use_count() == 1) {
      fresh.push_back(nullptr);
      continue;
    }
    LILY_TRY(auto page,
             make_memory(layout_.page_bytes, exists ? pages_[i].get() : nullptr, "a page of keys and values"));
    fresh.push_back(std::move(page));
  }
  // Nothing below fails.
  if (recurrent) recurrent_ = std::move(recurrent);
  if (pages_.size() < end) pages_.resize(end);
  for (std::size_t i = first; i < end; ++i)
    if (fresh[i - first]) pages_[i] = std::move(fresh[i - first]);
  return {};
}

CpuSnapshot::CpuSnapshot(const CpuSequence& sequence) : CpuSnapshot(sequence, sequence.length_, sequence.recurrent_) {}

CpuSnapshot::CpuSnapshot(const CpuSequence& sequence, std::int64_t length, std::shared_ptr<AlignedMemory> recurrent)
    : length_(length),
      pages_(sequence.pages_.begin(), sequence.pages_.begin() + pages_for(length)),
      recurrent_(std::move(recurrent)) {}

Result<std::shared_ptr<CpuSnapshot>> CpuSnapshot::make_ahead(const CpuSequence& sequence, std::int64_t length) {
  LILY_TRY(auto recurrent, make_memory(sequence.layout_.recurrent_bytes, nullptr, "a snapshot's recurrent state"));
  return std::shared_ptr<CpuSnapshot>(new CpuSnapshot(sequence, length, std::move(recurrent)));
}

std::size_t CpuSnapshot::bytes() const {
  std::size_t n = recurrent_ ? recurrent_->size() : 0;
  for (const auto& page : pages_) n += page->size();
  return n;
}

void CpuSnapshot::visit_pages(const std::function<void(const void* identity, std::size_t bytes)>& visit) const {
  for (const auto& page : pages_) visit(page.get(), page->size());
}

std::unique_ptr<CpuSequence> CpuSnapshot::restore(const StateLayout& layout, std::int64_t capacity) const {
  auto sequence = std::make_unique<CpuSequence>(layout, capacity);
  sequence->length_ = length_;
  sequence->pages_ = pages_;
  sequence->recurrent_ = recurrent_;
  return sequence;
}

std::vector<std::byte> CpuSnapshot::serialize(const StateLayout& layout, std::string_view model_key) const {
  const FileHeader header{kMagic,  kVersion,          static_cast<std::uint32_t>(model_key.size()),
                          length_, layout.page_bytes, layout.recurrent_bytes};
  std::vector<std::byte> out(sizeof header + model_key.size() + bytes());
  std::byte* end = out.data();
  const auto append = [&](const void* data, std::size_t n) {
    std::memcpy(end, data, n);
    end += n;
  };
  append(&header, sizeof header);
  append(model_key.data(), model_key.size());
  if (recurrent_) append(recurrent_->data(), recurrent_->size());
  for (const auto& page : pages_) append(page->data(), page->size());
  if (const std::int64_t in_last_page = length_ % kPageTokens; in_last_page > 0)
    clear_positions(layout, end - layout.page_bytes, in_last_page);
  return out;
}

Result<std::shared_ptr<const CpuSnapshot>> CpuSnapshot::deserialize(const StateLayout& layout,
                                                                    std::string_view model_key,
                                                                    std::span<const std::byte> bytes) {
  FileHeader header;
  if (bytes.size() < sizeof header) return fail(ErrorCode::Corrupt, "saved state: {} bytes are too few", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes = bytes.subspan(sizeof header);
  if (header.magic != kMagic || header.version != kVersion)
    return fail(ErrorCode::InvalidArgument, "saved state: not of this version of the CPU backend");
  if (header.key_bytes > bytes.size()) return fail(ErrorCode::Corrupt, "saved state: cut off in its model key");
  const std::string_view key(reinterpret_cast<const char*>(bytes.data()), header.key_bytes);
  if (key != model_key || header.page_bytes != layout.page_bytes || header.recurrent_bytes != layout.recurrent_bytes)
    return fail(ErrorCode::InvalidArgument, "saved state: of another model");
  bytes = bytes.subspan(header.key_bytes);

  const bool empty = header.length == 0;
  const auto limit = static_cast<std::int64_t>(bytes.size() / layout.page_bytes) * kPageTokens;
  if (header.length < 0 || header.length > limit)
    return fail(ErrorCode::Corrupt, "saved state: {} tokens do not fit {} bytes", header.length, bytes.size());
  const std::size_t n_pages = static_cast<std::size_t>(pages_for(header.length));
  const std::size_t expected = empty ? 0 : layout.recurrent_bytes + n_pages * layout.page_bytes;
  if (bytes.size() != expected)
    return fail(ErrorCode::Corrupt, "saved state: {} bytes where {} tokens need {}", bytes.size(), header.length,
                expected);

  auto snapshot = std::shared_ptr<CpuSnapshot>(new CpuSnapshot());
  snapshot->length_ = header.length;
  if (empty) return snapshot;
  LILY_TRY(snapshot->recurrent_, make_memory(layout.recurrent_bytes, nullptr, "a saved state"));
  std::memcpy(snapshot->recurrent_->data(), bytes.data(), layout.recurrent_bytes);
  bytes = bytes.subspan(layout.recurrent_bytes);
  for (std::size_t i = 0; i < n_pages; ++i, bytes = bytes.subspan(layout.page_bytes)) {
    LILY_TRY(auto page, make_memory(layout.page_bytes, nullptr, "a saved state"));
    std::memcpy(page->data(), bytes.data(), layout.page_bytes);
    snapshot->pages_.push_back(std::move(page));
  }
  return snapshot;
}

}  // namespace lily::cpu

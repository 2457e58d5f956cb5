// Checks go from the outside in: length, JSON, each entry on its own, then all entries against each other.
#include "model/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include "base/quote.h"
#include "model/foreign.h"
#include "model/strict_json.h"

namespace lily {
namespace {

constexpr std::uint64_t kLengthBytes = 8;
constexpr std::size_t kMaxRank = 8;
constexpr std::size_t kMaxNameBytes = 1024;

struct Range {
  std::uint64_t begin, end;  // relative to the data
};

std::optional<std::uint64_t> as_unsigned(const json::Value& value) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<std::uint64_t>(value.get_int64());
  return std::nullopt;
}

const json::Value* member(const json::Object& object, std::string_view key) {
  return object.if_contains(key);
}

// The JSON text between the length and the data.
Result<std::string_view> header_text(std::span<const std::byte> file, const std::string& label) {
  if (const std::string_view magic = foreign_magic(file); !magic.empty())
    return fail(ErrorCode::Unsupported, "{}: expected safetensors, found {}", label, magic);
  if (file.size() < kLengthBytes)
    return fail(ErrorCode::Corrupt, "{}: {} bytes, too short for a safetensors header", label, file.size());
  std::uint64_t length;
  std::memcpy(&length, file.data(), sizeof length);
  if (length < 2) return fail(ErrorCode::Corrupt, "{}: header length is {}, expected at least 2", label, length);
  if (length > kMaxHeaderBytes)
    return fail(ErrorCode::Corrupt, "{}: header length is {}, above the format's limit of {}; not a safetensors file?",
                label, length, kMaxHeaderBytes);
  if (length > file.size() - kLengthBytes)
    return fail(ErrorCode::Corrupt, "{}: header of {} bytes is cut short, the file has only {}", label, length,
                file.size());
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + kLengthBytes, length);
  if (text.front() != '{') return fail(ErrorCode::Corrupt, "{}: header does not begin with '{{'", label);
  return text;
}

Result<void> check_metadata(const json::Value& value, const std::string& label) {
  if (!value.is_object()) return fail(ErrorCode::Corrupt, "{}: __metadata__ is not an object", label);
  for (const auto& [key, text] : value.get_object())
    if (!text.is_string())
      return fail(ErrorCode::Corrupt, "{}: __metadata__ value {} is not a string", label, quote(key));
  return {};
}

Result<std::vector<std::int64_t>> parse_dims(const json::Object& fields, const std::string& where) {
  const json::Value* shape = member(fields, "shape");
  if (shape == nullptr || !shape->is_array())
    return fail(ErrorCode::Corrupt, "{}: \"shape\" is missing or not an array", where);
  const json::Array& sizes = shape->get_array();
  if (sizes.empty() || sizes.size() > kMaxRank)
    return fail(ErrorCode::Corrupt, "{}: rank {}, expected 1 to {}", where, sizes.size(), kMaxRank);
  std::vector<std::int64_t> dims;
  for (const json::Value& size : sizes) {
    if (!size.is_int64() || size.get_int64() <= 0)
      return fail(ErrorCode::Corrupt, "{}: a dimension is not a positive integer", where);
    dims.push_back(size.get_int64());
  }
  return dims;
}

Result<Range> parse_range(const json::Object& fields, std::uint64_t data_bytes, const std::string& where) {
  const json::Value* offsets = member(fields, "data_offsets");
  if (offsets == nullptr || !offsets->is_array() || offsets->get_array().size() != 2)
    return fail(ErrorCode::Corrupt, "{}: \"data_offsets\" is not a pair", where);
  const auto begin = as_unsigned(offsets->get_array()[0]);
  const auto end = as_unsigned(offsets->get_array()[1]);
  if (!begin || !end) return fail(ErrorCode::Corrupt, "{}: an offset is not an unsigned integer", where);
  if (*begin > *end) return fail(ErrorCode::Corrupt, "{}: begins at {} and ends before, at {}", where, *begin, *end);
  if (*end > data_bytes)
    return fail(ErrorCode::Corrupt,
                "{}: ends at {}, {} bytes past the end of the data; the file is cut short or damaged", where, *end,
                *end - data_bytes);
  return Range{*begin, *end};
}

Result<void> check_bytes(const SafetensorsEntry& entry, std::uint64_t bytes, const std::string& where) {
  const int width = safetensors_dtype_bytes(entry.dtype);
  if (width == 0) return fail(ErrorCode::Unsupported, "{}: unknown dtype {}", where, quote(entry.dtype, 16));
  std::uint64_t expected = static_cast<std::uint64_t>(width);
  for (const std::int64_t size : entry.dims)
    if (__builtin_mul_overflow(expected, static_cast<std::uint64_t>(size), &expected))
      return fail(ErrorCode::Corrupt, "{}: the product of its dimensions overflows", where);
  if (expected != bytes)
    return fail(ErrorCode::Corrupt, "{}: shape and dtype need {} bytes, offsets give {}", where, expected, bytes);
  return {};
}

Result<SafetensorsEntry> parse_entry(std::string_view name, const json::Value& value, std::span<const std::byte> data,
                                     const std::string& label) {
  const std::string where = label + ": tensor " + quote(name);
  if (name.empty() || name.size() > kMaxNameBytes)
    return fail(ErrorCode::Corrupt, "{}: its name has {} bytes, expected 1 to {}", where, name.size(), kMaxNameBytes);
  if (!value.is_object()) return fail(ErrorCode::Corrupt, "{}: expected an object", where);
  const json::Object& fields = value.get_object();
  const json::Value* dtype = member(fields, "dtype");
  if (dtype == nullptr || !dtype->is_string())
    return fail(ErrorCode::Corrupt, "{}: \"dtype\" is missing or not a string", where);
  SafetensorsEntry entry{.name = std::string(name), .dtype = std::string(dtype->get_string()), .dims = {}, .data = {}};
  LILY_TRY(entry.dims, parse_dims(fields, where));
  LILY_TRY(const Range range, parse_range(fields, data.size(), where));
  LILY_TRY_VOID(check_bytes(entry, range.end - range.begin, where));
  entry.data = data.subspan(range.begin, range.end - range.begin);
  return entry;
}

// The format demands that the tensors tile the data: no byte twice, none left out.
Result<void> check_tiling(const SafetensorsHeader& header, std::span<const std::byte> data, const std::string& label) {
  const std::byte* next = data.data();
  for (const SafetensorsEntry& entry : header.tensors) {
    const auto begin = entry.data.data() - data.data();
    if (entry.data.data() < next)
      return fail(ErrorCode::Corrupt, "{}: tensor {} overlaps the one before it at data offset {}", label,
                  quote(entry.name), begin);
    if (entry.data.data() > next)
      return fail(ErrorCode::Corrupt, "{}: {} unused bytes before tensor {} at data offset {}", label,
                  entry.data.data() - next, quote(entry.name), begin);
    next = entry.data.data() + entry.data.size();
  }
  if (next != data.data() + data.size())
    return fail(ErrorCode::Corrupt, "{}: {} bytes after the last tensor", label, data.data() + data.size() - next);
  return {};
}

}  // namespace

int safetensors_dtype_bytes(std::string_view dtype) {
  constexpr std::array<std::pair<std::string_view, int>, 16> kWidths{{{"BOOL", 1},
                                                                      {"U8", 1},
                                                                      {"I8", 1},
                                                                      {"F8_E5M2", 1},
                                                                      {"F8_E4M3", 1},
                                                                      {"F8_E8M0", 1},
                                                                      {"I16", 2},
                                                                      {"U16", 2},
                                                                      {"F16", 2},
                                                                      {"BF16", 2},
                                                                      {"I32", 4},
                                                                      {"U32", 4},
                                                                      {"F32", 4},
                                                                      {"I64", 8},
                                                                      {"U64", 8},
                                                                      {"F64", 8}}};
  for (const auto& [name, width] : kWidths)
    if (name == dtype) return width;
  return 0;
}

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, const std::string& label) try {
  LILY_TRY(const std::string_view text, header_text(file, label));
  LILY_TRY(const json::Object object, parse_strict_object(text, label + ": header"));
  SafetensorsHeader header{.tensors = {}, .data_begin = kLengthBytes + text.size()};
  const std::span<const std::byte> data = file.subspan(header.data_begin);
  for (const auto& [key, value] : object) {
    if (key == "__metadata__") {
      LILY_TRY_VOID(check_metadata(value, label));
      continue;
    }
    LILY_TRY(SafetensorsEntry entry, parse_entry(key, value, data, label));
    header.tensors.push_back(std::move(entry));
  }
  if (header.tensors.empty()) return fail(ErrorCode::Corrupt, "{}: holds no tensors", label);
  std::ranges::sort(header.tensors, std::less<>(), [](const SafetensorsEntry& entry) { return entry.data.data(); });
  LILY_TRY_VOID(check_tiling(header, data, label));
  return header;
} catch (const std::exception& exception) {
  return fail(ErrorCode::OutOfMemory, "{}: cannot hold its header: {}", label, exception.what());
}

}  // namespace lily

#include "apps/eval_logits.h"

#include <cerrno>
#include <cstring>
#include <map>

#include "base/json.h"
#include "model/safetensors.h"

namespace lily::apps {
namespace {

std::vector<std::int32_t> integers(std::span<const std::byte> data) {
  std::vector<std::int32_t> values(data.size() / sizeof(std::int32_t));
  std::memcpy(values.data(), data.data(), values.size() * sizeof(std::int32_t));
  return values;
}

json::Object entry(const char* dtype, json::Array dims, std::size_t begin, std::size_t end) {
  return {{"dtype", dtype}, {"shape", std::move(dims)}, {"data_offsets", {begin, end}}};
}

Result<Windows> cut(const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& starts, int vocab,
                    const std::string& name) {
  for (const TokenId id : tokens) {
    if (id < 0 || id >= vocab) return fail(ErrorCode::Corrupt, "{}: token {} is outside 0..{}", name, id, vocab - 1);
  }
  if (starts.empty() || starts.front() != 0) return fail(ErrorCode::Corrupt, "{}: 'starts' must begin with 0", name);
  Windows windows;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto end = i + 1 < starts.size() ? static_cast<std::size_t>(starts[i + 1]) : tokens.size();
    const auto begin = static_cast<std::size_t>(starts[i]);
    if (starts[i] < 0 || begin >= end || end > tokens.size()) {
      return fail(ErrorCode::Corrupt, "{}: 'starts' must rise and stay below {}", name, tokens.size());
    }
    windows.emplace_back(tokens.begin() + starts[i], tokens.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return windows;
}

}  // namespace

Result<SavedLogits> SavedLogits::open(const std::filesystem::path& path, int vocab) {
  LILY_TRY(MappedFile file, MappedFile::open(path));
  const std::string name = path.string();
  LILY_TRY(const SafetensorsHeader header, parse_safetensors(file.bytes(), name));
  std::map<std::string, const SafetensorsEntry*> found;
  for (const SafetensorsEntry& tensor : header.tensors) found[tensor.name] = &tensor;
  const auto want = [&](const char* key, const char* dtype, std::size_t rank) -> Result<const SafetensorsEntry*> {
    const auto at = found.find(key);
    if (at == found.end() || at->second->dtype != dtype || at->second->dims.size() != rank) {
      return fail(ErrorCode::Corrupt, "{}: no tensor '{}' of {} with {} dimensions; see docs/eval.md", name, key, dtype,
                  rank);
    }
    return at->second;
  };
  LILY_TRY(const SafetensorsEntry* tokens, want("tokens", "I32", 1));
  LILY_TRY(const SafetensorsEntry* starts, want("starts", "I32", 1));
  LILY_TRY(const SafetensorsEntry* logits, want("logits", "F32", 2));
  if (logits->dims[0] != tokens->dims[0]) {
    return fail(ErrorCode::Corrupt, "{}: {} tokens but {} rows of logits", name, tokens->dims[0], logits->dims[0]);
  }
  if (logits->dims[1] != vocab) {
    return fail(ErrorCode::InvalidArgument, "{}: made with a vocabulary of {}, this model has {}", name,
                logits->dims[1], vocab);
  }
  LILY_TRY(Windows windows, cut(integers(tokens->data), integers(starts->data), vocab, name));
  SavedLogits saved(std::move(file));
  saved.windows_ = std::move(windows);
  saved.logits_ = logits->data;
  return saved;
}

void SavedLogits::row(std::int64_t index, std::span<float> out) const {
  std::memcpy(out.data(), logits_.data() + static_cast<std::size_t>(index) * out.size_bytes(), out.size_bytes());
}

Result<LogitsWriter> LogitsWriter::create(const std::string& path, const Windows& windows, int vocab) {
  std::vector<std::int32_t> tokens, starts;
  for (const auto& window : windows) {
    starts.push_back(static_cast<std::int32_t>(tokens.size()));
    tokens.insert(tokens.end(), window.begin(), window.end());
  }
  const std::size_t tokens_end = tokens.size() * sizeof(std::int32_t);
  const std::size_t starts_end = tokens_end + starts.size() * sizeof(std::int32_t);
  const std::size_t logits_end = starts_end + tokens.size() * static_cast<std::size_t>(vocab) * sizeof(float);
  std::string header =
      json::dump(json::Object{{"tokens", entry("I32", {tokens.size()}, 0, tokens_end)},
                              {"starts", entry("I32", {starts.size()}, tokens_end, starts_end)},
                              {"logits", entry("F32", {tokens.size(), vocab}, starts_end, logits_end)}});
  header.resize((header.size() + 7) / 8 * 8, ' ');

  std::FILE* file = std::fopen((path + ".part").c_str(), "wb");
  if (file == nullptr) return fail(ErrorCode::Io, "cannot write '{}.part': {}", path, std::strerror(errno));
  LogitsWriter writer(path, file);
  const std::uint64_t header_bytes = header.size();  // little-endian on every machine that this runs on
  LILY_TRY_VOID(writer.put(&header_bytes, sizeof header_bytes));
  LILY_TRY_VOID(writer.put(header.data(), header.size()));
  LILY_TRY_VOID(writer.put(tokens.data(), tokens_end));
  LILY_TRY_VOID(writer.put(starts.data(), starts_end - tokens_end));
  return writer;
}

Result<void> LogitsWriter::put(const void* data, std::size_t bytes) {
  if (std::fwrite(data, 1, bytes, file_.get()) == bytes) return {};
  return fail(ErrorCode::Io, "cannot write '{}.part': {}", path_, std::strerror(errno));
}

Result<void> LogitsWriter::add(std::span<const float> rows) {
  return put(rows.data(), rows.size_bytes());
}

Result<void> LogitsWriter::finish() {
  if (std::fclose(file_.release()) != 0) {
    return fail(ErrorCode::Io, "cannot write '{}.part': {}", path_, std::strerror(errno));
  }
  if (std::rename((path_ + ".part").c_str(), path_.c_str()) != 0) {
    return fail(ErrorCode::Io, "cannot rename '{}.part': {}", path_, std::strerror(errno));
  }
  return {};
}

}  // namespace lily::apps

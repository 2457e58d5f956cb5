#include "model/synth.h"

#include <algorithm>
#include <exception>
#include <future>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/mmap_file.h"
#include "base/output_file.h"
#include "base/quote.h"
#include "model/config.h"
#include "model/indented_json.h"
#include "model/model_files.h"
#include "model/shards.h"
#include "model/synth_tokenizer.h"
#include "model/synth_weights.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxTextBytes = 256u << 20;

struct ShardPlan {
  std::string name;
  std::vector<const SynthTensor*> tensors;  // in module order
};

std::uint64_t total_bytes(const std::vector<SynthTensor>& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const SynthTensor& tensor) { return sum + tensor.bytes(); });
}

// Greedy, as MLX does: a tensor that would pass the limit opens the next shard.
std::vector<ShardPlan> plan_shards(const std::vector<SynthTensor>& tensors, std::uint64_t limit) {
  std::vector<ShardPlan> shards(1);
  std::uint64_t filled = 0;
  for (const SynthTensor& tensor : tensors) {
    if (filled + tensor.bytes() > limit && !shards.back().tensors.empty()) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().tensors.push_back(&tensor);
    filled += tensor.bytes();
  }
  for (std::size_t i = 0; i < shards.size(); ++i)
    shards[i].name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  return shards;
}

std::string write_index(const std::vector<ShardPlan>& shards, std::uint64_t total_size) {
  std::map<std::string, std::string> sorted;
  for (const ShardPlan& shard : shards)
    for (const SynthTensor* tensor : shard.tensors) sorted.emplace(tensor->name, shard.name);
  json::Object weight_map;
  for (const auto& [tensor, shard] : sorted) weight_map.emplace(tensor, shard);
  return indented_json(
      json::Object{{"metadata", json::Object{{"total_size", total_size}}}, {"weight_map", std::move(weight_map)}});
}

// MLX writes data in the order of a hash map; here it is the order of a seeded hash of the names.
std::vector<const SynthTensor*> data_order(const ShardPlan& shard, std::uint64_t seed) {
  std::vector<const SynthTensor*> order = shard.tensors;
  std::ranges::sort(order, std::less<>(), [&](const SynthTensor* tensor) {
    return std::pair(synth_stream(~seed, tensor->name), std::string_view(tensor->name));
  });
  return order;
}

// Length and JSON, names sorted, no padding: the data begins at any byte.
std::string shard_header(const std::vector<const SynthTensor*>& order) {
  std::map<std::string, json::Object> entries;
  std::uint64_t offset = 0;
  for (const SynthTensor* tensor : order) {
    json::Array shape(tensor->dims.begin(), tensor->dims.end());
    entries.emplace(tensor->name, json::Object{{"data_offsets", json::Array{offset, offset + tensor->bytes()}},
                                               {"dtype", tensor->packed() ? "U32" : "BF16"},
                                               {"shape", std::move(shape)}});
    offset += tensor->bytes();
  }
  json::Object header{{"__metadata__", json::Object{{"format", "mlx"}}}};
  for (auto& [name, entry] : entries) header.emplace(name, std::move(entry));
  const std::string text = json::dump(header);
  const std::uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + text;
}

// Appends to a file while the next block is being made. Two blocks take turns.
class OverlappedWriter {
 public:
  explicit OverlappedWriter(OutputFile& file) : file_(file) {}
  ~OverlappedWriter() {
    if (writing_.valid()) writing_.wait();
  }

  std::vector<std::byte>& block() { return blocks_[current_]; }
  // Hands block() over to be written; block() is the other one afterwards.
  Result<void> submit() {
    LILY_TRY_VOID(wait());
    writing_ = std::async(std::launch::async,
                          [this, data = std::span<const std::byte>(blocks_[current_])] { return file_.write(data); });
    current_ ^= 1;
    return {};
  }
  Result<void> wait() { return writing_.valid() ? writing_.get() : Result<void>(); }

 private:
  OutputFile& file_;
  std::vector<std::byte> blocks_[2];
  std::size_t current_ = 0;
  std::future<Result<void>> writing_;
};

// The block is filled by two threads; which of them makes a byte does not matter (synth_weights.h).
void fill_block(const SynthTensor& tensor, std::uint64_t offset, std::span<std::byte> out) {
  const std::size_t half = out.size() / 16 * 8;
  if (half < 4096) return synth_fill(tensor, offset, out);
  auto second = std::async(std::launch::async, [&] { synth_fill(tensor, offset + half, out.subspan(half)); });
  synth_fill(tensor, offset, out.first(half));
  second.get();
}

// One run: what has been written so far, so that a failure can take it back.
class Writer {
 public:
  Writer(fs::path directory, const SynthSpec& spec) : directory_(std::move(directory)), spec_(spec) {}
  ~Writer() {
    if (finished_) return;
    std::error_code ignored;
    for (const fs::path& path : written_) fs::remove(path, ignored);
    if (created_) fs::remove(directory_, ignored);
  }

  Result<SynthResult> run();

 private:
  Result<void> make_directory();
  Result<void> check_space(std::uint64_t bytes) const;
  Result<void> write_shard(const ShardPlan& shard);
  Result<void> write_texts();
  Result<void> write_text(const char* name, std::string_view text) {
    LILY_TRY_VOID(write_file(directory_ / name, text));
    written_.push_back(directory_ / name);
    return {};
  }
  void report(std::uint64_t more) {
    done_ += more;
    if (spec_.progress) spec_.progress(done_, total_);
  }

  fs::path directory_;
  const SynthSpec& spec_;
  std::vector<fs::path> written_;
  bool created_ = false, finished_ = false;
  std::uint64_t done_ = 0, total_ = 0;
};

Result<void> Writer::make_directory() {
  std::error_code error;
  if (fs::exists(directory_, error)) {
    if (!fs::is_directory(directory_, error) || !fs::is_empty(directory_, error))
      return fail(ErrorCode::InvalidArgument, "{}: exists and is not an empty directory; nothing is overwritten",
                  directory_.string());
    return {};
  }
  if (!fs::create_directories(directory_, error) && error)
    return fail(ErrorCode::Io, "{}: cannot create: {}", directory_.string(), error.message());
  created_ = true;
  return {};
}

Result<void> Writer::check_space(std::uint64_t bytes) const {
  std::error_code error;
  const fs::space_info space = fs::space(directory_, error);
  if (!error && space.available < bytes)
    return fail(ErrorCode::Io, "{}: needs {}, only {} are free there", directory_.string(), human_bytes(bytes),
                human_bytes(space.available));
  return {};
}

Result<void> Writer::write_shard(const ShardPlan& shard) {
  LILY_TRY(OutputFile file, OutputFile::create(directory_ / shard.name));
  OverlappedWriter writer(file);
  const std::vector<const SynthTensor*> order = data_order(shard, spec_.seed);
  LILY_TRY_VOID(file.write(shard_header(order)));
  for (const SynthTensor* tensor : order) {
    for (std::uint64_t offset = 0; offset < tensor->bytes(); offset += kBlockBytes) {
      std::vector<std::byte>& block = writer.block();
      block.resize(std::min<std::uint64_t>(kBlockBytes, tensor->bytes() - offset));
      fill_block(*tensor, offset, block);
      report(block.size());
      LILY_TRY_VOID(writer.submit());
    }
  }
  LILY_TRY_VOID(writer.wait());
  LILY_TRY_VOID(file.commit());
  written_.push_back(directory_ / shard.name);
  return {};
}

Result<void> Writer::write_texts() {
  std::string tokenizer, chat_template;
  if (spec_.tokenizer.empty()) {
    tokenizer = make_tokenizer_json(*spec_.shape, spec_.seed);
  } else {
    LILY_TRY(tokenizer, read_file(spec_.tokenizer, kMaxTextBytes));
  }
  if (!spec_.chat_template.empty()) {
    LILY_TRY(chat_template, read_file(spec_.chat_template, kMaxTextBytes));
  } else if (!embedded_model_files().empty()) {
    const ModelFiles inside = ModelFiles::in_memory("lily-tiny", embedded_model_files());
    LILY_TRY(chat_template, inside.read("chat_template.jinja", kMaxTextBytes));
  }
  LILY_TRY_VOID(write_text("tokenizer.json", tokenizer));
  LILY_TRY_VOID(write_text("tokenizer_config.json", make_tokenizer_config(*spec_.shape)));
  if (!chat_template.empty()) LILY_TRY_VOID(write_text("chat_template.jinja", chat_template));
  return write_text("generation_config.json", write_generation_config(*spec_.shape));
}

Result<SynthResult> Writer::run() {
  LILY_TRY_VOID(make_directory());
  const std::vector<SynthTensor> tensors = synth_tensors(*spec_.shape, spec_.vision, spec_.seed);
  total_ = total_bytes(tensors);
  LILY_TRY_VOID(check_space(total_));
  const std::vector<ShardPlan> shards = plan_shards(tensors, spec_.shard_bytes);
  LILY_TRY_VOID(write_texts());
  for (const ShardPlan& shard : shards) LILY_TRY_VOID(write_shard(shard));
  // Last, so that an interrupted run is not taken for a checkpoint.
  LILY_TRY_VOID(write_text(std::string(kIndexName).c_str(), write_index(shards, total_)));
  LILY_TRY_VOID(write_text("config.json", write_config(*spec_.shape)));
  finished_ = true;
  return SynthResult{total_, tensors.size(), shards.size()};
}

}  // namespace

Result<SynthResult> write_synthetic_checkpoint(const fs::path& directory, const SynthSpec& spec) try {
  if (spec.vision && spec.shape != &kQwen36_35B_A3B)
    return fail(ErrorCode::InvalidArgument, "{} has no vision part", spec.shape->name);
  return Writer(directory, spec).run();
} catch (const std::exception& exception) {
  return fail(ErrorCode::OutOfMemory, "{}: {}", directory.string(), exception.what());
}

}  // namespace lily

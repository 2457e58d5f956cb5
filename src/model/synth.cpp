// Generation and writing overlap: two blocks take turns, each filled by two threads.
#include "model/synth.h"

#include <algorithm>
#include <exception>
#include <future>
#include <utility>
#include <vector>

#include "base/mmap_file.h"
#include "base/output_file.h"
#include "base/quote.h"
#include "model/config.h"
#include "model/model_files.h"
#include "model/shards.h"
#include "model/synth_plan.h"
#include "model/synth_tokenizer.h"
#include "model/synth_weights.h"

namespace lily {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kBlockBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxTextBytes = 256u << 20;

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

// The report re-reads the headers: a Checkpoint keeps views of text tensors only.
#include "model/inspect.h"

#include <algorithm>
#include <exception>
#include <string_view>
#include <tuple>

#include "model/layout.h"
#include "model/model_files.h"
#include "model/shards.h"

namespace lily {
namespace {

// "layers.10.x" after "layers.9.x": the number in a name, and what surrounds it.
std::tuple<std::string_view, int, std::string_view> natural_key(std::string_view name) {
  const std::size_t first = name.find_first_of("0123456789");
  if (first == std::string_view::npos) return {name, 0, {}};
  const std::size_t last = std::min(name.find_first_not_of("0123456789", first), name.size());
  int number = 0;
  for (const char digit : name.substr(first, std::min<std::size_t>(last - first, 9)))
    number = 10 * number + (digit - '0');
  return {name.substr(0, first), number, name.substr(last)};
}

TensorInfo describe(const SafetensorsEntry& entry, const std::string& file) {
  TensorInfo info{
      .name = entry.name, .dtype = entry.dtype, .dims = entry.dims, .bytes = entry.data.size(), .file = file};
  if (is_vision_tensor(entry.name)) info.part = TensorInfo::Part::Vision;
  if (is_mtp_tensor(entry.name)) info.part = TensorInfo::Part::Mtp;
  return info;
}

void count_modules(CheckpointReport& report) {
  TextWeights scratch;
  for (const Module& module : text_modules(report.checkpoint.shape(), scratch)) {
    if (module.kind == Module::Kind::Quantised) {
      report.n_parameters += static_cast<std::uint64_t>(module.n_experts * module.out * module.in);
      continue;
    }
    std::uint64_t n = 1;
    for (const std::int64_t size : module.dims) n *= static_cast<std::uint64_t>(size);
    report.n_parameters += n;
  }
  const MoeWeights& moe = report.checkpoint.weights().layers.front().moe;
  const auto n_quantised = static_cast<std::size_t>(std::ranges::count_if(report.tensors, [](const TensorInfo& t) {
    return t.part == TensorInfo::Part::Text && t.name.ends_with(".scales");
  }));
  report.n_modules_8bit = moe.router.bits == 8 ? 2 * report.checkpoint.weights().layers.size() : 0;
  report.n_modules_4bit = n_quantised - report.n_modules_8bit;
}

}  // namespace

Result<CheckpointReport> inspect_checkpoint(const std::filesystem::path& directory) try {
  const bool embedded = directory.empty();
  LILY_TRY(Checkpoint checkpoint, embedded ? Checkpoint::open_embedded() : Checkpoint::open(directory));
  auto files = embedded ? Result<ModelFiles>(ModelFiles::in_memory("lily-tiny", embedded_model_files()))
                        : ModelFiles::open_directory(directory);
  if (!files) return tl::unexpected(std::move(files).error());
  LILY_TRY(const ShardSet set, read_shards(*files));
  CheckpointReport report{.checkpoint = std::move(checkpoint), .tensors = {}, .n_files = set.shards.size()};
  for (const Shard& shard : set.shards)
    for (const SafetensorsEntry& entry : shard.header.tensors) report.tensors.push_back(describe(entry, shard.name));
  std::ranges::sort(report.tensors, std::less<>(), [](const TensorInfo& info) { return natural_key(info.name); });
  count_modules(report);
  return report;
} catch (const std::exception& exception) {
  return fail(ErrorCode::OutOfMemory, "{}: {}", directory.string(), exception.what());
}

}  // namespace lily

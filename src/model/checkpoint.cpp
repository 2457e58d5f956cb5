// Opening, in order: configuration, shard headers, names to views, small texts. Each step refuses on its own; nothing
// here reads weights except for a few bytes of the fingerprint.
#include "model/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>

#include "base/quote.h"
#include "base/sha256.h"
#include "model/config.h"
#include "model/foreign.h"
#include "model/layout.h"
#include "model/model_files.h"
#include "model/shards.h"
#include "model/strict_json.h"

namespace lily {
namespace {

constexpr std::size_t kMaxConfigBytes = 4u << 20;
constexpr std::size_t kMaxTokenizerBytes = 256u << 20;
constexpr std::size_t kMaxTemplateBytes = 4u << 20;

using TensorMap = std::map<std::string_view, const SafetensorsEntry*, std::less<>>;

// The text tensors by name without prefix.
struct TextTensors {
  TensorMap by_name;
  std::size_t n_vision = 0, n_mtp = 0;
};

Result<TextTensors> collect_text_tensors(const ShardSet& set, const std::string& label) {
  TextTensors tensors;
  for (const Shard& shard : set.shards) {
    for (const SafetensorsEntry& entry : shard.header.tensors) {
      if (is_vision_tensor(entry.name)) {
        ++tensors.n_vision;
      } else if (is_mtp_tensor(entry.name)) {
        ++tensors.n_mtp;
      } else if (!tensors.by_name.emplace(without_prefix(entry.name), &entry).second) {
        return fail(ErrorCode::Corrupt, "{}: tensor {} comes twice, perhaps under another prefix", label,
                    quote(entry.name));
      }
    }
  }
  return tensors;
}

// Layouts that would load only by accident, told before names are compared.
Result<void> refuse_raw_layout(const TensorMap& tensors, const std::string& label) {
  for (const auto& [name, entry] : tensors) {
    if (name.ends_with(".conv1d.weight") && entry->dims.size() == 3 && entry->dims[2] != 1)
      return fail(ErrorCode::Unsupported,
                  "{}: tensor {} is [{}]: the layout of the original Hugging Face weights, whose norms are stored "
                  "without their 1; {}",
                  label, quote(entry->name), fmt::join(entry->dims, ", "), kWanted);
    if (name.ends_with(".qweight") || name.ends_with(".qzeros"))
      return fail(ErrorCode::Unsupported, "{}: tensor {}: weights quantised by AWQ or GPTQ; {}", label,
                  quote(entry->name), kWanted);
  }
  return {};
}

Result<TensorView> make_view(const SafetensorsEntry& entry, std::string_view dtype,
                             const std::vector<std::int64_t>& dims, const std::string& label) {
  if (entry.dtype != dtype || entry.dims != dims)
    return fail(ErrorCode::Unsupported, "{}: tensor {}: expected {} [{}], found {} [{}]", label, quote(entry.name),
                dtype, fmt::join(dims, ", "), entry.dtype, fmt::join(entry.dims, ", "));
  TensorView view;
  view.dtype = dtype == "U32" ? Dtype::U32 : dtype == "F32" ? Dtype::F32 : Dtype::BF16;
  view.rank = static_cast<int>(dims.size());
  std::copy(dims.begin(), dims.end(), view.dims.begin());
  view.data = entry.data.data();
  view.bytes = entry.data.size();
  return view;
}

// Finds the tensors of every module and gives them to the weights that the modules point to.
class Binder {
 public:
  Binder(const TensorMap& tensors, const ModelConfig& config, std::string label)
      : unused_(tensors), config_(config), label_(std::move(label)) {}

  Result<void> bind(const std::vector<Module>& modules) {
    for (const Module& module : modules) {
      if (module.kind == Module::Kind::Plain)
        LILY_TRY_VOID(bind_plain(module));
      else
        LILY_TRY_VOID(bind_quantised(module));
    }
    if (!missing_.empty())
      return fail(ErrorCode::Corrupt, "{}: {} missing tensor{}: {}", label_, missing_.size(),
                  missing_.size() == 1 ? "" : "s", first_few(missing_));
    if (unused_.empty()) return {};
    std::vector<std::string> unknown;
    for (const auto& [name, entry] : unused_) unknown.push_back(quote(entry->name));
    return fail(ErrorCode::Unsupported, "{}: {} tensor{} that {} does not have: {}", label_, unknown.size(),
                unknown.size() == 1 ? "" : "s", config_.shape->name, first_few(unknown));
  }

  std::size_t text_bytes() const { return text_bytes_; }

 private:
  // nullptr, and the name remembered, if there is no such tensor.
  const SafetensorsEntry* take(const std::string& module, std::string_view suffix) {
    const auto found = unused_.find(module + std::string(suffix));
    if (found == unused_.end()) {
      missing_.push_back(mlx_name(module) + std::string(suffix));
      return nullptr;
    }
    const SafetensorsEntry* entry = found->second;
    unused_.erase(found);
    text_bytes_ += entry->data.size();
    return entry;
  }

  Result<void> bind_plain(const Module& module) {
    const SafetensorsEntry* entry = take(module.name, module.suffix);
    if (entry == nullptr) return {};
    const bool wide = module.f32_allowed && entry->dtype == "F32";
    LILY_TRY(*module.plain, make_view(*entry, wide ? "F32" : "BF16", module.dims, label_));
    return {};
  }

  Result<void> bind_quantised(const Module& module) {
    const SafetensorsEntry* weight = take(module.name, ".weight");
    const SafetensorsEntry* scales = take(module.name, ".scales");
    const SafetensorsEntry* biases = take(module.name, ".biases");
    if (weight != nullptr && weight->dtype != "U32")
      return fail(ErrorCode::Unsupported, "{}: tensor {}: expected packed U32, found unquantised {}; {}", label_,
                  quote(weight->name), weight->dtype, kWanted);
    if (weight == nullptr || scales == nullptr || biases == nullptr) return {};
    AffineView& view = *module.affine;
    view.n_experts = module.n_experts;
    view.out = module.out;
    view.in = module.in;
    LILY_TRY(view.bits, module_bits(module, *weight));
    std::vector<std::int64_t> dims;
    if (module.stacked) dims.push_back(module.n_experts);
    dims.insert(dims.end(), {module.out, module.in * view.bits / 32});
    LILY_TRY(view.weight, make_view(*weight, "U32", dims, label_));
    dims.back() = module.in / kGroupSize;
    LILY_TRY(view.scales, make_view(*scales, "BF16", dims, label_));
    LILY_TRY(view.biases, make_view(*biases, "BF16", dims, label_));
    return {};
  }

  // From the width of the packed rows; must be what the configuration says.
  Result<int> module_bits(const Module& module, const SafetensorsEntry& weight) const {
    const int configured = config_.bits_of(module.name);
    const std::int64_t bits = weight.dims.back() * 32 / module.in;
    if (bits != configured || bits * module.in != weight.dims.back() * 32)
      return fail(ErrorCode::Corrupt, "{}: tensor {}: rows of {} words are {} bits a weight, config.json says {}",
                  label_, quote(weight.name), weight.dims.back(),
                  static_cast<double>(weight.dims.back()) * 32 / static_cast<double>(module.in), configured);
    if (configured != 4 && !module.router)
      return fail(ErrorCode::Unsupported, "{}: module {} has {} bits, expected 4; {}", label_,
                  quote(mlx_name(module.name)), configured, kWanted);
    return configured;
  }

  TensorMap unused_;
  const ModelConfig& config_;
  std::string label_;
  std::vector<std::string> missing_;
  std::size_t text_bytes_ = 0;
};

Result<CheckpointTexts> read_texts(const ModelFiles& files, std::vector<std::string>& notes) {
  CheckpointTexts texts;
  LILY_TRY(texts.tokenizer_json, files.read("tokenizer.json", kMaxTokenizerBytes));
  if (files.has("tokenizer_config.json")) {
    LILY_TRY(texts.tokenizer_config, files.read("tokenizer_config.json", kMaxTemplateBytes));
  }
  if (files.has("generation_config.json")) {
    LILY_TRY(texts.generation_config, files.read("generation_config.json", kMaxConfigBytes));
  }
  if (files.has("chat_template.jinja")) {
    LILY_TRY(texts.chat_template, files.read("chat_template.jinja", kMaxTemplateBytes));
  } else if (!texts.tokenizer_config.empty()) {
    LILY_TRY(const json::Object config,
             parse_strict_object(texts.tokenizer_config, files.path("tokenizer_config.json")));
    const json::Value* value = config.if_contains("chat_template");
    if (value != nullptr && value->is_string()) texts.chat_template = value->get_string();
  }
  if (texts.chat_template.empty())
    notes.push_back("no chat template: this program needs chat_template.jinja to answer");
  return texts;
}

// Headers pin names, shapes and places but not values: two trainings of one shape share them. So a few bytes from the
// middle of tensors all over the files go in as well; that costs some page faults and no long read.
std::string make_fingerprint(std::string_view config, const ShardSet& set) {
  constexpr std::size_t kSamples = 64, kSampleBytes = 64;
  Sha256 hash;
  hash.update(config);
  hash.update(set.index);
  for (const Shard& shard : set.shards) {
    hash.update(shard.file.first(shard.header.data_begin));
    const auto& tensors = shard.header.tensors;
    const std::size_t stride = tensors.size() / kSamples + 1;
    for (std::size_t i = 0; i < tensors.size(); i += stride) {
      const std::span<const std::byte> data = tensors[i].data;
      hash.update(data.subspan(data.size() / 2, std::min(kSampleBytes, data.size() - data.size() / 2)));
    }
  }
  return hash.hex();
}

// The directory's own name; in the Hugging Face cache ("models--owner--name/snapshots/<hash>") the model's.
std::string model_id(const std::filesystem::path& directory) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(directory, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.parent_path().filename() == "snapshots") {
    const std::string cache_name = path.parent_path().parent_path().filename().string();
    if (const std::size_t at = cache_name.rfind("--"); at != std::string::npos) return cache_name.substr(at + 2);
  }
  return path.filename().string();
}

}  // namespace

struct Checkpoint::Impl {
  ModelFiles files;
  std::string id;
  std::string fingerprint;
  ModelConfig config;
  TextWeights weights;
  CheckpointTexts texts;
  std::vector<TokenId> stop_ids;
  std::size_t text_bytes = 0;
  std::vector<std::string> notes;

  explicit Impl(ModelFiles f) : files(std::move(f)) {}

  Result<void> load();
  Result<void> load_weights(std::string_view config_text);
};

Result<void> Checkpoint::Impl::load() {
  if (!files.has("config.json")) return tl::unexpected(no_config_error(files.label(), files.names()));
  LILY_TRY(const std::string config_text, files.read("config.json", kMaxConfigBytes));
  LILY_TRY(config, parse_config(config_text, files.path("config.json")));
  LILY_TRY_VOID(load_weights(config_text));
  LILY_TRY(texts, read_texts(files, notes));
  if (!texts.generation_config.empty()) {
    LILY_TRY(stop_ids,
             parse_stop_ids(texts.generation_config, config.shape->vocab, files.path("generation_config.json")));
  }
  if (stop_ids.empty()) stop_ids = config.eos_ids;
  if (stop_ids.empty())
    return fail(ErrorCode::Unsupported,
                "{}: neither generation_config.json nor config.json has an eos_token_id; answers would not end",
                files.label());
  return {};
}

Result<void> Checkpoint::Impl::load_weights(std::string_view config_text) {
  LILY_TRY(ShardSet set, read_shards(files));
  notes = std::move(set.notes);
  LILY_TRY(const TextTensors tensors, collect_text_tensors(set, files.label()));
  LILY_TRY_VOID(refuse_raw_layout(tensors.by_name, files.label()));
  Binder binder(tensors.by_name, config, files.label());
  LILY_TRY_VOID(binder.bind(text_modules(*config.shape, weights)));
  text_bytes = binder.text_bytes();
  fingerprint = make_fingerprint(config_text, set);
  if (tensors.n_vision > 0) notes.push_back(fmt::format("{} vision tensors are skipped: text only", tensors.n_vision));
  if (tensors.n_mtp > 0)
    notes.push_back(fmt::format("{} tensors of the multi-token-prediction head are skipped", tensors.n_mtp));
  if (tensors.n_mtp == 0 && config.mtp_layers)
    notes.push_back("the config names a multi-token-prediction head, the files have none: decoding without it");
  return {};
}

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> Checkpoint::open(const std::filesystem::path& directory) try {
  LILY_TRY(ModelFiles files, ModelFiles::open_directory(directory));
  auto impl = std::make_unique<Impl>(std::move(files));
  LILY_TRY_VOID(impl->load());
  impl->id = model_id(directory);
  return Checkpoint(std::move(impl));
} catch (const std::exception& exception) {
  return fail(ErrorCode::OutOfMemory, "{}: {}", directory.string(), exception.what());
}

Result<Checkpoint> Checkpoint::open_embedded() try {
  if (embedded_model_files().empty())
    return fail(ErrorCode::NotFound,
                "this build carries no model: models/lily-tiny was absent when it was made; use --model DIR");
  auto impl = std::make_unique<Impl>(ModelFiles::in_memory("lily-tiny", embedded_model_files()));
  LILY_TRY_VOID(impl->load());
  impl->id = "lily-tiny";
  return Checkpoint(std::move(impl));
} catch (const std::exception& exception) {
  return fail(ErrorCode::OutOfMemory, "lily-tiny: {}", exception.what());
}

const Shape& Checkpoint::shape() const {
  return *impl_->config.shape;
}
const TextWeights& Checkpoint::weights() const {
  return impl_->weights;
}
const CheckpointTexts& Checkpoint::texts() const {
  return impl_->texts;
}
const std::vector<TokenId>& Checkpoint::stop_ids() const {
  return impl_->stop_ids;
}
std::int64_t Checkpoint::max_positions() const {
  return impl_->config.max_positions;
}
const std::string& Checkpoint::id() const {
  return impl_->id;
}
const std::string& Checkpoint::fingerprint() const {
  return impl_->fingerprint;
}
std::size_t Checkpoint::text_bytes() const {
  return impl_->text_bytes;
}
const std::vector<std::string>& Checkpoint::notes() const {
  return impl_->notes;
}

void Checkpoint::release(const TensorView& view) const {
  impl_->files.release({view.data, view.bytes});
}

void Checkpoint::release(const AffineView& view) const {
  release(view.weight);
  release(view.scales);
  release(view.biases);
}

}  // namespace lily

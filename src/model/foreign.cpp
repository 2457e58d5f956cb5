// Order of recognition: quantiser by name, architecture, then the variants of MLX's own quantisation.
#include "model/foreign.h"

#include <algorithm>
#include <cstring>

#include "base/mmap_file.h"
#include "base/quote.h"

namespace lily {
namespace {

bool starts_with(std::span<const std::byte> file, std::string_view magic) {
  return file.size() >= magic.size() && std::memcmp(file.data(), magic.data(), magic.size()) == 0;
}

tl::unexpected<Error> foreign(const std::string& label, std::string_view found) {
  return fail(ErrorCode::Unsupported, "{}: found {}; {}", label, found, kWanted);
}

const json::Object* object_at(const json::Object& parent, std::string_view key) {
  const json::Value* value = parent.if_contains(key);
  return value != nullptr ? value->if_object() : nullptr;
}

std::string string_at(const json::Object& parent, std::string_view key) {
  const json::Value* value = parent.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

Result<void> refuse_foreign_architecture(const json::Object& config, const std::string& label) {
  const std::string type = string_at(config, "model_type");
  if (type == "qwen3_5_moe" || type == "qwen3_5_moe_text") return {};
  if (type == "qwen3_5_mtp") return foreign(label, "an MTP drafter without its model (model_type \"qwen3_5_mtp\")");
  if (type == "qwen3_5" || type == "qwen3_5_text")
    return foreign(label, "a dense Qwen3.5 model (model_type " + quote(type) + ")");
  if (type.empty()) return foreign(label, "no model_type");
  return foreign(label, "another architecture (model_type " + quote(type) + ")");
}

// quant_method of Hugging Face's quantisers; MLX does not write it.
Result<void> refuse_quant_method(const json::Object& block, const std::string& label) {
  const std::string method = string_at(block, "quant_method");
  if (method.empty() || method == "mlx" || method == "affine") return {};
  std::string name = method;
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return foreign(label, "weights quantised by " + quote(name) + " (quant_method)");
}

Result<void> refuse_mlx_variant(const json::Object& block, const std::string& label) {
  const std::string mode = string_at(block, "mode");
  if (!mode.empty() && mode != "affine") return foreign(label, "MLX quantisation of mode " + quote(mode));
  const json::Value* bits = block.if_contains("bits");
  if (bits == nullptr || !bits->is_int64()) return foreign(label, "a quantisation block without \"bits\"");
  if (bits->get_int64() != 4)
    return foreign(
        label, fmt::format("MLX {}-bit quantisation{}", bits->get_int64(), bits->get_int64() == 8 ? " (int8)" : ""));
  const json::Value* group = block.if_contains("group_size");
  if (group == nullptr || !group->is_int64()) return foreign(label, "a quantisation block without \"group_size\"");
  if (group->get_int64() != 64)
    return foreign(label, fmt::format("MLX quantisation with group size {}", group->get_int64()));
  return {};
}

Error missing_file_error(const std::string& label, std::string_view missing, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (name.ends_with(".gguf")) return foreign(label, "a GGUF file (" + quote(name) + ")").value();
    if (name.ends_with(".bin") || name.ends_with(".pt") || name.ends_with(".pth"))
      return foreign(label, "PyTorch weights (" + quote(name) + ")").value();
    if (name.ends_with(".npz")) return foreign(label, "NumPy weights (" + quote(name) + ")").value();
  }
  return Error{ErrorCode::NotFound, fmt::format("{}: no {}; expected a checkpoint in MLX layout", label, missing)};
}

}  // namespace

std::string_view foreign_magic(std::span<const std::byte> file) {
  if (starts_with(file, "GGUF")) return "a GGUF file";
  if (starts_with(file, "version https://git-lfs")) return "a Git LFS pointer (the file itself was not downloaded)";
  if (starts_with(file, "PK\x03\x04")) return "a zip archive (PyTorch weights?)";
  if (starts_with(file, "\x93NUMPY")) return "a NumPy array";
  if (starts_with(file, "<!DOCTYPE") || starts_with(file, "<html")) return "a web page (a failed download)";
  return {};
}

Error not_a_directory_error(const std::filesystem::path& path) {
  auto mapped = MappedFile::open(path);
  if (!mapped) return std::move(mapped).error();
  const std::string_view found = foreign_magic(mapped->bytes());
  if (found == "a GGUF file") return foreign(path.string(), found).value();
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{}: is a file; expected the directory of a checkpoint in MLX layout", path.string())};
}

Error no_config_error(const std::string& label, const std::vector<std::string>& names) {
  return missing_file_error(label, "config.json", names);
}

Error no_weights_error(const std::string& label, const std::vector<std::string>& names) {
  return missing_file_error(label, "model.safetensors.index.json and no model.safetensors", names);
}

Result<void> refuse_foreign_config(const json::Object& config, const std::string& label) {
  const json::Object* mlx = object_at(config, "quantization");
  const json::Object* other = object_at(config, "quantization_config");
  for (const json::Object* block : {other, mlx})
    if (block != nullptr) LILY_TRY_VOID(refuse_quant_method(*block, label));
  LILY_TRY_VOID(refuse_foreign_architecture(config, label));
  if (mlx == nullptr) mlx = other;
  if (mlx != nullptr) return refuse_mlx_variant(*mlx, label);
  const json::Object* text = object_at(config, "text_config");
  std::string dtype = string_at(text != nullptr ? *text : config, "dtype");
  if (dtype.empty()) dtype = string_at(config, "torch_dtype");
  return foreign(label, "unquantised weights" + (dtype.empty() ? std::string() : " (dtype " + quote(dtype) + ")"));
}

}  // namespace lily

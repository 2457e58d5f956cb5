// Modules are listed in the order in which MLX writes them; the split into shards follows from it.
#include "model/layout.h"

#include <fmt/format.h>

#include <utility>

namespace lily {
namespace {

// Appends the modules of one layer under a common name.
class Lister {
 public:
  Lister(std::vector<Module>& modules, std::string prefix) : modules_(modules), prefix_(std::move(prefix)) {}

  Module& quantised(std::string_view name, std::int64_t out, std::int64_t in, AffineView& view) {
    Module& module = append(name, Module::Kind::Quantised);
    module.out = out;
    module.in = in;
    module.affine = &view;
    return module;
  }
  void experts(std::string_view name, std::int64_t n_experts, std::int64_t out, std::int64_t in, AffineView& view) {
    Module& module = quantised(name, out, in, view);
    module.n_experts = n_experts;
    module.stacked = true;
  }
  void router(std::string_view name, std::int64_t out, std::int64_t in, AffineView& view) {
    quantised(name, out, in, view).router = true;
  }
  Module& plain(std::string_view name, std::string_view suffix, std::vector<std::int64_t> dims, TensorView& view) {
    Module& module = append(name, Module::Kind::Plain);
    module.suffix = suffix;
    module.dims = std::move(dims);
    module.plain = &view;
    return module;
  }

 private:
  Module& append(std::string_view name, Module::Kind kind) {
    Module& module = modules_.emplace_back();
    module.name = prefix_ + std::string(name);
    module.kind = kind;
    return module;
  }

  std::vector<Module>& modules_;
  std::string prefix_;
};

void list_gdn(const Shape& shape, GdnWeights& w, Lister& list) {
  const std::int64_t d = shape.hidden, heads = shape.gdn_v_heads;
  list.plain("linear_attn.conv1d", ".weight", {shape.conv_dim(), shape.conv_width, 1}, w.conv);
  list.quantised("linear_attn.in_proj_qkv", shape.conv_dim(), d, w.qkv);
  list.quantised("linear_attn.in_proj_z", shape.gdn_value_dim(), d, w.z);
  list.quantised("linear_attn.in_proj_b", heads, d, w.b);
  list.quantised("linear_attn.in_proj_a", heads, d, w.a);
  list.plain("linear_attn.dt_bias", "", {heads}, w.dt_bias);
  list.plain("linear_attn.A_log", "", {heads}, w.a_log).f32_allowed = true;
  list.plain("linear_attn.norm", ".weight", {shape.gdn_head_dim}, w.norm);
  list.quantised("linear_attn.out_proj", d, shape.gdn_value_dim(), w.out);
}

void list_attention(const Shape& shape, AttentionWeights& w, Lister& list) {
  const std::int64_t d = shape.hidden;
  list.quantised("self_attn.q_proj", 2 * shape.q_dim(), d, w.q);
  list.quantised("self_attn.k_proj", shape.kv_dim(), d, w.k);
  list.quantised("self_attn.v_proj", shape.kv_dim(), d, w.v);
  list.quantised("self_attn.o_proj", d, shape.q_dim(), w.o);
  list.plain("self_attn.q_norm", ".weight", {shape.head_dim}, w.q_norm);
  list.plain("self_attn.k_norm", ".weight", {shape.head_dim}, w.k_norm);
}

void list_moe(const Shape& shape, MoeWeights& w, Lister& list) {
  const std::int64_t d = shape.hidden, e = shape.n_experts, i = shape.expert_dim, s = shape.shared_dim;
  list.router("mlp.gate", e, d, w.router);
  list.experts("mlp.switch_mlp.gate_proj", e, i, d, w.gate);
  list.experts("mlp.switch_mlp.up_proj", e, i, d, w.up);
  list.experts("mlp.switch_mlp.down_proj", e, d, i, w.down);
  list.quantised("mlp.shared_expert.gate_proj", s, d, w.shared_gate_proj);
  list.quantised("mlp.shared_expert.down_proj", d, s, w.shared_down_proj);
  list.quantised("mlp.shared_expert.up_proj", s, d, w.shared_up_proj);
  list.router("mlp.shared_expert_gate", 1, d, w.shared_gate);
}

bool strip(std::string_view& name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  name.remove_prefix(prefix.size());
  return true;
}

}  // namespace

std::vector<Module> text_modules(const Shape& shape, TextWeights& weights) {
  std::vector<Module> modules;
  Lister outer(modules, "");
  outer.quantised("embed_tokens", shape.vocab, shape.hidden, weights.embed);
  weights.layers.resize(static_cast<std::size_t>(shape.n_layers));
  for (int i = 0; i < shape.n_layers; ++i) {
    LayerWeights& layer = weights.layers[static_cast<std::size_t>(i)];
    Lister list(modules, fmt::format("layers.{}.", i));
    if (shape.is_attention(i))
      list_attention(shape, layer.attention ? *layer.attention : layer.attention.emplace(), list);
    else
      list_gdn(shape, layer.gdn ? *layer.gdn : layer.gdn.emplace(), list);
    list.plain("input_layernorm", ".weight", {shape.hidden}, layer.input_norm);
    list.plain("post_attention_layernorm", ".weight", {shape.hidden}, layer.post_norm);
    list_moe(shape, layer.moe, list);
  }
  outer.plain("norm", ".weight", {shape.hidden}, weights.norm);
  outer.quantised("lm_head", shape.vocab, shape.hidden, weights.head);
  return modules;
}

std::string mlx_name(std::string_view module) {
  return (module == "lm_head" ? "language_model." : "language_model.model.") + std::string(module);
}

std::string_view without_prefix(std::string_view tensor) {
  strip(tensor, "language_model.");
  strip(tensor, "model.");
  return tensor;
}

bool is_vision_tensor(std::string_view tensor) {
  return tensor.find("vision_tower.") != std::string_view::npos || tensor.find("visual.") != std::string_view::npos;
}

bool is_mtp_tensor(std::string_view tensor) {
  return tensor.starts_with("mtp.") || tensor.find(".mtp.") != std::string_view::npos;
}

std::vector<VisionTensor> vision_tensors() {
  constexpr std::int64_t kWidth = 1152, kInner = 4304, kMerged = 4608, kOut = 2048, kDepth = 27;
  std::vector<VisionTensor> tensors;
  const auto add = [&](std::string name, std::vector<std::int64_t> dims) {
    tensors.push_back({"vision_tower." + std::move(name), std::move(dims)});
  };
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    add(name + ".weight", {out, in});
    add(name + ".bias", {out});
  };
  const auto norm = [&](const std::string& name) {
    add(name + ".weight", {kWidth});
    add(name + ".bias", {kWidth});
  };
  add("patch_embed.proj.weight", {kWidth, 2, 16, 16, 3});
  add("patch_embed.proj.bias", {kWidth});
  add("pos_embed.weight", {2304, kWidth});
  for (std::int64_t i = 0; i < kDepth; ++i) {
    const std::string block = fmt::format("blocks.{}.", i);
    norm(block + "norm1");
    norm(block + "norm2");
    linear(block + "attn.qkv", 3 * kWidth, kWidth);
    linear(block + "attn.proj", kWidth, kWidth);
    linear(block + "mlp.linear_fc1", kInner, kWidth);
    linear(block + "mlp.linear_fc2", kWidth, kInner);
  }
  norm("merger.norm");
  linear("merger.linear_fc1", kMerged, kMerged);
  linear("merger.linear_fc2", kOut, kMerged);
  return tensors;
}

}  // namespace lily

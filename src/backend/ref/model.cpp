// Loading and the forward pass: embedding, layers of mixer and experts with residuals, final norm.
#include "backend/ref/model.h"

#include "backend/ref/rms_norm.h"
#include "backend/ref/rows.h"
#include "base/check.h"

namespace lily::ref {
namespace {

// Models up to this many floats are kept dequantised: the tiny model in 80 MB, the real one read from its bytes.
constexpr std::size_t kMaxKeptFloats = std::size_t{1} << 27;

std::vector<float> floats(const TensorView& view) {
  std::vector<float> values(static_cast<std::size_t>(view.count()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = view.load_float(static_cast<std::int64_t>(i));
  return values;
}

AttentionLayer load(const AttentionWeights& w, bool keep) {
  return {.q = {w.q, keep},
          .k = {w.k, keep},
          .v = {w.v, keep},
          .o = {w.o, keep},
          .q_norm = floats(w.q_norm),
          .k_norm = floats(w.k_norm)};
}

GdnLayer load(const GdnWeights& w, bool keep) {
  return {.qkv = {w.qkv, keep},
          .z = {w.z, keep},
          .b = {w.b, keep},
          .a = {w.a, keep},
          .out = {w.out, keep},
          .conv = floats(w.conv),
          .a_log = floats(w.a_log),
          .dt_bias = floats(w.dt_bias),
          .norm = floats(w.norm)};
}

MoeLayer load(const MoeWeights& w, bool keep) {
  return {.router = {w.router, keep},
          .shared_gate = {w.shared_gate, keep},
          .routed = {{w.gate, keep}, {w.up, keep}, {w.down, keep}},
          .shared = {{w.shared_gate_proj, keep}, {w.shared_up_proj, keep}, {w.shared_down_proj, keep}}};
}

// Sums over the matrices of a layer or of the whole model.
struct Size {
  std::size_t bytes = 0, floats = 0;

  void add(const AffineView& view) {
    bytes += view.bytes();
    floats += static_cast<std::size_t>(view.n_experts * view.out * view.in);
  }
  void add(const LayerWeights& w) {
    if (w.attention)
      for (const AffineView* v : {&w.attention->q, &w.attention->k, &w.attention->v, &w.attention->o}) add(*v);
    if (w.gdn)
      for (const AffineView* v : {&w.gdn->qkv, &w.gdn->z, &w.gdn->b, &w.gdn->a, &w.gdn->out}) add(*v);
    const MoeWeights& m = w.moe;
    for (const AffineView* v : {&m.router, &m.shared_gate, &m.gate, &m.up, &m.down, &m.shared_gate_proj,
                                &m.shared_up_proj, &m.shared_down_proj})
      add(*v);
  }
};

void add_to(std::span<float> sum, std::span<const float> term) {
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += term[i];
}

void norm_rows(std::span<const float> x, std::span<const float> weight, std::span<float> y) {
  const std::size_t width = weight.size();
  for (std::size_t t = 0; t * width < x.size(); ++t) rms_norm(row(x, t, width), weight, row(y, t, width));
}

}  // namespace

Model::Model(const Shape& shape, const TextWeights& weights, const Progress& progress) : shape_(shape) {
  LILY_CHECK(std::ssize(weights.layers) == shape.n_layers);
  Size total;
  total.add(weights.embed);
  total.add(weights.head);
  for (const LayerWeights& layer : weights.layers) total.add(layer);
  weight_bytes_ = total.bytes;
  const bool keep = total.floats <= kMaxKeptFloats;

  Size done;
  const auto report = [&] {
    if (progress) progress(done.bytes, total.bytes);
  };
  embed_ = {weights.embed, keep};
  head_ = {weights.head, keep};
  norm_ = floats(weights.norm);
  done.add(weights.embed);
  done.add(weights.head);
  report();
  for (const LayerWeights& w : weights.layers) {
    Layer layer{.input_norm = floats(w.input_norm),
                .post_norm = floats(w.post_norm),
                .attention = {},
                .gdn = {},
                .moe = load(w.moe, keep)};
    if (w.attention) layer.attention = load(*w.attention, keep);
    if (w.gdn) layer.gdn = load(*w.gdn, keep);
    layers_.push_back(std::move(layer));
    done.add(w);
    report();
  }
}

void Model::forward(std::span<const TokenId> tokens, State& state, std::span<float> hidden) const {
  const std::size_t width = static_cast<std::size_t>(shape_.hidden);
  std::vector<float> h(tokens.size() * width), normed(h.size()), out(h.size());  // [T, D]
  for (std::size_t t = 0; t < tokens.size(); ++t) embed_.row(tokens[t], row(std::span(h), t, width));

  for (int i = 0; i < shape_.n_layers; ++i) {
    const Layer& layer = layers_[static_cast<std::size_t>(i)];
    norm_rows(h, layer.input_norm, normed);
    if (layer.attention) {
      attention_block(shape_, *layer.attention, state.length, normed,
                      state.attention[static_cast<std::size_t>(shape_.attention_index(i))], out);
    } else {
      gdn_block(shape_, *layer.gdn, normed, state.gdn[static_cast<std::size_t>(shape_.gdn_index(i))], out);
    }
    add_to(h, out);
    norm_rows(h, layer.post_norm, normed);
    moe_block(shape_, layer.moe, normed, out);
    add_to(h, out);
  }
  state.length += std::ssize(tokens);
  norm_rows(h, norm_, hidden);
}

}  // namespace lily::ref

// Where everything goes, then the packing, module by module.
#include "backend/cpu/weights.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "backend/cpu/pack.h"
#include "base/check.h"

namespace lily::cpu {

namespace {

// Hands out the arena from front to back. Run once from address 0 to learn the size, once for real.
class Placer {
 public:
  explicit Placer(std::uintptr_t base) : base_(base), at_(base) {}
  std::size_t used() const { return at_ - base_; }

  std::byte* bytes(std::size_t n) {
    std::byte* p = reinterpret_cast<std::byte*>(at_);
    at_ += (n + kCacheLine - 1) / kCacheLine * kCacheLine;
    return p;
  }
  float* floats(int n) { return reinterpret_cast<float*>(bytes(static_cast<std::size_t>(n) * sizeof(float))); }
  PackedMatrix matrix(int rows, int inputs, int block_bytes = kBlock4Bytes) {
    PackedMatrix m{nullptr, (rows + kLanes - 1) / kLanes, inputs / kGroupSize};
    m.data = bytes(static_cast<std::size_t>(m.n_stripes) * m.stripe_bytes(block_bytes));
    return m;
  }

 private:
  std::uintptr_t base_, at_;
};

void place_mixer(const Shape& s, bool is_attention, LayerPack& layer, Placer& place) {
  if (is_attention) {
    layer.attention.in = place.matrix(2 * s.q_dim() + 2 * s.kv_dim(), s.hidden);
    layer.attention.out = place.matrix(s.hidden, s.q_dim());
    layer.attention.q_norm = place.floats(s.head_dim);
    layer.attention.k_norm = place.floats(s.head_dim);
    return;
  }
  // Each part begins with a stripe of its own.
  const int heads = (s.gdn_v_heads + kLanes - 1) / kLanes * kLanes;
  layer.gdn.in = place.matrix(s.conv_dim() + s.gdn_value_dim() + 2 * heads, s.hidden);
  layer.gdn.out = place.matrix(s.hidden, s.gdn_value_dim());
  layer.gdn.conv = place.floats(s.conv_dim() * s.conv_width);
  layer.gdn.a_log = place.floats(s.gdn_v_heads);
  layer.gdn.dt_bias = place.floats(s.gdn_v_heads);
  layer.gdn.norm = place.floats(s.gdn_head_dim);
}

void place_all(const Shape& s, ModelPack& model, Placer& place) {
  model.embedding = place.bytes(static_cast<std::size_t>(s.vocab) * embedding_row_bytes(s.hidden));
  model.layers.resize(static_cast<std::size_t>(s.n_layers));
  for (int i = 0; i < s.n_layers; ++i) {
    LayerPack& layer = model.layers[static_cast<std::size_t>(i)];
    layer.input_norm = place.floats(s.hidden);
    layer.post_norm = place.floats(s.hidden);
    place_mixer(s, s.is_attention(i), layer, place);
    layer.moe.router = place.matrix(s.n_experts + kLanes, s.hidden, kBlock8Bytes);
    layer.moe.gate_up = place.matrix((s.n_experts + 1) * 2 * s.expert_dim, s.hidden);
    layer.moe.down = place.matrix((s.n_experts + 1) * s.hidden, s.expert_dim);
  }
  model.norm = place.floats(s.hidden);
  model.head = place.matrix(s.vocab, s.hidden);
}

class Loader {
 public:
  Loader(const Shape& shape, ThreadPool& pool, const LoadHooks& hooks, std::size_t total)
      : s_(shape), pool_(pool), hooks_(hooks), total_(total) {}

  void load(const TextWeights& from, ModelPack& to) {
    embedding(from.embed, to.embedding);
    for (int i = 0; i < s_.n_layers; ++i)
      layer(from.layers[static_cast<std::size_t>(i)], to.layers[static_cast<std::size_t>(i)]);
    vector(from.norm, to.norm);
    stripes(from.head, to.head, 0);
  }

 private:
  void embedding(const AffineView& from, std::byte* to) {
    const std::size_t row_bytes = embedding_row_bytes(s_.hidden);
    in_parallel(from.out, [&](std::int64_t row) {
      pack_embedding_row(from, row, to + static_cast<std::size_t>(row) * row_bytes);
    });
    done(from);
  }

  void layer(const LayerWeights& from, LayerPack& to) {
    vector(from.input_norm, to.input_norm);
    vector(from.post_norm, to.post_norm);
    if (from.attention) attention(*from.attention, to.attention);
    if (from.gdn) gdn(*from.gdn, to.gdn);
    moe(from.moe, to.moe);
  }

  void attention(const AttentionWeights& from, AttentionPack& to) {
    std::int64_t at = stripes(from.q, to.in, 0);
    at = stripes(from.k, to.in, at);
    at = stripes(from.v, to.in, at);
    LILY_CHECK(at == to.in.n_stripes);
    stripes(from.o, to.out, 0);
    vector(from.q_norm, to.q_norm);
    vector(from.k_norm, to.k_norm);
  }

  void gdn(const GdnWeights& from, GdnPack& to) {
    std::int64_t at = stripes(from.qkv, to.in, 0);
    at = stripes(from.z, to.in, at);
    at = stripes(from.b, to.in, at);
    at = stripes(from.a, to.in, at);
    LILY_CHECK(at == to.in.n_stripes);
    stripes(from.out, to.out, 0);
    const int width = s_.conv_width, chunk = s_.gdn_head_dim;
    for (int c = 0; c < s_.conv_dim(); ++c)
      for (int m = 0; m < width; ++m)
        to.conv[(c / chunk * width + m) * chunk + c % chunk] = from.conv.load_float(c * width + m);
    vector(from.a_log, to.a_log);
    vector(from.dt_bias, to.dt_bias);
    vector(from.norm, to.norm);
  }

  void moe(const MoeWeights& from, MoePack& to) {
    const std::int64_t router_stripes = s_.n_experts / kLanes;
    in_parallel(router_stripes,
                [&](std::int64_t i) { pack_stripe8(from.router, 0, i * kLanes, kLanes, at8(to.router, i)); });
    pack_stripe8(from.shared_gate, 0, 0, 1, at8(to.router, router_stripes));
    done(from.router);
    done(from.shared_gate);
    interleave(from.gate, to.gate_up, 0, 0);
    interleave(from.up, to.gate_up, 0, 1);
    interleave(from.shared_gate_proj, to.gate_up, s_.n_experts, 0);
    interleave(from.shared_up_proj, to.gate_up, s_.n_experts, 1);
    const std::int64_t at = stripes(from.down, to.down, 0);
    stripes(from.shared_down_proj, to.down, at);
  }

  // All experts and rows of `from` as stripes from `first` on; returns the stripe after the last.
  std::int64_t stripes(const AffineView& from, const PackedMatrix& to, std::int64_t first) {
    const std::int64_t each = (from.out + kLanes - 1) / kLanes;
    in_parallel(from.n_experts * each, [&](std::int64_t i) {
      const std::int64_t row = i % each * kLanes;
      const int n = static_cast<int>(std::min<std::int64_t>(kLanes, from.out - row));
      pack_stripe4(from, i / each, row, n, const_cast<std::byte*>(to.stripe4(first + i)));
    });
    done(from);
    return first + from.n_experts * each;
  }

  // Every second stripe: gate (parity 0) or up (parity 1) of the experts from first_expert on.
  void interleave(const AffineView& from, const PackedMatrix& to, std::int64_t first_expert, std::int64_t parity) {
    const std::int64_t each = from.out / kLanes;
    in_parallel(from.n_experts * each, [&](std::int64_t i) {
      const std::int64_t stripe = (first_expert * each + i) * 2 + parity;
      pack_stripe4(from, i / each, i % each * kLanes, kLanes, const_cast<std::byte*>(to.stripe4(stripe)));
    });
    done(from);
  }

  static std::byte* at8(const PackedMatrix& m, std::int64_t stripe) {
    return const_cast<std::byte*>(m.stripe8(stripe));
  }

  static void vector(const TensorView& from, float* to) {
    for (std::int64_t i = 0; i < from.count(); ++i) to[i] = from.load_float(i);
  }

  // Each thread takes one contiguous share: the file is read forwards in as many places as there are threads.
  template <class Body>
  void in_parallel(std::int64_t n, const Body& body) {
    const std::int64_t threads = pool_.size();
    pool_.run([&](int t) {
      for (std::int64_t i = n * t / threads; i < n * (t + 1) / threads; ++i) body(i);
    });
  }

  void done(const AffineView& from) {
    if (hooks_.release) hooks_.release(from);
    done_ += from.bytes();
    if (hooks_.progress) hooks_.progress(std::min(done_, total_), total_);
  }

  const Shape& s_;
  ThreadPool& pool_;
  const LoadHooks& hooks_;
  std::size_t total_, done_ = 0;
};

std::size_t total_bytes(const TextWeights& w) {
  std::size_t n = w.embed.bytes() + w.head.bytes();
  for (const LayerWeights& layer : w.layers) {
    if (const auto& a = layer.attention) n += a->q.bytes() + a->k.bytes() + a->v.bytes() + a->o.bytes();
    if (const auto& g = layer.gdn) n += g->qkv.bytes() + g->z.bytes() + g->b.bytes() + g->a.bytes() + g->out.bytes();
    const MoeWeights& m = layer.moe;
    n += m.router.bytes() + m.shared_gate.bytes() + m.gate.bytes() + m.up.bytes() + m.down.bytes() +
         m.shared_gate_proj.bytes() + m.shared_up_proj.bytes() + m.shared_down_proj.bytes();
  }
  return n;
}

}  // namespace

Result<ModelPack> load_weights(const Shape& shape, const TextWeights& from, ThreadPool& pool, const LoadHooks& hooks) {
  LILY_CHECK(shape.shared_dim == shape.expert_dim && shape.n_experts % kLanes == 0);
  ModelPack model;
  Placer measure(0);
  place_all(shape, model, measure);
  const std::size_t wanted = measure.used(), offered = available_memory();
  if (offered != 0 && wanted > offered)
    return fail(ErrorCode::OutOfMemory,
                "the weights of {} need {:.2f} GB, this machine has {:.2f} GB available: close other programs or use a "
                "machine with more memory",
                shape.name, static_cast<double>(wanted) / 1e9, static_cast<double>(offered) / 1e9);
  LILY_TRY(model.arena, AlignedMemory::allocate(wanted, "the weights"));
  Placer place(reinterpret_cast<std::uintptr_t>(model.arena.data()));
  place_all(shape, model, place);
  Loader(shape, pool, hooks, total_bytes(from)).load(from, model);
  return model;
}

}  // namespace lily::cpu

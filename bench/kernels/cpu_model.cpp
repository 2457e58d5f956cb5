// Whole steps of the 35B shape on random weights made in memory: prefill and decode without a 20 GB file. Prints
// tokens a second and, for decode, weight bytes a second beside the read bandwidth of the same threads.
//
//   build/release/bench/cpu_model_bench [threads] [prompt] [int16|int8]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <random>
#include <vector>

#include "backend/cpu/bandwidth.h"
#include "backend/cpu/cpu_backend.h"
#include "base/check.h"

namespace lily::cpu {
namespace {

constexpr const Shape& kShape = kQwen36_35B_A3B;
constexpr double kDecodeBytes = 1.669561728e9;  // weights of a token, docs/format.md

using Clock = std::chrono::steady_clock;
double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Every tensor is a window on the same random bytes.
class SharedWeights {
 public:
  SharedWeights() : codes_(std::size_t{600} << 20) {
    std::mt19937_64 random(1);
    for (std::size_t i = 0; i + 8 <= codes_.size(); i += 8) {
      const std::uint64_t word = random();
      std::memcpy(codes_.data() + i, &word, 8);
    }
    const Shape& s = kShape;
    weights_.embed = matrix(s.vocab, s.hidden);
    weights_.head = matrix(s.vocab, s.hidden);
    weights_.norm = vector(s.hidden, 1.0f);
    for (int i = 0; i < s.n_layers; ++i) weights_.layers.push_back(layer(i));
  }
  const TextWeights& weights() const { return weights_; }

 private:
  AffineView matrix(std::int64_t out, std::int64_t in, std::int64_t experts = 1, int bits = 4) {
    AffineView v;
    v.bits = bits, v.n_experts = experts, v.out = out, v.in = in;
    const std::int64_t n = experts * out;
    const float scale = std::sqrt(12.0f / static_cast<float>(in)) / static_cast<float>((1 << bits) - 1);
    v.weight = {
        Dtype::U32, 3, {experts, out, in * bits / 32, 0}, codes_.data(), static_cast<std::size_t>(n * in * bits / 8)};
    LILY_CHECK(v.weight.bytes <= codes_.size());
    v.scales = constant(n * in / kGroupSize, scale);
    v.biases = constant(n * in / kGroupSize, -scale * static_cast<float>((1 << bits) - 1) / 2);
    return v;
  }
  TensorView vector(std::int64_t n, float value) { return constant(n, value); }
  TensorView constant(std::int64_t n, float value) {
    buffers_.emplace_back(static_cast<std::size_t>(n), float_to_bf16(value));
    return {Dtype::BF16,
            1,
            {n, 0, 0, 0},
            reinterpret_cast<const std::byte*>(buffers_.back().data()),
            static_cast<std::size_t>(2 * n)};
  }
  LayerWeights layer(int i) {
    const Shape& s = kShape;
    LayerWeights layer;
    layer.input_norm = vector(s.hidden, 1.0f);
    layer.post_norm = vector(s.hidden, 1.0f);
    if (s.is_attention(i))
      layer.attention =
          AttentionWeights{matrix(2 * s.q_dim(), s.hidden), matrix(s.kv_dim(), s.hidden), matrix(s.kv_dim(), s.hidden),
                           matrix(s.hidden, s.q_dim()),     vector(s.head_dim, 1.0f),     vector(s.head_dim, 1.0f)};
    else
      layer.gdn = GdnWeights{matrix(s.conv_dim(), s.hidden),      matrix(s.gdn_value_dim(), s.hidden),
                             matrix(s.gdn_v_heads, s.hidden),     matrix(s.gdn_v_heads, s.hidden),
                             matrix(s.hidden, s.gdn_value_dim()), vector(s.conv_dim() * s.conv_width, 0.4f),
                             vector(s.gdn_v_heads, -1.0f),        vector(s.gdn_v_heads, -2.0f),
                             vector(s.gdn_head_dim, 1.0f)};
    if (i == 0)  // all layers share one
      experts_ = MoeWeights{matrix(s.n_experts, s.hidden, 1, 8),
                            matrix(1, s.hidden, 1, 8),
                            matrix(s.expert_dim, s.hidden, s.n_experts),
                            matrix(s.expert_dim, s.hidden, s.n_experts),
                            matrix(s.hidden, s.expert_dim, s.n_experts),
                            matrix(s.shared_dim, s.hidden),
                            matrix(s.shared_dim, s.hidden),
                            matrix(s.hidden, s.shared_dim)};
    layer.moe = experts_;
    return layer;
  }

  std::vector<std::byte> codes_;
  std::deque<std::vector<std::uint16_t>> buffers_;
  MoeWeights experts_;
  TextWeights weights_;
};

std::vector<TokenId> random_tokens(std::size_t n, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 240000);
  return tokens;
}

double prefill(Backend& backend, Sequence& sequence, const std::vector<TokenId>& prompt) {
  const auto begin = Clock::now();
  const std::size_t chunk = static_cast<std::size_t>(backend.max_batch_tokens());
  for (std::size_t i = 0; i < prompt.size(); i += chunk) {
    StepItem item;
    item.sequence = &sequence;
    item.tokens = std::span(prompt).subspan(i, std::min(chunk, prompt.size() - i));
    item.want = i + chunk >= prompt.size() ? Want::Greedy : Want::Nothing;
    LILY_CHECK(backend.step({&item, 1}));
  }
  return since(begin);
}

int run(int n_threads, int n_prompt, const char* activations) {
  const SharedWeights source;
  BackendOptions options;
  options.n_threads = n_threads;
  options.activations = activations;
  auto begin = Clock::now();
  auto made = make_backend(kShape, source.weights(), "random", options);
  if (!made) return std::fprintf(stderr, "%s\n", made.error().message.c_str()), 1;
  Backend& backend = **made;
  std::printf("%s: packed %.1f GB in %.1f s\n", backend.description().c_str(),
              static_cast<double>(backend.weight_bytes()) / 1e9, since(begin));

  const auto prompt = random_tokens(static_cast<std::size_t>(n_prompt), 3);
  for (const char* pass : {"first", "second", "third"}) {
    auto sequence = *backend.create(n_prompt);
    const double seconds = prefill(backend, *sequence, prompt);
    std::printf("prefill %5d tokens: %7.2f tok/s (%s pass)\n", n_prompt, n_prompt / seconds, pass);
  }

  const double bandwidth = measure_read_bandwidth(n_threads).value_or(0);
  for (int batch : {1, 4}) {
    std::vector<std::unique_ptr<Sequence>> sequences;
    for (int i = 0; i < batch; ++i) {
      sequences.push_back(*backend.create(512));
      prefill(backend, *sequences.back(), random_tokens(16, static_cast<unsigned>(i)));
    }
    std::vector<double> times;
    std::vector<TokenId> tokens = random_tokens(static_cast<std::size_t>(batch), 9);
    for (int i = 0; i < 40; ++i) {
      std::vector<StepItem> items(static_cast<std::size_t>(batch));
      for (std::size_t j = 0; j < items.size(); ++j) {
        items[j].sequence = sequences[j].get();
        items[j].tokens = std::span(tokens).subspan(j, 1);
        items[j].want = Want::Greedy;
      }
      begin = Clock::now();
      LILY_CHECK(backend.step(items));
      times.push_back(since(begin));
      for (std::size_t j = 0; j < items.size(); ++j) tokens[j] = std::max(items[j].greedy, 0);
    }
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    std::printf("decode, batch %d: %6.2f tok/s (median step %.2f ms, best %.2f)", batch, batch / median, 1e3 * median,
                1e3 * times[0]);
    if (batch == 1)
      std::printf("; %.2f GB/s of weights = %.0f %% of %.2f GB/s", kDecodeBytes / median / 1e9,
                  100 * kDecodeBytes / median / bandwidth, bandwidth / 1e9);
    std::printf("\n");
  }
  return 0;
}

}  // namespace
}  // namespace lily::cpu

int main(int argc, char** argv) {
  return lily::cpu::run(argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 ? std::atoi(argv[2]) : 512,
                        argc > 3 ? argv[3] : "");
}

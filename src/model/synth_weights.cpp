// Counter-based random numbers: word i of a stream is a hash of both. Codes cost one or two multiplications a word.
#include "model/synth_weights.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/check.h"

namespace lily {
namespace {

static_assert(std::endian::native == std::endian::little, "codes are made as whole words");

// Deviation of a code: the floor of the mean of two uniform nibbles, and a uniform byte.
constexpr float kCodeStd4 = 3.25f;
constexpr float kCodeStd8 = 73.9f;

float uniform(std::uint64_t bits) {
  return static_cast<float>(bits >> 40) * 0x1p-24f;
}  // [0, 1)

// Standard normal by Box and Muller.
float normal(std::uint64_t stream, std::uint64_t index) {
  const double radius_source = static_cast<double>(uniform(synth_hash(stream, 2 * index))) + 0x1p-25;
  const double angle = 2 * std::numbers::pi * static_cast<double>(uniform(synth_hash(stream, 2 * index + 1)));
  return static_cast<float>(std::sqrt(-2 * std::log(radius_source)) * std::cos(angle));
}

struct GroupParameters {
  float scale;
  float bias;
};

// MLX puts zero on a code: bias = -z * scale with z near the middle. The two are rounded apart, as MLX does.
GroupParameters group_parameters(const SynthTensor& tensor, std::uint64_t group) {
  const std::uint64_t bits = synth_hash(tensor.stream, group);
  const float step = tensor.weight_std / (tensor.bits == 4 ? kCodeStd4 : kCodeStd8);
  const float jitter = 0.7f + 0.6f * uniform(bits);
  const float scale = (bits & 1) != 0 ? -step * jitter : step * jitter;
  const float middle = tensor.bits == 4 ? 7.0f : 127.0f;
  return {scale, -(middle + static_cast<float>((bits >> 1) & 1)) * scale};
}

// Eight bytes of codes. Four bits: bell-shaped, the mean of two nibbles without carry between them.
std::uint64_t codes(const SynthTensor& tensor, std::uint64_t word) {
  if (tensor.bits == 8) return synth_hash(tensor.stream, word);
  const std::uint64_t a = synth_hash(tensor.stream, 2 * word);
  const std::uint64_t b = synth_hash(tensor.stream, 2 * word + 1);
  return (a & b) + (((a ^ b) >> 1) & 0x7777777777777777u);
}

// Signs and sizes from 2^-7 to 2^-5: a tower that is never run needs finite values only.
std::uint64_t vision_values(const SynthTensor& tensor, std::uint64_t word) {
  return (synth_hash(tensor.stream, word) & 0x80ff80ff80ff80ffu) | 0x3c003c003c003c00u;
}

float plain_value(const SynthTensor& tensor, std::uint64_t i) {
  switch (tensor.kind) {
    case SynthTensor::Kind::Scales:
      return group_parameters(tensor, i).scale;
    case SynthTensor::Kind::Biases:
      return group_parameters(tensor, i).bias;
    case SynthTensor::Kind::Norm:
      return 1.0f + 0.1f * normal(tensor.stream, i);
    case SynthTensor::Kind::Conv:
      return 0.5f * normal(tensor.stream, i);
    case SynthTensor::Kind::ALog:  // A from 1 to 16
      return std::log(1.0f + 15.0f * uniform(synth_hash(tensor.stream, i)));
    case SynthTensor::Kind::DtBias: {  // softplus(dt_bias) from 0.001 to 0.1, evenly in the logarithm
      const float dt = 0.001f * std::pow(100.0f, uniform(synth_hash(tensor.stream, i)));
      return std::log(std::expm1(dt));
    }
    case SynthTensor::Kind::Codes:
    case SynthTensor::Kind::Vision:
      break;
  }
  LILY_CHECK(false);
}

// One word of eight bytes of the tensor.
std::uint64_t word_at(const SynthTensor& tensor, std::uint64_t word) {
  if (tensor.kind == SynthTensor::Kind::Codes) return codes(tensor, word);
  if (tensor.kind == SynthTensor::Kind::Vision) return vision_values(tensor, word);
  std::uint64_t out = 0;
  for (unsigned i = 0; i < 4; ++i)
    out |= static_cast<std::uint64_t>(float_to_bf16(plain_value(tensor, 4 * word + i))) << (16 * i);
  return out;
}

// How far a module's output should deviate for inputs of size one. The head wants logits that differ.
float gain_of(std::string_view module) {
  if (module == "lm_head") return 2.5f;
  if (module.ends_with("in_proj_a") || module.ends_with("out_proj") || module.ends_with("o_proj")) return 0.5f;
  return 1.0f;
}

class TensorLister {
 public:
  explicit TensorLister(std::uint64_t seed) : seed_(seed) {}

  void quantised(const Module& module) {
    const std::string name = mlx_name(module.name);
    const int bits = module.router ? 8 : 4;
    std::vector<std::int64_t> dims;
    if (module.stacked) dims.push_back(module.n_experts);
    dims.insert(dims.end(), {module.out, module.in * bits / 32});
    // The embedding is looked up, not multiplied: its rows themselves have size one.
    const double fan_in = module.name == "embed_tokens" ? 1 : static_cast<double>(module.in);
    SynthTensor tensor{.name = name + ".weight",
                       .dims = dims,
                       .kind = SynthTensor::Kind::Codes,
                       .bits = bits,
                       .weight_std = gain_of(module.name) / static_cast<float>(std::sqrt(fan_in)),
                       .stream = synth_stream(seed_, name + ".weight")};
    tensors_.push_back(tensor);
    tensor.dims.back() = module.in / kGroupSize;
    tensor.stream = synth_stream(seed_, name + ".scales");
    for (const auto& [suffix, kind] :
         {std::pair(".scales", SynthTensor::Kind::Scales), std::pair(".biases", SynthTensor::Kind::Biases)}) {
      tensor.name = name + suffix;
      tensor.kind = kind;
      tensors_.push_back(tensor);
    }
  }

  void plain(const Module& module) {
    SynthTensor::Kind kind = SynthTensor::Kind::Norm;
    if (module.name.ends_with("conv1d")) kind = SynthTensor::Kind::Conv;
    if (module.name.ends_with("A_log")) kind = SynthTensor::Kind::ALog;
    if (module.name.ends_with("dt_bias")) kind = SynthTensor::Kind::DtBias;
    append(mlx_name(module.name) + std::string(module.suffix), module.dims, kind);
  }

  void append(const std::string& name, const std::vector<std::int64_t>& dims, SynthTensor::Kind kind) {
    tensors_.push_back({.name = name, .dims = dims, .kind = kind, .stream = synth_stream(seed_, name)});
  }

  std::vector<SynthTensor> take() { return std::move(tensors_); }

 private:
  std::uint64_t seed_;
  std::vector<SynthTensor> tensors_;
};

}  // namespace

std::uint64_t SynthTensor::bytes() const {
  std::uint64_t n = kind == Kind::Codes ? 4 : 2;
  for (const std::int64_t size : dims) n *= static_cast<std::uint64_t>(size);
  return n;
}

std::uint64_t synth_hash(std::uint64_t stream, std::uint64_t index) {
  const std::uint64_t x = stream + index * 0x9e3779b97f4a7c15u;
  const auto product = static_cast<unsigned __int128>(x ^ 0xe7037ed1a0b428dbu) * (x * 0xff51afd7ed558ccdu | 1);
  return static_cast<std::uint64_t>(product >> 64) ^ static_cast<std::uint64_t>(product);
}

std::uint64_t synth_stream(std::uint64_t seed, std::string_view name) {
  std::uint64_t stream = synth_hash(seed, 0);
  for (const char c : name) stream = synth_hash(stream, static_cast<unsigned char>(c) + 1u);
  return stream;
}

std::vector<SynthTensor> synth_tensors(const Shape& shape, bool vision, std::uint64_t seed) {
  TensorLister list(seed);
  if (vision)
    for (const VisionTensor& tensor : vision_tensors())
      list.append(tensor.name, tensor.dims, SynthTensor::Kind::Vision);
  TextWeights unused;
  for (const Module& module : text_modules(shape, unused)) {
    if (module.kind == Module::Kind::Quantised)
      list.quantised(module);
    else
      list.plain(module);
  }
  return list.take();
}

void synth_fill(const SynthTensor& tensor, std::uint64_t offset, std::span<std::byte> out) {
  LILY_DCHECK(offset % 8 == 0);
  const std::uint64_t first = offset / 8;
  const std::size_t n_words = out.size() / 8;
  for (std::size_t i = 0; i < n_words; ++i) {
    const std::uint64_t word = word_at(tensor, first + i);
    std::memcpy(out.data() + 8 * i, &word, 8);
  }
  if (out.size() % 8 == 0) return;
  const std::uint64_t word = word_at(tensor, first + n_words);
  std::memcpy(out.data() + 8 * n_words, &word, out.size() % 8);
}

}  // namespace lily

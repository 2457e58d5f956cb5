// The text tensors of a shape by name: which modules there are, in the order in which MLX writes them, and where each
// belongs in TextWeights. The loader walks this list to find its tensors, synth walks it to write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint.h"
#include "model/shape.h"

namespace lily {

// One module. Its name carries neither the prefix (kTextPrefix) nor ".weight": "layers.3.mlp.gate".
struct Module {
  enum class Kind : std::uint8_t {
    Quantised,  // .weight, .scales, .biases of an AffineView
    Plain,      // one BF16 tensor
  };
  std::string name;
  Kind kind = Kind::Plain;
  std::string_view suffix;         // Plain: what follows the name, ".weight" or "" (A_log, dt_bias)
  bool router = false;             // Quantised: 8 bits, or 4 in Qwen3.5 conversions
  bool f32_allowed = false;        // Plain: A_log
  std::int64_t n_experts = 1;      // Quantised
  bool stacked = false;            // Quantised: the tensors have a leading expert dimension
  std::int64_t out = 0, in = 0;    // Quantised: logical size of one matrix
  std::vector<std::int64_t> dims;  // Plain
  AffineView* affine = nullptr;    // Quantised: where it goes
  TensorView* plain = nullptr;     // Plain: where it goes
};

// Every text module of `shape`. `weights` is given the layers that it lacks; the pointers of the result point into it.
std::vector<Module> text_modules(const Shape& shape, TextWeights& weights);

// "language_model.model.layers.3.mlp.gate" from "layers.3.mlp.gate" (the head has no "model." in it).
std::string mlx_name(std::string_view module);

// The name without its known prefixes: "language_model.model.", "model.", "language_model.".
std::string_view without_prefix(std::string_view tensor);

bool is_vision_tensor(std::string_view tensor);
bool is_mtp_tensor(std::string_view tensor);

// Tensors of the vision tower of the real checkpoint, all BF16, in file order. They are never read, only written.
struct VisionTensor {
  std::string name;
  std::vector<std::int64_t> dims;
};
std::vector<VisionTensor> vision_tensors();

}  // namespace lily

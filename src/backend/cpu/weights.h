// All weights of a model in one arena, packed for streaming: what load_weights() makes of a checkpoint.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "backend/cpu/layout.h"
#include "base/aligned.h"
#include "base/thread_pool.h"
#include "model/checkpoint.h"
#include "model/shape.h"

namespace lily::cpu {

struct AttentionPack {
  PackedMatrix in;  // rows q and gate by head | k | v
  PackedMatrix out;
  float* q_norm;  // [head_dim]
  float* k_norm;  // [head_dim]
};

struct GdnPack {
  PackedMatrix in;  // rows q | k | v | z | b | a
  PackedMatrix out;
  float* conv;     // [conv_dim / 128][4][128]
  float* a_log;    // [value heads]
  float* dt_bias;  // [value heads]
  float* norm;     // [gdn_head_dim]
};

// The shared expert is expert E: it has the width of a routed one and meets every token.
struct MoePack {
  PackedMatrix router;   // 8-bit: rows of the router, then a stripe with the shared expert's gate in lane 0
  PackedMatrix gate_up;  // [E + 1] experts, stripes of gate and up rows in turn
  PackedMatrix down;     // [E + 1] experts
};

struct LayerPack {
  float* input_norm;        // [D]
  float* post_norm;         // [D]
  AttentionPack attention;  // one of these two, by Shape::is_attention
  GdnPack gdn;
  MoePack moe;
};

struct ModelPack {
  AlignedMemory arena;
  std::byte* embedding = nullptr;  // rows of embedding_row_bytes(D)
  PackedMatrix head;
  float* norm = nullptr;  // [D]
  std::vector<LayerPack> layers;
};

struct LoadHooks {
  std::function<void(std::size_t done_bytes, std::size_t total_bytes)> progress;  // may be empty
  std::function<void(const AffineView&)> release;  // may be empty; after the last use of a view
};

// Packs with all threads of the pool, module by module in the order of the files. OutOfMemory before anything is read
// if the machine cannot hold the arena.
Result<ModelPack> load_weights(const Shape& shape, const TextWeights& from, ThreadPool& pool, const LoadHooks& hooks);

}  // namespace lily::cpu

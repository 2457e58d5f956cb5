// The memory of a step, taken once for the largest batch: activations of all rows, and scratch for each thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "backend/cpu/kernels.h"
#include "backend/cpu/layout.h"
#include "base/aligned.h"
#include "model/shape.h"

namespace lily::cpu {

inline constexpr int kFewRows = 2;       // so few rows that every thread normalises them for itself
inline constexpr int kGatherRows = 96;   // rows of one expert that are multiplied together; a multiple of any panel
inline constexpr int kGdnTokens = 64;    // tokens of a delta head that share a thread's scratch
inline constexpr int kQueryTokens = 8;   // tokens of an attention task
inline constexpr int kSpanTokens = 512;  // positions summed apart in attention, then merged in order

// Storage for QuantRows of up to max_rows x max_groups.
class QuantBuffer {
 public:
  static Result<QuantBuffer> allocate(std::int64_t max_rows, int max_groups, int planes, const char* what);
  QuantRows rows(int n_rows, int n_groups, int panel_rows) const { return at(0, n_rows, n_groups, panel_rows); }
  // Rows that begin `first_entry` entries (row * n_groups) into the buffer.
  QuantRows at(std::size_t first_entry, int n_rows, int n_groups, int panel_rows) const {
    return {codes_.as<std::int8_t>() + first_entry * static_cast<std::size_t>(planes_) * kGroupSize,
            scales_.as<float>() + first_entry,
            sums_.as<float>() + first_entry,
            n_rows,
            n_groups,
            panel_rows,
            planes_};
  }

 private:
  AlignedMemory codes_, scales_, sums_;
  int planes_ = 2;
};

// A thread's own.
struct Scratch {
  QuantBuffer gathered;  // [kGatherRows, D]
  QuantBuffer input;     // [kFewRows, D], as Workspace::input
  AlignedMemory memory;
  float* tile;         // [kMaxPanelRows][128], output of a product
  float* q;            // delta: [kGdnTokens][128]; attention: [kAttendRows][256]
  float* k;            // delta: [kGdnTokens][128]
  float* v;            // delta: [kGdnTokens][128]
  float* out;          // delta: [kGdnTokens][128]; attention: [kAttendRows][256]
  float* span_out;     // attention: [kAttendRows][256]
  float* normed;       // [kFewRows, D]
  float* normed_sums;  // [kFewRows, D / 64]
  float* decay;        // [kGdnTokens]
  float* beta;         // [kGdnTokens]
};

struct Workspace {
  static Result<Workspace> allocate(const Shape& shape, std::int64_t max_rows, int n_threads, Precision precision);

  AlignedMemory memory;
  float* x;            // [T, D], the residual stream
  float* normed;       // [T, D], input of the router
  float* normed_sums;  // [T, D / 64]
  float* projected;    // [T, widest input projection]
  float* routed;       // [T, E + 16], router logits and the shared expert's gate
  float* cos;          // [T, rotary_dim / 2]
  float* sin;          // [T, rotary_dim / 2]
  QuantBuffer input;   // [T, D]
  QuantBuffer mixed;   // [T, max(value_dim, q_dim)], output of the mixer
  QuantBuffer hidden;  // [T * (A + 1), I], hidden rows of the experts
  int projected_width;
  std::vector<Scratch> threads;
};

}  // namespace lily::cpu

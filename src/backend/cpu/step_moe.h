// Phases of the mixture of experts. See ops/router.h and ops/experts.h.
// Token-expert pairs are sorted by expert, so that each expert's weights are read once for all rows that chose it. A
// thread owns columns of the output and adds the experts of a row in ascending order of id, the shared expert last:
// there is nothing to combine afterwards, and the order is the same in every batch.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/step.h"
#include "ops/activations.h"

namespace lily::cpu {

template <const Shape& S>
void Step<S>::moe(int layer, int thread, const Normed& x) {
  const MoePack& w = m_.model.layers[static_cast<std::size_t>(layer)].moe;
  route(thread, w, x);
  // The choice is made by all threads, or for a few rows by the last of them to arrive.
  constexpr int kAtOnce = 16;
  if (n_rows_ > kAtOnce) {
    barrier();
    for (int row = share(n_rows_, thread); row < share(n_rows_, thread + 1); ++row) choose_experts(row);
  }
  team_->barrier([this] {
    if (n_rows_ <= kAtOnce)
      for (int row = 0; row < n_rows_; ++row) choose_experts(row);
    list_experts();
  });
  const int n_tasks = static_cast<int>(expert_tasks_.size());
  for (int i; (i = counters_.take(layer * kPhasesPerLayer + 2)) < n_tasks;)
    gate_up(expert_tasks_[static_cast<std::size_t>(i)], w, x.rows, scratch(thread));
  barrier();
  down(w, thread);
}

// Router logits and the shared expert's gate, from float32 rows; units of a few rows by one stripe.
template <const Shape& S>
void Step<S>::route(int thread, const MoePack& w, const Normed& x) {
  constexpr int kRows = 16;
  const int n_units = (n_rows_ + kRows - 1) / kRows * kRouterStripes;
  for (int i = share(n_units, thread); i < share(n_units, thread + 1); ++i) {
    const int first = i / kRouterStripes * kRows, stripe = i % kRouterStripes;
    m_.kernels.gemm8(w.router.stripe8(stripe), kHiddenGroups, x.values + static_cast<std::ptrdiff_t>(first) * S.hidden,
                     S.hidden, x.sums + first * kHiddenGroups, std::min(kRows, n_rows_ - first),
                     m_.work.routed + static_cast<std::ptrdiff_t>(first) * kRoutedWidth + stripe * kLanes,
                     kRoutedWidth);
  }
}

// The n_active highest logits, ties to the lower index, NaN below every number; weights are the softmax over them.
template <const Shape& S>
void Step<S>::choose_experts(int row) {
  const float* logits = m_.work.routed + static_cast<std::ptrdiff_t>(row) * kRoutedWidth;
  const auto beats = [](float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); };
  int best[S.n_active];
  bool any_nan = false;
  for (int e = 0, n = 0; e < S.n_experts; ++e) {
    any_nan |= std::isnan(logits[e]);
    if (n == S.n_active && !beats(logits[e], logits[best[n - 1]])) continue;
    int at = n < S.n_active ? n++ : n - 1;
    for (; at > 0 && beats(logits[e], logits[best[at - 1]]); --at) best[at] = best[at - 1];
    best[at] = e;
  }
  float weight[S.n_active], total = 0;
  for (int k = 0; k < S.n_active; ++k) {
    weight[k] = std::exp(logits[best[k]] - logits[best[0]]);
    total += weight[k];
  }
  int* ids = chosen_.data() + row * S.n_active;
  float* weights = chosen_weight_.data() + row * (S.n_active + 1);
  for (int k = 0; k < S.n_active; ++k) {
    ids[k] = best[k];
    weights[k] = any_nan ? std::numeric_limits<float>::quiet_NaN() : weight[k] / total;
  }
  weights[S.n_active] = ops::sigmoid(logits[S.n_experts]);
}

// Counting sort of all pairs by expert; the shared expert's list is every row. Then the tasks of gate and up.
template <const Shape& S>
void Step<S>::list_experts() {
  std::fill(list_begin_.begin(), list_begin_.end(), 0);
  const int n_pairs = n_rows_ * S.n_active;
  for (int i = 0; i < n_pairs; ++i) ++list_begin_[static_cast<std::size_t>(chosen_[static_cast<std::size_t>(i)]) + 1];
  for (std::size_t e = 0; e < S.n_experts; ++e) list_begin_[e + 1] += list_begin_[e];
  list_begin_[S.n_experts + 1] = n_pairs + n_rows_;
  for (int i = 0; i < n_pairs; ++i) {
    // The begin of each list runs to its end while the list fills, and is set back below.
    const std::size_t to =
        static_cast<std::size_t>(list_begin_[static_cast<std::size_t>(chosen_[static_cast<std::size_t>(i)])]++);
    list_row_[to] = i / S.n_active;
    list_weight_[to] = chosen_weight_[static_cast<std::size_t>(i + i / S.n_active)];
  }
  for (std::size_t e = S.n_experts; e > 0; --e) list_begin_[e] = list_begin_[e - 1];
  list_begin_[0] = 0;
  for (int row = 0; row < n_rows_; ++row) {
    list_row_[static_cast<std::size_t>(n_pairs + row)] = row;
    list_weight_[static_cast<std::size_t>(n_pairs + row)] =
        chosen_weight_[static_cast<std::size_t>(row * (S.n_active + 1) + S.n_active)];
  }

  expert_tasks_.clear();
  // Few tasks are cut into units of 64 hidden values, so that all threads finish together.
  int n_blocks = 0;
  for (int e = 0; e <= S.n_experts; ++e) n_blocks += (expert_hidden(e).n_rows + kGatherRows - 1) / kGatherRows;
  const int units = n_blocks < 16 * team_->size() ? 1 : kInnerGroups;
  for (int e = 0; e <= S.n_experts; ++e) {
    const int n = expert_hidden(e).n_rows;
    for (int first = 0; first < n; first += kGatherRows)
      for (int unit = 0; unit < kInnerGroups; unit += units)
        expert_tasks_.push_back({e, first, std::min(kGatherRows, n - first), unit, unit + units});
  }
}

template <const Shape& S>
QuantRows Step<S>::expert_hidden(int expert) const {
  const int begin = list_begin_[static_cast<std::size_t>(expert)];
  const int end = list_begin_[static_cast<std::size_t>(expert) + 1];
  return m_.work.hidden.at(static_cast<std::size_t>(begin) * kInnerGroups, end - begin, kInnerGroups,
                           m_.kernels.panel_rows);
}

// hidden = silu(gate x) * (up x) for the task's rows and units, quantised.
template <const Shape& S>
void Step<S>::gate_up(const ExpertTask& task, const MoePack& w, const QuantRows& input, Scratch& s) {
  QuantRows x = input;
  if (task.count < n_rows_) {  // else the list is all rows in order
    const int* rows = list_row_.data() + list_begin_[static_cast<std::size_t>(task.expert)] + task.first;
    x = s.gathered.rows(task.count, kHiddenGroups, m_.kernels.panel_rows);
    for (int r = 0; r < task.count; ++r) copy_row(input, rows[r], x, r);
  }
  const QuantRows hidden = expert_hidden(task.expert);
  constexpr int kTileWidth = kUnitStripes * kLanes;  // gate and up, 16 columns of each in turn
  for (int unit = task.first_unit; unit < task.end_unit; ++unit) {
    const std::int64_t first_stripe = std::int64_t{task.expert * kInnerGroups + unit} * kUnitStripes;
    for (int p = 0; p < x.n_panels(); ++p) {
      const Panel rows_of_x = panel(x, p);
      for (int i = 0; i < kUnitStripes; ++i)
        m_.kernels.gemm4(w.gate_up.stripe4(first_stripe + i), kHiddenGroups, rows_of_x, x.planes, s.tile + i * kLanes,
                         kTileWidth);
      for (int r = 0; r < rows_of_x.rows; ++r) {
        float* tile = s.tile + r * kTileWidth;
        for (int i = 0; i < kUnitStripes; i += 2)
          m_.kernels.mul_silu(tile + i * kLanes, tile + (i + 1) * kLanes, kLanes, tile + i / 2 * kLanes);
        quantize(tile, hidden, task.first + p * x.panel_rows + r, unit, 1);
      }
    }
  }
}

template <const Shape& S>
void Step<S>::down(const MoePack& w, int thread) {
  constexpr int kAllStripes = S.hidden / kLanes;
  // A few stripes of all rows' outputs stay in the L2 cache while the experts pass; with few rows any number does, and
  // long runs of weights stream better.
  const int at_once = n_rows_ <= 16 ? kAllStripes : 4;
  float tile[kMaxPanelRows * kLanes];
  const int end = share(kAllStripes, thread + 1);
  for (int first = share(kAllStripes, thread); first < end; first += at_once)
    for (int e = 0; e <= S.n_experts; ++e) {
      const QuantRows hidden = expert_hidden(e);
      const std::size_t begin = static_cast<std::size_t>(list_begin_[static_cast<std::size_t>(e)]);
      for (int stripe = first; stripe < std::min(first + at_once, end); ++stripe)
        for (int p = 0; p < hidden.n_panels(); ++p) {
          const Panel rows = panel(hidden, p);
          const std::size_t at = begin + static_cast<std::size_t>(p * hidden.panel_rows);
          m_.kernels.gemm4(w.down.stripe4(std::int64_t{e} * kAllStripes + stripe), kInnerGroups, rows, hidden.planes,
                           tile, kLanes);
          m_.kernels.scatter_add(tile, rows.rows, list_row_.data() + at, list_weight_.data() + at,
                                 m_.work.x + stripe * kLanes, S.hidden);
        }
    }
}

}  // namespace lily::cpu

// The last phase: logits of the rows that somebody wants. See ops/logits.h.
#pragma once

#include <cmath>
#include <limits>

#include "backend/cpu/step.h"

namespace lily::cpu {

// x: the head rows, normalised.
template <const Shape& S>
void Step<S>::head(int thread, const QuantRows& x) {
  const int n = static_cast<int>(head_rows_.size());
  Best* best = best_.data() + static_cast<std::size_t>(thread) * head_rows_.size();
  std::fill_n(best, n, Best{-std::numeric_limits<float>::infinity(), -1, false});
  constexpr int kAllStripes = S.vocab / kLanes;
  float tile[kMaxPanelRows * kLanes];
  for (int stripe = share(kAllStripes, thread); stripe < share(kAllStripes, thread + 1); ++stripe)
    for (int p = 0; p < x.n_panels(); ++p) {
      const Panel rows = panel(x, p);
      m_.kernels.gemm4(m_.model.head.stripe4(stripe), kHiddenGroups, rows, x.planes, tile, kLanes);
      for (int r = 0; r < rows.rows; ++r) {
        const int i = p * x.panel_rows + r;
        take_logits(head_rows_[static_cast<std::size_t>(i)], stripe, tile + r * kLanes, best[i]);
      }
    }
}

// Ids rise, so that the first of equal logits stays.
template <const Shape& S>
void Step<S>::take_logits(const HeadRow& row, int stripe, const float* tile, Best& best) {
  const int n = std::clamp(m_.n_tokens - stripe * kLanes, 0, kLanes);
  if (row.logits != nullptr) {
    float* to = row.logits + stripe * kLanes;
    std::copy_n(tile, n, to);
    std::fill_n(to + n, kLanes - n, -std::numeric_limits<float>::infinity());
    return;
  }
  for (int i = 0; i < n; ++i) {
    if (std::isnan(tile[i])) best.nan = true;
    if (tile[i] > best.value || best.id < 0) best = {tile[i], stripe * kLanes + i, best.nan};
  }
}

template <const Shape& S>
void Step<S>::finish_head(std::span<StepItem> items) {
  for (std::size_t i = 0; i < head_rows_.size(); ++i) {
    if (head_rows_[i].logits != nullptr) continue;
    Best best = best_[i];
    for (std::size_t t = 1; t < static_cast<std::size_t>(team_->size()); ++t) {
      const Best& other = best_[t * head_rows_.size() + i];
      best.nan |= other.nan;
      if (other.id >= 0 && (best.id < 0 || other.value > best.value)) best = {other.value, other.id, best.nan};
    }
    items[static_cast<std::size_t>(head_rows_[i].item)].greedy = best.nan ? -1 : best.id;
  }
}

}  // namespace lily::cpu

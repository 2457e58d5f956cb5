// Phases of the token mixers: Gated DeltaNet and gated attention. See ops/gated_delta.h and ops/attention.h.
#pragma once

#include <algorithm>
#include <cmath>

#include "backend/cpu/step.h"
#include "ops/activations.h"
#include "ops/gated_delta.h"

namespace lily::cpu {

template <const Shape& S>
void Step<S>::gdn(int layer, int thread) {
  const GdnPack& w = m_.model.layers[static_cast<std::size_t>(layer)].gdn;
  const int n_tasks = static_cast<int>(items_.size()) * S.gdn_k_heads;
  for (int i; (i = counters_.take(layer * kPhasesPerLayer)) < n_tasks;)
    gdn_head(w, S.gdn_index(layer), items_[static_cast<std::size_t>(i / S.gdn_k_heads)], i % S.gdn_k_heads,
             scratch(thread));
}

// A key head and its value heads over all tokens of an item, up to kGdnTokens at a time and not across a mark:
// convolution, gates, the recurrence slice by slice, output norm and gate.
template <const Shape& S>
void Step<S>::gdn_head(const GdnPack& w, int gdn_layer, const RowRange& item, int key_head, Scratch& s) {
  const Kernels& kernels = m_.kernels;
  float* state = item.sequence->recurrent();
  float* tail = state + m_.state.tail_offset(gdn_layer);
  const auto convolve = [&](int chunk, const float* rows, int n, float* y) {
    kernels.conv_silu(rows + chunk * kGdnDim, m_.work.projected_width, tail + chunk * kGdnDim, S.conv_dim(),
                      w.conv + chunk * S.conv_width * kGdnDim, n, y);
  };
  const QuantRows mixed = mixed_rows(S.gdn_value_dim());
  const float query_scale = 1.0f / std::sqrt(static_cast<float>(kGdnDim));
  std::size_t mark = 0;
  for (int done = 0, n = 0; done < item.count; done += n) {
    const bool marked = mark < item.marks.size();
    const int stop = marked ? static_cast<int>(item.marks[mark].at) : item.count;
    n = std::min(kGdnTokens, stop - done);
    const int first_row = item.first + done;
    const float* rows = m_.work.projected + static_cast<std::ptrdiff_t>(first_row) * m_.work.projected_width;
    convolve(key_head, rows, n, s.q);
    convolve(S.gdn_k_heads + key_head, rows, n, s.k);
    for (int t = 0; t < n; ++t) {
      kernels.l2_norm(s.q + t * kGdnDim, ops::kL2NormEps, query_scale, s.q + t * kGdnDim);
      kernels.l2_norm(s.k + t * kGdnDim, ops::kL2NormEps, 1.0f, s.k + t * kGdnDim);
    }
    for (int head = key_head * kKeyHeadValues; head < (key_head + 1) * kKeyHeadValues; ++head) {
      convolve(2 * S.gdn_k_heads + head, rows, n, s.v);
      for (int t = 0; t < n; ++t) {
        const float* row = rows + static_cast<std::ptrdiff_t>(t) * m_.work.projected_width;
        s.decay[t] = std::exp(ops::log_decay(row[kA + head], w.a_log[head], w.dt_bias[head]));
        s.beta[t] = ops::sigmoid(row[kB + head]);
      }
      for (int column = 0; column < kGdnDim; column += kSliceColumns) {
        float* memory = state + m_.state.memory_offset(gdn_layer) + (head * kGdnDim + column) * kGdnDim;
        kernels.gdn_scan({memory, s.q, s.k, s.v + column, s.decay, s.beta, s.out + column, n});
      }
      for (int t = 0; t < n; ++t) {
        float* o = s.out + t * kGdnDim;
        const float* z = rows + static_cast<std::ptrdiff_t>(t) * m_.work.projected_width + kZ + head * kGdnDim;
        kernels.rms_norm(o, w.norm, kGdnDim, o);
        kernels.mul_silu(z, o, kGdnDim, o);
        quantize(o, mixed, first_row + t, head * kGdnDim / kGroupSize, kGdnDim / kGroupSize);
      }
    }
    if (marked && done + n == stop) copy_gdn_head(gdn_layer, key_head, state, item.mark_states[mark++]);
  }
}

// What a key head and its value heads keep in a layer: delta memories, and the tails of their channels.
template <const Shape& S>
void Step<S>::copy_gdn_head(int gdn_layer, int key_head, const float* from, float* to) const {
  const auto copy = [&](std::size_t at, int n) { std::copy_n(from + at, n, to + at); };
  constexpr int kValues = kKeyHeadValues * kGdnDim;
  copy(m_.state.memory_offset(gdn_layer) + static_cast<std::size_t>(key_head * kValues * kGdnDim), kValues * kGdnDim);
  for (int sample = 0; sample < S.conv_width - 1; ++sample) {
    const std::size_t tail = m_.state.tail_offset(gdn_layer) + static_cast<std::size_t>(sample * S.conv_dim());
    copy(tail + static_cast<std::size_t>(key_head * kGdnDim), kGdnDim);
    copy(tail + static_cast<std::size_t>(S.gdn_key_dim() + key_head * kGdnDim), kGdnDim);
    copy(tail + static_cast<std::size_t>(2 * S.gdn_key_dim() + key_head * kValues), kValues);
  }
}

template <const Shape& S>
void Step<S>::attention(int layer, int thread) {
  const AttentionPack& w = m_.model.layers[static_cast<std::size_t>(layer)].attention;
  const int index = S.attention_index(layer), phase = layer * kPhasesPerLayer;
  for (int i = share(n_rows_ * S.n_kv_heads, thread); i < share(n_rows_ * S.n_kv_heads, thread + 1); ++i)
    attention_prepare(w, index, i / S.n_kv_heads, i % S.n_kv_heads);
  barrier();
  Scratch& s = scratch(thread);
  const int n_tasks = static_cast<int>(queries_.size()) * S.n_kv_heads;
  if (!split_spans_) {
    for (int i; (i = counters_.take(phase)) < n_tasks;)
      attention_task(index, queries_[static_cast<std::size_t>(i / S.n_kv_heads)], i % S.n_kv_heads, s);
    return;
  }
  const int n_partials = queries_.back().first_partial + queries_.back().n_spans;
  for (int i; (i = counters_.take(phase)) < n_partials * S.n_kv_heads;) {
    const int kv_head = i % S.n_kv_heads, at = i / S.n_kv_heads;
    const auto after = std::upper_bound(queries_.begin(), queries_.end(), at,
                                        [](int value, const QueryTask& q) { return value < q.first_partial; });
    const QueryTask& task = *(after - 1);
    float* to = partial(task, kv_head, at - task.first_partial);
    gather_queries(task, kv_head, s.q);
    attend_span(index, task, kv_head, at - task.first_partial, s.q, to, to + kAttendRows, to + 2 * kAttendRows);
  }
  barrier();
  for (int i; (i = counters_.take(phase + 1)) < n_tasks;)
    attention_merge_task(queries_[static_cast<std::size_t>(i / S.n_kv_heads)], i % S.n_kv_heads, s);
}

// Normalises and rotates a row's queries of one kv head, and appends its key and value to the page.
template <const Shape& S>
void Step<S>::attention_prepare(const AttentionPack& w, int attention_layer, int row, int kv_head) {
  constexpr int kHalf = S.rotary_dim / 2;
  const Kernels& kernels = m_.kernels;
  float* projected = m_.work.projected + static_cast<std::ptrdiff_t>(row) * m_.work.projected_width;
  const float* cos = m_.work.cos + row * kHalf;
  const float* sin = m_.work.sin + row * kHalf;
  for (int head = kv_head * kHeadsPerKv; head < (kv_head + 1) * kHeadsPerKv; ++head) {
    float* q = projected + head * 2 * kAttnDim;
    kernels.rms_norm(q, w.q_norm, kAttnDim, q);
    kernels.rope_scale(q, cos, sin, kHalf, kAttnDim, 1.0f / std::sqrt(static_cast<float>(kAttnDim)));
  }
  float* k = projected + kK + kv_head * kAttnDim;
  kernels.rms_norm(k, w.k_norm, kAttnDim, k);
  kernels.rope_scale(k, cos, sin, kHalf, kAttnDim, 1.0f);

  const RowRange& item = items_[static_cast<std::size_t>(item_of_row_[static_cast<std::size_t>(row)])];
  const std::int64_t position = item.position + (row - item.first);
  const int slot = static_cast<int>(position % kPageTokens);
  std::uint16_t* keys = item.sequence->page(position / kPageTokens) + m_.state.head_offset(attention_layer, kv_head);
  std::uint16_t* values = keys + m_.state.head_elements + slot * kAttnDim;
  const float* v = projected + kV + kv_head * kAttnDim;
  for (int d = 0; d < kAttnDim; ++d) {
    keys[d * kPageTokens + paired_index(slot)] = float_to_bf16(k[d]);
    values[paired_index(d)] = float_to_bf16(v[d]);
  }
}

template <const Shape& S>
void Step<S>::gather_queries(const QueryTask& task, int kv_head, float* q) {
  for (int t = 0; t < task.count; ++t)
    for (int h = 0; h < kHeadsPerKv; ++h) {
      const float* from = m_.work.projected + static_cast<std::ptrdiff_t>(task.first + t) * m_.work.projected_width +
                          (kv_head * kHeadsPerKv + h) * 2 * kAttnDim;
      std::copy_n(from, kAttnDim, q + (t * kHeadsPerKv + h) * kAttnDim);
    }
}

// The queries of a task over the positions of one span.
template <const Shape& S>
void Step<S>::attend_span(int attention_layer, const QueryTask& task, int kv_head, int span, const float* q,
                          float* maximum, float* total, float* out) {
  const int rows = task.count * kHeadsPerKv;
  std::fill_n(maximum, rows, -INFINITY);
  std::fill_n(total, rows, 0.0f);
  std::fill_n(out, rows * kAttnDim, 0.0f);
  const CpuSequence& sequence = *items_[static_cast<std::size_t>(task.item)].sequence;
  const std::int64_t end = std::min(std::int64_t{span + 1} * kSpanTokens, task.position + task.count);
  for (std::int64_t first = std::int64_t{span} * kSpanTokens; first < end; first += kPageTokens) {
    int visible[kAttendRows];
    for (int r = 0; r < rows; ++r)
      visible[r] =
          static_cast<int>(std::clamp<std::int64_t>(task.position + r / kHeadsPerKv + 1 - first, 0, kPageTokens));
    const std::uint16_t* keys = sequence.page(first / kPageTokens) + m_.state.head_offset(attention_layer, kv_head);
    m_.kernels.attend_block({keys, keys + m_.state.head_elements, q, visible, maximum, total, out, rows});
  }
}

template <const Shape& S>
void Step<S>::attention_task(int attention_layer, const QueryTask& task, int kv_head, Scratch& s) {
  float maximum[kAttendRows], total[kAttendRows], span_maximum[kAttendRows], span_total[kAttendRows];
  gather_queries(task, kv_head, s.q);
  attend_span(attention_layer, task, kv_head, 0, s.q, maximum, total, s.out);
  for (int span = 1; span < task.n_spans; ++span) {
    attend_span(attention_layer, task, kv_head, span, s.q, span_maximum, span_total, s.span_out);
    m_.kernels.attend_merge(maximum, total, s.out, span_maximum, span_total, s.span_out, task.count * kHeadsPerKv);
  }
  attention_finish(task, kv_head, total, s.out, s);
}

template <const Shape& S>
void Step<S>::attention_merge_task(const QueryTask& task, int kv_head, Scratch& s) {
  float* first = partial(task, kv_head, 0);
  for (int span = 1; span < task.n_spans; ++span) {
    const float* next = partial(task, kv_head, span);
    m_.kernels.attend_merge(first, first + kAttendRows, first + 2 * kAttendRows, next, next + kAttendRows,
                            next + 2 * kAttendRows, task.count * kHeadsPerKv);
  }
  attention_finish(task, kv_head, first + kAttendRows, first + 2 * kAttendRows, s);
}

template <const Shape& S>
void Step<S>::attention_finish(const QueryTask& task, int kv_head, const float* total, const float* out, Scratch& s) {
  const QuantRows mixed = mixed_rows(S.q_dim());
  for (int t = 0; t < task.count; ++t)
    for (int h = 0; h < kHeadsPerKv; ++h) {
      const int r = t * kHeadsPerKv + h, head = kv_head * kHeadsPerKv + h;
      const float* gate = m_.work.projected + static_cast<std::ptrdiff_t>(task.first + t) * m_.work.projected_width +
                          (2 * head + 1) * kAttnDim;
      m_.kernels.attend_finish(out + r * kAttnDim, total[r], gate, s.tile);
      quantize(s.tile, mixed, task.first + t, head * kAttnDim / kGroupSize, kAttnDim / kGroupSize);
    }
}

// Maximum, total and sum of one span: 2 * kAttendRows floats, then the rows.
template <const Shape& S>
float* Step<S>::partial(const QueryTask& task, int kv_head, int span) {
  constexpr std::size_t kFloats = kAttendRows * (2 + kAttnDim);
  const std::size_t at = static_cast<std::size_t>((task.first_partial + span) * S.n_kv_heads + kv_head);
  return partials_.as<float>() + at * kFloats;
}

}  // namespace lily::cpu

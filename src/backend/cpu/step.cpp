// The plan of a step and the phases that all layers share.
#include "backend/cpu/step.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/pack.h"
#include "backend/cpu/step_head.h"
#include "backend/cpu/step_mixer.h"
#include "backend/cpu/step_moe.h"
#include "base/check.h"
#include "ops/rope.h"

namespace lily::cpu {

template <const Shape& S>
Step<S>::Step(Machine machine, std::int64_t max_rows) : m_(machine), counters_(S.n_layers * kPhasesPerLayer) {
  const std::size_t rows = static_cast<std::size_t>(max_rows);
  identity_.resize(rows);
  for (std::size_t i = 0; i < rows; ++i) identity_[i] = static_cast<int>(i);
  ones_.assign(rows, 1.0f);
  chosen_.resize(rows * S.n_active);
  chosen_weight_.resize(rows * (S.n_active + 1));
  list_begin_.resize(S.n_experts + 2);
  list_row_.resize(rows * (S.n_active + 1));
  list_weight_.resize(list_row_.size());
  expert_tasks_.reserve((static_cast<std::size_t>(S.n_experts) + 1 + list_row_.size() / kGatherRows) * kInnerGroups);
}

template <const Shape& S>
Result<void> Step<S>::run(std::span<StepItem> items, std::span<float* const> mark_states) {
  plan(items, mark_states);
  plan_queries();
  LILY_TRY_VOID(plan_partials());
  counters_.reset();
  team_->run([this](int thread) { run_thread(thread); });
  finish_head(items);
  return {};
}

template <const Shape& S>
void Step<S>::plan(std::span<StepItem> items, std::span<float* const> mark_states) {
  tokens_.clear();
  items_.clear();
  item_of_row_.clear();
  head_rows_.clear();
  head_row_index_.clear();
  float* const* states = mark_states.data();
  for (std::size_t i = 0; i < items.size(); ++i) {
    const StepItem& item = items[i];
    auto* sequence = static_cast<CpuSequence*>(item.sequence);
    const int first = static_cast<int>(tokens_.size()), count = static_cast<int>(item.tokens.size());
    items_.push_back({sequence, first, count, sequence->length(), item.marks, states});
    states += item.marks.size();
    for (TokenId token : item.tokens) {
      LILY_CHECK(token >= 0 && token < S.vocab);
      tokens_.push_back(token);
      item_of_row_.push_back(static_cast<int>(i));
    }
    const bool all = item.want == Want::AllLogits;
    if (all || item.want == Want::LastLogits)
      LILY_CHECK(item.logits.size() == static_cast<std::size_t>(S.vocab) * (all ? item.tokens.size() : 1));
    if (item.want == Want::Nothing) continue;
    for (int row = all ? 0 : count - 1; row < count; ++row) {
      float* logits =
          item.want == Want::Greedy ? nullptr : item.logits.data() + (all ? std::ptrdiff_t{row} * S.vocab : 0);
      head_rows_.push_back({first + row, static_cast<int>(i), logits});
      head_row_index_.push_back(first + row);
    }
  }
  n_rows_ = static_cast<int>(tokens_.size());
  team_ = choose_team();
  best_.resize(head_rows_.size() * static_cast<std::size_t>(team_->size()));
}

// A phase of LilyTiny's decode takes microseconds, about as long as meeting another thread at the barrier does: two
// cores gain nothing by sharing it, and lose much where another program has one of them
// (docs/benchmarks/cpu-kernels.md). Attention over a long context is worth sharing.
template <const Shape& S>
ThreadPool* Step<S>::choose_team() {
  constexpr bool kShortPhases = S.hidden < 1024;
  constexpr std::int64_t kShortContext = 4096;
  const bool short_step = kShortPhases && !m_.all_threads && n_rows_ <= kFewRows &&
                          std::ranges::all_of(items_, [](const RowRange& i) { return i.position < kShortContext; });
  return short_step ? &alone_ : &m_.pool;
}

template <const Shape& S>
void Step<S>::plan_queries() {
  queries_.clear();
  int n_partials = 0;
  for (std::size_t i = 0; i < items_.size(); ++i) {
    const RowRange& item = items_[i];
    for (int done = 0; done < item.count; done += kQueryTokens) {
      const int count = std::min(kQueryTokens, item.count - done);
      const std::int64_t position = item.position + done;
      const int n_spans = static_cast<int>((position + count + kSpanTokens - 1) / kSpanTokens);
      queries_.push_back({static_cast<int>(i), item.first + done, count, position, n_spans, n_partials});
      n_partials += n_spans;
    }
  }
  // With too few tasks to go round, spans are shared out as well; the sums are the same either way.
  const int n_tasks = static_cast<int>(queries_.size()) * S.n_kv_heads;
  split_spans_ = team_->size() > 1 && n_tasks < 4 * team_->size() && n_partials > static_cast<int>(queries_.size());
}

template <const Shape& S>
Result<void> Step<S>::plan_partials() {
  if (!split_spans_) return {};
  const int n_partials = queries_.back().first_partial + queries_.back().n_spans;
  const std::size_t bytes =
      static_cast<std::size_t>(n_partials * S.n_kv_heads) * kAttendRows * (2 + kAttnDim) * sizeof(float);
  if (partials_.size() >= bytes) return {};
  partials_ = AlignedMemory();
  LILY_TRY(partials_, AlignedMemory::allocate(bytes, "partial sums of attention"));
  return {};
}

template <const Shape& S>
void Step<S>::run_thread(int thread) {
  embed(thread);
  barrier();
  for (int layer = 0; layer < S.n_layers; ++layer) {
    const LayerPack& w = m_.model.layers[static_cast<std::size_t>(layer)];
    const bool is_attention = S.is_attention(layer);
    const Normed x = norm(thread, w.input_norm, all_rows());
    dense(x.rows, is_attention ? w.attention.in : w.gdn.in, thread, m_.work.projected, m_.work.projected_width);
    barrier();
    if (is_attention)
      attention(layer, thread);
    else
      gdn(layer, thread);
    barrier();
    if (is_attention)
      dense_add(mixed_rows(S.q_dim()), w.attention.out, thread);
    else
      dense_add(mixed_rows(S.gdn_value_dim()), w.gdn.out, thread);
    barrier();
    moe(layer, thread, norm(thread, w.post_norm, all_rows()));
    barrier();
  }
  if (!head_rows_.empty()) head(thread, norm(thread, m_.model.norm, head_row_index_).rows);
}

// Residual stream and rotation angles of this thread's rows.
template <const Shape& S>
void Step<S>::embed(int thread) {
  constexpr std::size_t kHalf = S.rotary_dim / 2;
  constexpr std::size_t kCodes = S.hidden / 2, kParameters = kHiddenGroups * 2;
  for (int row = share(n_rows_, thread); row < share(n_rows_, thread + 1); ++row) {
    const std::size_t r = static_cast<std::size_t>(row);
    const std::byte* from = m_.model.embedding + static_cast<std::size_t>(tokens_[r]) * embedding_row_bytes(S.hidden);
    m_.kernels.embed_row(from, from + kCodes, from + kCodes + kParameters, kHiddenGroups, m_.work.x + r * S.hidden);
    const RowRange& item = items_[static_cast<std::size_t>(item_of_row_[r])];
    ops::rope_cos_sin(item.position + (row - item.first), kRopeTheta, {m_.work.cos + r * kHalf, kHalf},
                      {m_.work.sin + r * kHalf, kHalf});
  }
}

// rms_norm of some rows of the residual stream. Few rows are normalised by every thread for itself, which takes less
// time than to wait for one another; more are shared out.
template <const Shape& S>
Normed Step<S>::norm(int thread, const float* weight, std::span<const int> rows) {
  const int n = static_cast<int>(rows.size());
  const bool alone = n <= kFewRows;
  Scratch& own = scratch(thread);
  const QuantBuffer& buffer = alone ? own.input : m_.work.input;
  const Normed to{buffer.rows(n, kHiddenGroups, m_.kernels.panel_rows), alone ? own.normed : m_.work.normed,
                  alone ? own.normed_sums : m_.work.normed_sums};
  for (int i = alone ? 0 : share(n, thread); i < (alone ? n : share(n, thread + 1)); ++i) {
    float* normed = to.values + static_cast<std::ptrdiff_t>(i) * S.hidden;
    m_.kernels.rms_norm(m_.work.x + static_cast<std::ptrdiff_t>(rows[static_cast<std::size_t>(i)]) * S.hidden, weight,
                        S.hidden, normed);
    quantize(normed, to.rows, i, 0, kHiddenGroups);
    m_.kernels.group_sums(normed, kHiddenGroups, to.sums + i * kHiddenGroups);
  }
  if (!alone) barrier();
  return to;
}

template <const Shape& S>
void Step<S>::quantize(const float* x, const QuantRows& to, int row, int first_group, int n_groups) const {
  const std::size_t entry = to.entry(row, first_group);
  m_.kernels.quantize(x, n_groups, to.planes, to.codes + entry * to.entry_bytes(), to.scales + entry, to.sums + entry,
                      to.rows_of_panel(row / to.panel_rows));
}

template <const Shape& S>
Panel Step<S>::panel(const QuantRows& rows, int index) const {
  const std::size_t entry = rows.panel_entry(index);
  return {rows.codes + entry * rows.entry_bytes(), rows.scales + entry, rows.sums + entry, rows.rows_of_panel(index)};
}

// Both have the same number of groups.
template <const Shape& S>
void Step<S>::copy_row(const QuantRows& from, int row, const QuantRows& to, int to_row) {
  std::size_t source = from.entry(row, 0), target = to.entry(to_row, 0);
  const std::size_t source_step = static_cast<std::size_t>(from.rows_of_panel(row / from.panel_rows));
  const std::size_t target_step = static_cast<std::size_t>(to.rows_of_panel(to_row / to.panel_rows));
  for (int g = 0; g < from.n_groups; ++g, source += source_step, target += target_step) {
    std::memcpy(to.codes + target * to.entry_bytes(), from.codes + source * from.entry_bytes(), to.entry_bytes());
    to.scales[target] = from.scales[source];
    to.sums[target] = from.sums[source];
  }
}

// Panels that fit about a third of a typical L2 cache are taken through all stripes before the next ones.
inline int panels_per_block(const QuantRows& x) {
  constexpr std::size_t kBytes = 400 << 10;
  const std::size_t panel_bytes = static_cast<std::size_t>(x.panel_rows * x.n_groups) * x.entry_bytes();
  return static_cast<int>(std::max<std::size_t>(1, kBytes / panel_bytes));
}

// y = W x for this thread's stripes.
template <const Shape& S>
void Step<S>::dense(const QuantRows& x, const PackedMatrix& w, int thread, float* y, std::ptrdiff_t stride) {
  const int block = panels_per_block(x), n_panels = x.n_panels();
  for (int first = 0; first < n_panels; first += block)
    for (int stripe = share(w.n_stripes, thread); stripe < share(w.n_stripes, thread + 1); ++stripe)
      for (int p = first; p < std::min(first + block, n_panels); ++p)
        m_.kernels.gemm4(w.stripe4(stripe), w.n_groups, panel(x, p), x.planes,
                         y + p * x.panel_rows * stride + stripe * kLanes, stride);
}

// Residual stream += W x.
template <const Shape& S>
void Step<S>::dense_add(const QuantRows& x, const PackedMatrix& w, int thread) {
  const int block = panels_per_block(x), n_panels = x.n_panels();
  float tile[kMaxPanelRows * kLanes];
  for (int first = 0; first < n_panels; first += block)
    for (int stripe = share(w.n_stripes, thread); stripe < share(w.n_stripes, thread + 1); ++stripe)
      for (int p = first; p < std::min(first + block, n_panels); ++p) {
        const Panel rows = panel(x, p);
        m_.kernels.gemm4(w.stripe4(stripe), w.n_groups, rows, x.planes, tile, kLanes);
        m_.kernels.scatter_add(tile, rows.rows, identity_.data() + p * x.panel_rows, ones_.data(),
                               m_.work.x + stripe * kLanes, S.hidden);
      }
}

template class Step<kQwen36_35B_A3B>;
template class Step<kLilyTiny>;

}  // namespace lily::cpu

// One step of the model: phases between barriers, run by all threads of the team. Every row's arithmetic is its own: a
// phase may cut rows, stripes, heads and spans among threads as it likes and gives the same bits.
//
//   embed | per layer: norm - project - mix - project back - norm - route - gate and up - down | norm - head
//
// The phases are defined in step_mixer.h, step_moe.h and step_head.h, which step.cpp alone includes.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/state.h"
#include "backend/cpu/weights.h"
#include "backend/cpu/workspace.h"
#include "base/thread_pool.h"

namespace lily::cpu {

// What does not change between steps.
struct Machine {
  const Kernels& kernels;
  ThreadPool& pool;
  bool all_threads;  // in every step; else a short one is left to the calling thread
  const ModelPack& model;
  const StateLayout& state;
  Workspace& work;
  Precision precision;
  TokenId n_tokens;  // addressable ids
};

// Rows of one item in the batch.
struct RowRange {
  CpuSequence* sequence;
  int first;  // row of its first token
  int count;
  std::int64_t position;  // of its first token
  std::span<const SnapshotMark> marks;
  float* const* mark_states;  // for each mark, the recurrent part that gets the state there
};

// Consecutive tokens of an item whose queries are attended together.
struct QueryTask {
  int item;
  int first;  // row
  int count;  // tokens, <= kQueryTokens
  std::int64_t position;
  int n_spans;        // that the last token sees
  int first_partial;  // among the partial results, when spans are summed by different threads
};

// Rows of one expert's list that one thread takes through gate and up.
struct ExpertTask {
  int expert;
  int first, count;          // of the expert's list
  int first_unit, end_unit;  // units of 64 hidden values
};

// Work that threads take as they come, one counter a phase.
class Counters {
 public:
  explicit Counters(int n) : counters_(std::make_unique<Counter[]>(static_cast<std::size_t>(n))), n_(n) {}
  void reset() {
    for (int i = 0; i < n_; ++i) counters_[static_cast<std::size_t>(i)].next.store(0, std::memory_order_relaxed);
  }
  int take(int phase) {
    return counters_[static_cast<std::size_t>(phase)].next.fetch_add(1, std::memory_order_relaxed);
  }

 private:
  struct alignas(kCacheLine) Counter {
    std::atomic<int> next{0};
  };
  std::unique_ptr<Counter[]> counters_;
  int n_;
};

// A row whose logits are wanted.
struct HeadRow {
  int row;
  int item;
  float* logits;  // [V], or null for Want::Greedy
};

// Rows after a norm: quantised, and as float32 with their group sums for the router.
struct Normed {
  QuantRows rows;
  float* values;  // [n, D]
  float* sums;    // [n, D / 64]
};

struct Best {
  float value;
  TokenId id;
  bool nan;
};

template <const Shape& S>
class Step {
 public:
  Step(Machine machine, std::int64_t max_rows);

  // Sequences are prepared; their lengths are not yet advanced. mark_states: where the recurrent state at each mark
  // goes, item by item. OutOfMemory before anything has run.
  Result<void> run(std::span<StepItem> items, std::span<float* const> mark_states);

 private:
  static constexpr int kHeadsPerKv = S.n_q_heads / S.n_kv_heads;
  static constexpr int kKeyHeadValues = S.gdn_v_heads / S.gdn_k_heads;  // value heads of a key head
  static constexpr int kPaddedHeads = (S.gdn_v_heads + kLanes - 1) / kLanes * kLanes;
  static constexpr int kZ = S.conv_dim(), kB = kZ + S.gdn_value_dim(), kA = kB + kPaddedHeads;  // columns of projected
  static constexpr int kGdnWidth = kA + kPaddedHeads;
  static constexpr int kK = 2 * S.q_dim(), kV = kK + S.kv_dim();
  static constexpr int kAttentionWidth = kV + S.kv_dim();
  static constexpr int kHiddenGroups = S.hidden / kGroupSize;
  static constexpr int kInnerGroups = S.expert_dim / kGroupSize;
  static constexpr int kUnitStripes = 2 * kGroupSize / kLanes;  // gate and up stripes of 64 hidden values
  static constexpr int kRouterStripes = S.n_experts / kLanes + 1;
  static constexpr int kRoutedWidth = S.n_experts + kLanes;
  static constexpr int kPhasesPerLayer = 3;
  static_assert(S.gdn_head_dim == kGdnDim && S.head_dim == kAttnDim && S.conv_width == 4);
  static_assert(kHeadsPerKv * kQueryTokens <= kAttendRows && S.rotary_dim % (2 * kLanes) == 0);
  static_assert(S.hidden % (4 * kLanes) == 0 && S.expert_dim % kGroupSize == 0 && S.vocab % kLanes == 0);
  static_assert(S.gdn_v_heads % S.gdn_k_heads == 0 && S.n_q_heads % S.n_kv_heads == 0);

  // step.h
  void plan(std::span<StepItem> items, std::span<float* const> mark_states);
  ThreadPool* choose_team();
  void plan_queries();
  Result<void> plan_partials();
  void run_thread(int thread);
  void embed(int thread);
  Normed norm(int thread, const float* weight, std::span<const int> rows);
  void dense(const QuantRows& x, const PackedMatrix& w, int thread, float* y, std::ptrdiff_t stride);
  void dense_add(const QuantRows& x, const PackedMatrix& w, int thread);
  // step_mixer.h
  void gdn(int layer, int thread);
  void gdn_head(const GdnPack& w, int gdn_layer, const RowRange& item, int key_head, Scratch& scratch);
  void copy_gdn_head(int gdn_layer, int key_head, const float* from, float* to) const;
  void attention(int layer, int thread);
  void attention_prepare(const AttentionPack& w, int attention_layer, int row, int kv_head);
  void attention_task(int attention_layer, const QueryTask& task, int kv_head, Scratch& scratch);
  void attend_span(int attention_layer, const QueryTask& task, int kv_head, int span, const float* q, float* maximum,
                   float* total, float* out);
  void gather_queries(const QueryTask& task, int kv_head, float* q);
  void attention_finish(const QueryTask& task, int kv_head, const float* total, const float* out, Scratch& scratch);
  void attention_merge_task(const QueryTask& task, int kv_head, Scratch& scratch);
  float* partial(const QueryTask& task, int kv_head, int span);
  // step_moe.h
  void moe(int layer, int thread, const Normed& x);
  void route(int thread, const MoePack& w, const Normed& x);
  void choose_experts(int row);
  void list_experts();
  void gate_up(const ExpertTask& task, const MoePack& w, const QuantRows& input, Scratch& scratch);
  void down(const MoePack& w, int thread);
  QuantRows expert_hidden(int expert) const;
  // step_head.h
  void head(int thread, const QuantRows& x);
  void take_logits(const HeadRow& row, int stripe, const float* tile, Best& best);
  void finish_head(std::span<StepItem> items);

  Scratch& scratch(int thread) { return m_.work.threads[static_cast<std::size_t>(thread)]; }
  void barrier() { team_->barrier(); }
  std::span<const int> all_rows() const { return std::span(identity_).first(static_cast<std::size_t>(n_rows_)); }
  QuantRows mixed_rows(int width) const {
    return m_.work.mixed.rows(n_rows_, width / kGroupSize, m_.kernels.panel_rows);
  }
  void quantize(const float* x, const QuantRows& to, int row, int first_group, int n_groups) const;
  Panel panel(const QuantRows& rows, int index) const;
  static void copy_row(const QuantRows& from, int row, const QuantRows& to, int to_row);
  int share(std::int64_t n, int thread) const { return static_cast<int>(n * thread / team_->size()); }

  Machine m_;
  ThreadPool alone_{1};
  ThreadPool* team_ = &alone_;  // of this step: everybody, or the caller alone
  int n_rows_ = 0;
  std::vector<TokenId> tokens_;  // [T]
  std::vector<RowRange> items_;
  std::vector<int> item_of_row_;  // [T]
  std::vector<QueryTask> queries_;
  bool split_spans_ = false;
  AlignedMemory partials_;
  std::vector<HeadRow> head_rows_;
  std::vector<int> head_row_index_;  // the rows of head_rows_
  std::vector<Best> best_;           // [threads][head rows]
  std::vector<int> identity_;        // 0, 1, 2, ...
  std::vector<float> ones_;
  std::vector<int> chosen_;           // [T, A]
  std::vector<float> chosen_weight_;  // [T, A + 1], the shared expert's last
  std::vector<int> list_begin_;       // [E + 2], into the lists below
  std::vector<int> list_row_;         // [T * (A + 1)], by expert, then row
  std::vector<float> list_weight_;    // as list_row_
  std::vector<ExpertTask> expert_tasks_;
  Counters counters_;
};

}  // namespace lily::cpu

// Allocation of the step's memory.
#include "backend/cpu/workspace.h"

#include <algorithm>
#include <utility>

namespace lily::cpu {

namespace {

// Cuts one mapping into arrays, each at a cache line. First call with no base to learn the size.
class Cutter {
 public:
  explicit Cutter(float* base) : base_(base) {}
  void floats(float*& array, std::int64_t n) {
    if (base_ != nullptr) array = base_ + used_;
    used_ += (static_cast<std::size_t>(n) + 15) / 16 * 16;
  }
  std::size_t bytes() const { return used_ * sizeof(float); }

 private:
  float* base_;
  std::size_t used_ = 0;
};

void cut_scratch(int hidden, Scratch& s, Cutter& cut) {
  cut.floats(s.tile, kMaxPanelRows * 128);
  cut.floats(s.q, kAttendRows * kAttnDim);
  cut.floats(s.k, kGdnTokens * kGdnDim);
  cut.floats(s.v, kGdnTokens * kGdnDim);
  cut.floats(s.out, kAttendRows * kAttnDim);
  cut.floats(s.span_out, kAttendRows * kAttnDim);
  cut.floats(s.normed, kFewRows * hidden);
  cut.floats(s.normed_sums, kFewRows * (hidden / kGroupSize));
  cut.floats(s.decay, kGdnTokens);
  cut.floats(s.beta, kGdnTokens);
}

void cut_workspace(const Shape& s, std::int64_t rows, Workspace& w, Cutter& cut) {
  cut.floats(w.x, rows * s.hidden);
  cut.floats(w.normed, rows * s.hidden);
  cut.floats(w.normed_sums, rows * (s.hidden / kGroupSize));
  cut.floats(w.projected, rows * w.projected_width);
  cut.floats(w.routed, rows * (s.n_experts + kLanes));
  cut.floats(w.cos, rows * (s.rotary_dim / 2));
  cut.floats(w.sin, rows * (s.rotary_dim / 2));
}

int padded(int rows) {
  return (rows + kLanes - 1) / kLanes * kLanes;
}

}  // namespace

Result<QuantBuffer> QuantBuffer::allocate(std::int64_t max_rows, int max_groups, int planes, const char* what) {
  QuantBuffer buffer;
  buffer.planes_ = planes;
  const std::size_t entries = static_cast<std::size_t>(max_rows) * static_cast<std::size_t>(max_groups);
  LILY_TRY(buffer.codes_, AlignedMemory::allocate(entries * static_cast<std::size_t>(planes) * kGroupSize, what));
  LILY_TRY(buffer.scales_, AlignedMemory::allocate(entries * sizeof(float), what));
  LILY_TRY(buffer.sums_, AlignedMemory::allocate(entries * sizeof(float), what));
  return buffer;
}

Result<Workspace> Workspace::allocate(const Shape& s, std::int64_t max_rows, int n_threads, Precision precision) {
  static constexpr const char* kWhat = "the activations of a step";
  const int planes = planes_of(precision);
  Workspace w{};
  w.projected_width =
      std::max(2 * s.q_dim() + 2 * s.kv_dim(), s.conv_dim() + s.gdn_value_dim() + 2 * padded(s.gdn_v_heads));
  Cutter measure(nullptr);
  cut_workspace(s, max_rows, w, measure);
  LILY_TRY(w.memory, AlignedMemory::allocate(measure.bytes(), kWhat));
  Cutter cut(w.memory.as<float>());
  cut_workspace(s, max_rows, w, cut);
  LILY_TRY(w.input, QuantBuffer::allocate(max_rows, s.hidden / kGroupSize, planes, kWhat));
  LILY_TRY(w.mixed,
           QuantBuffer::allocate(max_rows, std::max(s.gdn_value_dim(), s.q_dim()) / kGroupSize, planes, kWhat));
  LILY_TRY(w.hidden, QuantBuffer::allocate(max_rows * (s.n_active + 1), s.expert_dim / kGroupSize, planes, kWhat));
  for (int t = 0; t < n_threads; ++t) {
    Scratch scratch{};
    LILY_TRY(scratch.gathered, QuantBuffer::allocate(kGatherRows, s.hidden / kGroupSize, planes, kWhat));
    LILY_TRY(scratch.input, QuantBuffer::allocate(kFewRows, s.hidden / kGroupSize, planes, kWhat));
    Cutter size(nullptr);
    cut_scratch(s.hidden, scratch, size);
    LILY_TRY(scratch.memory, AlignedMemory::allocate(size.bytes(), kWhat));
    Cutter pieces(scratch.memory.as<float>());
    cut_scratch(s.hidden, scratch, pieces);
    w.threads.push_back(std::move(scratch));
  }
  return w;
}

}  // namespace lily::cpu

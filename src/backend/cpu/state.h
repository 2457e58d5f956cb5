// What a sequence keeps between steps, and how snapshots share it.
//
// A page holds keys and values of 64 positions for every attention layer; the recurrent part holds delta memories and
// convolution tails. Both are reference counted and copied on write: a snapshot takes references, a step copies what
// others also hold before it writes. A snapshot inside a step (a mark) is made ahead of it: it refers to the pages that
// the step will fill, and has a recurrent part of its own, which the step writes as the recurrence passes. So
//  1. positions below a snapshot's length and its recurrent part are never written again, once the step is over in
//     which it was taken;
//  2. when a step begins, what it will write has one owner, its sequence; marks of the same step then share the pages.
// The last page of a snapshot may hold positions beyond its length, of tokens that ran in the same step. They mean
// nothing there: attention looks at no position that its sequence has not run, which writes it first, and the
// serialised form leaves them out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/layout.h"
#include "base/aligned.h"
#include "model/shape.h"

namespace lily::cpu {

// Sizes and offsets for a shape.
struct StateLayout {
  explicit StateLayout(const Shape& shape);

  std::size_t page_bytes;       // all attention layers
  std::size_t recurrent_bytes;  // all GDN layers
  std::size_t memory_floats;    // of one GDN layer: [value heads][slices][128][32]
  std::size_t tail_floats;      // of one GDN layer: [3][conv_dim], oldest first

  // Keys of kv head `head` of attention layer `layer`; the values follow after head_elements.
  std::size_t head_offset(int layer, int head) const {
    return static_cast<std::size_t>(layer * n_kv_heads + head) * 2 * head_elements;
  }
  std::size_t head_elements;  // 64 positions x head_dim
  int n_kv_heads;

  // Delta memories of a GDN layer in a recurrent part, in floats; the tail follows after memory_floats.
  std::size_t memory_offset(int gdn_layer) const {
    return static_cast<std::size_t>(gdn_layer) * (memory_floats + tail_floats);
  }
  std::size_t tail_offset(int gdn_layer) const { return memory_offset(gdn_layer) + memory_floats; }
};

using Page = AlignedMemory;

class CpuSequence final : public Sequence {
 public:
  CpuSequence(const StateLayout& layout, std::int64_t capacity) : layout_(layout), capacity_(capacity) {}

  std::int64_t length() const override { return length_; }
  std::int64_t capacity() const override { return capacity_; }

  // Makes room for n_tokens more and takes sole ownership of everything that they will write. On failure the sequence
  // is as before.
  Result<void> prepare(std::int64_t n_tokens);
  void advance(std::int64_t n_tokens) { length_ += n_tokens; }

  std::uint16_t* page(std::int64_t index) const { return pages_[static_cast<std::size_t>(index)]->as<std::uint16_t>(); }
  float* recurrent() const { return recurrent_->as<float>(); }

 private:
  friend class CpuSnapshot;
  const StateLayout& layout_;
  std::int64_t length_ = 0;
  std::int64_t capacity_;
  std::vector<std::shared_ptr<Page>> pages_;
  std::shared_ptr<AlignedMemory> recurrent_;  // null before the first step: all zero
};

class CpuSnapshot final : public Snapshot {
 public:
  explicit CpuSnapshot(const CpuSequence& sequence);
  // One of `length` tokens, for a step that will pass that length: the sequence is prepared for the step, which writes
  // recurrent(). Errors: OutOfMemory.
  static Result<std::shared_ptr<CpuSnapshot>> make_ahead(const CpuSequence& sequence, std::int64_t length);
  float* recurrent() { return recurrent_->as<float>(); }

  std::int64_t length() const override { return length_; }
  std::size_t bytes() const override;
  void visit_pages(const std::function<void(const void* identity, std::size_t bytes)>& visit) const override;

  std::unique_ptr<CpuSequence> restore(const StateLayout& layout, std::int64_t capacity) const;

  // Header (magic, version, model key, length), recurrent part, pages; little-endian like the machines this runs on.
  std::vector<std::byte> serialize(const StateLayout& layout, std::string_view model_key) const;
  static Result<std::shared_ptr<const CpuSnapshot>> deserialize(const StateLayout& layout, std::string_view model_key,
                                                                std::span<const std::byte> bytes);

 private:
  CpuSnapshot() = default;
  CpuSnapshot(const CpuSequence& sequence, std::int64_t length, std::shared_ptr<AlignedMemory> recurrent);

  std::int64_t length_ = 0;
  std::vector<std::shared_ptr<Page>> pages_;
  std::shared_ptr<AlignedMemory> recurrent_;
};

}  // namespace lily::cpu

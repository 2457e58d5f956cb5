// The prefix cache proper: a radix tree over token ids whose nodes hold snapshots. A prompt is served by the deepest
// snapshot on its path; pages that snapshots share are counted once (cache_pages.h); the byte budget evicts what is
// worth least.
//
// Worth of a snapshot: the tokens that a prompt coming back to it would have to run again without it (down to the
// nearest snapshot above), times how likely that is (its kind, its hits), per byte that dropping it would free. To this
// is added the worth of the last one evicted when the snapshot was last used (the GreedyDual scheme), so that without
// use everything goes in the end, in LRU order among equals.
//
// With a store (cache_disk.h) the tree also knows the snapshots that lie on disk. They are read when a prompt would
// gain much by it, and written when memory gives up one that is worth it, and at the end.
//
// Invariants:
//   1. A node is the root, or holds a snapshot, or has one on disk, or has at least two children: paths end with
//      their last snapshot.
//   2. Edges of siblings begin with different tokens; an edge is never empty except the root's.
//   3. node->depth == its snapshot's length().
//   4. entries_ lists exactly the nodes that hold a snapshot in memory.
//   5. After insert(), used bytes are within the budget, and the snapshot just inserted is there unless it alone is
//      larger than that.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "engine/cache.h"
#include "engine/cache_disk.h"
#include "engine/cache_pages.h"

namespace lily {

class TrieCache : public PrefixCache {
 public:
  explicit TrieCache(std::size_t budget_bytes);
  // The backend, which must outlive the cache, turns snapshots into bytes and back.
  TrieCache(std::size_t budget_bytes, Backend& backend, std::unique_ptr<SnapshotStore> store);
  ~TrieCache() override;

  CacheHit find(std::span<const TokenId> prompt, std::int64_t max_length) override;
  std::int64_t longest(std::span<const TokenId> prompt, std::int64_t max_length) const override;
  bool touch(std::span<const TokenId> tokens) override;
  void insert(std::span<const TokenId> tokens, std::shared_ptr<const Snapshot> snapshot, SnapshotKind kind,
              std::string_view key) override;
  void forget(std::span<const TokenId> tokens) override;
  bool shrink() override;
  void save() override;
  CacheCounters counters() const override;

 private:
  struct Entry;
  struct Node;
  struct Walk {
    Node* node = nullptr;     // deepest node whose whole path begins the prompt
    std::int64_t shared = 0;  // tokens of the prompt that the tree follows, perhaps into an edge below node
    bool diverged = false;
  };
  using Owner = PageLedger::Owner;

  Walk walk(std::span<const TokenId> prompt) const;
  Node* node_at(std::span<const TokenId> tokens);
  Node* split(Node* child, std::int64_t at);
  Node* deepest_entry(Node* node, std::int64_t max_length) const;
  Node* deepest_on_disk(Node* node, std::int64_t max_length) const;
  Node* load_deeper(std::span<const TokenId> prompt, std::int64_t max_length, Node* best);
  bool load(Node& node, std::span<const TokenId> tokens);
  std::size_t write(Node& node, std::size_t most_bytes, bool patient);
  bool is_worth_writing(const Node& node) const;
  std::int64_t tokens_saved(const Node& node) const;
  std::vector<TokenId> tokens_of(const Node& node) const;
  void hold(Node& node, std::shared_ptr<const Snapshot> snapshot, SnapshotKind kind);
  void use(Entry& entry);
  double worth(const Node& node) const;
  void drop(Node* node);
  void prune(Node* node);
  void evict_to(std::size_t bytes, const Node* spared, bool may_write = true);
  std::size_t used_bytes() const;

  std::size_t budget_bytes_;
  Backend* backend_ = nullptr;            // with a store
  std::unique_ptr<SnapshotStore> store_;  // may be null
  std::unique_ptr<Node> root_;
  std::unordered_map<Owner, Node*> entries_;
  PageLedger pages_;
  std::size_t token_bytes_ = 0;  // of all edges
  Owner next_owner_ = 1;
  std::uint64_t clock_ = 0;  // counts uses
  double inflation_ = 0;     // worth of the last entry evicted
  std::uint64_t evictions_ = 0;
};

}  // namespace lily

#include "engine/cache_trie.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace lily {
namespace {

// How often, against a message boundary, a snapshot of a kind is asked for again: intervals serve edits in the middle
// of a long prompt and repeated prefills alone.
double weight(SnapshotKind kind) {
  return kind == SnapshotKind::Interval ? 0.25 : 1.0;
}

// Reading a snapshot takes about as long as running a few hundred tokens; writing one wears the disk.
constexpr std::int64_t kLeastTokensToLoad = 256;
constexpr std::int64_t kLeastTokensToWrite = 64;  // one that was used, or any at the end
constexpr std::int64_t kLeastTokensToWriteUnused = 1024;

}  // namespace

struct TrieCache::Entry {
  Owner owner = 0;
  std::shared_ptr<const Snapshot> snapshot;
  SnapshotKind kind = SnapshotKind::Boundary;
  std::uint64_t hits = 0;
  std::uint64_t last_use = 0;
  double inflation = 0;  // of the cache at the last use
};

struct TrieCache::Node {
  std::vector<TokenId> edge;  // from the parent to here
  std::int64_t depth = 0;     // tokens from the root
  Node* parent = nullptr;
  std::map<TokenId, std::unique_ptr<Node>> children;  // by the first token of their edge
  std::optional<Entry> entry;
  bool on_disk = false;  // or was: the store may have dropped it

  bool is_kept() const { return entry.has_value() || on_disk; }
};

TrieCache::TrieCache(std::size_t budget_bytes) : budget_bytes_(budget_bytes), root_(std::make_unique<Node>()) {}

TrieCache::TrieCache(std::size_t budget_bytes, Backend& backend, std::unique_ptr<SnapshotStore> store)
    : TrieCache(budget_bytes) {
  backend_ = &backend;
  store_ = std::move(store);
  for (const std::vector<TokenId>& tokens : store_->found()) {
    if (token_bytes_ > budget_bytes_ / 8) break;  // an index must not crowd out what it points to
    node_at(tokens)->on_disk = true;
  }
}

TrieCache::~TrieCache() = default;

TrieCache::Walk TrieCache::walk(std::span<const TokenId> prompt) const {
  Walk walk;
  walk.node = root_.get();
  for (;;) {
    const auto rest = prompt.subspan(static_cast<std::size_t>(walk.shared));
    if (rest.empty() || walk.node->children.empty()) return walk;
    const auto child = walk.node->children.find(rest.front());
    if (child == walk.node->children.end()) {
      walk.diverged = true;
      return walk;
    }
    const std::vector<TokenId>& edge = child->second->edge;
    const std::int64_t shared = shared_prefix(edge, rest);
    walk.shared += shared;
    if (shared < std::ssize(edge)) {
      walk.diverged = shared < std::ssize(rest);
      return walk;
    }
    walk.node = child->second.get();
  }
}

TrieCache::Node* TrieCache::deepest_entry(Node* node, std::int64_t max_length) const {
  while (node && (!node->entry || node->depth > max_length)) node = node->parent;
  return node;
}

TrieCache::Node* TrieCache::deepest_on_disk(Node* node, std::int64_t max_length) const {
  while (node && (!node->on_disk || node->depth > max_length)) node = node->parent;
  return node;
}

CacheHit TrieCache::find(std::span<const TokenId> prompt, std::int64_t max_length) {
  const Walk walked = walk(prompt);
  CacheHit hit;
  hit.shared = walked.shared;
  hit.diverged = walked.diverged;
  Node* node = deepest_entry(walked.node, max_length);
  if (store_) node = load_deeper(prompt, max_length, node);
  if (!node) return hit;
  ++node->entry->hits;
  use(*node->entry);
  hit.snapshot = node->entry->snapshot;
  hit.length = node->depth;
  evict_to(budget_bytes_, node);
  return hit;
}

// Reads the deepest snapshot on disk that beats `best` by enough; `best` if there is none.
TrieCache::Node* TrieCache::load_deeper(std::span<const TokenId> prompt, std::int64_t max_length, Node* best) {
  const std::int64_t have = best ? best->depth : 0;
  for (;;) {
    Node* node = deepest_on_disk(walk(prompt).node, max_length);
    if (!node || node->depth < have + kLeastTokensToLoad) return best;
    if (load(*node, prompt.first(static_cast<std::size_t>(node->depth)))) return node;
    node->on_disk = false;
    prune(node);
  }
}

bool TrieCache::load(Node& node, std::span<const TokenId> tokens) {
  if (!store_->holds(tokens)) return false;
  const auto payload = store_->load(tokens, budget_bytes_);
  if (!payload) return false;  // the store has said why
  auto snapshot = backend_->deserialize(*payload);
  if (!snapshot || (*snapshot)->length() != node.depth) {
    log::warn("a cached prefix of {} tokens on disk is not usable: {}", node.depth,
              snapshot ? "it has another length" : snapshot.error().message);
    store_->erase(tokens);
    return false;
  }
  hold(node, std::move(*snapshot), SnapshotKind::Boundary);
  return true;
}

std::int64_t TrieCache::longest(std::span<const TokenId> prompt, std::int64_t max_length) const {
  const Node* node = deepest_entry(walk(prompt).node, max_length);
  return node ? node->depth : 0;
}

bool TrieCache::touch(std::span<const TokenId> tokens) {
  const Walk walked = walk(tokens);
  if (walked.node->depth != std::ssize(tokens) || !walked.node->entry) return false;
  use(*walked.node->entry);
  return true;
}

void TrieCache::use(Entry& entry) {
  entry.last_use = ++clock_;
  entry.inflation = inflation_;
}

void TrieCache::insert(std::span<const TokenId> tokens, std::shared_ptr<const Snapshot> snapshot, SnapshotKind kind,
                       std::string_view /*key*/) {
  LILY_CHECK(!tokens.empty() && snapshot->length() == std::ssize(tokens));
  Node* node = node_at(tokens);
  if (!node->entry) hold(*node, std::move(snapshot), kind);
  use(*node->entry);
  evict_to(budget_bytes_, node);
}

void TrieCache::hold(Node& node, std::shared_ptr<const Snapshot> snapshot, SnapshotKind kind) {
  const Owner owner = next_owner_++;
  pages_.add(owner, *snapshot);
  node.entry.emplace();
  node.entry->owner = owner;
  node.entry->snapshot = std::move(snapshot);
  node.entry->kind = kind;
  entries_.emplace(owner, &node);
}

// The node that ends exactly with these tokens, made if need be.
TrieCache::Node* TrieCache::node_at(std::span<const TokenId> tokens) {
  const Walk walked = walk(tokens);
  Node* node = walked.node;
  if (walked.shared > node->depth) {
    node = split(node->children.at(tokens[static_cast<std::size_t>(node->depth)]).get(), walked.shared);
  }
  if (node->depth == std::ssize(tokens)) return node;
  const auto rest = tokens.subspan(static_cast<std::size_t>(node->depth));
  auto leaf = std::make_unique<Node>();
  leaf->edge.assign(rest.begin(), rest.end());
  leaf->depth = std::ssize(tokens);
  leaf->parent = node;
  token_bytes_ += rest.size_bytes();
  Node* made = leaf.get();
  node->children.emplace(rest.front(), std::move(leaf));
  return made;
}

// Cuts the edge above `child` so that a node stands at depth `at`, and returns that node.
TrieCache::Node* TrieCache::split(Node* child, std::int64_t at) {
  Node* parent = child->parent;
  std::unique_ptr<Node>& slot = parent->children.at(child->edge.front());
  auto middle = std::make_unique<Node>();
  const auto cut = child->edge.begin() + (at - parent->depth);
  middle->edge.assign(child->edge.begin(), cut);
  middle->depth = at;
  middle->parent = parent;
  child->edge.erase(child->edge.begin(), cut);
  child->parent = middle.get();
  middle->children.emplace(child->edge.front(), std::move(slot));
  slot = std::move(middle);
  return slot.get();
}

// Tokens that would have to be run again without this snapshot.
std::int64_t TrieCache::tokens_saved(const Node& node) const {
  const Node* above = deepest_entry(node.parent, node.depth);
  return node.depth - (above ? above->depth : 0);
}

double TrieCache::worth(const Node& node) const {
  const Entry& entry = *node.entry;
  const auto tokens = static_cast<double>(tokens_saved(node));
  const auto bytes = static_cast<double>(std::max<std::size_t>(1, pages_.exclusive_bytes(entry.owner)));
  return entry.inflation + static_cast<double>(1 + entry.hits) * weight(entry.kind) * tokens / bytes;
}

// Evicts until at most `bytes` are used. `spared` goes last, and only if it is too large by itself.
void TrieCache::evict_to(std::size_t bytes, const Node* spared, bool may_write) {
  while (used_bytes() > bytes && !entries_.empty()) {
    Node* victim = nullptr;
    std::pair<double, std::uint64_t> least;
    for (const auto& [owner, node] : entries_) {
      if (node == spared && entries_.size() > 1) continue;
      const std::pair candidate{worth(*node), node->entry->last_use};
      if (!victim || candidate < least) {
        victim = node;
        least = candidate;
      }
    }
    inflation_ = std::max(inflation_, least.first);
    ++evictions_;
    if (store_ && may_write && is_worth_writing(*victim)) write(*victim, store_->budget_bytes(), /*patient=*/false);
    drop(victim);
  }
}

void TrieCache::drop(Node* node) {
  pages_.remove(node->entry->owner, *node->entry->snapshot);
  entries_.erase(node->entry->owner);
  node->entry.reset();
  prune(node);
}

// Restores invariant 1 from a node that has lost its entry or a child.
void TrieCache::prune(Node* node) {
  while (node != root_.get() && !node->is_kept() && node->children.size() < 2) {
    Node* parent = node->parent;
    const auto slot = parent->children.find(node->edge.front());
    if (node->children.empty()) {
      token_bytes_ -= node->edge.size() * sizeof(TokenId);
      parent->children.erase(slot);
      node = parent;
      continue;
    }
    std::unique_ptr<Node> child = std::move(node->children.begin()->second);
    child->edge.insert(child->edge.begin(), node->edge.begin(), node->edge.end());
    child->parent = parent;
    slot->second = std::move(child);  // frees node
    return;
  }
}

void TrieCache::forget(std::span<const TokenId> tokens) {
  while (Node* node = deepest_on_disk(walk(tokens).node, std::ssize(tokens))) {
    store_->erase(tokens.first(static_cast<std::size_t>(node->depth)));
    node->on_disk = false;
    prune(node);
  }
  while (Node* node = deepest_entry(walk(tokens).node, std::ssize(tokens))) drop(node);
}

bool TrieCache::shrink() {
  if (entries_.empty()) return false;
  evict_to(used_bytes() / 2, nullptr, /*may_write=*/false);  // that would take memory now
  return true;
}

std::vector<TokenId> TrieCache::tokens_of(const Node& node) const {
  std::vector<TokenId> tokens(static_cast<std::size_t>(node.depth));
  for (const Node* at = &node; at->parent; at = at->parent) {
    std::ranges::copy(at->edge, tokens.begin() + at->parent->depth);
  }
  return tokens;
}

bool TrieCache::is_worth_writing(const Node& node) const {
  return tokens_saved(node) >= (node.entry->hits > 0 ? kLeastTokensToWrite : kLeastTokensToWriteUnused);
}

// Hands a snapshot to the store unless that has it. Returns its bytes there; 0 if it was not taken.
std::size_t TrieCache::write(Node& node, std::size_t most_bytes, bool patient) {
  const std::vector<TokenId> tokens = tokens_of(node);
  if (const std::size_t bytes = store_->keep(tokens); bytes > 0) return bytes;
  auto payload = backend_->serialize(*node.entry->snapshot);
  if (!payload) {
    log::warn("a cached prefix of {} tokens cannot be written: {}", node.depth, payload.error().message);
    return 0;
  }
  const std::size_t bytes = payload->size() + tokens.size() * sizeof(TokenId);
  if (bytes > most_bytes || !store_->write(tokens, std::move(*payload), patient)) return 0;
  node.on_disk = true;
  return bytes;
}

// The most recently used first, as much as the directory may hold.
void TrieCache::save() {
  if (!store_) return;
  std::vector<Node*> nodes;
  for (const auto& [owner, node] : entries_) {
    const bool passing = node->entry->kind == SnapshotKind::Interval && node->entry->hits == 0;
    if (!passing && tokens_saved(*node) >= kLeastTokensToWrite) nodes.push_back(node);
  }
  std::ranges::sort(nodes, [](const Node* a, const Node* b) { return a->entry->last_use > b->entry->last_use; });
  std::size_t room = store_->budget_bytes() - store_->budget_bytes() / 16;  // heads, and payloads that do not shrink
  for (Node* node : nodes) room -= std::min(room, write(*node, room, /*patient=*/true));
  store_->flush();
}

std::size_t TrieCache::used_bytes() const {
  return pages_.total_bytes() + token_bytes_;
}

CacheCounters TrieCache::counters() const {
  return {.entries = entries_.size(),
          .used_bytes = used_bytes(),
          .evictions = evictions_,
          .disk_entries = store_ ? store_->entries() : 0,
          .disk_bytes = store_ ? store_->bytes() : 0};
}

}  // namespace lily

#include "engine/cache_pages.h"

#include "base/check.h"

namespace lily {

void PageLedger::add(Owner owner, const Snapshot& snapshot) {
  LILY_CHECK(owner != 0 && !exclusive_.contains(owner));
  std::size_t own = snapshot.bytes();  // pages that turn out to be shared are taken off below
  std::size_t added = snapshot.bytes();
  snapshot.visit_pages([&](const void* identity, std::size_t bytes) {
    Page& page = pages_[identity];
    if (page.owners == 1) exclusive_.at(page.owners_xor) -= page.bytes;
    if (page.owners > 0) {
      own -= bytes;
      added -= bytes;
    }
    page.bytes = bytes;
    page.owners += 1;
    page.owners_xor ^= owner;
  });
  exclusive_.emplace(owner, own);
  total_bytes_ += added;
}

void PageLedger::remove(Owner owner, const Snapshot& snapshot) {
  total_bytes_ -= exclusive_bytes(owner);
  snapshot.visit_pages([&](const void* identity, std::size_t) {
    const auto it = pages_.find(identity);
    LILY_CHECK(it != pages_.end());
    Page& page = it->second;
    page.owners -= 1;
    page.owners_xor ^= owner;
    if (page.owners == 0) {
      pages_.erase(it);
    } else if (page.owners == 1) {
      exclusive_.at(page.owners_xor) += page.bytes;
    }
  });
  exclusive_.erase(owner);
}

std::size_t PageLedger::exclusive_bytes(Owner owner) const {
  const auto it = exclusive_.find(owner);
  LILY_CHECK(it != exclusive_.end());
  return it->second;
}

}  // namespace lily

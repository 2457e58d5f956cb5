// Who owns which KV page: counts each page once however many snapshots share it, and knows for every snapshot how
// many bytes would be freed by dropping it.
#pragma once

#include <cstdint>
#include <unordered_map>

#include "backend/backend.h"

namespace lily {

class PageLedger {
 public:
  using Owner = std::uint64_t;  // never 0, never used again

  void add(Owner owner, const Snapshot& snapshot);
  void remove(Owner owner, const Snapshot& snapshot);

  std::size_t total_bytes() const { return total_bytes_; }
  // Bytes that only this owner holds: its recurrent state and the pages it shares with nobody.
  std::size_t exclusive_bytes(Owner owner) const;

 private:
  struct Page {
    std::size_t bytes = 0;
    std::uint32_t owners = 0;
    Owner owners_xor = 0;  // with one owner left, that owner
  };

  std::unordered_map<const void*, Page> pages_;
  std::unordered_map<Owner, std::size_t> exclusive_;
  std::size_t total_bytes_ = 0;
};

}  // namespace lily

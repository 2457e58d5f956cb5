// From bytes to token id: a flat hash table over strings that somebody else owns.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/shape.h"

namespace lily {

class TokenIndex {
 public:
  // tokens: bytes by id; empty entries are not tokens. Of equal strings the lowest id is found. The bytes must stay.
  explicit TokenIndex(const std::vector<std::string_view>& tokens);

  std::optional<TokenId> find(std::string_view bytes) const;

 private:
  struct Slot {
    const char* data = nullptr;  // null: free
    std::uint32_t size = 0;
    TokenId id = 0;
  };

  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace lily

// Byte-level BPE of one piece: merge the adjacent pair of lowest rank, leftmost on equal rank, until none is left.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/shape.h"
#include "text/token_index.h"

namespace lily {

class Bpe {
 public:
  struct Merge {
    TokenId left;
    TokenId right;
    TokenId merged;
  };

  // tokens: bytes by id, every single byte among them; merges in order of rank. The bytes must outlive the object.
  Bpe(std::vector<std::string_view> tokens, const std::vector<Merge>& merges);

  void encode_piece(std::string_view piece, std::vector<TokenId>& out) const;

  // Whether encode_piece(bytes of id) is that id alone. Some tokens are never produced.
  bool is_reachable(TokenId id) const { return reachable_[static_cast<std::size_t>(id)]; }

 private:
  static constexpr std::uint32_t kNoMerge = UINT32_MAX;
  struct Slot {
    std::uint64_t pair = kNoPair;
    std::uint32_t rank = kNoMerge;
    TokenId merged = 0;
  };
  static constexpr std::uint64_t kNoPair = UINT64_MAX;

  void add_merge(const Merge& merge, std::uint32_t rank);
  const Slot& find_merge(TokenId left, TokenId right) const;
  void merge_short(std::string_view piece, std::vector<TokenId>& out) const;
  void merge_long(std::string_view piece, std::vector<TokenId>& out) const;

  TokenIndex index_;
  std::array<TokenId, 256> byte_tokens_{};
  std::vector<Slot> slots_;  // merges by pair; a power of two, at most half full
  std::vector<bool> reachable_;
  std::size_t longest_token_bytes_ = 0;
};

}  // namespace lily

// Reads tokenizer.json: checks that its pipeline is the one this program implements and takes its tables.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "text/bpe.h"

namespace lily {

struct AddedToken {
  TokenId id;
  std::string literal;
  bool special;
};

struct TokenizerFile {
  std::unique_ptr<char[]> arena;         // the bytes of all tokens
  std::vector<std::string_view> tokens;  // by id, views of the arena; empty: an id that is no BPE token
  std::vector<Bpe::Merge> merges;        // in order of rank
  std::vector<AddedToken> added;
};

// config_text: tokenizer_config.json, or empty; added tokens that only it lists (as in the vendor's release) are taken
// from there. Errors name the key, what was found and what is expected.
Result<TokenizerFile> read_tokenizer_file(std::string_view text, std::string_view config_text);

}  // namespace lily

// Shared by the tests of text: LilyTiny's tokenizer and template, small helpers.
#pragma once

#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lily::test {

inline std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string tiny_file(const char* name) {
  return read_file(std::string(LILY_SOURCE_DIR) + "/models/lily-tiny/" + name);
}

inline const Tokenizer& tiny_tokenizer() {
  static const Tokenizer tokenizer = [] {
    auto loaded = Tokenizer::load(tiny_file("tokenizer.json"));
    if (!loaded) throw std::runtime_error(loaded.error().message);
    return std::move(*loaded);
  }();
  return tokenizer;
}

inline std::vector<TokenId> encoded(std::string_view text) {
  std::vector<TokenId> ids;
  tiny_tokenizer().encode(text, ids);
  return ids;
}

inline std::vector<TokenId> encoded_plain(std::string_view text) {
  std::vector<TokenId> ids;
  tiny_tokenizer().encode_plain(text, ids);
  return ids;
}

inline TokenId added(std::string_view literal) {
  return tiny_tokenizer().find_added(literal).value();
}

// The token of one single byte.
inline TokenId byte_token(unsigned char byte) {
  static const std::vector<TokenId> ids = [] {
    std::vector<TokenId> by_byte(256, -1);
    for (TokenId id = 0; id < tiny_tokenizer().size(); ++id) {
      const std::string_view bytes = tiny_tokenizer().bytes(id);
      if (bytes.size() == 1) by_byte[static_cast<unsigned char>(bytes.front())] = id;
    }
    return by_byte;
  }();
  return ids[byte];
}

// Added tokens as their ids, every other byte as a token of its own.
inline std::vector<TokenId> bytewise(std::string_view text) {
  std::vector<TokenId> out;
  for (const TokenId id : encoded(text)) {
    if (id >= added("<|endoftext|>")) {
      out.push_back(id);
    } else {
      for (const char c : tiny_tokenizer().bytes(id)) out.push_back(byte_token(static_cast<unsigned char>(c)));
    }
  }
  return out;
}

}  // namespace lily::test

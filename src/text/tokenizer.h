// Byte-level BPE of Qwen3.5/3.6, read from the checkpoint's tokenizer.json. Immutable once loaded: any number of
// threads may encode and decode at once.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "model/shape.h"

namespace lily {

// Added tokens that the chat template and the output parser rely on.
inline constexpr std::array<std::string_view, 8> kChatMarkers{"<|im_start|>",    "<|im_end|>",      "<think>",
                                                              "</think>",        "<tool_call>",     "</tool_call>",
                                                              "<tool_response>", "</tool_response>"};

class Tokenizer {
 public:
  // Refuses a pipeline that is not exactly the known one (normaliser, Split pattern with \p{M}, ByteLevel, BPE flags)
  // and a vocabulary without the chat markers (kChatMarkers). tokenizer_config_json, if not empty, supplies added
  // tokens that only it lists.
  static Result<Tokenizer> load(std::string_view tokenizer_json, std::string_view tokenizer_config_json = {});
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Text as a whole, added tokens ("<|im_start|>", "<think>", ...) recognised: what HF tokenizers gives. Appends to
  // `out`. Invalid UTF-8 is replaced by U+FFFD first.
  void encode(std::string_view text, std::vector<TokenId>& out) const;
  // Untrusted text: the same, but literals of added tokens are ordinary text.
  void encode_plain(std::string_view text, std::vector<TokenId>& out) const;

  std::string_view bytes(TokenId id) const;  // what the id decodes to; empty for ids that are not tokens
  std::optional<TokenId> find_added(std::string_view literal) const;
  bool is_special(TokenId id) const;  // added token with special = true
  TokenId size() const;               // addressable ids: 0 .. size()-1
  std::string decode(const std::vector<TokenId>& ids, bool skip_special = true) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Turns ids into text as they come; every returned piece is valid UTF-8 and the pieces concatenate to decode().
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool skip_special = true)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}
  std::string push(TokenId id);  // text that is complete now; may be empty
  std::string finish();          // an unfinished character becomes one U+FFFD

 private:
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::string pending_;
};

}  // namespace lily

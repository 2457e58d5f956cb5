// Text to ids and back: added tokens on raw text, then NFC, the pre-tokenizer and BPE on what lies between them.
#include "text/tokenizer.h"

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/utf8.h"
#include "text/bpe.h"
#include "text/nfc.h"
#include "text/pretokenizer.h"
#include "text/tokenizer_file.h"

namespace lily {

namespace {

// Finds added tokens in raw text, leftmost first and the longest at each place.
class AddedTokens {
 public:
  explicit AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
    std::sort(tokens_.begin(), tokens_.end(),
              [](const auto& a, const auto& b) { return a.literal.size() > b.literal.size(); });
    for (const AddedToken& token : tokens_) starts_[static_cast<unsigned char>(token.literal.front())] = true;
  }

  // The first added token at or after `from`; `from` moves to its first byte, or to the end when there is none.
  const AddedToken* find_next(std::string_view text, std::size_t& from) const {
    for (; from < text.size(); ++from) {
      if (!starts_[static_cast<unsigned char>(text[from])]) continue;
      const std::string_view rest = text.substr(from);
      for (const AddedToken& token : tokens_) {
        if (rest.starts_with(token.literal)) return &token;
      }
    }
    return nullptr;
  }

  const AddedToken* find(std::string_view literal) const {
    const auto it = std::find_if(tokens_.begin(), tokens_.end(), [&](const auto& t) { return t.literal == literal; });
    return it != tokens_.end() ? &*it : nullptr;
  }

  const std::vector<AddedToken>& all() const { return tokens_; }

 private:
  std::vector<AddedToken> tokens_;  // longest first
  std::array<bool, 256> starts_{};  // first bytes that occur
};

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerFile file)
      : arena(std::move(file.arena)),
        added(std::move(file.added)),
        bpe(file.tokens, file.merges),
        bytes(std::move(file.tokens)) {
    for (const AddedToken& token : added.all()) {
      const auto at = static_cast<std::size_t>(token.id);
      if (at >= bytes.size()) bytes.resize(at + 1);
      bytes[at] = token.literal;
    }
    special.resize(bytes.size());
    for (const AddedToken& token : added.all()) special[static_cast<std::size_t>(token.id)] = token.special;
  }

  // Valid UTF-8 without added tokens.
  void encode_segment(std::string_view text, std::string& buffer, std::vector<TokenId>& out) const {
    text = nfc(text, buffer);
    for (std::size_t start = 0; start < text.size();) {
      const std::size_t end = piece_end(text, start);
      bpe.encode_piece(text.substr(start, end - start), out);
      start = end;
    }
  }

  std::unique_ptr<char[]> arena;
  AddedTokens added;
  Bpe bpe;
  std::vector<std::string_view> bytes;  // by id, added tokens included
  std::vector<bool> special;
};

namespace {

// Untrusted text must never become a control token, so no added token may be a result of ordinary merges.
Result<void> check_added(const AddedTokens& added, const Bpe& bpe, std::size_t n_bpe_tokens) {
  for (const std::string_view marker : kChatMarkers) {
    if (added.find(marker) != nullptr) continue;
    return fail(ErrorCode::Unsupported, "tokenizer.json: added_tokens lacks {}", marker);
  }
  for (const AddedToken& token : added.all()) {
    if (static_cast<std::size_t>(token.id) >= n_bpe_tokens || !bpe.is_reachable(token.id)) continue;
    return fail(ErrorCode::Unsupported, "tokenizer.json: added token {} can also be the result of merges", token.id);
  }
  return {};
}

std::string_view repaired(std::string_view text, std::string& buffer) {
  if (utf8::is_valid(text)) return text;
  utf8::append_repaired(buffer, text);
  return buffer;
}

}  // namespace

Result<Tokenizer> Tokenizer::load(std::string_view tokenizer_json, std::string_view tokenizer_config_json) {
  LILY_TRY(TokenizerFile file, read_tokenizer_file(tokenizer_json, tokenizer_config_json));
  const std::size_t n_bpe_tokens = file.tokens.size();
  try {
    auto impl = std::make_unique<Impl>(std::move(file));
    LILY_TRY_VOID(check_added(impl->added, impl->bpe, n_bpe_tokens));
    return Tokenizer(std::move(impl));
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::OutOfMemory, "no memory for the tokenizer's tables");
  }
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

void Tokenizer::encode(std::string_view text, std::vector<TokenId>& out) const {
  std::string repair_buffer;
  std::string nfc_buffer;
  text = repaired(text, repair_buffer);
  for (std::size_t start = 0; start < text.size();) {
    std::size_t end = start;
    const AddedToken* token = impl_->added.find_next(text, end);
    impl_->encode_segment(text.substr(start, end - start), nfc_buffer, out);
    if (token == nullptr) return;
    out.push_back(token->id);
    start = end + token->literal.size();
  }
}

void Tokenizer::encode_plain(std::string_view text, std::vector<TokenId>& out) const {
  std::string repair_buffer;
  std::string nfc_buffer;
  impl_->encode_segment(repaired(text, repair_buffer), nfc_buffer, out);
}

std::string_view Tokenizer::bytes(TokenId id) const {
  if (id < 0 || id >= size()) return {};
  return impl_->bytes[static_cast<std::size_t>(id)];
}

std::optional<TokenId> Tokenizer::find_added(std::string_view literal) const {
  const AddedToken* token = impl_->added.find(literal);
  return token != nullptr ? std::optional(token->id) : std::nullopt;
}

bool Tokenizer::is_special(TokenId id) const {
  return id >= 0 && id < size() && impl_->special[static_cast<std::size_t>(id)];
}

TokenId Tokenizer::size() const {
  return static_cast<TokenId>(impl_->bytes.size());
}

std::string Tokenizer::decode(const std::vector<TokenId>& ids, bool skip_special) const {
  std::string raw;
  for (const TokenId id : ids) {
    if (!skip_special || !is_special(id)) raw += bytes(id);
  }
  if (utf8::is_valid(raw)) return raw;
  std::string text;
  utf8::append_repaired(text, raw);
  return text;
}

}  // namespace lily

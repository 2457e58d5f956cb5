// Streaming decoding: at most three bytes of a character that may still be completed are held back.
#include "base/utf8.h"
#include "text/tokenizer.h"

namespace lily {

std::string Detokenizer::push(TokenId id) {
  if (skip_special_ && tokenizer_->is_special(id)) return {};
  pending_ += tokenizer_->bytes(id);
  std::string out;
  std::size_t done = 0;
  while (done < pending_.size()) {
    const std::string_view rest = std::string_view(pending_).substr(done);
    bool truncated = false;
    const int length = utf8::scan(rest, &truncated);
    if (truncated) break;
    if (length > 0) {
      out.append(rest.substr(0, static_cast<std::size_t>(length)));
      done += static_cast<std::size_t>(length);
    } else {
      out += utf8::kReplacementBytes;
      done += static_cast<std::size_t>(-length);
    }
  }
  pending_.erase(0, done);
  return out;
}

std::string Detokenizer::finish() {
  const bool unfinished = !pending_.empty();
  pending_.clear();
  return unfinished ? std::string(utf8::kReplacementBytes) : std::string();
}

}  // namespace lily

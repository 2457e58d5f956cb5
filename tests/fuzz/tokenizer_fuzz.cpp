// First byte odd: the rest is a tokenizer.json. Even: text for LilyTiny's tokenizer, whose ids must decode to its NFC
// form.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "text/nfc.h"
#include "text/tokenizer.h"
#include "unit/text/text_support.h"

namespace {

using namespace lily;

void try_file(std::string_view text) {
  const auto tokenizer = Tokenizer::load(text, text);
  if (!tokenizer) {
    LILY_CHECK(utf8::is_valid(tokenizer.error().message));
    return;
  }
  std::vector<TokenId> ids;
  tokenizer->encode("Hello <think> 123 \U0001F98A", ids);
  LILY_CHECK(tokenizer->decode(ids, false) == "Hello <think> 123 \U0001F98A");
}

void try_text(std::string_view text) {
  const Tokenizer& tokenizer = test::tiny_tokenizer();
  std::vector<TokenId> ids;
  tokenizer.encode_plain(text, ids);
  std::string repaired;
  utf8::append_repaired(repaired, text);
  std::string buffer;
  LILY_CHECK(tokenizer.decode(ids, false) == nfc(repaired, buffer));
  ids.clear();
  tokenizer.encode(text, ids);
  Detokenizer detokenizer(tokenizer, false);
  std::string sum;
  for (const TokenId id : ids) sum += detokenizer.push(id);
  sum += detokenizer.finish();
  LILY_CHECK(sum == tokenizer.decode(ids, false));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 1) {
    try_file(text);
  } else {
    try_text(text);
  }
  return 0;
}

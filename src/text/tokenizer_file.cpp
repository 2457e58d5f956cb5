// Strings of the file are in the GPT-2 alphabet, in which every byte is one printable character; here they become
// bytes again. All of them go into one arena.
#include "text/tokenizer_file.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <new>
#include <utility>

#include "base/json.h"
#include "base/utf8.h"
#include "text/pretokenizer.h"
#include "text/token_index.h"

namespace lily {

namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;
constexpr std::size_t kMaxAdded = 4096;  // far more than any release has; bounds what a small file can make us allocate

std::string_view view(const boost::json::string& s) {
  return {s.data(), s.size()};
}
std::string_view view(boost::json::string_view s) {
  return {s.data(), s.size()};
}

template <class... Args>
tl::unexpected<Error> unsupported(fmt::format_string<Args...> format, Args&&... args) {
  return fail(ErrorCode::Unsupported, "tokenizer.json: {}", fmt::format(format, std::forward<Args>(args)...));
}

// The value as it would stand in the file, shortened: safe to print.
std::string shown(const json::Value* value) {
  if (value == nullptr) return "nothing";
  std::string text = json::dump(*value);
  if (text.size() <= 200) return text;
  std::string cut;
  utf8::append_repaired(cut, std::string_view(text).substr(0, 200));
  return cut + "...";
}

const json::Value* member(const json::Value* value, std::string_view key) {
  const auto* object = value != nullptr ? value->if_object() : nullptr;
  return object != nullptr ? object->if_contains(key) : nullptr;
}

bool is_absent(const json::Value* value) {
  return value == nullptr || value->is_null();
}

bool is_text(const json::Value* value, std::string_view text) {
  return value != nullptr && value->is_string() && view(value->get_string()) == text;
}

bool is_bool(const json::Value* value, bool expected) {
  return value != nullptr && value->is_bool() && value->get_bool() == expected;
}

Result<void> expect_false(const json::Value* object, std::string_view path, std::string_view key) {
  const json::Value* value = member(object, key);
  if (is_absent(value) || is_bool(value, false)) return {};
  return unsupported("{}.{} is {}, expected false", path, key, shown(value));
}

Result<void> check_split(const json::Value* split) {
  const json::Value* pattern = member(member(split, "pattern"), "Regex");
  if (!is_text(pattern, kSplitPattern)) {
    return unsupported(
        "the Split pattern is {}, expected {} (a file saved by an older tokenizer class has lost \\p{{M}}; use the "
        "original file)",
        shown(pattern), kSplitPattern);
  }
  if (!is_text(member(split, "behavior"), "Isolated")) {
    return unsupported("the Split behavior is {}, expected \"Isolated\"", shown(member(split, "behavior")));
  }
  return expect_false(split, "pre_tokenizer Split", "invert");
}

Result<void> check_byte_level(const json::Value* step) {
  for (const std::string_view key : {"add_prefix_space", "use_regex"}) {
    if (is_bool(member(step, key), false)) continue;
    return unsupported("pre_tokenizer ByteLevel.{} is {}, expected false", key, shown(member(step, key)));
  }
  return {};
}

Result<void> check_pre_tokenizer(const json::Value* pre_tokenizer) {
  const json::Value* steps = member(pre_tokenizer, "pretokenizers");
  const json::Array* array = steps != nullptr ? steps->if_array() : nullptr;
  if (!is_text(member(pre_tokenizer, "type"), "Sequence") || array == nullptr || array->size() != 2 ||
      !is_text(member(&(*array)[0], "type"), "Split") || !is_text(member(&(*array)[1], "type"), "ByteLevel")) {
    return unsupported("pre_tokenizer is {}, expected a Sequence of Split and ByteLevel", shown(pre_tokenizer));
  }
  LILY_TRY_VOID(check_split(&(*array)[0]));
  return check_byte_level(&(*array)[1]);
}

Result<void> check_model(const json::Value* model) {
  if (!is_text(member(model, "type"), "BPE")) {
    return unsupported("model.type is {}, expected \"BPE\"", shown(member(model, "type")));
  }
  for (const std::string_view key : {"dropout", "unk_token"}) {
    if (is_absent(member(model, key))) continue;
    return unsupported("model.{} is {}, expected null", key, shown(member(model, key)));
  }
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (is_absent(member(model, key)) || is_text(member(model, key), "")) continue;
    return unsupported("model.{} is {}, expected \"\"", key, shown(member(model, key)));
  }
  for (const std::string_view key : {"fuse_unk", "byte_fallback", "ignore_merges"}) {
    LILY_TRY_VOID(expect_false(model, "model", key));
  }
  return {};
}

Result<void> check_pipeline(const json::Value& root) {
  for (const std::string_view key : {"truncation", "padding"}) {
    if (is_absent(member(&root, key))) continue;
    return unsupported("{} is {}, expected null", key, shown(member(&root, key)));
  }
  if (!is_text(member(member(&root, "normalizer"), "type"), "NFC")) {
    return unsupported("normalizer is {}, expected {{\"type\":\"NFC\"}}", shown(member(&root, "normalizer")));
  }
  LILY_TRY_VOID(check_pre_tokenizer(member(&root, "pre_tokenizer")));
  const json::Value* post = member(&root, "post_processor");
  if (!is_absent(post) && !is_text(member(post, "type"), "ByteLevel")) {
    return unsupported("post_processor is {}, expected ByteLevel or null", shown(post));
  }
  if (!is_text(member(member(&root, "decoder"), "type"), "ByteLevel")) {
    return unsupported("decoder is {}, expected ByteLevel", shown(member(&root, "decoder")));
  }
  return check_model(member(&root, "model"));
}

// The GPT-2 alphabet: printable Latin-1 stands for itself, the other bytes for U+0100 and up in their order.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    bytes_.fill(-1);
    int next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      bytes_[static_cast<std::size_t>(printable ? b : next++)] = static_cast<std::int16_t>(b);
    }
  }

  // Writes the bytes that `text` stands for to `out` (room for text.size()). Null: a character outside the alphabet.
  char* decode(std::string_view text, char* out) const {
    for (std::size_t i = 0; i < text.size();) {
      const char32_t c = utf8::next(text, i);
      if (c >= bytes_.size() || bytes_[c] < 0) return nullptr;
      *out++ = static_cast<char>(bytes_[c]);
    }
    return out;
  }

 private:
  std::array<std::int16_t, 0x144> bytes_;
};

class Reader {
 public:
  Result<TokenizerFile> read(const json::Value& root, const json::Value* config) {
    LILY_TRY_VOID(check_pipeline(root));
    const json::Value* model = member(&root, "model");
    LILY_TRY_VOID(read_vocabulary(member(model, "vocab")));
    LILY_TRY_VOID(read_merges(member(model, "merges")));
    LILY_TRY_VOID(read_added(member(&root, "added_tokens")));
    LILY_TRY_VOID(read_added_from_config(member(config, "added_tokens_decoder")));
    return std::move(file_);
  }

 private:
  Result<void> read_vocabulary(const json::Value* vocabulary);
  Result<void> read_merges(const json::Value* merges);
  Result<Bpe::Merge> read_merge(const json::Value& merge, const TokenIndex& index, std::string& buffer) const;
  Result<void> read_added(const json::Value* added);
  Result<void> read_added_from_config(const json::Value* decoder);
  Result<void> add(std::int64_t id, const json::Value& token);

  ByteAlphabet alphabet_;
  TokenizerFile file_;
};

Result<void> Reader::read_vocabulary(const json::Value* vocabulary) {
  const json::Object* object = vocabulary != nullptr ? vocabulary->if_object() : nullptr;
  if (object == nullptr) return unsupported("model.vocab is missing or not an object");
  const auto n_tokens = static_cast<std::int64_t>(object->size());
  std::size_t arena_bytes = 0;
  for (const auto& entry : *object) {
    arena_bytes += entry.key().size();
    const std::int64_t* id = entry.value().if_int64();
    if (id == nullptr || *id < 0 || *id >= n_tokens) {
      return fail(ErrorCode::Corrupt, "tokenizer.json: model.vocab has {} entries and the id {}, expected 0 to {}",
                  n_tokens, shown(&entry.value()), n_tokens - 1);
    }
  }
  file_.arena = std::make_unique_for_overwrite<char[]>(arena_bytes);
  file_.tokens.resize(object->size());
  char* next = file_.arena.get();
  for (const auto& entry : *object) {
    const std::int64_t id = entry.value().get_int64();
    char* const end = alphabet_.decode(view(entry.key()), next);
    if (end == nullptr) return unsupported("the vocabulary entry of id {} is not in the byte-level alphabet", id);
    std::string_view& token = file_.tokens[static_cast<std::size_t>(id)];
    if (!token.empty()) return fail(ErrorCode::Corrupt, "tokenizer.json: model.vocab gives id {} twice", id);
    token = {next, static_cast<std::size_t>(end - next)};
    next = end;
  }
  std::array<bool, 256> seen{};
  for (const std::string_view token : file_.tokens) {
    if (token.size() == 1) seen[static_cast<unsigned char>(token.front())] = true;
  }
  const auto missing = std::find(seen.begin(), seen.end(), false);
  if (missing == seen.end()) return {};
  return unsupported("model.vocab lacks a token for byte {}", missing - seen.begin());
}

Result<Bpe::Merge> Reader::read_merge(const json::Value& merge, const TokenIndex& index, std::string& buffer) const {
  std::string_view left;
  std::string_view right;
  if (const json::Array* pair = merge.if_array()) {
    if (pair->size() == 2 && (*pair)[0].is_string() && (*pair)[1].is_string()) {
      left = view((*pair)[0].get_string());
      right = view((*pair)[1].get_string());
    }
  } else if (const auto* text = merge.if_string()) {
    const std::size_t space = view(*text).find(' ');
    if (space != std::string_view::npos) {
      left = view(*text).substr(0, space);
      right = view(*text).substr(space + 1);
    }
  }
  buffer.resize(left.size() + right.size());
  char* const middle = alphabet_.decode(left, buffer.data());
  char* const end = middle != nullptr ? alphabet_.decode(right, middle) : nullptr;
  if (left.empty() || right.empty() || end == nullptr) {
    return fail(ErrorCode::Corrupt, "is not a pair of strings of the byte-level alphabet");
  }
  const auto id = [&](const char* from, const char* to) {
    return index.find(std::string_view(from, static_cast<std::size_t>(to - from))).value_or(-1);
  };
  const Bpe::Merge ids{id(buffer.data(), middle), id(middle, end), id(buffer.data(), end)};
  if (ids.left < 0 || ids.right < 0 || ids.merged < 0) {
    return fail(ErrorCode::Corrupt, "has a part or a result that is not in model.vocab");
  }
  return ids;
}

Result<void> Reader::read_merges(const json::Value* merges) {
  const json::Array* array = merges != nullptr ? merges->if_array() : nullptr;
  if (array == nullptr) return unsupported("model.merges is missing or not an array");
  const TokenIndex index(file_.tokens);
  std::string buffer;
  file_.merges.reserve(array->size());
  for (const json::Value& item : *array) {
    const auto merge = read_merge(item, index, buffer);
    if (!merge) {
      return fail(ErrorCode::Corrupt, "tokenizer.json: model.merges[{}] {}", file_.merges.size(),
                  merge.error().message);
    }
    file_.merges.push_back(*merge);
  }
  return {};
}

Result<void> Reader::add(std::int64_t id, const json::Value& token) {
  const json::Value* content = member(&token, "content");
  const auto end_id = static_cast<std::int64_t>(file_.tokens.size() + kMaxAdded);
  if (content == nullptr || !content->is_string() || content->get_string().empty() || id < 0 || id >= end_id) {
    return fail(ErrorCode::Corrupt, "tokenizer.json: an added token lacks content or an id below {}: {}", end_id,
                shown(&token));
  }
  if (file_.added.size() == kMaxAdded) return unsupported("more than {} added tokens", kMaxAdded);
  for (const std::string_view key : {"single_word", "lstrip", "rstrip", "normalized"}) {
    LILY_TRY_VOID(expect_false(&token, "added token", key));
  }
  const std::string_view literal = view(content->get_string());
  for (const AddedToken& other : file_.added) {
    if (other.id == id && other.literal == literal) return {};
    if (other.id == id || other.literal == literal) {
      return fail(ErrorCode::Corrupt, "tokenizer.json: two added tokens share an id or a text: {}", shown(&token));
    }
  }
  const auto at = static_cast<std::size_t>(id);
  if (at < file_.tokens.size() && !file_.tokens[at].empty() && file_.tokens[at] != literal) {
    return fail(ErrorCode::Corrupt, "tokenizer.json: id {} of an added token is another token in model.vocab", id);
  }
  file_.added.push_back({static_cast<TokenId>(id), std::string(literal), is_bool(member(&token, "special"), true)});
  return {};
}

Result<void> Reader::read_added(const json::Value* added) {
  const json::Array* array = added != nullptr ? added->if_array() : nullptr;
  if (array == nullptr) return unsupported("added_tokens is missing or not an array");
  for (const json::Value& token : *array) {
    const json::Value* id = member(&token, "id");
    LILY_TRY_VOID(add(id != nullptr && id->is_int64() ? id->get_int64() : -1, token));
  }
  return {};
}

Result<void> Reader::read_added_from_config(const json::Value* decoder) {
  const json::Object* object = decoder != nullptr ? decoder->if_object() : nullptr;
  if (object == nullptr) return {};
  for (const auto& entry : *object) {
    const std::string_view key = view(entry.key());
    std::int64_t id = -1;
    const auto [end, status] = std::from_chars(key.data(), key.data() + key.size(), id);
    LILY_TRY_VOID(add(status == std::errc() && end == key.data() + key.size() ? id : -1, entry.value()));
  }
  return {};
}

}  // namespace

Result<TokenizerFile> read_tokenizer_file(std::string_view text, std::string_view config_text) {
  if (text.size() > kMaxFileBytes) return unsupported("{} bytes are too many", text.size());
  const auto root = json::parse(text);
  if (!root) return fail(root.error().code, "tokenizer.json: {}", root.error().message);
  json::Value config;
  if (!config_text.empty()) {
    auto parsed = json::parse(config_text);
    if (!parsed) return fail(parsed.error().code, "tokenizer_config.json: {}", parsed.error().message);
    config = std::move(*parsed);
  }
  try {
    return Reader().read(*root, &config);
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::OutOfMemory, "no memory for the tables of tokenizer.json");
  }
}

}  // namespace lily

// Merges are drawn until the base vocabulary is full; the added tokens follow at their published places.
#include "model/synth_tokenizer.h"

#include <array>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "model/config.h"
#include "model/indented_json.h"
#include "model/synth_weights.h"

namespace lily {
namespace {

constexpr std::string_view kSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";

// In the order of their ids. The flag: hidden when special tokens are skipped.
constexpr std::array<std::pair<std::string_view, bool>, 33> kAddedTokens{
    {{"<|endoftext|>", true},      {"<|im_start|>", true},
     {"<|im_end|>", true},         {"<|object_ref_start|>", true},
     {"<|object_ref_end|>", true}, {"<|box_start|>", true},
     {"<|box_end|>", true},        {"<|quad_start|>", true},
     {"<|quad_end|>", true},       {"<|vision_start|>", true},
     {"<|vision_end|>", true},     {"<|vision_pad|>", true},
     {"<|image_pad|>", true},      {"<|video_pad|>", true},
     {"<tool_call>", false},       {"</tool_call>", false},
     {"<|fim_prefix|>", false},    {"<|fim_middle|>", false},
     {"<|fim_suffix|>", false},    {"<|fim_pad|>", false},
     {"<|repo_name|>", false},     {"<|file_sep|>", false},
     {"<tool_response>", false},   {"</tool_response>", false},
     {"<think>", false},           {"</think>", false},
     {"<|audio_start|>", true},    {"<|audio_end|>", true},
     {"<tts_pad>", true},          {"<tts_text_bos>", true},
     {"<tts_text_eod>", true},     {"<tts_text_bos_single>", true},
     {"<|audio_pad|>", true}}};

// GPT-2's alphabet: a printable character for each byte. Printable bytes of Latin-1 stand for themselves, the others
// follow from U+0100 on. Sorted by code point, as vocabularies list it.
std::vector<std::string> byte_alphabet() {
  std::vector<std::string> printable, others;
  char32_t next = 0x100;
  for (char32_t byte = 0; byte < 256; ++byte) {
    const bool plain = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte != 0xad);
    utf8::append(plain ? printable.emplace_back() : others.emplace_back(), plain ? byte : next++);
  }
  printable.insert(printable.end(), others.begin(), others.end());
  return printable;
}

struct Vocabulary {
  std::vector<std::string> tokens;  // by id
  std::vector<std::pair<std::string, std::string>> merges;
};

// Letters pair up first, then short tokens with short tokens: enough structure for English to shrink.
Vocabulary draw_vocabulary(std::size_t size, std::uint64_t seed) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz";
  constexpr std::size_t kMaxTokenBytes = 16;
  const std::uint64_t stream = synth_stream(seed, "tokenizer.json");
  Vocabulary vocabulary{.tokens = byte_alphabet(), .merges = {}};
  std::unordered_set<std::string> known(vocabulary.tokens.begin(), vocabulary.tokens.end());
  std::vector<std::string> wordlike{"\u0120"};  // the byte of a blank
  for (const char letter : kLetters) wordlike.emplace_back(1, letter);
  for (std::uint64_t draw = 0; vocabulary.tokens.size() < size; ++draw) {
    const std::uint64_t bits = synth_hash(stream, draw);
    const std::string& left = wordlike[(bits >> 32) % wordlike.size()];
    const std::string& right = wordlike[(bits & 0xffffffffu) % std::min<std::size_t>(wordlike.size(), 2000)];
    std::string merged = left + right;
    const bool blank_inside = right.starts_with("\u0120");
    if (blank_inside || merged.size() > kMaxTokenBytes || !known.insert(merged).second) continue;
    vocabulary.merges.emplace_back(left, right);
    vocabulary.tokens.push_back(merged);
    wordlike.push_back(std::move(merged));
  }
  return vocabulary;
}

json::Object byte_level(bool decoder) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", decoder}, {"trim_offsets", decoder}, {"use_regex", decoder}};
}

json::Array added_tokens(const Shape& shape) {
  json::Array list;
  TokenId id = first_added_id(shape);
  for (const auto& [content, special] : kAddedTokens)
    list.push_back(json::Object{{"id", id++},
                                {"content", content},
                                {"single_word", false},
                                {"lstrip", false},
                                {"rstrip", false},
                                {"normalized", false},
                                {"special", special}});
  return list;
}

json::Object bpe_model(const Vocabulary& vocabulary) {
  json::Object ids;
  ids.reserve(vocabulary.tokens.size());
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) ids.emplace(vocabulary.tokens[id], id);
  json::Array merges;
  merges.reserve(vocabulary.merges.size());
  for (const auto& [left, right] : vocabulary.merges)
    merges.push_back(json::Array{json::Value(left), json::Value(right)});
  return {{"type", "BPE"},
          {"dropout", nullptr},
          {"unk_token", nullptr},
          {"continuing_subword_prefix", ""},
          {"end_of_word_suffix", ""},
          {"fuse_unk", false},
          {"byte_fallback", false},
          {"ignore_merges", false},
          {"vocab", std::move(ids)},
          {"merges", std::move(merges)}};
}

}  // namespace

std::string make_tokenizer_json(const Shape& shape, std::uint64_t seed) {
  const json::Object split{{"type", "Split"},
                           {"pattern", json::Object{{"Regex", kSplitPattern}}},
                           {"behavior", "Isolated"},
                           {"invert", false}};
  const Vocabulary vocabulary = draw_vocabulary(static_cast<std::size_t>(first_added_id(shape)), seed);
  return json::dump(json::Object{
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", added_tokens(shape)},
      {"normalizer", json::Object{{"type", "NFC"}}},
      {"pre_tokenizer", json::Object{{"type", "Sequence"}, {"pretokenizers", json::Array{split, byte_level(false)}}}},
      {"post_processor", byte_level(false)},
      {"decoder", byte_level(true)},
      {"model", bpe_model(vocabulary)}});
}

std::string make_tokenizer_config(const Shape& shape) {
  return indented_json(json::Object{{"add_prefix_space", false},
                                    {"bos_token", nullptr},
                                    {"clean_up_tokenization_spaces", false},
                                    {"eos_token", "<|im_end|>"},
                                    {"errors", "replace"},
                                    {"model_max_length", shape.max_positions},
                                    {"pad_token", "<|endoftext|>"},
                                    {"pretokenize_regex", kSplitPattern},
                                    {"split_special_tokens", false},
                                    {"tokenizer_class", "TokenizersBackend"},
                                    {"unk_token", nullptr}});
}

}  // namespace lily

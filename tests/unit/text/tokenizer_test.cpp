#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "text/nfc.h"
#include "text/pretokenizer.h"
#include "unit/text/text_support.h"

namespace lily {
namespace {

using test::added;
using test::encoded;
using test::encoded_plain;
using test::tiny_tokenizer;

std::vector<std::string> pieces(std::string_view text) {
  std::vector<std::string> out;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = piece_end(text, start);
    out.emplace_back(text.substr(start, end - start));
    start = end;
  }
  return out;
}

using Pieces = std::vector<std::string>;

TEST(Pretokenizer, SplitsAsThePatternDoes) {
  EXPECT_EQ(pieces("Hello  world"), (Pieces{"Hello", " ", " world"}));
  EXPECT_EQ(pieces("I'm 12, we'RE"), (Pieces{"I", "'m", " ", "1", "2", ",", " we", "'RE"}));
  EXPECT_EQ(pieces("foo... \r\nbar"), (Pieces{"foo", "...", " \r\n", "bar"}));
  EXPECT_EQ(pieces("a \n \n  b"), (Pieces{"a", " \n \n", " ", " b"}));
  EXPECT_EQ(pieces("x   "), (Pieces{"x", "   "}));
  EXPECT_EQ(pieces("(word) !?\n\ny"), (Pieces{"(word", ")", " !?\n\n", "y"}));
  EXPECT_EQ(pieces("'\xC5\xBF'x"), (Pieces{"'\xC5\xBF", "'x"}));
  EXPECT_EQ(pieces("\t\tend"), (Pieces{"\t", "\tend"}));
}

TEST(Pretokenizer, K01_MarksJoinLetters) {
  EXPECT_EQ(pieces("नमस्ते दुनिया"), (Pieces{"नमस्ते", " दुनिया"}));
  EXPECT_EQ(pieces("\u0301!I"), (Pieces{"\u0301", "!I"}));
  EXPECT_EQ(pieces("1\u0301"
                   "2"),
            (Pieces{"1", "\u0301", "2"}));
  EXPECT_EQ(pieces(" \u0301 "), (Pieces{" \u0301", " "}));
}

TEST(Nfc, ComposesReordersAndLeavesTheRest) {
  std::string buffer;
  EXPECT_EQ(nfc("plain", buffer), "plain");
  EXPECT_EQ(nfc("e\u0301tude \u212b", buffer), "étude \u00c5");
  EXPECT_EQ(nfc("q\u0307\u0323", buffer), "q\u0323\u0307");
  EXPECT_EQ(nfc("\u0130\u0323", buffer), "\u1eca\u0307");
  EXPECT_EQ(nfc("\u1112\u1161\u11ab x", buffer), "한 x");
  EXPECT_EQ(nfc("\u0344", buffer), "\u0308\u0301");
}

TEST(Nfc, ManyMarksAreSortedInLinearTime) {
  constexpr int kPairs = 150000;
  std::string marks = "x";
  std::string sorted = "x";
  for (int i = 0; i < kPairs; ++i) marks += "\u0301\u0334";
  for (int i = 0; i < kPairs; ++i) sorted += "\u0334";
  for (int i = 0; i < kPairs; ++i) sorted += "\u0301";
  std::string buffer;
  EXPECT_TRUE(nfc(marks, buffer) == sorted);
}

TEST(Tokenizer, RoundTripsAndKeepsAddedTokensApart) {
  const std::string text = "Hello, <|im_start|>wörld</think> <think> 123 \U0001F98A\n";
  EXPECT_EQ(tiny_tokenizer().decode(encoded(text), false), text);
  EXPECT_EQ(encoded("<think>").size(), 1u);
  EXPECT_GT(encoded_plain("<think>").size(), 1u);
  EXPECT_EQ(tiny_tokenizer().decode(encoded_plain(text), false), text);
  EXPECT_EQ(tiny_tokenizer().decode({added("<|im_start|>"), added("<think>")}), "<think>");
  EXPECT_TRUE(tiny_tokenizer().is_special(added("<|im_end|>")));
  EXPECT_FALSE(tiny_tokenizer().is_special(added("<tool_call>")));
}

TEST(Tokenizer, AddedTokensAreLeftmostLongest) {
  const TokenId longer = added("<tts_text_bos_single>");
  const TokenId shorter = added("<tts_text_bos>");
  EXPECT_EQ(encoded("<tts_text_bos_single><tts_text_bos>"), (std::vector<TokenId>{longer, shorter}));
  EXPECT_EQ(encoded("<<think>").back(), added("<think>"));
}

TEST(Tokenizer, IdsOutsideAreNothing) {
  EXPECT_EQ(tiny_tokenizer().bytes(-1), "");
  EXPECT_EQ(tiny_tokenizer().bytes(tiny_tokenizer().size()), "");
  EXPECT_EQ(tiny_tokenizer().decode({-5, 1 << 30}), "");
  EXPECT_FALSE(tiny_tokenizer().is_special(-1));
  EXPECT_FALSE(tiny_tokenizer().find_added("nothing"));
}

TEST(Tokenizer, InvalidUtf8IsReplacedFirst) {
  EXPECT_EQ(encoded("a\xFFz"), encoded("a\xEF\xBF\xBDz"));
  EXPECT_EQ(encoded_plain("\xE4\xBD"), encoded_plain("\xEF\xBF\xBD"));
}

TEST(Tokenizer, K04_LongRunsStayLinear) {
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  std::string latin;
  std::uint32_t state = 1;
  while (latin.size() < kBytes) {
    state = state * 1664525 + 1013904223;
    utf8::append(latin, state >> 24);
  }
  std::string marks;
  while (marks.size() < kBytes) marks += "\u0301\u0323";
  for (const std::string& text :
       {std::string(kBytes, ' '), std::string(kBytes, '\n'), std::string(kBytes, 'a'), latin, marks}) {
    EXPECT_GT(encoded(text).size(), 0u);
  }
  EXPECT_EQ(tiny_tokenizer().decode(encoded(latin)), latin);
}

TEST(Detokenizer, S01_S03_EveryPieceIsValidAndTheSumIsDecode) {
  std::vector<TokenId> ids = encoded("e\u0301 日本 \U0001F469\u200D\U0001F4BB \U0001F1E9\U0001F1EA");
  for (const unsigned char b : {0xF0, 0x9F, 0xA6, 0x8A, 0xFF, 0xC3, 0x28, 0x80, 0xED, 0xA0, 0x80, 0xE6, 0x97}) {
    ids.push_back(test::byte_token(b));
  }
  ids.push_back(added("<|im_end|>"));
  Detokenizer detokenizer(tiny_tokenizer());
  std::string sum;
  for (const TokenId id : ids) {
    const std::string piece = detokenizer.push(id);
    EXPECT_TRUE(utf8::is_valid(piece));
    sum += piece;
  }
  sum += detokenizer.finish();
  EXPECT_EQ(sum, tiny_tokenizer().decode(ids));
  EXPECT_EQ(detokenizer.finish(), "");
}

// tokenizer.json of LilyTiny after a change.
std::string refusal(const std::function<void(json::Object&)>& change) {
  auto root = json::parse(test::tiny_file("tokenizer.json")).value();
  change(root.as_object());
  const auto loaded = Tokenizer::load(json::dump(root));
  return loaded ? "loaded" : loaded.error().message;
}

json::Object& split_of(json::Object& root) {
  return root["pre_tokenizer"].as_object()["pretokenizers"].as_array()[0].as_object();
}

TEST(TokenizerFile, K01_RefusesAnyOtherPipeline) {
  using Object = json::Object;
  const auto model = [](Object& root) -> Object& { return root["model"].as_object(); };
  EXPECT_EQ(refusal([](Object&) {}), "loaded");
  const std::pair<const char*, std::function<void(Object&)>> rows[] = {
      {"Split pattern", [](Object& r) { split_of(r)["pattern"].as_object()["Regex"] = R"(\p{L}+|\p{N})"; }},
      {"Split behavior", [](Object& r) { split_of(r)["behavior"] = "Removed"; }},
      {"invert", [](Object& r) { split_of(r)["invert"] = true; }},
      {"pre_tokenizer", [](Object& r) { r["pre_tokenizer"] = nullptr; }},
      {"normalizer", [](Object& r) { r["normalizer"] = nullptr; }},
      {"decoder", [](Object& r) { r["decoder"] = nullptr; }},
      {"post_processor", [](Object& r) { r["post_processor"] = json::Value{{"type", "TemplateProcessing"}}; }},
      {"truncation", [](Object& r) { r["truncation"] = json::Value{{"max_length", 5}}; }},
      {"model.type", [&](Object& r) { model(r)["type"] = "Unigram"; }},
      {"model.byte_fallback", [&](Object& r) { model(r)["byte_fallback"] = true; }},
      {"model.ignore_merges", [&](Object& r) { model(r)["ignore_merges"] = true; }},
      {"model.dropout", [&](Object& r) { model(r)["dropout"] = 0.1; }},
      {"model.unk_token", [&](Object& r) { model(r)["unk_token"] = "<unk>"; }},
      {"model.vocab", [&](Object& r) { model(r)["vocab"] = 5; }},
      {"model.vocab", [&](Object& r) { model(r)["vocab"].as_object()["!"] = -1; }},
      {"twice", [&](Object& r) { model(r)["vocab"].as_object()["!"] = 1; }},
      {"alphabet", [&](Object& r) { model(r)["vocab"].as_object()["日"] = model(r)["vocab"].as_object().size(); }},
      {"byte 33",
       [&](Object& r) {
         Object& vocabulary = model(r)["vocab"].as_object();
         vocabulary["zqxzqx"] = json::Value(vocabulary.at("!"));
         vocabulary.erase("!");
       }},
      {"the id 99999", [&](Object& r) { model(r)["vocab"].as_object()["!"] = 99999; }},
      {"an id below", [](Object& r) { r["added_tokens"].as_array()[3].as_object()["id"] = 99999; }},
      {"model.merges[0]", [&](Object& r) { model(r)["merges"].as_array()[0] = "onlyone"; }},
      {"model.merges[1]", [&](Object& r) { model(r)["merges"].as_array()[1] = json::Array{"zzzzq", "b"}; }},
      {"normalized", [](Object& r) { r["added_tokens"].as_array()[0].as_object()["normalized"] = true; }},
      {"share an id",
       [](Object& r) { r["added_tokens"].as_array()[0].as_object()["id"] = r["added_tokens"].as_array()[1].at("id"); }},
      {"lacks <|im_start|>",
       [](Object& r) { r["added_tokens"].as_array().erase(r["added_tokens"].as_array().begin() + 1); }},
      {"result of merges",
       [&](Object& r) {
         r["added_tokens"].as_array().push_back(json::Value{{"id", model(r)["vocab"].at("he")}, {"content", "he"}});
       }},
  };
  for (const auto& [expected, change] : rows) {
    const std::string message = refusal(change);
    EXPECT_NE(message.find(expected), std::string::npos) << expected << ": " << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
  EXPECT_FALSE(Tokenizer::load(""));
  EXPECT_FALSE(Tokenizer::load("[]"));
}

TEST(TokenizerFile, TakesBothNotationsOfMerges) {
  auto root = json::parse(test::tiny_file("tokenizer.json")).value();
  for (json::Value& merge : root.as_object()["model"].as_object()["merges"].as_array()) {
    if (!merge.is_array()) continue;
    merge = std::string(merge.at(0).as_string()) + " " + std::string(merge.at(1).as_string());
  }
  const auto loaded = Tokenizer::load(json::dump(root));
  ASSERT_TRUE(loaded) << loaded.error().message;
  std::vector<TokenId> ids;
  loaded->encode("The answer is 42.", ids);
  EXPECT_EQ(ids, encoded("The answer is 42."));
}

TEST(TokenizerFile, TakesAddedTokensOnlyTheConfigLists) {
  auto root = json::parse(test::tiny_file("tokenizer.json")).value();
  json::Object decoder;
  json::Array& tokens = root.as_object()["added_tokens"].as_array();
  while (tokens.size() > 26) {
    decoder[std::to_string(tokens.back().at("id").as_int64())] =
        json::Value{{"content", tokens.back().at("content")}, {"special", true}};
    tokens.pop_back();
  }
  const auto without = Tokenizer::load(json::dump(root));
  ASSERT_TRUE(without);
  EXPECT_FALSE(without->find_added("<|audio_pad|>"));
  const auto with = Tokenizer::load(json::dump(root), json::dump(json::Value{{"added_tokens_decoder", decoder}}));
  ASSERT_TRUE(with) << with.error().message;
  EXPECT_EQ(with->find_added("<|audio_pad|>"), added("<|audio_pad|>"));
  EXPECT_EQ(with->size(), tiny_tokenizer().size());
  EXPECT_TRUE(with->is_special(added("<|audio_pad|>")));
}

}  // namespace
}  // namespace lily

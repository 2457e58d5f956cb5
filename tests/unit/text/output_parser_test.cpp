#include "text/output_parser.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/utf8.h"
#include "unit/text/text_support.h"

namespace lily {
namespace {

using test::added;
using test::bytewise;
using test::encoded;

struct Parsed {
  std::string reasoning;
  std::string content;
  std::vector<std::string> calls;  // name + arguments

  bool operator==(const Parsed&) const = default;
};

std::ostream& operator<<(std::ostream& out, const Parsed& p) {
  out << "reasoning: " << testing::PrintToString(p.reasoning) << " content: " << testing::PrintToString(p.content);
  for (const std::string& call : p.calls) out << " call: " << call;
  return out;
}

json::Array tools() {
  const auto value = json::parse(R"([
    {"type":"function","function":{"name":"read_file","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}},
    {"type":"function","function":{"name":"add","parameters":{"type":"object","properties":{
      "a":{"type":"integer"},"b":{"type":"number"},"flag":{"type":"boolean"},"list":{"type":"array"},"map":{"type":"object"},
      "text":{"type":"string"},"maybe":{"type":["string","null"]},"either":{"anyOf":[{"type":"integer"},{"type":"string"}]},
      "ref":{"$ref":"#/$defs/Count"},"loop":{"$ref":"#/properties/loop"},"when":{"type":"datetime"},"level":{"enum":[1,2]}},
      "$defs":{"Count":{"type":"integer"}}}}},
    {"name":"bare"}])");
  return value->as_array();
}

void collect(const OutputDelta& delta, Parsed& parsed) {
  EXPECT_TRUE(utf8::is_valid(delta.reasoning));
  EXPECT_TRUE(utf8::is_valid(delta.content));
  parsed.reasoning += delta.reasoning;
  parsed.content += delta.content;
  for (const ParsedToolCall& call : delta.tool_calls) {
    EXPECT_TRUE(json::parse(call.arguments)) << call.arguments;
    parsed.calls.push_back(call.name + call.arguments);
  }
}

Parsed parse_ids(const std::vector<TokenId>& ids, bool thinking, const json::Array& with_tools) {
  OutputParser parser(test::tiny_tokenizer(), thinking, with_tools);
  Parsed parsed;
  for (const TokenId id : ids) collect(parser.push(id), parsed);
  collect(parser.finish(), parsed);
  return parsed;
}

// Tokenized as the model would, byte by byte, and cut in two at every byte: always the same sum.
Parsed parse(std::string_view text, bool thinking = false, const json::Array& with_tools = tools()) {
  const Parsed whole = parse_ids(encoded(text), thinking, with_tools);
  EXPECT_EQ(parse_ids(bytewise(text), thinking, with_tools), whole) << text;
  const std::vector<TokenId> ids = encoded(text);
  for (std::size_t cut = 0; cut < ids.size(); ++cut) {
    if (ids[cut] >= added("<|endoftext|>")) continue;
    const std::string_view bytes = test::tiny_tokenizer().bytes(ids[cut]);
    for (std::size_t at = 1; at < bytes.size(); ++at) {
      std::vector<TokenId> other(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut));
      for (const std::string_view part : {bytes.substr(0, at), bytes.substr(at)}) {
        for (const char c : part) other.push_back(test::byte_token(static_cast<unsigned char>(c)));
      }
      other.insert(other.end(), ids.begin() + static_cast<std::ptrdiff_t>(cut) + 1, ids.end());
      EXPECT_EQ(parse_ids(other, thinking, with_tools), whole) << text;
    }
  }
  return whole;
}

std::string call(std::string_view name, std::string_view key, std::string_view value) {
  return fmt::format("<tool_call>\n<function={}>\n<parameter={}>\n{}\n</parameter>\n</function>\n</tool_call>", name,
                     key, value);
}

// The JSON that the value becomes as argument `key` of add().
std::string coerced(std::string_view key, std::string_view value) {
  const Parsed parsed = parse(call("add", key, value));
  if (parsed.calls.size() != 1) return "no call";
  const std::string head = fmt::format("add{{\"{}\":", key);
  return parsed.calls[0].substr(head.size(), parsed.calls[0].size() - head.size() - 1);
}

TEST(OutputParser, R01_StartsInsideThink) {
  EXPECT_EQ(parse("because 2+2\n</think>\n\n4", true), (Parsed{"because 2+2", "4", {}}));
  EXPECT_EQ(parse("\nwhy\n\nso\n\n</think>\n\n\n4\n", true), (Parsed{"why\n\nso", "4\n", {}}));
  EXPECT_EQ(parse("</think>\n\n4", true), (Parsed{"", "4", {}}));
  EXPECT_EQ(parse("<think>\nagain</think>x", true), (Parsed{"again", "x", {}}));
}

TEST(OutputParser, R02_ThinkNeverClosed) {
  EXPECT_EQ(parse("on and on\nand on", true), (Parsed{"on and on\nand on", "", {}}));
  EXPECT_EQ(parse("on<|im_end|>", true), (Parsed{"on", "", {}}));
}

TEST(OutputParser, DriftingThinkTags) {
  EXPECT_EQ(parse("<think>\nhm\n</think>\n\nyes"), (Parsed{"hm", "yes", {}}));
  EXPECT_EQ(parse("</think>\n\nyes"), (Parsed{"", "yes", {}}));
  EXPECT_EQ(parse("The tag <think> opens, </think> closes"),
            (Parsed{"", "The tag <think> opens, </think> closes", {}}));
}

TEST(OutputParser, C01_PlainCall) {
  const std::string text = "Let me look.\n\n" + call("read_file", "path", "src/a b.txt");
  const Parsed expected{"", "Let me look.", {R"(read_file{"path":"src/a b.txt"})"}};
  EXPECT_EQ(parse(text), expected);
  EXPECT_EQ(parse(text + "\n<|im_end|>"), expected);
  EXPECT_EQ(parse("I see.\n</think>\n\n" + text, true), (Parsed{"I see.", "Let me look.", expected.calls}));
}

TEST(OutputParser, C02_TextBeforeAndAfter) {
  const std::string one = call("read_file", "path", "a");
  const std::string two = call("read_file", "path", "b");
  EXPECT_EQ(parse("First.\n\n" + one + "\nSecond. " + two),
            (Parsed{"", "First.\nSecond.", {R"(read_file{"path":"a"})", R"(read_file{"path":"b"})"}}));
}

TEST(OutputParser, C03_CallInsideThinking) {
  const std::string real = call("read_file", "path", "a");
  const std::vector<std::string> one{R"(read_file{"path":"a"})"};
  EXPECT_EQ(parse("so I call it " + real, true), (Parsed{"so I call it ", "", one}));
  EXPECT_EQ(parse("so I call it\n\n" + real + "<|im_end|>", true), (Parsed{"so I call it", "", one}));
  EXPECT_EQ(parse("maybe " + real + " or not</think>\n\nHello", true),
            (Parsed{"maybe " + real + " or not", "Hello", {}}));
  EXPECT_EQ(parse("a\n\n" + call("read_file", "path", "x") + "?\n</think>\n\n" + real, true),
            (Parsed{"a\n\n" + call("read_file", "path", "x") + "?", "", one}));
  EXPECT_EQ(parse("the tag <tool_call> opens a call", true), (Parsed{"the tag <tool_call> opens a call", "", {}}));
}

TEST(OutputParser, C05_DuplicateClosingTags) {
  EXPECT_EQ(parse("<tool_call>\n<function=read_file>\n<parameter=path>\nV\n</parameter>\n</parameter>\n</function>\n</"
                  "function>\n</tool_call>"),
            (Parsed{"", "", {R"(read_file{"path":"V"})"}}));
}

TEST(OutputParser, C07_NewlinesAndBlanksAreData) {
  const auto value = [](std::string_view text) {
    const Parsed parsed = parse(call("read_file", "path", text));
    const auto arguments = json::parse(parsed.calls.at(0).substr(9));
    return std::string(arguments->at("path").as_string());
  };
  for (const char* text :
       {"\n", "  two\n\n", "", "def f():\n    return 1\n", "a\r\nb\r\n", "\r", "<b>", "x</function>y",
        "a </parameter> b", "\t", "{\"a\":1}", "é😀", "say </tool_call> and <tool_call> here"}) {
    EXPECT_EQ(value(text), text);
  }
  EXPECT_EQ(parse("<tool_call>\n<function=read_file>\n<parameter=path>\n</parameter>\n</function>\n</tool_call>").calls,
            std::vector<std::string>{R"(read_file{"path":""})"});
}

TEST(OutputParser, C08_TypesFromTheSchema) {
  const std::pair<const char*, std::pair<const char*, const char*>> rows[] = {
      {"a", {"30", "30"}},
      {"a", {"30.0", "30"}},
      {"a", {"1e3", "1000"}},
      {"a", {"30.5", "\"30.5\""}},
      {"a", {"007", "\"007\""}},
      {"a", {"2026-01-15", "\"2026-01-15\""}},
      {"a", {"12345678901234567890", "12345678901234567890"}},
      {"a", {"123456789012345678901234567890", "123456789012345678901234567890"}},
      {"a", {"-7", "-7"}},
      {"a", {" 7 ", "7"}},
      {"a", {"null", "null"}},
      {"b", {"30", "30"}},
      {"b", {"30.0", "30.0"}},
      {"b", {"1e3", "1e3"}},
      {"b", {"1e999", "\"1e999\""}},
      {"b", {"NaN", "\"NaN\""}},
      {"flag", {"True", "true"}},
      {"flag", {"false", "false"}},
      {"flag", {"yes", "\"yes\""}},
      {"list", {"[1, 2]", "[1, 2]"}},
      {"list", {"(1, 'x', None)", "[1,\"x\",null]"}},
      {"list", {"{}", "\"{}\""}},
      {"map", {"{'a': 1}", "{\"a\":1}"}},
      {"map", {"{\"n\":12345678901234567890123}", "{\"n\":12345678901234567890123}"}},
      {"map", {"{'a': True, \"b\": [None, 'it\\'s',],}", "{\"a\":true,\"b\":[null,\"it's\"]}"}},
      {"map", {"{'a': ", "\"{'a': \""}},
      {"text", {"30", "\"30\""}},
      {"text", {"true", "\"true\""}},
      {"text", {"null", "\"null\""}},
      {"text", {"{\"a\":1}", "\"{\\\"a\\\":1}\""}}};
  for (const auto& [key, row] : rows) EXPECT_EQ(coerced(key, row.first), row.second) << key;
}

TEST(OutputParser, C10_UnionsReferencesAndUnknownTypes) {
  EXPECT_EQ(coerced("maybe", "null"), "null");
  EXPECT_EQ(coerced("maybe", "None"), "\"None\"");
  EXPECT_EQ(coerced("maybe", "x"), "\"x\"");
  EXPECT_EQ(coerced("either", "30"), "30");
  EXPECT_EQ(coerced("either", "30.0"), "\"30.0\"");
  EXPECT_EQ(coerced("either", "thirty"), "\"thirty\"");
  EXPECT_EQ(coerced("ref", "5"), "5");
  EXPECT_EQ(coerced("loop", "5"), "\"5\"");
  EXPECT_EQ(coerced("when", "now"), "\"now\"");
  EXPECT_EQ(coerced("level", "2"), "2");
  EXPECT_EQ(coerced("undeclared", "2"), "\"2\"");
  EXPECT_EQ(parse(call("bare", "k", "1")).calls, std::vector<std::string>{R"(bare{"k":"1"})"});
  EXPECT_EQ(parse(call("unknown", "k", "1")).calls, std::vector<std::string>{R"(unknown{"k":"1"})"});
}

TEST(OutputParser, C15_SeveralCalls) {
  const std::string one = call("add", "a", "1");
  const std::string two = call("read_file", "path", "p");
  const std::vector<std::string> expected{R"(add{"a":1})", R"(read_file{"path":"p"})", R"(add{"a":1})"};
  EXPECT_EQ(parse(one + "\n" + two + "\n" + one), (Parsed{"", "", expected}));
  EXPECT_EQ(parse("<tool_call>\n<function=add>\n</function>\n<function=bare>\n</function>\n</tool_call>").calls,
            (std::vector<std::string>{"add{}", "bare{}"}));
}

TEST(OutputParser, C18_JsonStyleCall) {
  EXPECT_EQ(parse("<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":1}}\n</tool_call>").calls,
            std::vector<std::string>{R"(add{"a":1})"});
  EXPECT_EQ(parse("<tool_call>{\"name\":\"add\",\"arguments\":\"{\\\"a\\\": 1}\"}</tool_call>").calls,
            std::vector<std::string>{R"(add{"a":1})"});
  const std::string broken = "ok\n<tool_call>\n{\"name\":\"add\",\"arguments\":{\"a\":1}\n</tool_call>\nrest";
  EXPECT_EQ(parse(broken), (Parsed{"", broken, {}}));
}

TEST(OutputParser, BrokenCallsBecomeContent) {
  for (const char* text :
       {"a <tool_call>\nhello\n</tool_call> b", "<tool_call>\n<function=add>\n<parameter=a>\n1", "<tool_call>",
        "<tool_call>\n<function=>\n</function>\n</tool_call>", "x<tool_call></tool_call>",
        "<tool_call>\n<function=add>\njunk\n</function>\n</tool_call>", "</tool_call>"}) {
    EXPECT_EQ(parse(text), (Parsed{"", text, {}}));
  }
}

TEST(OutputParser, ForgivesMissingClosingTags) {
  const std::vector<std::string> expected{R"(add{"a":1})"};
  EXPECT_EQ(parse("<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>").calls, expected);
  EXPECT_EQ(parse("<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</tool_call>").calls, expected);
  EXPECT_EQ(parse("<tool_call>\n<function=add>\n<parameter=a>\n1\n</function>\n</tool_call>").calls, expected);
  EXPECT_EQ(parse("<tool_call>\n<function=add>\n<parameter=a>\n1\n</parameter>\n</function>\n" + call("bare", "k", "v"))
                .calls,
            (std::vector<std::string>{R"(add{"a":1})", R"(bare{"k":"v"})"}));
}

TEST(OutputParser, WithoutToolsCallsAreText) {
  const std::string text = "ok\n\n" + call("add", "a", "1");
  EXPECT_EQ(parse(text, false, {}), (Parsed{"", text, {}}));
}

TEST(OutputParser, K07_EndTokensAreNeverText) {
  for (const char* end : {"<|im_end|>", "<|endoftext|>", "<|im_start|>"}) {
    EXPECT_EQ(parse(std::string("Hi.") + end), (Parsed{"", "Hi.", {}}));
  }
}

TEST(OutputParser, S01_S03_CutAndInvalidCharacters) {
  std::vector<TokenId> ids;
  for (const unsigned char b : {0xF0, 0x9F, 0xA6, 0x8A, 0xC4, 0x8F, 0xFF, 0xC3, 0x28, 0x80, 0xF0, 0x9F})
    ids.push_back(test::byte_token(b));
  const std::string r(utf8::kReplacementBytes);
  EXPECT_EQ(parse_ids(ids, false, {}), (Parsed{"", "\xF0\x9F\xA6\x8A\xC4\x8F" + r + r + "(" + r + r, {}}));
  EXPECT_EQ(parse_ids(ids, false, {}).content, test::tiny_tokenizer().decode(ids));
  std::vector<TokenId> cut_by_tag{test::byte_token(0xE6), added("</think>"), test::byte_token('x')};
  EXPECT_EQ(parse_ids(cut_by_tag, true, {}), (Parsed{r, "x", {}}));
}

TEST(OutputParser, CountsReasoningTokens) {
  OutputParser parser(test::tiny_tokenizer(), true, tools());
  const auto ids = encoded("so it is\n</think>\n\nyes");
  for (const TokenId id : ids) parser.push(id);
  parser.finish();
  const auto close = std::find(ids.begin(), ids.end(), added("</think>"));
  EXPECT_EQ(parser.reasoning_tokens(), close - ids.begin());
}

TEST(OutputParser, LongHostileCallsStayLinear) {
  std::string value;
  for (int i = 0; i < 20000; ++i) value += "</tool_call><tool_call></parameter> x ";
  std::vector<TokenId> ids = encoded("<tool_call>\n<function=add>\n<parameter=text>\n" + value);
  const Parsed parsed = parse_ids(ids, false, tools());
  EXPECT_TRUE(parsed.calls.empty());
  EXPECT_GT(parsed.content.size(), value.size());
}

}  // namespace
}  // namespace lily

// Bodies of chat requests: what is read, what is refused and by which name.
#include "api/chat_request.h"

#include <gtest/gtest.h>

#include "api/fields.h"
#include "fakes.h"

namespace lily::api {
namespace {

constexpr std::string_view kHi = R"("messages":[{"role":"user","content":"hi"}])";

Parsed<ChatRequest> parse(std::string_view text, bool strict = false) {
  const auto value = json::parse(text);
  EXPECT_TRUE(value) << text;
  return parse_chat_request(*value, {"lily-tiny", strict});
}

Parsed<ChatRequest> with(std::string_view fields, bool strict = false) {
  return parse(fmt::format("{{{},{}}}", kHi, fields), strict);
}

// "" if accepted, else "status param".
std::string verdict(const Parsed<ChatRequest>& request) {
  return request ? "" : fmt::format("{} {}", request.error().status, request.error().param);
}

std::string verdict_of_messages(std::string_view messages) {
  return verdict(parse(fmt::format(R"({{"messages":{}}})", messages)));
}

TEST(ChatRequestTest, PlainRequest) {
  const auto request = with(R"("model":"lily","temperature":0,"max_tokens":5)");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->messages.size(), 1u);
  EXPECT_EQ(request->messages[0].content, "hi");
  EXPECT_EQ(request->max_tokens, 5);
  EXPECT_FALSE(request->thinking);
  EXPECT_TRUE(request->use_cache);
  EXPECT_TRUE(request->ignored.empty());
}

TEST(ChatRequestTest, J08MessagesAreNamedByPlaceAndField) {
  EXPECT_EQ(verdict(parse("{}")), "400 messages");
  EXPECT_EQ(verdict(parse("[]")), "400 ");
  for (const char* messages : {"{}", "[]", "5", "\"hi\""}) EXPECT_EQ(verdict_of_messages(messages), "400 messages");
  EXPECT_EQ(verdict_of_messages("[null]"), "400 messages[0]");
  EXPECT_EQ(verdict_of_messages(R"([{"role":"user"}])"), "400 messages[0].content");
  EXPECT_EQ(verdict_of_messages(R"([{"content":"x"}])"), "400 messages[0].role");
  EXPECT_EQ(verdict_of_messages(R"([{"role":"moderator","content":"x"}])"), "400 messages[0].role");
  EXPECT_EQ(verdict_of_messages(R"([{"role":7,"content":"x"}])"), "400 messages[0].role");
  EXPECT_EQ(verdict_of_messages(R"([{"role":"user","content":"x"},{"role":"user","content":5}])"),
            "400 messages[1].content");
}

TEST(ChatRequestTest, T04PartsAreJoinedAndOthersRefused) {
  const auto content = [](std::string_view value) {
    return parse(fmt::format(R"({{"messages":[{{"role":"user","content":{}}}]}})", value));
  };
  EXPECT_EQ(content(R"([{"type":"text","text":"Say "},{"type":"text","text":"yes"}])")->messages[0].content, "Say yes");
  EXPECT_EQ(content(R"([{"type":"input_text","text":"a"}])")->messages[0].content, "a");
  EXPECT_EQ(content("[]")->messages[0].content, "");
  EXPECT_EQ(verdict(content(R"([{"type":"text"}])")), "400 messages[0].content[0].text");
  EXPECT_EQ(verdict(content(R"([{"text":"a"}])")), "400 messages[0].content[0].type");
  EXPECT_EQ(verdict(content(R"(["a"])")), "400 messages[0].content[0]");
  const auto image = content(R"([{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"x"}}])");
  EXPECT_EQ(verdict(image), "400 messages[0].content[1].type");
  EXPECT_NE(image.error().message.find("not supported"), std::string::npos);
  EXPECT_EQ(verdict_of_messages(
                R"([{"role":"system","content":[{"type":"text","text":"s"}]},{"role":"user","content":"u"},
                    {"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]},
                    {"role":"tool","content":[{"type":"text","text":"t"}]}])"),
            "");
}

TEST(ChatRequestTest, T03ContentOfAToolCallingTurnMayBeMissing) {
  for (const char* content : {R"("content":null,)", "", R"("content":"",)", R"("content":[],)"}) {
    const auto request = parse(fmt::format(
        R"({{"messages":[{{"role":"user","content":"2+3?"}},{{"role":"assistant",{}"tool_calls":[{{"id":"c1","type":"function",
            "function":{{"name":"add","arguments":"{{\"a\":2,\"b\":3}}"}}}}]}},{{"role":"tool","tool_call_id":"c1","content":"5"}},
            {{"role":"user","content":"thanks"}}]}})",
        content));
    ASSERT_TRUE(request) << content;
    EXPECT_EQ(request->messages[1].content, "");
    ASSERT_EQ(request->messages[1].tool_calls.size(), 1u);
    EXPECT_EQ(request->messages[1].tool_calls[0].name, "add");
    EXPECT_EQ(json::dump(request->messages[1].tool_calls[0].arguments), R"({"a":2,"b":3})");
    EXPECT_TRUE(request->ignored.empty());
  }
}

TEST(ChatRequestTest, ToolCallsOfEarlierTurnsAreChecked) {
  const auto call = [](std::string_view text) {
    return verdict_of_messages(fmt::format(
        R"([{{"role":"user","content":"u"}},{{"role":"assistant","tool_calls":{}}},{{"role":"tool","content":"t"}}])",
        text));
  };
  EXPECT_EQ(call(R"([{"function":{"name":"f"}}])"), "");
  EXPECT_EQ(call(R"([{"function":{"name":"f","arguments":{"a":1}}}])"), "");
  EXPECT_EQ(call(R"([{"function":{"name":"a.b-c/d","arguments":""}}])"), "");
  EXPECT_EQ(call(R"([{"function":{"name":"f","arguments":"{"}}])"), "400 messages[1].tool_calls[0].function.arguments");
  EXPECT_EQ(call(R"([{"function":{"name":"f","arguments":"[1]"}}])"),
            "400 messages[1].tool_calls[0].function.arguments");
  EXPECT_EQ(call(R"([{"function":{"name":"f\nx"}}])"), "400 messages[1].tool_calls[0].function.name");
  EXPECT_EQ(call(R"([{"function":{"name":"f><x"}}])"), "400 messages[1].tool_calls[0].function.name");
  EXPECT_EQ(call(fmt::format(R"([{{"function":{{"name":"{}"}}}}])", std::string(300, 'n'))),
            "400 messages[1].tool_calls[0].function.name");
  EXPECT_EQ(call(R"([{"id":"quote\" \\ \u00e9","function":{"name":"f"}}])"), "");
  EXPECT_EQ(call(R"([{"id":5,"function":{"name":"f"}}])"), "400 messages[1].tool_calls[0].id");
  EXPECT_EQ(call("{}"), "400 messages[1].tool_calls");
  EXPECT_EQ(call("[5]"), "400 messages[1].tool_calls[0]");
}

TEST(ChatRequestTest, J04ArgumentsAreBoundedInDepth) {
  const std::string deep = std::string(200'000, '[');
  EXPECT_EQ(verdict_of_messages(fmt::format(
                R"([{{"role":"user","content":"u"}},{{"role":"assistant","tool_calls":[{{"function":{{"name":"f",
                    "arguments":"{{\"a\":{}"}}}}]}},{{"role":"tool","content":"t"}}])",
                deep)),
            "400 messages[1].tool_calls[0].function.arguments");
}

TEST(ChatRequestTest, T07TheLastTurnIsNotTheAssistants) {
  EXPECT_EQ(verdict_of_messages(R"([{"role":"user","content":"Count"},{"role":"assistant","content":"1, 2,"}])"),
            "400 messages");
  EXPECT_EQ(verdict_of_messages(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},
                                    {"role":"assistant","content":"c"},{"role":"user","content":"d"}])"),
            "");
}

TEST(ChatRequestTest, RolesAndReasoning) {
  const auto request = parse(R"({"messages":[{"role":"developer","content":"d"},{"role":"user","content":"u"},
      {"role":"assistant","content":"a","reasoning_content":"r"},{"role":"assistant","content":"a","reasoning":"s"},
      {"role":"user","content":"v","name":"bob"}]})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->messages[0].role, Role::System);
  EXPECT_EQ(request->messages[2].reasoning, "r");
  EXPECT_EQ(request->messages[3].reasoning, "s");
}

TEST(ChatRequestTest, P01P02TokenLimits) {
  EXPECT_EQ(with(R"("max_tokens":0)")->max_tokens, 0);
  EXPECT_EQ(with(R"("max_tokens":-1)")->max_tokens, -1);
  EXPECT_EQ(with(R"("max_tokens":null)")->max_tokens, -1);
  EXPECT_EQ(with(R"("max_completion_tokens":7)")->max_tokens, 7);
  EXPECT_EQ(with(R"("max_completion_tokens":7,"max_tokens":9)")->max_tokens, 7);
  EXPECT_EQ(with(R"("max_tokens":9,"max_completion_tokens":null)")->max_tokens, 9);
  for (const char* value : {"-2", "1.5", "\"8\"", "true", "[]", "1e30", "99999999999999999999"}) {
    EXPECT_EQ(verdict(with(fmt::format("\"max_tokens\":{}", value))), "400 max_tokens") << value;
    EXPECT_EQ(verdict(with(fmt::format("\"max_completion_tokens\":{}", value))), "400 max_completion_tokens") << value;
  }
}

TEST(ChatRequestTest, P09ModelNames) {
  for (const char* name : {"\"lily\"", "\"lily-tiny\"", "\"default\"", "\"\"", "null"})
    EXPECT_EQ(verdict(with(fmt::format("\"model\":{}", name))), "") << name;
  for (const char* name : {"\"gpt-4\"", "\"../x\"", "\"LILY\""}) {
    const auto request = with(fmt::format("\"model\":{}", name));
    EXPECT_EQ(verdict(request), "404 model") << name;
    EXPECT_EQ(request.error().code, "model_not_found");
  }
  EXPECT_EQ(verdict(with("\"model\":5")), "400 model");
}

TEST(ChatRequestTest, S08StreamingIsRefusedByName) {
  EXPECT_EQ(verdict(with("\"stream\":true")), "400 stream");
  EXPECT_EQ(verdict(with("\"stream\":\"yes\"")), "400 stream");
  EXPECT_EQ(verdict(with("\"stream\":false")), "");
  EXPECT_EQ(verdict(with("\"stream\":null,\"stream_options\":null")), "");
  for (const char* value : {"{}", "{\"include_usage\":null}", "{\"include_usage\":\"yes\"}"})
    EXPECT_EQ(verdict(with(fmt::format("\"stream\":false,\"stream_options\":{}", value))), "400 stream_options");
}

TEST(ChatRequestTest, J10OneTableDecides) {
  for (const char* harmless :
       {R"("store":true)", R"("metadata":{})", R"("service_tier":"auto")", R"("user":"u1")", R"("seed":-1)",
        R"("seed":9223372036854775808)", R"("top_p":0.5)", R"("n":1)", R"("temperature":0.0)", R"("temperature":null)",
        R"("logit_bias":{})", R"("frequency_penalty":0)", R"("response_format":{"type":"text"})",
        R"("logprobs":false)"}) {
    const auto request = with(harmless, true);
    EXPECT_EQ(verdict(request), "") << harmless;
  }
  const std::vector<std::pair<const char*, const char*>> refused{{"n", "2"},
                                                                 {"n", "0"},
                                                                 {"best_of", "3"},
                                                                 {"temperature", "0.7"},
                                                                 {"temperature", "\"0\""},
                                                                 {"logprobs", "true"},
                                                                 {"top_logprobs", "5"},
                                                                 {"logit_bias", "{\"5\":-100}"},
                                                                 {"frequency_penalty", "0.5"},
                                                                 {"response_format", "{\"type\":\"json_object\"}"},
                                                                 {"response_format", "\"text\""},
                                                                 {"functions", "[]"},
                                                                 {"guided_json", "{}"},
                                                                 {"seed", "\"x\""},
                                                                 {"top_p", "\"x\""},
                                                                 {"user", "5"},
                                                                 {"modalities", "[\"audio\"]"}};
  for (const auto& [name, value] : refused)
    EXPECT_EQ(verdict(with(fmt::format("\"{}\":{}", name, value))), fmt::format("400 {}", name)) << value;
}

TEST(ChatRequestTest, J10UnknownFieldsAreNotedOrRefused) {
  const auto request = with(R"("logit_bais":{},"chat_template_kwargs":{"foo":1})");
  ASSERT_TRUE(request);
  EXPECT_EQ(request->ignored, (std::vector<std::string>{"logit_bais", "chat_template_kwargs.foo"}));
  EXPECT_EQ(verdict(with(R"("logit_bais":{})", true)), "400 logit_bais");
  const auto message = parse(R"({"messages":[{"role":"user","content":"x","prefix":true}]})");
  EXPECT_EQ(message->ignored, std::vector<std::string>{"messages[0].prefix"});
  EXPECT_EQ(verdict(parse(R"({"messages":[{"role":"user","content":"x","prefix":true}]})", true)),
            "400 messages[0].prefix");
}

TEST(ChatRequestTest, StopStrings) {
  EXPECT_EQ(with(R"("stop":"a")")->stop, std::vector<std::string>{"a"});
  EXPECT_EQ(with(R"("stop":["a","b"])")->stop.size(), 2u);
  EXPECT_TRUE(with(R"("stop":[])")->stop.empty());
  for (const char* value : {"\"\"", "[\"\"]", "5", "[5]", "{}"})
    EXPECT_EQ(verdict(with(fmt::format("\"stop\":{}", value))), "400 stop") << value;
}

TEST(ChatRequestTest, Tools) {
  const char* add = R"([{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}])";
  EXPECT_EQ(with(fmt::format("\"tools\":{}", add))->tools.size(), 1u);
  EXPECT_EQ(with(fmt::format("\"tools\":{},\"tool_choice\":\"auto\"", add))->tools.size(), 1u);
  EXPECT_EQ(with(fmt::format("\"tools\":{},\"tool_choice\":\"none\"", add))->tools.size(), 0u);
  for (const char* choice : {"\"required\"", R"({"type":"function","function":{"name":"add"}})", "5"})
    EXPECT_EQ(verdict(with(fmt::format("\"tools\":{},\"tool_choice\":{}", add, choice))), "400 tool_choice") << choice;
  EXPECT_EQ(verdict(with(R"("tools":{})")), "400 tools");
  EXPECT_EQ(verdict(with(R"("tools":[5])")), "400 tools[0]");
  EXPECT_EQ(verdict(with(R"("tools":[{"type":"function"}])")), "400 tools[0].function");
  EXPECT_EQ(verdict(with(R"("tools":[{"function":{"name":""}}])")), "400 tools[0].function.name");
  EXPECT_EQ(verdict(with(R"("tools":[{"type":"custom","function":{"name":"a"}}])")), "400 tools[0].type");
  EXPECT_EQ(verdict(with(R"("tools":[{"function":{"name":"a","parameters":5}}])")), "400 tools[0].function.parameters");
  EXPECT_EQ(verdict(with(R"("parallel_tool_calls":"no")")), "400 parallel_tool_calls");
}

TEST(ChatRequestTest, R06ThinkingHasOnePrecedence) {
  EXPECT_TRUE(with(R"("chat_template_kwargs":{"enable_thinking":true})")->thinking);
  EXPECT_TRUE(with(R"("enable_thinking":true)")->thinking);
  EXPECT_TRUE(with(R"("thinking":{"type":"enabled"})")->thinking);
  EXPECT_TRUE(with(R"("reasoning":{"effort":"low"})")->thinking);
  EXPECT_TRUE(with(R"("reasoning_effort":"high")")->thinking);
  EXPECT_FALSE(with(R"("reasoning_effort":"none")")->thinking);
  EXPECT_FALSE(with(R"("reasoning":{"effort":"none"})")->thinking);
  EXPECT_FALSE(with(R"("thinking":{"type":"disabled"})")->thinking);
  EXPECT_FALSE(with(R"("chat_template_kwargs":{"enable_thinking":false},"reasoning_effort":"high")")->thinking);
  EXPECT_TRUE(with(R"("enable_thinking":true,"thinking":{"type":"disabled"})")->thinking);
  EXPECT_FALSE(with(R"("thinking":{"type":"disabled"},"reasoning_effort":"high")")->thinking);
  EXPECT_TRUE(with(R"("chat_template_kwargs":{"preserve_thinking":true})")->preserve_thinking);
  EXPECT_EQ(verdict(with(R"("chat_template_kwargs":{"enable_thinking":"no"})")),
            "400 chat_template_kwargs.enable_thinking");
  EXPECT_EQ(verdict(with(R"("reasoning_effort":"huge")")), "400 reasoning_effort");
  EXPECT_EQ(verdict(with(R"("enable_thinking":true,"reasoning_effort":"huge")")), "400 reasoning_effort");
  EXPECT_EQ(verdict(with(R"("thinking":{"type":"maybe"})")), "400 thinking");
  EXPECT_EQ(verdict(with(R"("thinking":{"type":"enabled","budget_tokens":9})")), "400 thinking.budget_tokens");
  EXPECT_EQ(verdict(with(R"("reasoning":"low")")), "400 reasoning");
}

TEST(ChatRequestTest, X13CacheKeyAndOptOut) {
  EXPECT_EQ(with(R"("prompt_cache_key":"k1\n")")->cache_key, "k1\n");
  EXPECT_EQ(with(fmt::format("\"prompt_cache_key\":\"{}\"", std::string(10'000, 'k')))->cache_key.size(), 10'000u);
  EXPECT_EQ(verdict(with(R"("prompt_cache_key":5)")), "400 prompt_cache_key");
  EXPECT_FALSE(with(R"("cache":false)")->use_cache);
  EXPECT_EQ(verdict(with(R"("cache":"no")")), "400 cache");
}

TEST(FieldsTest, TheDocumentationListsEveryField) {
  const std::string text = test::read_file("docs/api.md");
  for (const FieldRule& rule : chat_fields())
    EXPECT_NE(text.find(fmt::format("`{}`", rule.name)), std::string::npos) << rule.name;
}

}  // namespace
}  // namespace lily::api

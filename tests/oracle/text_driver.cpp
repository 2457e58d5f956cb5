// Lets the Python oracles ask this program's text layer. Not shipped.
//
// usage: text_driver TOKENIZER_JSON [TOKENIZER_CONFIG_JSON]     requests on stdin, answers on stdout
//        text_driver TOKENIZER_JSON --bench FILE                loading time and encoding speed over FILE
//
// A request is an operation letter, a 32-bit little-endian length and that many bytes; an answer a status byte ('+' or
// '!' with an error message), a length and the bytes. Operations: e encode, p encode_plain, d decode (32-bit ids),
// j python_dumps of JSON, c compact dump of JSON, k set the chat template, r render a conversation, i ids of a
// rendered conversation.
#include <cstdint>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace lily {
namespace {

std::string read_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <class T>
std::string packed(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string text_of(const json::Object& object, const char* key) {
  const json::Value* value = object.if_contains(key);
  return value != nullptr && value->is_string() ? std::string(value->get_string()) : std::string();
}

bool flag_of(const json::Object& object, const char* key) {
  const json::Value* value = object.if_contains(key);
  return value != nullptr && value->is_bool() && value->get_bool();
}

ChatMessage message_of(const json::Object& object) {
  ChatMessage message;
  const std::string role = text_of(object, "role");
  message.role = role == "system" ? Role::System
                 : role == "user" ? Role::User
                 : role == "tool" ? Role::Tool
                                  : Role::Assistant;
  message.content = text_of(object, "content");
  if (object.contains("reasoning_content")) message.reasoning = text_of(object, "reasoning_content");
  if (const auto* calls = object.if_contains("tool_calls")) {
    for (const json::Value& call : calls->as_array()) {
      const json::Object& function = call.as_object().at("function").as_object();
      message.tool_calls.push_back({text_of(function, "name"), function.at("arguments").as_object()});
    }
  }
  return message;
}

class Driver {
 public:
  explicit Driver(Tokenizer tokenizer) : tokenizer_(std::move(tokenizer)) {}

  Result<std::string> answer(char operation, const std::string& payload) {
    std::vector<TokenId> ids;
    switch (operation) {
      case 'e':
        tokenizer_.encode(payload, ids);
        return packed(ids);
      case 'p':
        tokenizer_.encode_plain(payload, ids);
        return packed(ids);
      case 'd':
        ids.resize(payload.size() / sizeof(TokenId));
        std::memcpy(ids.data(), payload.data(), ids.size() * sizeof(TokenId));
        return tokenizer_.decode(ids, false);
      case 'j':
      case 'c': {
        LILY_TRY(const json::Value value, json::parse(payload));
        return operation == 'j' ? json::python_dumps(value) : json::dump(value);
      }
      case 'k': {
        LILY_TRY(ChatTemplate loaded, ChatTemplate::load(payload));
        template_ = std::move(loaded);
        return template_->name();
      }
      case 'r':
      case 'i': {
        LILY_TRY(const RenderedPrompt prompt, render(payload));
        if (operation == 'r') return prompt.text();
        return packed(encode(prompt, tokenizer_).tokens);
      }
      default:
        return fail(ErrorCode::InvalidArgument, "unknown operation");
    }
  }

 private:
  Result<RenderedPrompt> render(const std::string& payload) {
    if (!template_) return fail(ErrorCode::InvalidArgument, "no template set");
    LILY_TRY(const json::Value request, json::parse(payload));
    const json::Object& object = request.as_object();
    std::vector<ChatMessage> messages;
    for (const json::Value& message : object.at("messages").as_array()) {
      messages.push_back(message_of(message.as_object()));
    }
    ChatOptions options;
    options.add_generation_prompt = flag_of(object, "add_generation_prompt");
    options.enable_thinking = flag_of(object, "enable_thinking");
    options.preserve_thinking = flag_of(object, "preserve_thinking");
    options.strict = flag_of(object, "strict");
    const json::Value* tools = object.if_contains("tools");
    return template_->render(messages, tools != nullptr ? tools->as_array() : json::Array(), options);
  }

  Tokenizer tokenizer_;
  std::optional<ChatTemplate> template_;
};

int serve(Driver& driver) {
  for (;;) {
    char operation;
    std::uint32_t size;
    if (!std::cin.get(operation) || !std::cin.read(reinterpret_cast<char*>(&size), sizeof size)) return 0;
    std::string payload(size, '\0');
    if (!std::cin.read(payload.data(), size)) return 1;
    const auto answer = driver.answer(operation, payload);
    const std::string& body = answer ? *answer : answer.error().message;
    size = static_cast<std::uint32_t>(body.size());
    std::cout.put(answer ? '+' : '!');
    std::cout.write(reinterpret_cast<const char*>(&size), sizeof size);
    std::cout.write(body.data(), static_cast<std::streamsize>(body.size()));
    if (std::cin.rdbuf()->in_avail() <= 0) std::cout.flush();
  }
}

// Of this process on its core, so that other work on the machine does not count.
double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

int bench(const Tokenizer& tokenizer, const char* path) {
  const std::string text = read_file(path);
  std::vector<TokenId> ids;
  for (int repeat = 0; repeat < 5; ++repeat) {
    ids.clear();
    const double start = cpu_seconds();
    tokenizer.encode(text, ids);
    const double seconds = cpu_seconds() - start;
    std::cout << text.size() << " bytes, " << ids.size() << " tokens, " << seconds << " s, "
              << static_cast<double>(text.size()) / seconds / 1e6 << " MB/s\n";
  }
  return 0;
}

int run(int argc, char** argv) {
  if (argc < 2) return 2;
  const bool benching = argc == 4 && std::string_view(argv[2]) == "--bench";
  const double start = cpu_seconds();
  auto tokenizer = Tokenizer::load(read_file(argv[1]), argc == 3 ? read_file(argv[2]) : "");
  if (!tokenizer) {
    std::cerr << tokenizer.error().message << "\n";
    return 1;
  }
  if (benching) {
    std::cout << "loaded in " << cpu_seconds() - start << " s\n";
    return bench(*tokenizer, argv[3]);
  }
  Driver driver(std::move(*tokenizer));
  return serve(driver);
}

}  // namespace
}  // namespace lily

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  return lily::run(argc, argv);
}

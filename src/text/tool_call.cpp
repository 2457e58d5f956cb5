#include "text/tool_call.h"

#include <string>
#include <utility>

#include "text/argument_types.h"

namespace lily {

namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";

std::string_view trimmed(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

std::string_view view(const boost::json::string& s) {
  return {s.data(), s.size()};
}

// A cursor over the body; take_* move it only when they succeed.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : rest_(text) {}

  bool at_end() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }

  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(kBlanks), rest_.size())); }

  bool take(std::string_view literal) {
    if (!rest_.starts_with(literal)) return false;
    rest_.remove_prefix(literal.size());
    return true;
  }

  // NAME> of an opening tag.
  std::optional<std::string_view> take_name() {
    const std::size_t end = rest_.find('>');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view name = trimmed(rest_.substr(0, end));
    if (name.empty()) return std::nullopt;
    rest_.remove_prefix(end + 1);
    return name;
  }

  // The value up to its closing tag. The tag may stand in the value as text, so the one that counts is the first with
  // something behind it that can follow a parameter. Without any, a value that runs up to the function's end is taken.
  std::optional<std::string_view> take_value() {
    for (std::size_t at = rest_.find(kParameterEnd); at != std::string_view::npos;
         at = rest_.find(kParameterEnd, at + 1)) {
      Scanner behind(rest_.substr(at + kParameterEnd.size()));
      behind.skip_blanks();
      const std::string_view next = behind.rest();
      if (next.empty() || next.starts_with(kParameter) || next.starts_with(kParameterEnd) ||
          next.starts_with(kFunctionEnd)) {
        return take_bare(at, behind.rest());
      }
    }
    if (const std::string_view all = trimmed(rest_); all.ends_with(kFunctionEnd)) {
      const auto at = static_cast<std::size_t>(all.end() - rest_.begin()) - kFunctionEnd.size();
      return take_bare(at, rest_.substr(at));
    }
    return std::nullopt;
  }

 private:
  // One newline at each end belongs to the format, every other character to the value.
  std::string_view take_bare(std::size_t size, std::string_view rest) {
    std::string_view value = rest_.substr(0, size);
    rest_ = rest;
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    return value;
  }

  std::string_view rest_;
};

// Writes a JSON object whose values are JSON texts; a name given twice keeps its place and takes the last value.
class ArgumentsWriter {
 public:
  void set(std::string_view name, std::string json_text) {
    for (auto& [known, text] : members_) {
      if (known == name) {
        text = std::move(json_text);
        return;
      }
    }
    members_.emplace_back(name, std::move(json_text));
  }

  std::string text() const {
    std::string out = "{";
    for (const auto& [name, json_text] : members_) {
      if (out.size() > 1) out += ',';
      out += json::dump(json::Value(boost::json::string(name)));
      out += ':';
      out += json_text;
    }
    return out + "}";
  }

 private:
  std::vector<std::pair<std::string, std::string>> members_;
};

std::optional<ParsedToolCall> take_function(Scanner& scanner, bool closed, const json::Array& tools) {
  const auto name = scanner.take_name();
  if (!name) return std::nullopt;
  const ArgumentTypes types(tools, *name);
  ArgumentsWriter arguments;
  for (;;) {
    scanner.skip_blanks();
    if (scanner.take(kFunctionEnd) || (closed && scanner.at_end())) break;
    if (scanner.take(kParameterEnd)) continue;  // one too many
    if (!scanner.take(kParameter)) return std::nullopt;
    const auto key = scanner.take_name();
    const auto value = key ? scanner.take_value() : std::nullopt;
    if (!value) return std::nullopt;
    arguments.set(*key, types.to_json(*key, *value));
  }
  return ParsedToolCall{std::string(*name), arguments.text()};
}

std::optional<ParsedToolCall> parse_json_call(std::string_view body) {
  const auto root = json::parse(body);
  const json::Object* call = root ? root->if_object() : nullptr;
  const json::Value* name = call != nullptr ? call->if_contains("name") : nullptr;
  if (name == nullptr || !name->is_string() || name->get_string().empty()) return std::nullopt;
  ParsedToolCall result{std::string(view(name->get_string())), "{}"};
  const json::Value* arguments = call->if_contains("arguments");
  if (arguments == nullptr || arguments->is_null()) return result;
  if (arguments->is_string()) {
    const std::string_view text = view(arguments->get_string());
    const auto inner = json::parse(text);
    if (!inner || !inner->is_object()) return std::nullopt;
    result.arguments = json::dump(*inner);
    return result;
  }
  if (!arguments->is_object()) return std::nullopt;
  result.arguments = json::dump(*arguments);
  return result;
}

}  // namespace

std::optional<std::vector<ParsedToolCall>> parse_tool_call(std::string_view body, bool closed,
                                                           const json::Array& tools) {
  std::vector<ParsedToolCall> calls;
  if (trimmed(body).starts_with('{')) {
    auto call = parse_json_call(body);
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
    return calls;
  }
  Scanner scanner(body);
  for (;;) {
    scanner.skip_blanks();
    if (scanner.at_end()) break;
    if (!calls.empty() && scanner.take(kFunctionEnd)) continue;  // one too many
    if (!scanner.take(kFunction)) return std::nullopt;
    auto call = take_function(scanner, closed, tools);
    if (!call) return std::nullopt;
    calls.push_back(std::move(*call));
  }
  if (calls.empty()) return std::nullopt;
  return calls;
}

}  // namespace lily

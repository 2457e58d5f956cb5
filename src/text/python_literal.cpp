// A model that means JSON now and then writes a Python literal. This turns one into JSON text.
#include <cctype>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"
#include "text/argument_types.h"

namespace lily {

namespace {

class PythonLiteral {
 public:
  explicit PythonLiteral(std::string_view text) : rest_(text) {}

  std::string convert() {
    if (!value(0)) return {};
    skip_blanks();
    return rest_.empty() ? out_ : std::string();
  }

 private:
  void skip_blanks() {
    while (!rest_.empty() && std::isspace(static_cast<unsigned char>(rest_.front())) != 0) rest_.remove_prefix(1);
  }

  bool take(std::string_view literal) {
    if (!rest_.starts_with(literal)) return false;
    rest_.remove_prefix(literal.size());
    return true;
  }

  bool word(std::string_view python, std::string_view json_text) {
    if (!take(python)) return false;
    out_ += json_text;
    return true;
  }

  bool value(std::size_t depth) {
    if (depth > json::kMaxDepth) return false;
    skip_blanks();
    if (rest_.empty()) return false;
    switch (rest_.front()) {
      case '{':
        return dictionary(depth);
      case '[':
        return sequence(']', depth);
      case '(':
        return sequence(')', depth);
      case '\'':
      case '"':
        return string();
      default:
        return word("None", "null") || word("True", "true") || word("False", "false") || number();
    }
  }

  bool number() {
    const std::size_t end = std::min(rest_.find_first_not_of("+-.0123456789eE"), rest_.size());
    const std::string_view text = rest_.substr(0, end);
    if (text.empty() || !json::parse(text)) return false;
    out_ += text;
    rest_.remove_prefix(end);
    return true;
  }

  bool sequence(char close, std::size_t depth) {
    rest_.remove_prefix(1);
    out_ += '[';
    for (bool first = true;; first = false) {
      skip_blanks();
      if (take(std::string_view(&close, 1))) break;
      if (!first) out_ += ',';
      if (!value(depth + 1) || !comma_or(close)) return false;
    }
    out_ += ']';
    return true;
  }

  bool dictionary(std::size_t depth) {
    rest_.remove_prefix(1);
    out_ += '{';
    for (bool first = true;; first = false) {
      skip_blanks();
      if (take("}")) break;
      if (!first) out_ += ',';
      if (rest_.empty() || (rest_.front() != '\'' && rest_.front() != '"') || !string()) return false;
      skip_blanks();
      if (!take(":")) return false;
      out_ += ':';
      if (!value(depth + 1) || !comma_or('}')) return false;
    }
    out_ += '}';
    return true;
  }

  // Behind an item: a comma, which goes, or the closing bracket, which stays.
  bool comma_or(char close) {
    skip_blanks();
    return take(",") || (!rest_.empty() && rest_.front() == close);
  }

  bool string() {
    const char quote = rest_.front();
    rest_.remove_prefix(1);
    std::string text;
    while (!rest_.empty() && rest_.front() != quote) {
      if (rest_.front() == '\n') return false;
      if (rest_.front() != '\\') {
        text += rest_.front();
        rest_.remove_prefix(1);
      } else if (!escape(text)) {
        return false;
      }
    }
    if (rest_.empty()) return false;
    rest_.remove_prefix(1);
    out_ += json::dump(json::Value(boost::json::string(text)));
    return true;
  }

  bool escape(std::string& text) {
    if (rest_.size() < 2) return false;
    const char c = rest_[1];
    rest_.remove_prefix(2);
    switch (c) {
      case 'n':
        text += '\n';
        return true;
      case 't':
        text += '\t';
        return true;
      case 'r':
        text += '\r';
        return true;
      case 'b':
        text += '\b';
        return true;
      case 'f':
        text += '\f';
        return true;
      case '\\':
      case '\'':
      case '"':
        text += c;
        return true;
      case 'x':
        return code_point(text, 2);
      case 'u':
        return code_point(text, 4);
      case 'U':
        return code_point(text, 8);
      default:
        return false;
    }
  }

  bool code_point(std::string& text, std::size_t n_digits) {
    if (rest_.size() < n_digits) return false;
    char32_t c = 0;
    for (const char digit : rest_.substr(0, n_digits)) {
      if (std::isxdigit(static_cast<unsigned char>(digit)) == 0) return false;
      c = c << 4 | static_cast<char32_t>(digit <= '9' ? digit - '0' : (digit | 0x20) - 'a' + 10);
    }
    if (c > 0x10FFFF || (c >= 0xD800 && c <= 0xDFFF)) return false;
    utf8::append(text, c);
    rest_.remove_prefix(n_digits);
    return true;
  }

  std::string_view rest_;
  std::string out_;
};

}  // namespace

std::string python_literal_to_json(std::string_view text) {
  return PythonLiteral(text).convert();
}

}  // namespace lily

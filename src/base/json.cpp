// JSON reading and writing. Reading drives Boost.JSON's event parser with a builder of our own, because that parser's
// doubles are not correctly rounded: the builder reads each float's text again with std::from_chars, so that numbers
// survive the way into a prompt digit by digit. Writing is by hand: Boost prints 0.1 as 1E-1.
#include "base/json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/value_stack.hpp>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <exception>
#include <new>

#include "base/utf8.h"

namespace lily::json {

namespace {

namespace bj = boost::json;
using ErrorSlot = bj::error_code;

// Receives parse events and builds a Value on Boost's own value stack.
class Builder {
 public:
  static constexpr std::size_t max_object_size = bj::object::max_size();
  static constexpr std::size_t max_array_size = bj::array::max_size();
  static constexpr std::size_t max_key_size = bj::string::max_size();
  static constexpr std::size_t max_string_size = bj::string::max_size();

  bool on_document_begin(ErrorSlot&) {
    stack_.reset();
    return true;
  }
  bool on_document_end(ErrorSlot&) { return true; }
  bool on_object_begin(ErrorSlot&) { return true; }
  bool on_object_end(std::size_t n, ErrorSlot&) {
    stack_.push_object(n);
    return true;
  }
  bool on_array_begin(ErrorSlot&) { return true; }
  bool on_array_end(std::size_t n, ErrorSlot&) {
    stack_.push_array(n);
    return true;
  }
  bool on_key_part(bj::string_view s, std::size_t, ErrorSlot&) {
    stack_.push_chars(s);
    return true;
  }
  bool on_key(bj::string_view s, std::size_t, ErrorSlot&) {
    stack_.push_key(s);
    return true;
  }
  bool on_string_part(bj::string_view s, std::size_t, ErrorSlot&) {
    stack_.push_chars(s);
    return true;
  }
  bool on_string(bj::string_view s, std::size_t, ErrorSlot&) {
    stack_.push_string(s);
    return true;
  }
  bool on_number_part(bj::string_view s, ErrorSlot&) {
    number_.append(s.data(), s.size());
    return true;
  }
  bool on_int64(std::int64_t i, bj::string_view, ErrorSlot&) {
    number_.clear();
    stack_.push_int64(i);
    return true;
  }
  bool on_uint64(std::uint64_t u, bj::string_view, ErrorSlot&) {
    number_.clear();
    stack_.push_uint64(u);
    return true;
  }
  bool on_double(double approximate, bj::string_view s, ErrorSlot& error) {
    number_.append(s.data(), s.size());
    double exact = 0;
    const auto [end, status] = std::from_chars(number_.data(), number_.data() + number_.size(), exact);
    if (status == std::errc::result_out_of_range) {
      if (!(std::abs(approximate) < 1)) {
        error = bj::error::exponent_overflow;
        return false;
      }
      exact = number_.front() == '-' ? -0.0 : 0.0;  // too small for a double: zero, as everybody reads it
    }
    number_.clear();
    stack_.push_double(exact);
    return true;
  }
  bool on_bool(bool b, ErrorSlot&) {
    stack_.push_bool(b);
    return true;
  }
  bool on_null(ErrorSlot&) {
    stack_.push_null();
    return true;
  }
  bool on_comment_part(bj::string_view, ErrorSlot&) { return true; }
  bool on_comment(bj::string_view, ErrorSlot&) { return true; }

  Value take() { return stack_.release(); }

 private:
  bj::value_stack stack_;
  std::string number_;  // text of a number that arrives in parts
};

tl::unexpected<Error> parse_failure(std::size_t offset, const ErrorSlot& error, std::size_t max_depth) {
  if (error == bj::error::too_deep) {
    return fail(ErrorCode::InvalidArgument, "JSON is nested deeper than {} levels (byte {})", max_depth, offset);
  }
  if (error == bj::error::exponent_overflow) {
    return fail(ErrorCode::InvalidArgument, "JSON has a number that no double can hold (before byte {})", offset);
  }
  if (error == bj::error::incomplete) {
    return fail(ErrorCode::InvalidArgument, "JSON ends early, after {} bytes", offset);
  }
  return fail(ErrorCode::InvalidArgument, "not valid JSON at byte {}: {}", offset, error.message());
}

void append_escaped(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  std::size_t start = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, start, i - start);
    start = i + 1;
    out += '\\';
    switch (c) {
      case '"':
        out += '"';
        break;
      case '\\':
        out += '\\';
        break;
      case '\b':
        out += 'b';
        break;
      case '\f':
        out += 'f';
        break;
      case '\n':
        out += 'n';
        break;
      case '\r':
        out += 'r';
        break;
      case '\t':
        out += 't';
        break;
      default:
        out += "u00";
        out += kHex[c >> 4];
        out += kHex[c & 15];
    }
  }
  out.append(text, start, text.size() - start);
  out += '"';
}

void append_string(std::string& out, std::string_view text) {
  if (utf8::is_valid(text)) return append_escaped(out, text);
  std::string repaired;
  utf8::append_repaired(repaired, text);
  append_escaped(out, repaired);
}

// Python's repr(float): the shortest digits that read back, positional from 1e-4 up to below 1e16.
void append_double(std::string& out, double value) {
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(buffer + e + (text[e + 1] == '+' ? 2 : 1), end, exponent);
  if (exponent < -4 || exponent >= 16) {
    out += text;
    return;
  }
  std::string digits;
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  if (text.front() == '-') out += '-';
  if (exponent < 0) {
    out += "0.";
    out.append(static_cast<std::size_t>(-exponent - 1), '0');
    out += digits;
    return;
  }
  const auto n_whole = static_cast<std::size_t>(exponent) + 1;
  if (digits.size() <= n_whole) digits.append(n_whole - digits.size() + 1, '0');
  out.append(digits, 0, n_whole);
  out += '.';
  out.append(digits, n_whole);
}

struct Style {
  std::string_view item_separator;
  std::string_view key_separator;
  bool python;  // NaN and infinities as Python names them; otherwise null
};

class Writer {
 public:
  Writer(std::string& out, const Style& style) : out_(out), style_(style) {}

  void write(const Value& value) {
    switch (value.kind()) {
      case bj::kind::null:
        out_ += "null";
        break;
      case bj::kind::bool_:
        out_ += value.get_bool() ? "true" : "false";
        break;
      case bj::kind::int64:
        out_ += std::to_string(value.get_int64());
        break;
      case bj::kind::uint64:
        out_ += std::to_string(value.get_uint64());
        break;
      case bj::kind::double_:
        write_double(value.get_double());
        break;
      case bj::kind::string:
        append_string(out_, view(value.get_string()));
        break;
      case bj::kind::array:
        write_array(value.get_array());
        break;
      case bj::kind::object:
        write_object(value.get_object());
        break;
    }
  }

 private:
  static std::string_view view(bj::string_view s) { return {s.data(), s.size()}; }

  void write_double(double value) {
    if (std::isfinite(value)) return append_double(out_, value);
    if (!style_.python) {
      out_ += "null";
    } else {
      out_ += std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity";
    }
  }

  void write_array(const Array& array) {
    out_ += '[';
    bool first = true;
    for (const Value& item : array) {
      if (!first) out_ += style_.item_separator;
      first = false;
      write(item);
    }
    out_ += ']';
  }

  void write_object(const Object& object) {
    out_ += '{';
    bool first = true;
    for (const auto& member : object) {
      if (!first) out_ += style_.item_separator;
      first = false;
      append_string(out_, view(member.key()));
      out_ += style_.key_separator;
      write(member.value());
    }
    out_ += '}';
  }

  std::string& out_;
  const Style& style_;
};

}  // namespace

Result<Value> parse(std::string_view text, std::size_t max_depth) {
  std::size_t offset = 0;
  if (text.starts_with("\xEF\xBB\xBF")) offset = 3;
  try {
    bj::parse_options options;
    options.max_depth = max_depth;
    bj::basic_parser<Builder> parser(options);
    ErrorSlot error;
    offset += parser.write_some(false, text.data() + offset, text.size() - offset, error);
    if (error) return parse_failure(offset, error, max_depth);
    if (offset != text.size()) {
      return fail(ErrorCode::InvalidArgument, "JSON has more text after its end (byte {})", offset);
    }
    return parser.handler().take();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::OutOfMemory, "no memory to parse {} bytes of JSON", text.size());
  } catch (const std::exception&) {
    return fail(ErrorCode::InvalidArgument, "JSON holds a string or container that is too large");
  }
}

std::string dump(const Value& value) {
  static constexpr Style kCompact{",", ":", false};
  std::string out;
  Writer(out, kCompact).write(value);
  return out;
}

std::string python_dumps(const Value& value) {
  static constexpr Style kPython{", ", ": ", true};
  std::string out;
  Writer(out, kPython).write(value);
  return out;
}

}  // namespace lily::json

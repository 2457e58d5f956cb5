// Two passes of Boost.JSON: one that only looks for duplicate keys, one that builds the value.
#include "model/strict_json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <cstdint>
#include <exception>
#include <unordered_set>
#include <vector>

#include "base/quote.h"

namespace lily {
namespace {

namespace bj = boost::json;

// Events of the parser, reduced to: has this object seen this key already? Boost's own values keep the last of two.
struct DuplicateKeyFinder {
  static constexpr std::size_t max_object_size = SIZE_MAX;
  static constexpr std::size_t max_array_size = SIZE_MAX;
  static constexpr std::size_t max_key_size = SIZE_MAX;
  static constexpr std::size_t max_string_size = SIZE_MAX;

  std::vector<std::unordered_set<std::string>> open_objects;
  std::string key;
  std::string duplicate;
  bool found = false;

  bool on_key_part(bj::string_view part, std::size_t, bj::error_code&) {
    key.append(part);
    return true;
  }
  bool on_key(bj::string_view part, std::size_t, bj::error_code& error) {
    key.append(part);
    if (!open_objects.back().insert(key).second) {
      duplicate = key;
      found = true;
      error = bj::error::exception;  // any error stops the parser; `found` says why
      return false;
    }
    key.clear();
    return true;
  }
  bool on_object_begin(bj::error_code&) {
    open_objects.emplace_back();
    return true;
  }
  bool on_object_end(std::size_t, bj::error_code&) {
    open_objects.pop_back();
    return true;
  }
  bool on_document_begin(bj::error_code&) { return true; }
  bool on_document_end(bj::error_code&) { return true; }
  bool on_array_begin(bj::error_code&) { return true; }
  bool on_array_end(std::size_t, bj::error_code&) { return true; }
  bool on_string_part(bj::string_view, std::size_t, bj::error_code&) { return true; }
  bool on_string(bj::string_view, std::size_t, bj::error_code&) { return true; }
  bool on_number_part(bj::string_view, bj::error_code&) { return true; }
  bool on_int64(std::int64_t, bj::string_view, bj::error_code&) { return true; }
  bool on_uint64(std::uint64_t, bj::string_view, bj::error_code&) { return true; }
  bool on_double(double, bj::string_view, bj::error_code&) { return true; }
  bool on_bool(bool, bj::error_code&) { return true; }
  bool on_null(bj::error_code&) { return true; }
  bool on_comment_part(bj::string_view, bj::error_code&) { return true; }
  bool on_comment(bj::string_view, bj::error_code&) { return true; }
};

}  // namespace

Result<json::Object> parse_strict_object(std::string_view text, const std::string& label) try {
  bj::parse_options options;
  options.max_depth = json::kMaxDepth;
  bj::basic_parser<DuplicateKeyFinder> finder(options);
  bj::error_code error;
  const std::size_t used = finder.write_some(false, text.data(), text.size(), error);
  if (finder.handler().found)
    return fail(ErrorCode::Corrupt, "{}: key {} comes twice", label, quote(finder.handler().duplicate));
  if (error) return fail(ErrorCode::Corrupt, "{}: not valid JSON at byte {}: {}", label, used, error.message());
  if (used != text.size()) return fail(ErrorCode::Corrupt, "{}: more text after the JSON at byte {}", label, used);
  json::Value value = bj::parse(text, error, {}, options);
  if (error) return fail(ErrorCode::Corrupt, "{}: not valid JSON: {}", label, error.message());
  if (!value.is_object()) return fail(ErrorCode::Corrupt, "{}: expected a JSON object", label);
  return std::move(value.get_object());
} catch (const std::exception& exception) {
  return fail(ErrorCode::OutOfMemory, "{}: cannot hold its JSON: {}", label, exception.what());
}

}  // namespace lily

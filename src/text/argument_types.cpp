#include "text/argument_types.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>

namespace lily {

namespace {

enum : unsigned {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kNumber = 8,
  kString = 16,
  kArray = 32,
  kObject = 64,
};

constexpr int kMaxSchemaSteps = 256;  // of one property: bounds references that run in a circle

std::string_view view(boost::json::string_view s) {
  return {s.data(), s.size()};
}

const json::Object* object_member(const json::Object* object, std::string_view key) {
  const json::Value* value = object != nullptr ? object->if_contains(key) : nullptr;
  return value != nullptr ? value->if_object() : nullptr;
}

unsigned type_named(std::string_view name) {
  if (name == "null") return kNull;
  if (name == "boolean") return kBoolean;
  if (name == "integer") return kInteger;
  if (name == "number") return kNumber;
  if (name == "array") return kArray;
  if (name == "object") return kObject;
  return kString;  // "string", and types that JSON schema does not know
}

unsigned type_of(const json::Value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      return kNull;
    case boost::json::kind::bool_:
      return kBoolean;
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
      return kInteger;
    case boost::json::kind::double_:
      return kNumber;
    case boost::json::kind::array:
      return kArray;
    case boost::json::kind::object:
      return kObject;
    case boost::json::kind::string:
      break;
  }
  return kString;
}

// Which types a property's schema allows, in one mask.
class SchemaTypes {
 public:
  explicit SchemaTypes(const json::Object& root) : root_(root) {}

  unsigned of(const json::Value& schema) {
    const json::Object* object = schema.if_object();
    if (object == nullptr || ++steps_ > kMaxSchemaSteps) return 0;
    if (const json::Value* type = object->if_contains("type")) return named(*type);
    unsigned types = 0;
    for (const char* key : {"anyOf", "oneOf", "allOf"}) {
      const json::Value* list = object->if_contains(key);
      if (list == nullptr || !list->is_array()) continue;
      for (const json::Value& option : list->get_array()) types |= of(option);
    }
    if (const json::Value* list = object->if_contains("enum"); list != nullptr && list->is_array()) {
      for (const json::Value& option : list->get_array()) types |= type_of(option);
    }
    if (const json::Value* value = object->if_contains("const")) types |= type_of(*value);
    if (const json::Value* target = reference(*object)) types |= of(*target);
    if (types == 0 && object->contains("properties")) types = kObject;
    if (types == 0 && object->contains("items")) types = kArray;
    return types;
  }

 private:
  static unsigned named(const json::Value& type) {
    if (type.is_string()) return type_named(view(type.get_string()));
    unsigned types = 0;
    if (const json::Array* list = type.if_array()) {
      for (const json::Value& item : *list) {
        if (item.is_string()) types |= type_named(view(item.get_string()));
      }
    }
    return types;
  }

  // "#/$defs/Name" and the like, inside the same schema.
  const json::Value* reference(const json::Object& schema) const {
    const json::Value* ref = schema.if_contains("$ref");
    if (ref == nullptr || !ref->is_string()) return nullptr;
    std::string_view path = view(ref->get_string());
    if (!path.starts_with("#/")) return nullptr;
    path.remove_prefix(2);
    const json::Object* at = &root_;
    for (;;) {
      const std::size_t slash = path.find('/');
      const json::Value* next = at->if_contains(path.substr(0, slash));
      if (next == nullptr || slash == std::string_view::npos) return next;
      at = next->if_object();
      if (at == nullptr) return nullptr;
      path.remove_prefix(slash + 1);
    }
  }

  const json::Object& root_;
  int steps_ = 0;
};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

bool equals_ignoring_case(std::string_view text, std::string_view lower) {
  if (text.size() != lower.size()) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (std::tolower(static_cast<unsigned char>(text[i])) != lower[i]) return false;
  }
  return true;
}

std::string quoted(std::string_view text) {
  return json::dump(json::Value(boost::json::string(text)));
}

// The text itself when it is a JSON number that a double can hold.
std::optional<std::string> number(std::string_view text) {
  if (text.empty() || (text.front() != '-' && !std::isdigit(static_cast<unsigned char>(text.front()))))
    return std::nullopt;
  if (!json::parse(text)) return std::nullopt;
  return std::string(text);
}

// An integer in its own digits; 30.0 and 3e1 count as 30.
std::optional<std::string> integer(std::string_view text, bool exact) {
  const auto digits = number(text);
  if (!digits) return std::nullopt;
  if (text.find_first_of(".eE") == std::string_view::npos) return digits;
  double value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (exact || value != std::floor(value) || std::abs(value) > kExact) return std::nullopt;
  return std::to_string(static_cast<std::int64_t>(value));
}

std::optional<std::string> container(std::string_view text, char open, bool exact) {
  if (const auto value = json::parse(text)) {
    if (text.front() != open) return std::nullopt;
    return std::string(text);  // as written: digits and key order stay
  }
  if (exact) return std::nullopt;
  std::string converted = python_literal_to_json(text);
  if (!converted.starts_with(open)) return std::nullopt;
  return converted;
}

// The first of the allowed types that the text fits; string is not tried here.
std::optional<std::string> convert(std::string_view text, unsigned types) {
  const bool exact = (types & kString) != 0;
  if (exact ? (types & kNull) != 0 && text == "null" : text == "null" || text == "None") return "null";
  if ((types & kBoolean) != 0) {
    for (const std::string_view word : {"true", "false"}) {
      if (exact ? text == word : equals_ignoring_case(text, word)) return std::string(word);
    }
  }
  if ((types & kInteger) != 0) {
    if (auto value = integer(text, exact)) return value;
  }
  if ((types & kNumber) != 0) {
    if (auto value = number(text)) return value;
  }
  if ((types & kObject) != 0 && text.starts_with('{')) {
    if (auto value = container(text, '{', exact)) return value;
  }
  if ((types & kArray) != 0 && (text.starts_with('[') || (!exact && text.starts_with('(')))) {
    if (auto value = container(text, '[', exact)) return value;
  }
  return std::nullopt;
}

}  // namespace

ArgumentTypes::ArgumentTypes(const json::Array& tools, std::string_view function) {
  for (const json::Value& tool : tools) {
    const json::Object* definition = tool.if_object();
    if (const json::Object* inner = object_member(definition, "function")) definition = inner;
    const json::Value* name = definition != nullptr ? definition->if_contains("name") : nullptr;
    if (name == nullptr || !name->is_string() || view(name->get_string()) != function) continue;
    parameters_ = object_member(definition, "parameters");
    if (parameters_ == nullptr) parameters_ = object_member(definition, "input_schema");
    return;
  }
}

std::string ArgumentTypes::to_json(std::string_view name, std::string_view text) const {
  const json::Object* properties = object_member(parameters_, "properties");
  const json::Value* schema = properties != nullptr ? properties->if_contains(name) : nullptr;
  const unsigned types = schema != nullptr ? SchemaTypes(*parameters_).of(*schema) : 0;
  if (types == 0 || types == kString) return quoted(text);
  return convert(trimmed(text), types).value_or(quoted(text));
}

}  // namespace lily

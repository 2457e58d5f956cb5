// Scalars are printed as Python prints them; only the layout is added here.
#include "model/indented_json.h"

namespace lily {
namespace {

void append(std::string& out, const json::Value& value, std::size_t depth) {
  const auto new_line = [&](std::size_t level) {
    out += '\n';
    out.append(4 * level, ' ');
  };
  const auto separate = [&](bool& first) {
    if (!first) out += ',';
    first = false;
    new_line(depth + 1);
  };
  bool first = true;
  if (const json::Object* object = value.if_object(); object != nullptr && !object->empty()) {
    out += '{';
    for (const auto& [key, member] : *object) {
      separate(first);
      out += json::python_dumps(json::Value(key)) + ": ";
      append(out, member, depth + 1);
    }
    new_line(depth);
    out += '}';
  } else if (const json::Array* array = value.if_array(); array != nullptr && !array->empty()) {
    out += '[';
    for (const json::Value& element : *array) {
      separate(first);
      append(out, element, depth + 1);
    }
    new_line(depth);
    out += ']';
  } else {
    out += json::python_dumps(value);
  }
}

}  // namespace

std::string indented_json(const json::Value& value) {
  std::string out;
  append(out, value, 0);
  return out;
}

}  // namespace lily

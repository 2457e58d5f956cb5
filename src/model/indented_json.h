// JSON as Python's json.dumps(value, indent=4) prints it: the form of the small files of a published checkpoint.
#pragma once

#include <string>

#include "base/json.h"

namespace lily {

std::string indented_json(const json::Value& value);

}  // namespace lily

// JSON of a checkpoint's own files, where a key that comes twice means that the file is damaged or hostile.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"

namespace lily {

// Parses an object; refuses duplicate keys at any depth. Errors are Corrupt and begin with `label`.
Result<json::Object> parse_strict_object(std::string_view text, const std::string& label);

}  // namespace lily

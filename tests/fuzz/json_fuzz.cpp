// JSON text: whatever is accepted survives both ways of writing, and no error echoes the input.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lily;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = json::parse(text);
  if (!value) {
    for (const char c : value.error().message) LILY_CHECK(static_cast<unsigned char>(c) < 0x80);
    return 0;
  }
  for (const std::string& written : {json::dump(*value), json::python_dumps(*value)}) {
    LILY_CHECK(utf8::is_valid(written));
    const auto again = json::parse(written);
    LILY_CHECK(again.has_value());
    LILY_CHECK(json::dump(*again) == json::dump(*value));
  }
  return 0;
}

// Any bytes as the body of a chat request: parsed or refused, and the refusal is valid JSON.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "api/chat_request.h"
#include "api/errors.h"
#include "base/check.h"
#include "base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace lily;
  const auto value = json::parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!value) return 0;
  for (const bool strict : {false, true}) {
    const auto request = api::parse_chat_request(*value, {"lily-tiny", strict});
    if (request) {
      LILY_CHECK(!request->messages.empty() && request->max_tokens >= -1);
    } else {
      const net::Response response = api::error_response(request.error());
      LILY_CHECK(response.status >= 400 && json::parse(response.body).has_value());
    }
  }
  return 0;
}

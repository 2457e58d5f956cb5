// Every error that a client sees: {"error": {"message", "type", "param", "code"}} as the OpenAI API has it.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <tl/expected.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/quote.h"
#include "net/http_server.h"

namespace lily::api {

struct ApiError {
  int status = 400;
  std::string code;     // stable, for programs; empty: null
  std::string param;    // the field at fault, "messages[2].content"; empty: null
  std::string message;  // for a person: what is wrong and what to do
};

template <class T>
using Parsed = tl::expected<T, ApiError>;

// A 400 about one field.
template <class... Args>
[[nodiscard]] tl::unexpected<ApiError> bad_field(std::string param, fmt::format_string<Args...> format,
                                                 Args&&... args) {
  return tl::unexpected<ApiError>(
      ApiError{400, "invalid_value", std::move(param), fmt::format(format, std::forward<Args>(args)...)});
}

// Values that must be what the reader of a request expects: API_TRY declares from a Parsed, API_CHECK wants success.
#define API_TRY(declaration, expression) API_TRY_(LILY_CONCAT(parsed_, __COUNTER__), declaration, expression)
#define API_TRY_(name, declaration, expression)                                     \
  auto name = (expression);                                                         \
  if (!name) return tl::unexpected<::lily::api::ApiError>(std::move(name).error()); \
  declaration = std::move(*name)
#define API_CHECK(expression)                                                   \
  do {                                                                          \
    if (auto parsed_ = (expression); !parsed_)                                  \
      return tl::unexpected<::lily::api::ApiError>(std::move(parsed_).error()); \
  } while (0)

// How an error of the engine or the text layer looks to a client: InvalidArgument 400, OutOfMemory and Unavailable 503.
ApiError to_api_error(const Error& error);

net::Response json_response(int status, const json::Value& body);
// 429 and 503 carry Retry-After, 401 WWW-Authenticate.
net::Response error_response(const ApiError& error);

}  // namespace lily::api

#include "api/errors.h"

namespace lily::api {
namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

json::Value text_or_null(const std::string& text) {
  return text.empty() ? json::Value(nullptr) : json::Value(text);
}

}  // namespace

ApiError to_api_error(const Error& error) {
  switch (error.code) {
    case ErrorCode::InvalidArgument:
    case ErrorCode::Unsupported:
      return {400, "invalid_value", "", error.message};
    case ErrorCode::NotFound:
      return {404, "not_found", "", error.message};
    case ErrorCode::OutOfMemory:
      return {503, "out_of_memory", "", error.message};
    case ErrorCode::Cancelled:
      return {503, "cancelled", "", error.message};
    case ErrorCode::Unavailable:
      return {503, "unavailable", "", error.message};
    default:
      return {500, "internal_error", "", error.message};
  }
}

net::Response json_response(int status, const json::Value& body) {
  return {.status = status, .headers = {{"Content-Type", "application/json"}}, .body = json::dump(body) + "\n"};
}

net::Response error_response(const ApiError& error) {
  const json::Object inner{{"message", error.message},
                           {"type", type_of(error.status)},
                           {"param", text_or_null(error.param)},
                           {"code", text_or_null(error.code)}};
  net::Response response = json_response(error.status, json::Object{{"error", inner}});
  if (error.status == 429 || error.status == 503) response.headers.push_back({"Retry-After", "1"});
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

}  // namespace lily::api

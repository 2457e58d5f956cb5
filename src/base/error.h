// Errors as values. Input that cannot be used (a file, a request, a full disk) becomes a Result; a broken
// invariant of the program itself is LILY_CHECK (check.h). No exception crosses a folder border.
#pragma once

#include <fmt/core.h>

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace lily {

enum class ErrorCode {
  InvalidArgument,  // the caller's request cannot be honoured as it is
  NotFound,         // a file, model or route that is not there
  Corrupt,          // data that contradicts itself
  Unsupported,      // well formed, but not what this program runs
  OutOfMemory,      // a budget or the machine is exhausted
  Io,               // the operating system refused a read or write
  Cancelled,        // somebody asked for the work to stop
  Unavailable,      // try again later
  Internal,         // a defect of this program
};

// `message` is one line for a person: what, where, expected, found, what to do.
struct Error {
  ErrorCode code;
  std::string message;
};

template <class T>
using Result = tl::expected<T, Error>;

template <class... Args>
[[nodiscard]] tl::unexpected<Error> fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Error>(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

}  // namespace lily

#define LILY_CONCAT_(a, b) a##b
#define LILY_CONCAT(a, b) LILY_CONCAT_(a, b)

// LILY_TRY(auto x, f()): declares x from the value of a Result or returns its error.
#define LILY_TRY(declaration, expression) LILY_TRY_(LILY_CONCAT(lily_result_, __COUNTER__), declaration, expression)
#define LILY_TRY_(name, declaration, expression)                            \
  auto name = (expression);                                                 \
  if (!name) return tl::unexpected<::lily::Error>(std::move(name).error()); \
  declaration = std::move(*name)

// LILY_TRY_VOID(f()): the same for Result<void>.
#define LILY_TRY_VOID(expression)                                            \
  do {                                                                       \
    if (auto lily_result_ = (expression); !lily_result_)                     \
      return tl::unexpected<::lily::Error>(std::move(lily_result_).error()); \
  } while (0)

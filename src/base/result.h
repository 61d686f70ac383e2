#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/check.h"

namespace gpusched {

/// Kind of failure of the world. The engine's own "no" is a Rejection, never one of these.
enum class ErrorCode {
  kInvalidArgument,  ///< The caller's input is malformed.
  kNotFound,
  kAlreadyExists,
  kPermissionDenied,
  kUnauthenticated,
  kTooLarge,
  kUnavailable,     ///< Not now: try again later.
  kStorageFull,     ///< The disk has no room for new work.
  kSpecsFull,       ///< The specifications that are kept leave no room for another one.
  kTimeout,         ///< No effect in time, and none later.
  kOutcomeUnknown,  ///< May or may not have taken effect: check before repeating.
  kIo,              ///< The operating system refused; `message` has the call and its errno.
  kCorrupt,         ///< Stored bytes are not what was written.
  kLocked,          ///< Somebody else holds it; `message` names who.
  kVersion,         ///< Written by a newer version.
  kInternal,
};

std::string_view to_string(ErrorCode code);

/// A failure of the world, with a sentence that says what happened and what to do.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::string field = {};  ///< The input at fault, such as `gpu_count`; empty when none is.
};

/// Result<Unit> is the result of something done for its effect.
struct Unit {};

/// A value or an Error. Looking at the wrong one is a bug.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : value_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error)
      : value_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return value_.index() == 0; }
  explicit operator bool() const { return ok(); }

  const T& operator*() const& { return value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(value()); }
  const T* operator->() const { return &value(); }
  T* operator->() { return &value(); }

  const T& value() const {
    CHECK(ok());
    return std::get<0>(value_);
  }
  T& value() {
    CHECK(ok());
    return std::get<0>(value_);
  }
  const Error& error() const {
    CHECK(!ok());
    return std::get<1>(value_);
  }

 private:
  std::variant<T, Error> value_;
};

}  // namespace gpusched

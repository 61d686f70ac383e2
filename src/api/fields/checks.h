#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "api/contract/errors.h"

/// Sentences that the checks of several fields share.
namespace gpusched::api {

/// Longest path that a request names.
constexpr std::size_t kPathBytesMax = 4'096;

inline ApiError invalid(std::string_view field, std::string message) {
  return {ErrorKind::kInvalidArgument, std::move(message), std::string(field)};
}
inline ApiError unprocessable(std::string_view field, std::string message) {
  return {ErrorKind::kUnprocessable, std::move(message), std::string(field)};
}

inline std::optional<ApiError> check_length(std::string_view field, std::string_view text, std::size_t most) {
  if (text.size() <= most) return std::nullopt;
  return invalid(field,
                 std::string(field) + " is longer than " + std::to_string(most) + " bytes; shorten it");
}

inline std::optional<ApiError> check_range(std::string_view field, const std::optional<int64_t>& number,
                                           int64_t least, int64_t most) {
  if (!number || (*number >= least && *number <= most)) return std::nullopt;
  std::string message(field);
  if (*number < 0 && least == 0) {
    message.append(" must not be negative");
  } else {
    message.append(" must be from ")
        .append(std::to_string(least))
        .append(" to ")
        .append(std::to_string(most));
  }
  return invalid(field, message + "; it is " + std::to_string(*number));
}

/// The first problem of several checks.
template <typename... Checks>
std::optional<ApiError> first_of(Checks&&... checks) {
  std::optional<ApiError> found;
  static_cast<void>(((found = checks()) || ...));
  return found;
}

}  // namespace gpusched::api

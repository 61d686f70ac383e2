#pragma once

#include <boost/system/error_code.hpp>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "api/contract/errors.h"
#include "api/fields/values.h"
#include "base/time.h"

namespace gpusched::api {

/// A number that may have a fraction, in units of which one is `scale` of those that are kept: seconds for
/// milliseconds. A value that is not zero is rounded to the nearest but zero; one that is too large for a
/// number is the largest.
struct ScaledNumber {
  std::optional<int64_t>* to = nullptr;
  int64_t scale = 1;
};

/// One field that an object may have, and where its value goes.
struct JsonField {
  using Place = std::variant<std::optional<std::string>*, std::optional<int64_t>*, std::optional<double>*,
                             std::optional<bool>*, std::optional<StringList>*, std::optional<StringMap>*,
                             std::optional<IntegerMap>*, std::optional<NumberOrWord>*, std::optional<Time>*,
                             ScaledNumber>;
  std::string_view name = {};
  Place place = {};
  std::string_view hint = {};  ///< Follows the sentence about a wrong type.
  bool* was_null = nullptr;    ///< Set when the field is null, which else is like leaving it out.
};

inline constexpr std::size_t kJsonDepthMax = 32;

inline constexpr std::size_t kUnknownFieldsMax = 16;
inline constexpr std::size_t kUnknownFieldBytesMax = 64;

/// Reads one JSON object from untrusted bytes. Unknown fields are ignored: the names of the first
/// kUnknownFieldsMax go into `unknown`, each once and no longer than kUnknownFieldBytesMax. The last one of a
/// field given twice holds. Nothing when all went well; else kMalformedJson (syntax, UTF-8, depth) or
/// kInvalidArgument with the field (a wrong type, a NUL in a string).
std::optional<ApiError> read_json_object(std::string_view bytes, std::span<const JsonField> fields,
                                         std::vector<std::string>* unknown = nullptr);

/// The problem of a body that a parser stopped reading at byte `used`, trailing blanks aside; nothing when
/// all was well.
std::optional<ApiError> json_problem(std::string_view bytes, std::size_t used,
                                     boost::system::error_code error);

}  // namespace gpusched::api

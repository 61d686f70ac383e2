#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/errors.h"
#include "api/doors/json_fields.h"

namespace gpusched::api {

/// Fields of a JSON object that are found by name, for objects of so many that to prepare each would cost
/// more than to read what is given.
class FieldFinder {
 public:
  /// Returns the field of that name, which stays until the next call; null when there is none.
  virtual const JsonField* find(std::string_view name) = 0;

 protected:
  ~FieldFinder() = default;
};

/// The same as of a list of fields: see json_fields.h.
std::optional<ApiError> read_json_object(std::string_view bytes, FieldFinder& fields,
                                         std::vector<std::string>* unknown = nullptr);

}  // namespace gpusched::api

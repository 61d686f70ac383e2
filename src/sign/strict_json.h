#pragma once

#include <boost/json/object.hpp>
#include <cstddef>
#include <optional>
#include <string_view>

namespace gpusched::sign {

/// The one JSON object that `text` is. Nothing: it is none, is nested deeper than `depth_max`, or has a
/// member twice somewhere, of which two readers could take different ones.
std::optional<boost::json::object> parse_strict_object(std::string_view text, std::size_t depth_max);

}  // namespace gpusched::sign

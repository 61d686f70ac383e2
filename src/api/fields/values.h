#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

/// Values of fields that are more than one word or number.
namespace gpusched::api {

using StringList = std::vector<std::string>;
/// In the order of the input; a key may be there twice, then the last one holds.
using StringMap = std::vector<std::pair<std::string, std::string>>;
/// The same with whole numbers.
using IntegerMap = std::vector<std::pair<std::string, int64_t>>;
/// For fields that take a number or a word.
using NumberOrWord = std::variant<int64_t, std::string>;

/// A folder of the node that a container shows.
struct MountFields {
  std::string source, target;
  bool read_only = false;
};
using MountList = std::vector<MountFields>;

}  // namespace gpusched::api

#pragma once

#include <vector>

#include "client/json.h"

namespace gpusched::cli {

/// One record for each array in place of its own and those of its elements, where the first of them stood:
/// its id names the indexes ("job-12[0-99]"), its message counts the elements by state, and its state is that
/// of the liveliest. An element that is alone, without its array, stays as it is. Records need the columns
/// id, state, name and ran.
std::vector<Json> fold_arrays(const std::vector<Json>& jobs);

/// "0-5,7": sorted numbers as ranges.
std::string ranges_of(std::vector<int64_t> numbers);

}  // namespace gpusched::cli

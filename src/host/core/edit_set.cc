#include "host/core/edit_set.h"

#include "codec/group.h"

namespace gpusched {

std::size_t encoded_bytes(const EditSet& set) {
  constexpr std::size_t kParentBytes = 12;  // Its id is known later.
  const std::size_t by = set.by ? encoded_bytes(*set.by) : 0;
  std::size_t bytes = 0;
  for (const Command& command : commands_of(set.edits, 1))
    bytes += encoded_bytes(command) + kParentBytes + by;
  return bytes;
}

}  // namespace gpusched

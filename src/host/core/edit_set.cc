#include "host/core/edit_set.h"

#include "codec/group.h"

namespace gpusched {

std::size_t encoded_bytes(const EditSet& set) {
  constexpr std::size_t kParentBytes = 12;  // Its id is known later.
  std::size_t bytes = 0;
  for (const Command& command : commands_of(set.edits, 1)) bytes += encoded_bytes(command) + kParentBytes;
  return bytes;
}

}  // namespace gpusched

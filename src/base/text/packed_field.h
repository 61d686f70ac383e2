#pragma once

#include <string_view>

#include "base/bytes.h"

namespace gpusched {

/// Reads over a protobuf field whose tag was read. `bytes`: those of a text or a message; of a number none.
/// False: its kind is none that has an end of its own (a group), or the input ends before it.
inline bool read_field(ByteReader& reader, uint64_t tag, std::string_view& bytes) {
  bytes = {};
  switch (tag & 7) {
    case 0:
      reader.varint();
      break;
    case 1:
      reader.fixed64();
      break;
    case 2:
      bytes = reader.bytes();
      break;
    case 5:
      reader.fixed32();
      break;
    default:
      return false;
  }
  return reader.ok();
}

}  // namespace gpusched

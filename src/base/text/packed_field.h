#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// A field of bytes in a packed message: from its tag to its end, and what it holds.
struct PackedField {
  std::size_t begin = 0, end = 0;
  std::string_view bytes;
};

/// The first field of bytes with this number. Empty, at 0: there is none, or the message is damaged before
/// it.
inline PackedField find_field(std::string_view packed, uint64_t number) {
  ByteReader reader(packed);
  while (!reader.at_end()) {
    const std::size_t begin = packed.size() - reader.remaining();
    const uint64_t tag = reader.varint();
    std::string_view bytes;
    if (!reader.ok() || !read_field(reader, tag, bytes)) return {};
    if (tag == (number << 3 | 2)) return {begin, packed.size() - reader.remaining(), bytes};
  }
  return {};
}

/// The first number (a varint) with this field number; absent: there is none, or the message is damaged
/// before it.
inline std::optional<uint64_t> find_number(std::string_view packed, uint64_t number) {
  ByteReader reader(packed);
  while (!reader.at_end()) {
    const uint64_t tag = reader.varint();
    std::string_view bytes;
    if (tag == number << 3) {
      const uint64_t value = reader.varint();
      return reader.ok() ? std::optional(value) : std::nullopt;
    }
    if (!reader.ok() || !read_field(reader, tag, bytes)) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace gpusched

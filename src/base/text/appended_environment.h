#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/bytes.h"

/// Variables that a door puts behind a packed JobSpec, as entries of its environment. They are packed with
/// their values before their names, as no variable of the job itself ever is: doors pack what they have
/// parsed. Parsers take both orders.
namespace gpusched {

inline constexpr uint64_t kBytesField = 2;  // The wire type of texts and of messages.
inline constexpr uint64_t kEnvironmentTag = 6 << 3 | kBytesField;
inline constexpr uint64_t kVariableNameTag = 1 << 3 | kBytesField;
inline constexpr uint64_t kVariableValueTag = 2 << 3 | kBytesField;

/// As it stands behind the specification.
inline std::string appended_environment(std::string_view name, std::string_view value) {
  std::string entry;
  ByteWriter inner(entry);
  inner.varint(kVariableValueTag);
  inner.bytes(value);
  inner.varint(kVariableNameTag);
  inner.bytes(name);
  std::string field;
  ByteWriter out(field);
  out.varint(kEnvironmentTag);
  out.bytes(entry);
  return field;
}

}  // namespace gpusched

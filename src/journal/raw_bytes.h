#pragma once

#include <cstddef>
#include <cstring>
#include <string_view>

/// Numbers at places of a file's bytes, in the machine's own order: little-endian, as the formats are.
namespace gpusched {

template <typename T>
void store(char* out, std::size_t at, T value) {
  std::memcpy(out + at, &value, sizeof value);
}

template <typename T>
T load(std::string_view in, std::size_t at) {
  T value;
  std::memcpy(&value, in.data() + at, sizeof value);
  return value;
}

}  // namespace gpusched

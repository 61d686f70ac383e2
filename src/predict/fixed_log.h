#pragma once

#include <bit>
#include <cstdint>

#include "base/check.h"

namespace gpusched::predict {

/// About 256 times the binary logarithm, in integers: exact at powers of two and straight lines between them
/// (at most 0.086 of an octave too low there). Rises with its argument. Zero counts as one.
constexpr int32_t log2_q8(uint64_t value) {
  if (value <= 1) return 0;
  const int octave = static_cast<int>(std::bit_width(value)) - 1;
  const uint64_t rest = value - (uint64_t{1} << octave);
  const uint64_t part = octave >= 8 ? rest >> (octave - 8) : rest << (8 - octave);
  return octave * 256 + static_cast<int32_t>(part);
}

/// The inverse of `log2_q8`, rounded down; `value` is not below zero and not above 62 * 256.
constexpr uint64_t exp2_q8(int32_t value) {
  CHECK(value >= 0);
  CHECK(value <= 62 * 256);
  const int octave = value / 256;
  const uint64_t part = static_cast<uint64_t>(value % 256);
  const uint64_t rest = octave >= 8 ? part << (octave - 8) : part >> (8 - octave);
  return (uint64_t{1} << octave) + rest;
}

}  // namespace gpusched::predict

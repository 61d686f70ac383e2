#pragma once

#include <cstdint>
#include <cstdlib>

/// For tests only: how many worlds a random test draws.
namespace gpusched::testing {

/// `usual`, or as many as are asked for by GPUSCHED_WILD_SEEDS=1000.
inline uint64_t worlds_to_draw(uint64_t usual) {
  const char* wanted = std::getenv("GPUSCHED_WILD_SEEDS");
  return wanted == nullptr ? usual : std::strtoull(wanted, nullptr, 10);
}

}  // namespace gpusched::testing

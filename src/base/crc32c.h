#pragma once

#include <cstddef>
#include <cstdint>

namespace gpusched {

/// CRC-32C (Castagnoli, RFC 3720 appendix B.4) of `size` bytes, continuing from `seed` (0 to start, or the
/// CRC of what came before: chaining). Uses SSE 4.2 where the processor has it. Thread-safe.
uint32_t crc32c(const void* data, std::size_t size, uint32_t seed = 0);

}  // namespace gpusched

#include "base/crc32c.h"

#include <array>
#include <cstring>

namespace gpusched {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // Reflected.

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[i] = crc;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

uint32_t crc_portable(const uint8_t* bytes, std::size_t size, uint32_t crc) {
  for (std::size_t i = 0; i < size; ++i) crc = (crc >> 8) ^ kTable[(crc ^ bytes[i]) & 0xFF];
  return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc_sse42(const uint8_t* bytes, std::size_t size, uint32_t crc) {
  uint64_t wide = crc;
  while (size >= 8) {
    uint64_t word = 0;
    std::memcpy(&word, bytes, 8);
    wide = __builtin_ia32_crc32di(wide, word);
    bytes += 8;
    size -= 8;
  }
  crc = static_cast<uint32_t>(wide);
  for (std::size_t i = 0; i < size; ++i) crc = __builtin_ia32_crc32qi(crc, bytes[i]);
  return crc;
}
#endif

}  // namespace

uint32_t crc32c(const void* data, std::size_t size, uint32_t seed) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  const uint32_t crc = ~seed;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("sse4.2")) return ~crc_sse42(bytes, size, crc);
#endif
  return ~crc_portable(bytes, size, crc);
}

}  // namespace gpusched

#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace gpusched {

/// Folds a 128-bit product to 64 bits: the mixing step of wyhash (Wang Yi, public domain).
constexpr uint64_t mix64(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

/// A running 64-bit digest of a sequence of values. Order matters. It finds divergence and decay, not
/// forgery. The same calls give the same value on every machine and in every release: journals record it.
class Digest {
 public:
  constexpr Digest() = default;
  constexpr explicit Digest(uint64_t value) : value_(value) {}

  constexpr void mix(uint64_t word) { value_ = mix64(value_ ^ word ^ kA, kB ^ (word << 1)) + kC; }
  void mix(std::string_view bytes) {
    mix(bytes.size());
    while (bytes.size() >= 8) {
      uint64_t word = 0;
      std::memcpy(&word, bytes.data(), 8);
      mix(word);
      bytes.remove_prefix(8);
    }
    if (bytes.empty()) return;
    uint64_t tail = 0;
    std::memcpy(&tail, bytes.data(), bytes.size());
    mix(tail);
  }

  constexpr uint64_t value() const { return value_; }
  friend constexpr bool operator==(Digest, Digest) = default;

 private:
  static constexpr uint64_t kA = 0xA0761D6478BD642FULL;
  static constexpr uint64_t kB = 0xE7037ED1A0B428DBULL;
  static constexpr uint64_t kC = 0x8EBC6AF09C88C6E3ULL;
  uint64_t value_ = 0x589965CC75374CC3ULL;
};

}  // namespace gpusched

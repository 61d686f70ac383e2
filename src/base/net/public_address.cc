#include "base/net/public_address.h"

#include <algorithm>
#include <array>

#include "base/net/public_network.h"

namespace gpusched {
namespace {

constexpr std::size_t kBytes4 = 4, kBytes16 = 16;

struct Block {
  std::array<uint8_t, kBytes4> begin;
  unsigned bits;
};
/// IANA's registry of special-purpose IPv4 addresses, and multicast.
constexpr Block kSpecial4[] = {
    {{0, 0, 0, 0}, 8},      {{10, 0, 0, 0}, 8},     {{100, 64, 0, 0}, 10}, {{127, 0, 0, 0}, 8},
    {{169, 254, 0, 0}, 16}, {{172, 16, 0, 0}, 12},  {{192, 0, 0, 0}, 24},  {{192, 0, 2, 0}, 24},
    {{192, 88, 99, 0}, 24}, {{192, 168, 0, 0}, 16}, {{198, 18, 0, 0}, 15}, {{198, 51, 100, 0}, 24},
    {{203, 0, 113, 0}, 24}, {{224, 0, 0, 0}, 4},    {{240, 0, 0, 0}, 4},
};

uint32_t number_of(std::span<const uint8_t> bytes) {
  uint32_t number = 0;
  for (const uint8_t byte : bytes.first(kBytes4)) number = number << 8 | byte;
  return number;
}

bool is_public4(std::span<const uint8_t> address) {
  const uint32_t number = number_of(address);
  return std::ranges::none_of(kSpecial4, [&](const Block& block) {
    return (number ^ number_of(block.begin)) >> (32 - block.bits) == 0;
  });
}

bool is_mapped4(std::span<const uint8_t> address) {
  return std::ranges::all_of(address.first(10), [](uint8_t byte) { return byte == 0; }) &&
         address[10] == 0xFF && address[11] == 0xFF;
}

/// True for global unicast, 2000::/3, without 2001::/23 (Teredo and other protocols), 2001:db8::/32 and
/// 3fff::/20 (documentation) and 2002::/16, which has IPv4 addresses inside.
bool is_public6(std::span<const uint8_t> address) {
  if (is_mapped4(address)) return is_public4(address.subspan(12));
  if (address[0] >> 5 != 1) return false;
  const unsigned first = address[0] << 8u | address[1], second = address[2] << 8u | address[3];
  if (first == 0x2001 && (second < 0x200 || second == 0xdb8)) return false;
  if (first == 0x3fff && second < 0x1000) return false;
  return first != 0x2002;
}

struct Block6 {
  std::array<uint8_t, 4> begin;
  unsigned bits;
};
/// Blocks of IPv6 that people may use inside, or in examples: link-local, unique local, documentation.
constexpr Block6 kInside6[] = {
    {{0xFE, 0x80, 0, 0}, 10}, {{0xFC, 0, 0, 0}, 7}, {{0x20, 0x01, 0x0D, 0xB8}, 32}, {{0x3F, 0xFF, 0, 0}, 20}};

}  // namespace

bool may_have_public_address(std::span<const uint8_t> address, unsigned bits) {
  const auto is_inside = [&](const auto& block) {
    const uint32_t difference = number_of(address) ^ number_of(block.begin);
    return bits >= block.bits && difference >> (32 - block.bits) == 0;
  };
  if (address.size() == kBytes4) return std::ranges::none_of(kSpecial4, is_inside);
  const bool is_loopback = bits == 128 &&
                           std::ranges::all_of(address.first(15), [](uint8_t byte) { return byte == 0; }) &&
                           address[15] == 1;
  return !is_loopback && std::ranges::none_of(kInside6, is_inside);
}

bool is_public_address(std::span<const uint8_t> address) {
  if (address.size() == kBytes4) return is_public4(address);
  return address.size() == kBytes16 && is_public6(address);
}

}  // namespace gpusched

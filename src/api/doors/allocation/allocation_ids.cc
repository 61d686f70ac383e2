#include "api/doors/allocation/allocation_ids.h"

#include <algorithm>

#include "base/digest.h"
#include "model/identity/person.h"

namespace gpusched::api {
namespace {

constexpr uint64_t kNumberMask = (uint64_t{1} << 62) - 1;
constexpr std::size_t kTextBytes = 36;
constexpr std::string_view kDigits = "0123456789abcdef";

/// The upper half: 60 bits that say whose id it is, around the version.
uint64_t upper_half(std::string_view cluster, AllocationIdKind kind) {
  Digest digest;
  digest.mix(cluster);
  digest.mix(static_cast<uint64_t>(kind));
  const uint64_t bits = digest.value();
  return (bits & ~uint64_t{0xF000}) | uint64_t{0x8000};
}

void append_hex(std::string& out, uint64_t value, int digits) {
  for (int at = digits - 1; at >= 0; --at) out.push_back(kDigits[(value >> (4 * at)) & 0xF]);
}

}  // namespace

std::string allocation_id(std::string_view cluster, AllocationIdKind kind, uint64_t number) {
  const uint64_t upper = upper_half(cluster, kind);
  const uint64_t lower = (number & kNumberMask) | (uint64_t{2} << 62);  // The variant of RFC 9562.
  std::string out;
  out.reserve(kTextBytes);
  append_hex(out, upper >> 32, 8);
  out.push_back('-');
  append_hex(out, (upper >> 16) & 0xFFFF, 4);
  out.push_back('-');
  append_hex(out, upper & 0xFFFF, 4);
  out.push_back('-');
  append_hex(out, lower >> 48, 4);
  out.push_back('-');
  append_hex(out, lower & 0xFFFF'FFFF'FFFF, 12);
  return out;
}

std::optional<uint64_t> number_of_allocation_id(std::string_view cluster, AllocationIdKind kind,
                                                std::string_view id) {
  if (id.size() != kTextBytes) return std::nullopt;
  uint64_t lower = 0;
  std::string text;
  for (const char c : id) text.push_back(c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c);
  // Behind the third dash; what is not a digit there makes another text than it had.
  for (const char c : std::string_view(text).substr(19)) {
    const std::size_t digit = kDigits.find(c);
    if (digit != std::string_view::npos) lower = lower << 4 | digit;
  }
  const uint64_t number = lower & kNumberMask;
  if (allocation_id(cluster, kind, number) != text) return std::nullopt;
  return number;
}

std::string allocation_user_id(std::string_view cluster, std::string_view owner) {
  const std::string_view name = owner.substr(owner.find_last_of(" /") + 1);
  if (const auto person = person_of_key_name(name))
    return allocation_id(cluster, AllocationIdKind::kPerson, person->value);
  Digest digest;
  digest.mix(owner);
  return allocation_id(cluster, AllocationIdKind::kUser, digest.value());
}

}  // namespace gpusched::api

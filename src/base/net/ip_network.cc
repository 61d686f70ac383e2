#include "base/net/ip_network.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "base/net/public_network.h"

namespace gpusched {
namespace {

constexpr unsigned kMappedBits = 96;  ///< Prefix of the addresses that carry IPv4 ones.
constexpr unsigned kBits = 128;

/// A number of at most `digits_max` digits and nothing else.
std::optional<unsigned> number_in(std::string_view text, int base, std::size_t digits_max, unsigned most) {
  unsigned number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  const bool is_whole = error == std::errc() && end == text.data() + text.size() && !text.empty();
  if (!is_whole || text.size() > digits_max || number > most) return std::nullopt;
  return number;
}

/// Four numbers between dots, without zeros in front, into `out`.
bool read4(std::string_view text, std::span<uint8_t, 4> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::size_t dot = text.find('.');
    const bool is_last = i + 1 == out.size();
    if (is_last != (dot == std::string_view::npos)) return false;
    const std::string_view digits = text.substr(0, dot);
    const std::optional<unsigned> number = number_in(digits, 10, 3, 255);
    if (!number || (digits.size() > 1 && digits.front() == '0')) return false;
    out[i] = static_cast<uint8_t>(*number);
    if (!is_last) text.remove_prefix(dot + 1);
  }
  return true;
}

/// Groups of four hexadecimal digits between colons; the last one may be an IPv4 address. The bytes that they
/// are, or nothing.
std::optional<std::size_t> read_groups(std::string_view text, std::span<uint8_t, 16> out) {
  if (text.empty()) return 0;
  std::size_t size = 0;
  while (true) {
    const std::size_t colon = text.find(':');
    const std::string_view group = text.substr(0, colon);
    const bool is_last = colon == std::string_view::npos;
    if (is_last && group.find('.') != std::string_view::npos) {
      if (size > 12 || !read4(group, out.subspan(size).first<4>())) return std::nullopt;
      return size + 4;
    }
    const std::optional<unsigned> number = number_in(group, 16, 4, 0xFFFF);
    if (!number || size > 14) return std::nullopt;
    out[size++] = static_cast<uint8_t>(*number >> 8);
    out[size++] = static_cast<uint8_t>(*number & 0xFF);
    if (is_last) return size;
    text.remove_prefix(colon + 1);
  }
}

bool read6(std::string_view text, std::array<uint8_t, 16>& out) {
  const std::size_t gap = text.find("::");
  if (gap == std::string_view::npos) return read_groups(text, out) == out.size();
  std::array<uint8_t, 16> behind{};
  const std::optional<std::size_t> before = read_groups(text.substr(0, gap), out);
  const std::optional<std::size_t> rest = read_groups(text.substr(gap + 2), behind);
  if (!before || !rest || *before + *rest > out.size() - 2) return false;
  if (text.substr(0, gap).find('.') != std::string_view::npos) return false;
  std::fill(out.begin() + static_cast<std::ptrdiff_t>(*before), out.end(), uint8_t{0});
  std::copy_n(behind.begin(), *rest, out.end() - static_cast<std::ptrdiff_t>(*rest));
  return true;
}

bool same_bits(const IpAddress& a, const IpAddress& b, unsigned bits) {
  for (unsigned i = 0; i < a.bytes.size() && bits > 0; ++i) {
    const unsigned here = std::min(bits, 8U);
    if (((a.bytes[i] ^ b.bytes[i]) >> (8 - here)) != 0) return false;
    bits -= here;
  }
  return true;
}

}  // namespace

bool IpAddress::is_mapped4() const {
  return std::all_of(bytes.begin(), bytes.begin() + 10, [](uint8_t byte) { return byte == 0; }) &&
         bytes[10] == 0xFF && bytes[11] == 0xFF;
}

bool IpAddress::is_loopback() const {
  if (is_mapped4()) return bytes[12] == 127;
  return std::all_of(bytes.begin(), bytes.begin() + 15, [](uint8_t byte) { return byte == 0; }) &&
         bytes[15] == 1;
}

std::optional<IpAddress> parse_ip_address(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']')) text = text.substr(1, text.size() - 2);
  IpAddress address;
  if (text.find(':') == std::string_view::npos) {
    address.bytes[10] = address.bytes[11] = 0xFF;
    if (!read4(text, std::span(address.bytes).subspan<12, 4>())) return std::nullopt;
    return address;
  }
  if (!read6(text.substr(0, text.find('%')), address.bytes)) return std::nullopt;
  return address;
}

std::optional<IpNetwork> IpNetwork::parse(std::string_view text) {
  const std::size_t slash = text.find('/');
  const std::string_view before = text.substr(0, slash);
  const std::optional<IpAddress> address = parse_ip_address(before);
  if (!address || before.find_first_of("[%") != std::string_view::npos) return std::nullopt;
  const unsigned skipped = before.find(':') == std::string_view::npos ? kMappedBits : 0;
  IpNetwork network;
  network.first_ = *address;
  network.bits_ = kBits;
  if (slash != std::string_view::npos) {
    const std::optional<unsigned> bits = number_in(text.substr(slash + 1), 10, 3, kBits - skipped);
    if (!bits) return std::nullopt;
    network.bits_ = skipped + *bits;
  }
  for (unsigned bit = network.bits_; bit < kBits; ++bit) {
    if ((address->bytes[bit / 8] >> (7 - bit % 8) & 1) != 0) return std::nullopt;
  }
  return network;
}

bool IpNetwork::contains(const IpAddress& address) const { return same_bits(first_, address, bits_); }

bool IpNetwork::has_public_address() const {
  const std::span<const uint8_t> bytes = first_.bytes;
  if (bits_ < kMappedBits || !first_.is_mapped4()) return may_have_public_address(bytes, bits_);
  return may_have_public_address(bytes.subspan(12), bits_ - kMappedBits);
}

bool IpNetwork::has_loopback() const {
  static constexpr IpAddress kFour{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127, 0, 0, 0}};
  static constexpr IpAddress kSix{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
  return same_bits(first_, kFour, std::min(bits_, kMappedBits + 8)) || contains(kSix);
}

}  // namespace gpusched

#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// IP addresses and blocks of them. Pure values; thread-safe to read.
namespace gpusched {

/// An IPv6 address in network order; an IPv4 address is its mapped one (::ffff:a.b.c.d), so that both
/// spellings of an IPv4 address are equal.
struct IpAddress {
  std::array<uint8_t, 16> bytes{};
  friend bool operator==(const IpAddress&, const IpAddress&) = default;
  friend auto operator<=>(const IpAddress&, const IpAddress&) = default;
  bool is_mapped4() const;
  bool is_loopback() const;
};

/// Reads a numeric address; square brackets around it and a zone ("%eth0") are ignored. Nothing: it is none.
std::optional<IpAddress> parse_ip_address(std::string_view text);

/// A block of addresses in CIDR notation.
class IpNetwork {
 public:
  /// Reads "10.1.0.0/16", "fd00::/8", or one address. Nothing: it is none, or an address in it has bits
  /// beyond the prefix.
  static std::optional<IpNetwork> parse(std::string_view text);

  bool contains(const IpAddress& address) const;
  /// Whether an address of it may be one of the Internet at large; see `is_public_address`.
  bool has_public_address() const;
  /// Whether an address of it is one of loopback.
  bool has_loopback() const;

 private:
  IpAddress first_;
  unsigned bits_ = 0;  ///< Length of the prefix in the mapped form: 0 to 128.
};

}  // namespace gpusched

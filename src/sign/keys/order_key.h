#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gpusched::sign {

inline constexpr std::size_t kOrderKeyBytes = 32;        ///< Size of a public key.
inline constexpr std::size_t kOrderSignatureBytes = 64;  ///< Size of a signature.

/// The scheduler's key for what it orders its nodes to do: Ed25519 (RFC 8032). Immutable, so thread-safe.
class OrderKey {
 public:
  /// Reads the file, a private key in PEM format; makes one of mode 0600 at the first use. kIo;
  /// kPermissionDenied: others can read it; kInvalidArgument: it holds no such key. Says what to do.
  static Result<OrderKey> open(const std::string& path);
  /// Makes a key from 32 secret bytes.
  static OrderKey of_seed(std::string_view seed);
  OrderKey(const OrderKey&) = default;
  OrderKey& operator=(const OrderKey&) = default;
  ~OrderKey();

  const std::string& public_key() const { return public_key_; }
  std::string sign(std::string_view message) const;

 private:
  OrderKey() = default;

  std::string secret_;
  std::string public_key_;
};

/// Whether the key signed exactly that. All three may be a stranger's.
bool is_signed_by(std::string_view public_key, std::string_view message, std::string_view signature);

/// For whom an order is, and when: it is good there and then alone.
struct OrderPlace {
  std::string_view node;
  std::string_view nonce;  ///< Random bytes that the agent drew for this connection.
  uint64_t sequence = 0;   ///< Counts up in it.
};
/// The signed text: a mark, the place, and the digest (BLAKE2b-256) of the order's bytes as they are sent,
/// which may be in parts. Each part of it has a fixed length or says its own.
std::string order_text(const OrderPlace& place, std::initializer_list<std::string_view> order);

}  // namespace gpusched::sign

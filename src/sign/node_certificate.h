#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

struct evp_pkey_st;

/// Content of a node's certificate, and its request by a node: its key is made on the node and stays there.
namespace gpusched::sign {

/// A node's identity, as its certificate has it.
struct NodeClaim {
  std::string node;
  uint64_t identity = 0;   ///< Number of the identity that the scheduler keeps.
  int64_t expires_at = 0;  ///< Last second, in seconds since 1970.

  /// As the certificate names it; the name may hold any bytes.
  std::string uri() const;
  /// Node and identity of such a name. Nothing: it is none.
  static std::optional<NodeClaim> of_uri(std::string_view uri);
};

/// A request for a certificate (PKCS#10), read from untrusted bytes: the key that it is for, which its sender
/// has.
class NodeRequest {
 public:
  /// DER, of at most kBytesMax. kInvalidArgument: it is none, is not signed by its own key, or the key is of
  /// another kind than P-256 and Ed25519.
  static Result<NodeRequest> read(std::string_view der);
  static constexpr std::size_t kBytesMax = 4'096;

  evp_pkey_st* key() const { return key_.get(); }
  /// SHA-256 of the public key.
  const std::string& key_hash() const { return key_hash_; }

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const;
  };
  std::unique_ptr<evp_pkey_st, Free> key_;
  std::string key_hash_;
};

/// A new private key on P-256, as PEM.
std::string make_node_key();
/// The request of the key's holder, as DER. kInvalidArgument: this is no key.
Result<std::string> make_node_request(const std::string& key_pem);

/// A node's certificate with its key, in one file: the key, the certificate, those behind it, and the public
/// key that the scheduler signs its orders with, or, while that changes, both.
struct NodeFile {
  int64_t begins_at = 0, expires_at = 0;  ///< Seconds since 1970.
  std::string order_keys;                 ///< 32 bytes each, see sign/keys/order_key.h.

  /// When it is to be renewed: two thirds of its time are over.
  int64_t renew_at() const { return begins_at + (expires_at - begins_at) / 3 * 2; }
};
/// kNotFound: there is none. kPermissionDenied: others can read it. kInvalidArgument: key and certificate are
/// not there, or do not belong together, or the key for orders is missing.
Result<NodeFile> read_node_file(const std::string& path);
/// The text of such a file. kInvalidArgument: the certificate is not one for the key, or the scheduler signs
/// no orders.
Result<std::string> node_file_text(const std::string& key_pem, const std::string& certificates_pem,
                                   const std::string& order_keys);
/// The text of such a file with other keys for orders. kInvalidArgument: these are none.
Result<std::string> with_order_keys(const std::string& node_file, const std::string& order_keys);

}  // namespace gpusched::sign

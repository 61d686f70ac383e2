#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "sign/node_certificate.h"
#include "sign/replica_certificate.h"

struct evp_pkey_st;
struct x509_st;

namespace gpusched::sign {

/// A certificate authority of our own, in a folder: `ca.key` and `ca.pem`, and `fingerprint`, one line for
/// people. Immutable, so thread-safe.
class Authority {
 public:
  /// Makes folder and authority at the first use. Errors name the file and what to do: kIo,
  /// kPermissionDenied for a key that others can read, kInvalidArgument for files that are none or do not
  /// belong together.
  static Result<Authority> open(const std::string& folder);
  Authority(Authority&&) noexcept;
  Authority& operator=(Authority&&) noexcept;
  ~Authority();

  /// "sha256:" and digits.
  const std::string& fingerprint() const { return fingerprint_; }

  /// Whether `path` holds a certificate of this authority for these names, with its key, that has at least a
  /// third of its time left.
  bool has_issued(const std::string& path, const std::vector<std::string>& names) const;
  /// Writes a new key, a certificate for the names and addresses, and the authority's own behind it into one
  /// file of mode 0600, whole or not at all.
  Result<Unit> issue(const std::string& path, const std::vector<std::string>& names, Duration valid) const;

  /// Whether `path` holds a replica's certificate of this authority for this claim, with its key, that has at
  /// least a third of its time left.
  bool has_issued_replica(const std::string& path, const ReplicaClaim& claim) const;
  /// Writes a new key, a certificate with which its holder is that replica to others of its cluster, as
  /// server and as client, and the authority's own behind it into one file of mode 0600, whole or not at all.
  Result<Unit> issue_replica(const std::string& path, const ReplicaClaim& claim, Duration valid) const;

  /// A certificate for the key of a request, with which its holder is that node to this scheduler and can be
  /// no server, and the authority's own behind it, as PEM. Nothing of the request but its key is in it.
  std::string issue_node(const NodeRequest& request, const NodeClaim& claim) const;
  /// The node whose certificate a client showed (PEM; others behind it count for nothing). Untrusted bytes.
  /// kUnauthenticated: it is none of this authority's for nodes, or it has expired.
  Result<NodeClaim> node_of(const std::string& pem) const;

 private:
  struct Free {
    void operator()(evp_pkey_st* key) const;
    void operator()(x509_st* certificate) const;
  };
  using Key = std::unique_ptr<evp_pkey_st, Free>;
  using Certificate = std::unique_ptr<x509_st, Free>;
  /// Content of a certificate.
  struct Wanted {
    std::string title;
    std::vector<std::string> names;  ///< Names of a server.
    std::string uri;                 ///< URI of a node or a replica.
    const char* use;                 ///< Extended key usage; unused for the authority itself.
    Duration valid;
  };

  Authority() = default;
  static Result<Authority> make(const std::string& folder);
  static Result<Authority> read(const std::string& folder);
  /// The certificate in a file that `has_issued` would take for some name; null: it is none.
  Certificate issued(const std::string& path) const;
  static Certificate sign(x509_st* issuer, evp_pkey_st* issuer_key, evp_pkey_st* key, const Wanted& wanted);

  Key key_;
  Certificate certificate_;
  std::string fingerprint_;
};

}  // namespace gpusched::sign

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

struct x509_st;

namespace gpusched::sign {

/// A replica's identity, as the certificate of its links to other replicas has it.
struct ReplicaClaim {
  uint64_t cluster = 0;  ///< Number of its group; never 0.
  uint64_t replica = 0;  ///< Its id in the group; never 0.

  /// As the certificate names it.
  std::string uri() const;
  /// Cluster and replica of such a name. Nothing: it is none.
  static std::optional<ReplicaClaim> of_uri(std::string_view uri);

  friend bool operator==(const ReplicaClaim&, const ReplicaClaim&) = default;
};

/// The one URI that a certificate is for; empty: none, or there are other names beside it.
std::string certificate_uri(const x509_st* certificate);

/// The replica that a certificate is for; nothing: it is none of a replica. Says nothing about who signed it.
std::optional<ReplicaClaim> replica_of(const x509_st* certificate);

}  // namespace gpusched::sign

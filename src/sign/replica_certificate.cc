#include "sign/replica_certificate.h"

#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <charconv>

namespace gpusched::sign {
namespace {

constexpr std::string_view kReplicaMark = "urn:gpusched:replica:";

/// A positive decimal number without leading zeros; 0: it is none.
uint64_t positive_number(std::string_view text) {
  uint64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, failed] = std::from_chars(text.data(), end, value);
  return failed == std::errc() && at == end && text.front() != '0' ? value : 0;
}

}  // namespace

std::string ReplicaClaim::uri() const {
  return std::string(kReplicaMark) + std::to_string(cluster) + ":" + std::to_string(replica);
}

std::optional<ReplicaClaim> ReplicaClaim::of_uri(std::string_view uri) {
  if (!uri.starts_with(kReplicaMark)) return std::nullopt;
  uri.remove_prefix(kReplicaMark.size());
  const std::size_t colon = uri.find(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == uri.size()) return std::nullopt;
  const ReplicaClaim claim{.cluster = positive_number(uri.substr(0, colon)),
                           .replica = positive_number(uri.substr(colon + 1))};
  return claim.cluster != 0 && claim.replica != 0 ? std::optional(claim) : std::nullopt;
}

std::string certificate_uri(const x509_st* certificate) {
  auto* const all =
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  std::string uri;
  if (all != nullptr && sk_GENERAL_NAME_num(all) == 1) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(all, 0);
    if (name->type == GEN_URI)
      uri.assign(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.uniformResourceIdentifier)),
                 static_cast<std::size_t>(ASN1_STRING_length(name->d.uniformResourceIdentifier)));
  }
  GENERAL_NAMES_free(all);
  ERR_clear_error();
  return uri;
}

std::optional<ReplicaClaim> replica_of(const x509_st* certificate) {
  return ReplicaClaim::of_uri(certificate_uri(certificate));
}

}  // namespace gpusched::sign

#include "sign/authority.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <optional>
#include <tuple>

#include "base/check.h"
#include "sign/certificate_time.h"
#include "sign/fingerprint.h"
#include "sign/keys/private_file.h"

namespace gpusched::sign {
namespace {

constexpr Duration kAuthorityValid = hours(24 * 3'650);
constexpr int64_t kBefore_s = 3'600;  // Clocks of other machines may be behind.
constexpr std::size_t kShownBytesMax = 16'384;

std::string pem_of(EVP_PKEY* key, const std::vector<X509*>& certificates) {
  BIO* const text = BIO_new(BIO_s_mem());
  CHECK(text != nullptr);
  if (key != nullptr) CHECK(PEM_write_bio_PrivateKey(text, key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  for (X509* const certificate : certificates) CHECK(PEM_write_bio_X509(text, certificate) == 1);
  char* data = nullptr;
  const long size = BIO_get_mem_data(text, &data);
  std::string pem(data, static_cast<std::size_t>(size));
  BIO_free(text);
  return pem;
}

template <typename Read>
auto read_pem(const std::string& path, const Read& how) -> decltype(how(nullptr)) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return nullptr;
  const auto found = how(file);
  std::fclose(file);
  ERR_clear_error();
  return found;
}
X509* read_certificate(const std::string& path) {
  return read_pem(path, [](std::FILE* from) { return PEM_read_X509(from, nullptr, nullptr, nullptr); });
}
EVP_PKEY* read_key(const std::string& path) {
  // A passphrase is asked of nobody.
  return read_pem(path, [](std::FILE* from) {
    return PEM_read_PrivateKey(from, nullptr, [](char*, int, int, void*) { return 0; }, nullptr);
  });
}

GENERAL_NAMES* general_names(const std::vector<std::string>& names) {
  GENERAL_NAMES* const all = sk_GENERAL_NAME_new_null();
  CHECK(all != nullptr);
  for (const std::string& name : names) {
    GENERAL_NAME* const one = GENERAL_NAME_new();
    std::array<unsigned char, 16> bytes;
    int size = 0;
    if (inet_pton(AF_INET, name.c_str(), bytes.data()) == 1) size = 4;
    if (inet_pton(AF_INET6, name.c_str(), bytes.data()) == 1) size = 16;
    ASN1_STRING* const value = size > 0 ? ASN1_OCTET_STRING_new() : ASN1_IA5STRING_new();
    CHECK(one != nullptr && value != nullptr);
    if (size > 0) {
      ASN1_STRING_set(value, bytes.data(), size);
    } else {
      ASN1_STRING_set(value, name.data(), static_cast<int>(name.size()));
    }
    GENERAL_NAME_set0_value(one, size > 0 ? GEN_IPADD : GEN_DNS, value);
    sk_GENERAL_NAME_push(all, one);
  }
  return all;
}

GENERAL_NAMES* uri_name(const std::string& uri) {
  GENERAL_NAMES* const all = sk_GENERAL_NAME_new_null();
  GENERAL_NAME* const one = GENERAL_NAME_new();
  ASN1_STRING* const value = ASN1_IA5STRING_new();
  CHECK(all != nullptr && one != nullptr && value != nullptr);
  ASN1_STRING_set(value, uri.data(), static_cast<int>(uri.size()));
  GENERAL_NAME_set0_value(one, GEN_URI, value);
  sk_GENERAL_NAME_push(all, one);
  return all;
}

void add_extension(X509* to, X509* issuer, int what, const char* value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, to, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, what, value);
  CHECK(extension != nullptr && X509_add_ext(to, extension, -1) == 1);
  X509_EXTENSION_free(extension);
}

void set_serial(X509* certificate) {
  std::array<unsigned char, 16> bytes;
  CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1);
  bytes[0] &= 0x7F;
  BIGNUM* const number = BN_bin2bn(bytes.data(), bytes.size(), nullptr);
  CHECK(number != nullptr && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(certificate)) != nullptr);
  BN_free(number);
}

/// Whether the certificate is for these names, in this order, and no others.
bool is_for(X509* certificate, const std::vector<std::string>& names) {
  auto* const has =
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  GENERAL_NAMES* const wanted = general_names(names);
  bool same = has != nullptr && sk_GENERAL_NAME_num(has) == sk_GENERAL_NAME_num(wanted);
  for (int i = 0; same && i < sk_GENERAL_NAME_num(has); ++i)
    same = GENERAL_NAME_cmp(sk_GENERAL_NAME_value(has, i), sk_GENERAL_NAME_value(wanted, i)) == 0;
  GENERAL_NAMES_free(has);
  GENERAL_NAMES_free(wanted);
  return same;
}

/// Less than a third of the time from its first to its last second is left.
bool is_old(const X509* certificate) {
  int days = 0, seconds = 0, left_days = 0, left_seconds = 0;
  CHECK(ASN1_TIME_diff(&days, &seconds, X509_get0_notBefore(certificate), X509_get0_notAfter(certificate)) ==
        1);
  CHECK(ASN1_TIME_diff(&left_days, &left_seconds, nullptr, X509_get0_notAfter(certificate)) == 1);
  const auto of = [](int d, int s) { return int64_t{d} * 24 * 3'600 + s; };
  return of(left_days, left_seconds) * 3 < of(days, seconds);
}

}  // namespace

void Authority::Free::operator()(evp_pkey_st* key) const { EVP_PKEY_free(key); }
void Authority::Free::operator()(x509_st* certificate) const { X509_free(certificate); }
Authority::Authority(Authority&&) noexcept = default;
Authority& Authority::operator=(Authority&&) noexcept = default;
Authority::~Authority() = default;

Result<Authority> Authority::open(const std::string& folder) {
  struct stat facts{};
  const std::string key = folder + "/ca.key";
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return file_error("make", folder);
  if (::stat(key.c_str(), &facts) != 0) return errno == ENOENT ? make(folder) : file_error("read", key);
  if ((facts.st_mode & 077) != 0) {
    return Error{ErrorCode::kPermissionDenied,
                 key +
                     " can be read by others, who could pass for this scheduler with it; run chmod 600 on "
                     "it, or remove " +
                     folder + " and let every agent and client know the new authority"};
  }
  return read(folder);
}

/// The key is the last file: with it the authority is there.
Result<Authority> Authority::make(const std::string& folder) {
  Authority made;
  made.key_.reset(EVP_EC_gen("P-256"));
  CHECK(made.key_ != nullptr);
  made.certificate_ =
      sign(nullptr, made.key_.get(), made.key_.get(),
           {.title = "gpu-scheduler authority", .names = {}, .uri = {}, .use = "", .valid = kAuthorityValid});
  made.fingerprint_ = "sha256:" + fingerprint_of(made.certificate_.get());
  for (const auto& [name, text, mode] :
       {std::tuple{"/ca.pem", pem_of(nullptr, {made.certificate_.get()}), mode_t{0644}},
        std::tuple{"/fingerprint", made.fingerprint_ + "\n", mode_t{0644}},
        std::tuple{"/ca.key", pem_of(made.key_.get(), {}), mode_t{0600}}}) {
    if (const Result<Unit> written = write_whole(folder + name, text, mode); !written) return written.error();
  }
  return made;
}

Result<Authority> Authority::read(const std::string& folder) {
  Authority found;
  found.key_.reset(read_key(folder + "/ca.key"));
  found.certificate_.reset(read_certificate(folder + "/ca.pem"));
  if (found.key_ == nullptr || found.certificate_ == nullptr ||
      X509_check_private_key(found.certificate_.get(), found.key_.get()) != 1) {
    ERR_clear_error();
    return Error{ErrorCode::kInvalidArgument,
                 folder +
                     " holds no authority: ca.key and ca.pem are not a key and its certificate; restore "
                     "them from a backup, or remove the folder and let every agent and client know the "
                     "new authority"};
  }
  found.fingerprint_ = "sha256:" + fingerprint_of(found.certificate_.get());
  return found;
}

Authority::Certificate Authority::sign(x509_st* issuer, evp_pkey_st* issuer_key, evp_pkey_st* key,
                                       const Wanted& wanted) {
  Certificate made(X509_new());
  CHECK(made != nullptr);
  X509* const own_issuer = issuer == nullptr ? made.get() : issuer;
  X509_set_version(made.get(), X509_VERSION_3);
  set_serial(made.get());
  const std::time_t now = std::time(nullptr);
  const int64_t valid_s = wanted.valid.ms() / 1'000;
  // Backdating takes only a small part of a node's short time: two thirds of it must lie ahead.
  const int64_t before_s = wanted.uri.empty() ? kBefore_s : std::min(kBefore_s, valid_s / 10);
  ASN1_TIME_set(X509_getm_notBefore(made.get()), now - before_s);
  ASN1_TIME_set(X509_getm_notAfter(made.get()), now + valid_s);
  X509_set_pubkey(made.get(), key);
  CHECK(X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_UTF8,
                                   reinterpret_cast<const unsigned char*>(wanted.title.c_str()), -1, -1,
                                   0) == 1);
  X509_set_issuer_name(made.get(), X509_get_subject_name(own_issuer));
  const bool authority = issuer == nullptr;
  add_extension(made.get(), own_issuer, NID_basic_constraints,
                authority ? "critical,CA:TRUE,pathlen:0" : "critical,CA:FALSE");
  add_extension(made.get(), own_issuer, NID_key_usage,
                authority ? "critical,keyCertSign,cRLSign" : "critical,digitalSignature");
  add_extension(made.get(), own_issuer, NID_subject_key_identifier, "hash");
  add_extension(made.get(), own_issuer, NID_authority_key_identifier, "keyid");
  if (!authority) {
    add_extension(made.get(), own_issuer, NID_ext_key_usage, wanted.use);
    GENERAL_NAMES* const all = wanted.uri.empty() ? general_names(wanted.names) : uri_name(wanted.uri);
    CHECK(X509_add1_ext_i2d(made.get(), NID_subject_alt_name, all, 0, X509V3_ADD_DEFAULT) == 1);
    GENERAL_NAMES_free(all);
  }
  CHECK(X509_sign(made.get(), issuer_key, EVP_sha256()) > 0);
  return made;
}

Authority::Certificate Authority::issued(const std::string& path) const {
  Certificate certificate(read_certificate(path));
  const Key key(read_key(path));
  const bool ours = certificate != nullptr && key != nullptr &&
                    X509_verify(certificate.get(), key_.get()) == 1 &&
                    X509_check_private_key(certificate.get(), key.get()) == 1;
  ERR_clear_error();
  if (!ours || is_old(certificate.get())) return nullptr;
  return certificate;
}

bool Authority::has_issued(const std::string& path, const std::vector<std::string>& names) const {
  const Certificate certificate = issued(path);
  return certificate != nullptr && is_for(certificate.get(), names);
}

bool Authority::has_issued_replica(const std::string& path, const ReplicaClaim& claim) const {
  const Certificate certificate = issued(path);
  return certificate != nullptr && replica_of(certificate.get()) == claim;
}

Result<Unit> Authority::issue_replica(const std::string& path, const ReplicaClaim& claim,
                                      Duration valid) const {
  const Key key(EVP_EC_gen("P-256"));
  CHECK(key != nullptr);
  const Certificate made = sign(certificate_.get(), key_.get(), key.get(),
                                {.title = "gpu-scheduler replica",
                                 .names = {},
                                 .uri = claim.uri(),
                                 .use = "serverAuth,clientAuth",
                                 .valid = valid});
  return write_whole(path, pem_of(key.get(), {made.get(), certificate_.get()}), 0600);
}

Result<Unit> Authority::issue(const std::string& path, const std::vector<std::string>& names,
                              Duration valid) const {
  const Key key(EVP_EC_gen("P-256"));
  CHECK(key != nullptr);
  const Certificate made =
      sign(certificate_.get(), key_.get(), key.get(),
           {.title = "gpu-scheduler", .names = names, .uri = {}, .use = "serverAuth", .valid = valid});
  return write_whole(path, pem_of(key.get(), {made.get(), certificate_.get()}), 0600);
}

std::string Authority::issue_node(const NodeRequest& request, const NodeClaim& claim) const {
  const Duration valid = seconds(claim.expires_at - std::time(nullptr));
  const Certificate made = sign(
      certificate_.get(), key_.get(), request.key(),
      {.title = "gpu-scheduler node", .names = {}, .uri = claim.uri(), .use = "clientAuth", .valid = valid});
  return pem_of(nullptr, {made.get(), certificate_.get()});
}

Result<NodeClaim> Authority::node_of(const std::string& pem) const {
  const auto refuse = [](const std::string& why) { return Error{ErrorCode::kUnauthenticated, why}; };
  if (pem.size() > kShownBytesMax) return refuse("the certificate is too large");
  BIO* const text = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  CHECK(text != nullptr);
  const Certificate shown(PEM_read_bio_X509(text, nullptr, nullptr, nullptr));
  BIO_free(text);
  ERR_clear_error();
  if (shown == nullptr) return refuse("what was shown is no certificate");
  X509_STORE* const believed = X509_STORE_new();
  X509_STORE_CTX* const check = X509_STORE_CTX_new();
  CHECK(believed != nullptr && check != nullptr && X509_STORE_add_cert(believed, certificate_.get()) == 1);
  CHECK(X509_STORE_CTX_init(check, believed, shown.get(), nullptr) == 1);
  X509_STORE_CTX_set_purpose(check, X509_PURPOSE_SSL_CLIENT);
  const bool good = X509_verify_cert(check) == 1;
  const int why = X509_STORE_CTX_get_error(check);
  X509_STORE_CTX_free(check);
  X509_STORE_free(believed);
  ERR_clear_error();
  if (why == X509_V_ERR_CERT_HAS_EXPIRED) return refuse("the certificate has expired");
  if (!good) return refuse("the certificate is none of this scheduler's authority for nodes");
  std::optional<NodeClaim> claim = NodeClaim::of_uri(certificate_uri(shown.get()));
  if (!claim) return refuse("the certificate names no node");
  claim->expires_at = unix_second_of(X509_get0_notAfter(shown.get())).value_or(0);
  return std::move(*claim);
}

}  // namespace gpusched::sign

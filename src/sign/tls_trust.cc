#include "sign/tls_trust.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "sign/fingerprint.h"
#include "sign/node_certificate.h"

namespace gpusched::sign {
namespace {

constexpr unsigned char kHttp1[] = "\x08http/1.1";
constexpr unsigned char kHttp2[] = "\x02h2";
constexpr std::string_view kFingerprintMark = "sha256:";
constexpr std::size_t kDigestBytes = 32;
constexpr std::size_t kNamesShown = 5;

/// Authorities of distributions that are not the one that OpenSSL, which is linked statically, was built for:
/// Fedora and Red Hat, SUSE, Arch and Alpine.
constexpr const char* kBundles[] = {"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                    "/etc/ssl/certs/ca-certificates.crt", "/etc/ssl/cert.pem"};

/// The file of this machine's authorities where OpenSSL does not find them by itself; empty: it does, or
/// there is none, or the environment says which they are.
std::string bundle_elsewhere(const std::string& root) {
  if (std::getenv(X509_get_default_cert_file_env()) != nullptr) return {};
  if (std::getenv(X509_get_default_cert_dir_env()) != nullptr) return {};
  if (access((root + X509_get_default_cert_dir()).c_str(), F_OK) == 0) return {};
  for (const char* const bundle : kBundles) {
    if (access((root + bundle).c_str(), R_OK) == 0) return root + bundle;
  }
  return {};
}

bool is_address(const std::string& host) {
  unsigned char bytes[16];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 || inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

Error no_certificate(const std::string& path, const std::string& why) {
  return {ErrorCode::kInvalidArgument, "cannot read a certificate from " + path + ": " + why};
}

/// Adds the file's certificates to those that are believed; all, or the first one. 0: there are none.
int add_certificates(SSL_CTX* context, std::FILE* file, bool first_only) {
  int count = 0;
  X509_STORE* const store = SSL_CTX_get_cert_store(context);
  while (X509* const certificate = PEM_read_X509(file, nullptr, nullptr, nullptr)) {
    if (X509_STORE_add_cert(store, certificate) == 1) ++count;
    X509_free(certificate);
    if (first_only) break;
  }
  ERR_clear_error();
  // Certificates in the file are believed for themselves, whoever signed them.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context), X509_V_FLAG_PARTIAL_CHAIN);
  return count;
}

std::string address_text(const ASN1_STRING* bytes) {
  char text[INET6_ADDRSTRLEN] = {};
  const int family = ASN1_STRING_length(bytes) == 4 ? AF_INET : AF_INET6;
  if (family == AF_INET6 && ASN1_STRING_length(bytes) != 16) return "?";
  inet_ntop(family, ASN1_STRING_get0_data(bytes), text, sizeof text);
  return text;
}

/// "scheduler.example, 10.0.0.5": whom the certificate is for.
std::string names_of(X509* certificate) {
  std::string names;
  auto* const all =
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr));
  std::size_t shown = 0;
  for (int i = 0; all != nullptr && i < sk_GENERAL_NAME_num(all) && shown < kNamesShown; ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(all, i);
    if (name->type != GEN_DNS && name->type != GEN_IPADD) continue;
    if (shown++ > 0) names += ", ";
    if (name->type == GEN_IPADD) {
      names += address_text(name->d.iPAddress);
    } else {
      names.append(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                   static_cast<std::size_t>(ASN1_STRING_length(name->d.dNSName)));
    }
  }
  GENERAL_NAMES_free(all);
  return names.empty() ? "no name" : names;
}

void free_names(void*, void* names, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<std::string*>(names);
}

/// Where a channel keeps whom a refused certificate is for: OpenSSL keeps accepted ones alone.
int names_index() {
  static const int index = SSL_get_ex_new_index(0, nullptr, nullptr, nullptr, free_names);
  return index;
}

int on_verified(int accepted, X509_STORE_CTX* store) {
  if (accepted == 1) return accepted;
  auto* const ssl =
      static_cast<SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  X509* const certificate = X509_STORE_CTX_get0_cert(store);
  if (certificate != nullptr && SSL_get_ex_data(ssl, names_index()) == nullptr)
    SSL_set_ex_data(ssl, names_index(), new std::string(names_of(certificate)));
  return accepted;
}

std::string untrusted(const std::string* names, long why, const std::string& host, TlsUse use) {
  const bool grpc = use == TlsUse::kGrpc;
  switch (why) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "its certificate is for " + (names == nullptr ? "no name" : *names) + " and not for " + host +
             "; use a name of the certificate " + (grpc ? "as the scheduler's address" : "in the URL") +
             ", or have " + host + " added to it";
    case X509_V_ERR_APPLICATION_VERIFICATION:
      return "none of the certificates that it shows has the fingerprint that is trusted here; compare it "
             "with the authority's on the scheduler's machine (openssl x509 -in ca.pem -noout -fingerprint "
             "-sha256). An authority's own certificate is shown only if it stands in api.tls_cert_path, "
             "behind the server's";
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return "its certificate has expired; renew it where the scheduler runs";
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "its certificate is not valid yet; compare the clocks of this machine and the scheduler's";
    default:
      return "its certificate is not signed by an authority that is trusted here (" +
             std::string(X509_verify_cert_error_string(why)) +
             "); give the authority's certificate with --ca-file" +
             (grpc ? ", or its fingerprint with --ca" : "");
  }
}

SSL_CTX* new_context() {
  SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  CHECK(context != nullptr);
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_options(context, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, on_verified);
  return context;
}

/// In place of OpenSSL's own check: the certificate of that fingerprint is the one authority.
int verify_by_fingerprint(X509_STORE_CTX* store, void* trusted) {
  const auto& fingerprint = *static_cast<const std::string*>(trusted);
  X509* const own = X509_STORE_CTX_get0_cert(store);
  X509* found = fingerprint_of(own) == fingerprint ? own : nullptr;
  if (found != nullptr) {  // It is itself, whatever its name.
    X509_VERIFY_PARAM* const checks = X509_STORE_CTX_get0_param(store);
    X509_VERIFY_PARAM_set1_host(checks, nullptr, 0);
    X509_VERIFY_PARAM_set1_ip(checks, nullptr, 0);
  }
  STACK_OF(X509)* const shown = X509_STORE_CTX_get0_untrusted(store);
  for (int i = 0; found == nullptr && i < sk_X509_num(shown); ++i) {
    if (fingerprint_of(sk_X509_value(shown, i)) == fingerprint) found = sk_X509_value(shown, i);
  }
  if (found == nullptr) {
    X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return on_verified(0, store);
  }
  STACK_OF(X509)* const authorities = sk_X509_new_null();
  CHECK(authorities != nullptr && sk_X509_push(authorities, found) > 0);
  X509_STORE_CTX_set0_trusted_stack(store, authorities);
  X509_STORE_CTX_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
  const int accepted = X509_verify_cert(store);
  X509_STORE_CTX_set0_trusted_stack(store, nullptr);
  sk_X509_free(authorities);
  return accepted > 0 ? 1 : 0;
}

}  // namespace

Result<std::string> parse_fingerprint(std::string_view text) {
  std::string digits;
  const bool marked = text.starts_with(kFingerprintMark);
  for (const char letter : marked ? text.substr(kFingerprintMark.size()) : std::string_view()) {
    if (letter == ':' && !digits.empty() && digits.size() % 2 == 0) continue;
    digits += letter >= 'A' && letter <= 'F' ? static_cast<char>(letter - 'A' + 'a') : letter;
  }
  if (digits.size() == 2 * kDigestBytes && digits.find_first_not_of("0123456789abcdef") == std::string::npos)
    return digits;
  return Error{ErrorCode::kInvalidArgument,
               "'" + std::string(text.substr(0, 100)) +
                   "' is no fingerprint; it is sha256: and 64 hexadecimal digits, as openssl x509 -in ca.pem "
                   "-noout -fingerprint -sha256 prints them behind the ="};
}

TlsTrust::~TlsTrust() { SSL_CTX_free(context_); }

Result<std::shared_ptr<const TlsTrust>> TlsTrust::of_system(const std::string& root) {
  SSL_CTX* const context = new_context();
  SSL_CTX_set_default_verify_paths(context);
  if (const std::string bundle = bundle_elsewhere(root); !bundle.empty()) {
    SSL_CTX_load_verify_file(context, bundle.c_str());
  }
  return std::shared_ptr<const TlsTrust>(new TlsTrust(context, false));
}

namespace {

Result<SSL_CTX*> context_of(const std::string& path, bool first_only) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return no_certificate(path, std::strerror(errno));
  SSL_CTX* const context = new_context();
  const int count = add_certificates(context, file, first_only);
  std::fclose(file);
  if (count > 0) return context;
  SSL_CTX_free(context);
  return no_certificate(path, "there is none in it in PEM format");
}

}  // namespace

Result<std::shared_ptr<const TlsTrust>> TlsTrust::of_file(const std::string& ca_file) {
  const Result<SSL_CTX*> context = context_of(ca_file, false);
  if (!context) return context.error();
  return std::shared_ptr<const TlsTrust>(new TlsTrust(*context, false));
}

Result<std::shared_ptr<const TlsTrust>> TlsTrust::of_server(const std::string& certificate_file) {
  const Result<SSL_CTX*> context = context_of(certificate_file, true);
  if (!context) return context.error();
  return std::shared_ptr<const TlsTrust>(new TlsTrust(*context, true));
}

Result<std::shared_ptr<const TlsTrust>> TlsTrust::of_fingerprint(std::string_view fingerprint) {
  Result<std::string> digits = parse_fingerprint(fingerprint);
  if (!digits) return digits.error();
  const std::shared_ptr<TlsTrust> made(new TlsTrust(new_context(), false));
  made->fingerprint_ = std::move(*digits);
  SSL_CTX_set_cert_verify_callback(made->context_, verify_by_fingerprint, &made->fingerprint_);
  return std::shared_ptr<const TlsTrust>(made);
}

std::unique_ptr<TlsChannel> TlsTrust::connect(int socket, const std::string& host, TlsUse use) const {
  TlsChannel::Native ssl(SSL_new(context_));
  CHECK(ssl != nullptr);
  SSL_set_connect_state(ssl.get());
  if (use == TlsUse::kHttp) SSL_set_alpn_protos(ssl.get(), kHttp1, sizeof kHttp1 - 1);
  if (use == TlsUse::kGrpc) SSL_set_alpn_protos(ssl.get(), kHttp2, sizeof kHttp2 - 1);
  const bool address = is_address(host);
  // RFC 6066, 3: an address is no server name.
  if (!address) SSL_set_tlsext_host_name(ssl.get(), host.c_str());
  if (!any_name_ && address) X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl.get()), host.c_str());
  if (!any_name_ && !address) {
    SSL_set_hostflags(ssl.get(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    CHECK(SSL_set1_host(ssl.get(), host.c_str()) == 1);
  }
  return std::make_unique<TlsChannel>(std::move(ssl), socket);
}

Error handshake_error(const TlsChannel& channel, const std::string& host, TlsUse use) {
  const long why = SSL_get_verify_result(channel.native());
  if (why != X509_V_OK) {
    const auto* const names =
        static_cast<const std::string*>(SSL_get_ex_data(channel.native(), names_index()));
    return {ErrorCode::kUnauthenticated, untrusted(names, why, host, use)};
  }
  if (channel.error() == "wrong version number" || channel.error() == "packet length too long") {
    return {ErrorCode::kInvalidArgument,
            use == TlsUse::kHttp
                ? "the server does not speak TLS there; use http:// in the URL"
                : "the server does not speak TLS there; set api.enable_tls and api.grpc_tls where the "
                  "scheduler runs, or take --tls, --ca-file and --ca away here, whose traffic then can be "
                  "read and changed on its way"};
  }
  if (use == TlsUse::kGrpc && channel.error().find("no application protocol") != std::string::npos) {
    return {ErrorCode::kInvalidArgument,
            "the server speaks TLS there, but not gRPC; is this the gRPC port (default: 9090)?"};
  }
  return {ErrorCode::kUnavailable, "the TLS handshake failed: " + channel.error()};
}

Result<Unit> show_certificate(const TlsChannel& channel, const std::string& path) {
  if (const Result<NodeFile> file = read_node_file(path); !file) return file.error();
  const bool taken = SSL_use_certificate_chain_file(channel.native(), path.c_str()) == 1 &&
                     SSL_use_PrivateKey_file(channel.native(), path.c_str(), SSL_FILETYPE_PEM) == 1;
  ERR_clear_error();
  if (taken) return Unit{};
  return Error{ErrorCode::kInvalidArgument, path + " could not be used; join anew with a node token"};
}

}  // namespace gpusched::sign

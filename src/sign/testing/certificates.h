#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "base/check.h"

namespace gpusched::sign {

/// A private authority of a test, in a folder of its own, and the certificates that it signs.
class TestAuthority {
 public:
  struct Files {
    std::string certificate, key;
  };

  explicit TestAuthority(const std::string& name = "test authority") : key_(new_key()) {
    std::string folder = (std::filesystem::temp_directory_path() / "gpusched_tls_XXXXXX").string();
    CHECK(::mkdtemp(folder.data()) != nullptr);
    folder_ = folder;
    certificate_ = certificate_of(name, "", key_.get(), -3'600, 3'600);
    file_ = write("authority.pem", [this](std::FILE* to) { return PEM_write_X509(to, certificate_.get()); });
  }
  ~TestAuthority() { std::filesystem::remove_all(folder_); }
  TestAuthority(const TestAuthority&) = delete;
  TestAuthority& operator=(const TestAuthority&) = delete;

  const std::string& file() const { return file_; }
  const std::string& folder() const { return folder_; }
  /// A certificate for `names`, such as "DNS:localhost,IP:127.0.0.1", from and until so many seconds from
  /// now.
  Files sign(const std::string& title, const std::string& names, int64_t from = -3'600,
             int64_t until = 3'600) {
    const Key key(new_key());
    const Certificate made = certificate_of(title, names, key.get(), from, until);
    return {write(title + ".pem", [&](std::FILE* to) { return PEM_write_X509(to, made.get()); }),
            write(title + ".key", [&](std::FILE* to) {
              return PEM_write_PrivateKey(to, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
            })};
  }

 private:
  struct Free {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(X509* certificate) const { X509_free(certificate); }
  };
  using Key = std::unique_ptr<EVP_PKEY, Free>;
  using Certificate = std::unique_ptr<X509, Free>;

  static EVP_PKEY* new_key() {
    EVP_PKEY* const key = EVP_EC_gen("P-256");
    CHECK(key != nullptr);
    return key;
  }

  static void add(X509* to, X509* issuer, int what, const std::string& value) {
    X509V3_CTX context;
    X509V3_set_ctx(&context, issuer, to, nullptr, nullptr, 0);
    X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, what, value.c_str());
    CHECK(extension != nullptr);
    X509_add_ext(to, extension, -1);
    X509_EXTENSION_free(extension);
  }

  /// Without names: the authority itself.
  Certificate certificate_of(const std::string& title, const std::string& names, EVP_PKEY* key, int64_t from,
                             int64_t until) {
    Certificate made(X509_new());
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), from);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), until);
    X509_set_pubkey(made.get(), key);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(made.get()), "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(title.c_str()), -1, -1, 0);
    X509* const issuer = names.empty() ? made.get() : certificate_.get();
    X509_set_issuer_name(made.get(), X509_get_subject_name(issuer));
    add(made.get(), issuer, NID_basic_constraints, names.empty() ? "critical,CA:TRUE" : "CA:FALSE");
    if (!names.empty()) add(made.get(), issuer, NID_subject_alt_name, names);
    CHECK(X509_sign(made.get(), key_.get(), EVP_sha256()) > 0);
    return made;
  }

  template <typename Write>
  std::string write(const std::string& name, const Write& how) {
    const std::string path = folder_ + "/" + name;
    std::FILE* const file = std::fopen(path.c_str(), "we");
    CHECK(file != nullptr);
    ::fchmod(::fileno(file), 0600);
    CHECK(how(file) == 1);
    std::fclose(file);
    return path;
  }

  Key key_;
  Certificate certificate_;
  std::string folder_, file_;
  long serial_ = 0;
};

}  // namespace gpusched::sign

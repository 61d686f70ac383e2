#include "sign/fingerprint.h"

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <span>

#include "base/check.h"

namespace gpusched::sign {

std::string fingerprint_of(const x509_st* certificate) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  CHECK(X509_digest(certificate, EVP_sha256(), digest, &size) == 1);
  std::string digits;
  for (const unsigned char byte : std::span(digest, size)) {
    digits += "0123456789abcdef"[byte >> 4];
    digits += "0123456789abcdef"[byte & 15];
  }
  return digits;
}

}  // namespace gpusched::sign

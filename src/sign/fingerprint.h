#pragma once

#include <string>

struct x509_st;

namespace gpusched::sign {

/// 64 hexadecimal digits: SHA-256 of the whole certificate, as everybody counts it.
std::string fingerprint_of(const x509_st* certificate);

}  // namespace gpusched::sign

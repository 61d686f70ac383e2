#pragma once

#include <openssl/asn1.h>

#include <cstdint>
#include <ctime>
#include <optional>

#include "base/text/civil_time.h"

namespace gpusched::sign {

/// Seconds since 1970 of a time in a certificate. Nothing when it is malformed.
inline std::optional<int64_t> unix_second_of(const ASN1_TIME* time) {
  std::tm parts{};
  if (ASN1_TIME_to_tm(time, &parts) != 1) return std::nullopt;
  return gpusched::unix_second_of({.year = parts.tm_year + 1'900,
                                   .month = parts.tm_mon + 1,
                                   .day = parts.tm_mday,
                                   .hour = parts.tm_hour,
                                   .minute = parts.tm_min,
                                   .second = parts.tm_sec});
}

}  // namespace gpusched::sign

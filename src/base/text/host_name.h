#pragma once

#include <string_view>

namespace gpusched {

/// Whether it is a host name (RFC 1123, 2.1): up to 253 bytes; words of letters, digits and '-' with '.'
/// between them, each of up to 63 bytes and with no '-' at its ends. An IPv4 address is one. Pure.
bool is_host_name(std::string_view name);

/// The rule for names, for the sentence that refuses another one.
inline constexpr const char* kHostNameRule =
    "a host name: letters, digits and '-' in words of at most 63 with '.' between them, at most 253 bytes in "
    "all";

}  // namespace gpusched

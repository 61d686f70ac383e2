#pragma once

#include <string>
#include <string_view>

namespace gpusched::api {

/// Maps an address to its party, for limits: an IPv4 address is one party; for IPv6 a /64 is, because one
/// machine has as many addresses as it likes in it. An IPv4 address that is written as one of IPv6 is the
/// former. A text that is no IP address stays as it is.
std::string address_group(std::string_view address);

}  // namespace gpusched::api

#include "api/limits/address_group.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>

namespace gpusched::api {

std::string address_group(std::string_view address) {
  if (address.find(':') == std::string_view::npos) return std::string(address);
  const std::string text(address.substr(0, address.find('%')));
  in6_addr six{};
  if (inet_pton(AF_INET6, text.c_str(), &six) != 1) return std::string(address);
  std::array<char, INET6_ADDRSTRLEN> out{};
  if (IN6_IS_ADDR_V4MAPPED(&six)) {
    inet_ntop(AF_INET, &six.s6_addr[12], out.data(), out.size());
    return out.data();
  }
  std::fill(std::begin(six.s6_addr) + 8, std::end(six.s6_addr), uint8_t{0});
  inet_ntop(AF_INET6, &six, out.data(), out.size());
  return std::string(out.data()) + "/64";
}

}  // namespace gpusched::api

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gpusched {

/// Whether an IP address, 4 or 16 bytes in the order of the network, is one of the Internet at large: no
/// loopback, private, link-local, shared, documentation, multicast or reserved one, nor one that carries such
/// an address inside.
bool is_public_address(std::span<const uint8_t> address);

}  // namespace gpusched

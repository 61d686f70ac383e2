#pragma once

#include <cstdint>
#include <span>

namespace gpusched {

/// Whether a block of addresses, those that share the first `bits` bits of `address` (4 or 16 bytes in the
/// order of the network), is not wholly in one of the blocks that are never of the Internet at large.
bool may_have_public_address(std::span<const uint8_t> address, unsigned bits);

}  // namespace gpusched

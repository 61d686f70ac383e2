#pragma once

#include <optional>
#include <string>
#include <string_view>

/// Passwords, of which only a slow hash is kept, since people choose them.
namespace gpusched::sign {

/// argon2id with its salt and cost, as text of at most 128 bytes. It takes some 60 ms and 64 MiB: not on a
/// thread that others wait for. Nothing: there is no such memory.
std::optional<std::string> hash_password(std::string_view password);
/// Whether it is the password of that hash. It takes as long.
bool is_password(std::string_view password, std::string_view hash);

}  // namespace gpusched::sign

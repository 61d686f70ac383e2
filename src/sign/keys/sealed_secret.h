#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

/// Secrets that are kept encrypted with a passphrase: argon2id makes a key of it, XChaCha20-Poly1305 encrypts
/// (both of libsodium). Sealing and opening take about a second and 256 MiB each. Thread-safe.
namespace gpusched::sign {

/// The secret as one line of text. Nothing: there is no memory for the hash.
std::optional<std::string> sealed_secret(std::string_view secret, std::string_view passphrase);

/// Whether the text begins as one of `sealed_secret` does.
bool is_sealed_secret(std::string_view text);

/// kUnauthenticated: the passphrase is another one, or the text was changed; kCorrupt: it is no sealed
/// secret; kUnavailable: there is no memory for the hash.
Result<std::string> open_sealed_secret(std::string_view text, std::string_view passphrase);

}  // namespace gpusched::sign

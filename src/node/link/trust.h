#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gpusched {

/// The shared token's bytes: the file's content without surrounding white space, 16 bytes or more. The file
/// must be its owner's alone.
Result<std::string> read_token(const std::string& path);

/// 32 random bytes.
std::string make_nonce();
/// Keyed BLAKE2b-256 of `label` and `nonce`: what knows the token without saying it. Empty without a token.
std::string prove(std::string_view token, std::string_view label, std::string_view nonce);
/// Whether `proof` is that. Takes the same time whatever differs.
bool proves(std::string_view proof, std::string_view token, std::string_view label, std::string_view nonce);
/// Each with the agent's nonce and the scheduler's behind it.
inline constexpr std::string_view kSchedulerLabel = "gpusched-scheduler-2";
inline constexpr std::string_view kAgentLabel = "gpusched-agent-2";
/// What Hello.handshake says of that way.
inline constexpr uint32_t kHandshake = 2;
/// Of schedulers that do not know it: each with the other's nonce.
inline constexpr std::string_view kOldSchedulerLabel = "gpusched-scheduler";
inline constexpr std::string_view kOldAgentLabel = "gpusched-agent";

struct Address {
  std::string host;  ///< Without brackets.
  uint16_t port = 0;
};
/// "HOST:PORT" or "[IPV6]:PORT".
Result<Address> parse_address(const std::string& text);
/// Whether an agent may obey that scheduler without a token. An agent runs what it is told, as the user that
/// it is: without a token only for a scheduler on this machine, and only for its own user's or root's.
/// kPermissionDenied says why not and what to do.
Result<Unit> check_trust(const Address& scheduler, bool has_token, uid_t user,
                         const std::vector<uid_t>& listeners);

}  // namespace gpusched

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

/// How scheduler and agents prove to each other that they know the shared token, without saying it:
/// node.proto has the order of things.
namespace gpusched::sign {

/// Each with the agent's nonce and the scheduler's behind it.
inline constexpr std::string_view kSchedulerLabel = "gpusched-scheduler-2";
inline constexpr std::string_view kAgentLabel = "gpusched-agent-2";
/// Value of Hello.handshake for that way.
inline constexpr uint32_t kHandshake = 2;
/// Labels of the older way: each with the other's nonce.
inline constexpr std::string_view kOldSchedulerLabel = "gpusched-scheduler";
inline constexpr std::string_view kOldAgentLabel = "gpusched-agent";

inline constexpr std::size_t kNonceBytes = 32;
/// Random bytes, that many.
std::string make_nonce();

/// Keyed BLAKE2b-256 of `label` and `nonce`. Empty without a token.
std::string prove(std::string_view token, std::string_view label, std::string_view nonce);
/// Whether `proof` is that; nothing proves that nobody has a token. Takes the same time whatever differs.
bool proves(std::string_view proof, std::string_view token, std::string_view label, std::string_view nonce);

}  // namespace gpusched::sign

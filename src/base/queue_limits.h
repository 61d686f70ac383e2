#pragma once

#include <cstddef>
#include <cstdint>

/// The bounds of what waits between threads, and to and from clients and agents; apart from limits.h, so that
/// few files see them. Beyond them work is refused (clients), not read (agents) or waits (the engine's own):
/// memory stays bounded whoever is slow.
namespace gpusched::limits {

// Clients.
inline constexpr std::size_t kRequestsWaitingMax = 400'000;               ///< Commands that are not decided.
inline constexpr std::size_t kProposalBytesMax = std::size_t{256} << 20;  ///< Bytes of new work that waits.
inline constexpr std::size_t kReadsWaitingMax = 20'000;  ///< Short questions for the observer's state.
inline constexpr std::size_t kScansWaitingMax = 256;     ///< Long questions, such as pages of jobs.
inline constexpr std::size_t kEditsMax = 2'048;          ///< Changes of tenants and labels in one set.
inline constexpr std::size_t kEditSetsWaitingMax = 64;   ///< Such sets that wait.
inline constexpr std::size_t kStreamMessagesMax = 64;    ///< States that wait for a slow client of a stream.

// Agents.
inline constexpr uint32_t kAttemptsPerRegistration = 65'536;  ///< Attempts that an agent knows.
inline constexpr std::size_t kAgentAsksMax = 4'096;           ///< Undecided proposals for one agent.
inline constexpr std::size_t kAgentMessagesMax = 64;  ///< Messages of one agent, read but not handled.
inline constexpr std::size_t kAgentMessageBytesMax = std::size_t{1} << 20;  ///< Bytes of these messages.
inline constexpr std::size_t kOrdersMax = 100'000;  ///< Messages that a slow agent leaves waiting.
inline constexpr std::size_t kOrderBytesMax = std::size_t{64} << 20;  ///< Their bytes; beyond, it is ended.
inline constexpr std::size_t kStartsPerTurn = 256;         ///< Agents that are told of starts at a time.
inline constexpr std::size_t kLogReadsPerNodeMax = 1'024;  ///< Requests for output that a node leaves open.

// The engine and the observer.
/// Members of gangs in one CommitPlan, not counting the last gang's. Both together fit a journal record.
inline constexpr uint32_t kMembersPerSlice = 4'096;
inline constexpr std::size_t kReadsPerTurn = 64;          ///< Short questions between two changes.
inline constexpr std::size_t kScanStepJobs = 4'096;       ///< Jobs that a long one looks at without a pause.
inline constexpr std::size_t kChangesWaitingMax = 1'024;  ///< Groups that the observer has not applied.
inline constexpr std::size_t kChangeBytesWaitingMax = std::size_t{64} << 20;  ///< Bytes of these groups.

}  // namespace gpusched::limits

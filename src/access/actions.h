#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "model/identity/binding.h"

namespace gpusched::access {

/// Everything that a caller can do. A call of any door is one of these, or several.
enum class Action : uint8_t {
  kSubmitJob,
  kPlanJob,
  kSeeJob,         ///< Its number, state, amounts and places.
  kDescribeJob,    ///< Its name, labels and messages, its timeline and why it waits.
  kReadJobScript,  ///< Its command, script, arguments and environment.
  kReadJobOutput,
  kUpdateJob,
  kHoldJob,  ///< Or release it.
  kRequeueJob,
  kCancelJob,
  kEnterJob,  ///< Run a command, a shell or a terminal in it, or forward one of its ports.
  kReadJobFile,
  kSeeTenant,
  kCreateTenant,  ///< Below the resource, or at the top.
  kUpdateTenant,
  kDeleteTenant,
  kSeeQuality,  ///< How good predictions for a tenant's jobs were.
  kSeeKey,      ///< Without its secret, which nobody sees again.
  kCreateKey,
  kRevokeKey,
  kBindRole,  ///< Or take one away. `may_grant` has the roles that may be given.
  kSeeNode,
  kDrainNode,
  kResumeNode,
  kRebootNode,
  kLabelNode,
  kSetDevice,  ///< Quarantine a GPU or release it.
  kConfirmNodeDead,
  kRemoveNode,
  kAdmitNode,
  kRevokeNode,
  kSeeIdentity,   ///< To see nodes' certificates, and until when they hold.
  kSpeakForNode,  ///< Register it and report for it.
  kSeeCluster,
  kSeeMetrics,
  kSeeReservation,
  kMakeReservation,
  kCancelReservation,
  kSeeMoves,  ///< Ask which jobs could move.
  kMoveJobs,
  kPauseStarts,
  kSetPools,     ///< Divide the cluster into pools.
  kEditCluster,  ///< Apply a cluster's file.
  kReadAudit,
  kSeeUser,  ///< To see the recorded users.
  kCreateUser,
  kUpdateUser,
  kSignIn,   ///< Come back from the provider of identities, with a browser.
  kSignOut,  ///< End a browser's session.
  kSeeHealth,
};
inline constexpr std::size_t kActionCount = static_cast<std::size_t>(Action::kSeeHealth) + 1;

/// Kinds of objects of actions. The first three belong to a tenant, and its walls hold for them.
enum class Subject : uint8_t { kJob, kTenant, kKey, kNode, kCluster };
constexpr bool has_walls(Subject subject) { return subject <= Subject::kKey; }

/// How far a role reaches, within what it is bound to.
enum class Reach : uint8_t {
  kNone,
  kOwn,  ///< Its own jobs, keys and node.
  kAll,
};

/// When a call of the action leaves a line in the audit. One that is refused for its caller always does.
enum class Audit : uint8_t {
  kRefusals,  ///< Only then.
  kReads,     ///< Also when it read what belongs to a job's owner, or entered a job.
  kWrites,    ///< Also when it changed something, or would have.
};

/// All that is told about one action.
struct ActionRow {
  Action action = Action::kSubmitJob;
  std::string_view name;  ///< As audits and messages have it.
  Subject subject = Subject::kJob;
  Action seen_by = Action::kSubmitJob;  ///< Action whose permission reveals that the subject exists.
  bool as_unix_user = false;            ///< Done as a Unix user: `may_run_as` is asked as well.
  Audit audit = Audit::kRefusals;
  std::array<Reach, kRoleCount> reach{};  ///< By index_of(Role).
};

/// All actions, in their order: the table of who may do what.
std::span<const ActionRow> action_rows();
const ActionRow& row_of(Action action);
std::string_view to_string(Action action);
std::optional<Action> action_named(std::string_view name);

}  // namespace gpusched::access

#include "access/actions.h"

#include "base/check.h"

namespace gpusched::access {
namespace {

using enum Action;
using enum Subject;
using enum Audit;

/// Makes a row. `reach` has a mark for each role, in their order: `-` none, `o` own, `x` all.
consteval ActionRow row(Action action, std::string_view name, Subject subject, Action seen_by,
                        std::string_view reach, Audit audit, bool as_unix_user = false) {
  ActionRow made{.action = action,
                 .name = name,
                 .subject = subject,
                 .seen_by = seen_by,
                 .as_unix_user = as_unix_user,
                 .audit = audit};
  std::size_t role = 0;
  for (const char mark : reach) {
    if (mark == ' ') continue;
    if (mark != '-' && mark != 'o' && mark != 'x') throw "not a mark";
    made.reach.at(role++) = mark == 'x' ? Reach::kAll : mark == 'o' ? Reach::kOwn : Reach::kNone;
  }
  if (role != kRoleCount) throw "a mark for each role";
  return made;
}

constexpr bool kAsUnixUser = true;

// The marks stand for viewer, user, tenant_admin; operator, admin, metrics; node, anonymous.
constexpr ActionRow kRows[] = {
    row(kSubmitJob, "submit_job", kJob, kSeeTenant, "-xx --- -x", kWrites, kAsUnixUser),
    row(kPlanJob, "plan_job", kJob, kSeeTenant, "-xx x-- -x", kRefusals),
    row(kSeeJob, "see_job", kJob, kSeeJob, "xxx xx- -x", kRefusals),
    row(kDescribeJob, "describe_job", kJob, kSeeJob, "xxx xx- -o", kRefusals),
    row(kReadJobScript, "read_job_script", kJob, kSeeJob, "-ox --- -o", kRefusals),
    row(kReadJobOutput, "read_job_output", kJob, kSeeJob, "-ox --- -o", kReads),
    row(kUpdateJob, "update_job", kJob, kSeeJob, "-ox --- -o", kWrites),
    row(kHoldJob, "hold_job", kJob, kSeeJob, "-ox x-- -o", kWrites),
    row(kRequeueJob, "requeue_job", kJob, kSeeJob, "-ox x-- -o", kWrites),
    row(kCancelJob, "cancel_job", kJob, kSeeJob, "-ox x-- -o", kWrites),
    row(kEnterJob, "enter_job", kJob, kSeeJob, "-ox --- -o", kReads, kAsUnixUser),
    row(kReadJobFile, "read_job_file", kJob, kSeeJob, "-ox --- -o", kReads, kAsUnixUser),
    row(kSeeTenant, "see_tenant", kTenant, kSeeTenant, "xxx xx- -x", kRefusals),
    row(kCreateTenant, "create_tenant", kTenant, kSeeTenant, "--- -x- -x", kWrites),
    row(kUpdateTenant, "update_tenant", kTenant, kSeeTenant, "--- -x- -x", kWrites),
    row(kDeleteTenant, "delete_tenant", kTenant, kSeeTenant, "--- -x- -x", kWrites),
    row(kSeeQuality, "see_quality", kTenant, kSeeTenant, "xxx xx- -x", kRefusals),
    row(kSeeKey, "see_key", kKey, kSeeKey, "--x -x- --", kRefusals),
    row(kCreateKey, "create_key", kKey, kSeeTenant, "--x -x- --", kWrites),
    row(kRevokeKey, "revoke_key", kKey, kSeeKey, "--x -x- --", kWrites),
    row(kBindRole, "bind_role", kKey, kSeeKey, "--x -x- --", kWrites),
    row(kSeeNode, "see_node", kNode, kSeeNode, "xxx xx- -x", kRefusals),
    row(kDrainNode, "drain_node", kNode, kSeeNode, "--- x-- --", kWrites),
    row(kResumeNode, "resume_node", kNode, kSeeNode, "--- x-- --", kWrites),
    row(kRebootNode, "reboot_node", kNode, kSeeNode, "--- x-- --", kWrites),
    row(kLabelNode, "label_node", kNode, kSeeNode, "--- x-- --", kWrites),
    row(kSetDevice, "set_device", kNode, kSeeNode, "--- x-- --", kWrites),
    row(kConfirmNodeDead, "confirm_node_dead", kNode, kSeeNode, "--- x-- --", kWrites),
    row(kRemoveNode, "remove_node", kNode, kSeeNode, "--- x-- --", kWrites),
    row(kAdmitNode, "admit_node", kNode, kSeeNode, "--- xx- --", kWrites),
    row(kRevokeNode, "revoke_node", kNode, kSeeNode, "--- xx- --", kWrites),
    row(kSeeIdentity, "see_identity", kNode, kSeeNode, "--- xx- --", kRefusals),
    row(kSpeakForNode, "speak_for_node", kNode, kSeeNode, "--- --- o-", kReads),
    row(kSeeCluster, "see_cluster", kCluster, kSeeCluster, "xxx xx- -x", kRefusals),
    row(kSeeMetrics, "see_metrics", kCluster, kSeeMetrics, "--- xxx -x", kRefusals),
    row(kSeeReservation, "see_reservation", kCluster, kSeeReservation, "xxx xx- -x", kRefusals),
    row(kMakeReservation, "make_reservation", kCluster, kSeeReservation, "--- x-- --", kWrites),
    row(kCancelReservation, "cancel_reservation", kCluster, kSeeReservation, "--- x-- --", kWrites),
    row(kSeeMoves, "see_moves", kCluster, kSeeMoves, "--- x-- --", kRefusals),
    row(kMoveJobs, "move_jobs", kCluster, kSeeMoves, "--- x-- --", kWrites),
    row(kPauseStarts, "pause_starts", kCluster, kSeeCluster, "--- x-- --", kWrites),
    row(kSetPools, "set_pools", kCluster, kSeeCluster, "--- xx- --", kWrites),
    row(kEditCluster, "edit_cluster", kCluster, kSeeCluster, "--- -x- --", kWrites),
    row(kReadAudit, "read_audit", kCluster, kReadAudit, "--- -x- --", kReads),
    row(kSeeUser, "see_user", kCluster, kSeeUser, "--- -x- --", kRefusals),
    row(kCreateUser, "create_user", kCluster, kSeeUser, "--- -x- --", kWrites),
    row(kUpdateUser, "update_user", kCluster, kSeeUser, "--- -x- --", kWrites),
    row(kSignIn, "sign_in", kCluster, kSeeHealth, "xxx xxx -x", kWrites),
    row(kSignOut, "sign_out", kCluster, kSeeHealth, "xxx xxx -x", kWrites),
    row(kSeeHealth, "see_health", kCluster, kSeeHealth, "xxx xxx xx", kRefusals),
};
static_assert(std::size(kRows) == kActionCount);

}  // namespace

std::span<const ActionRow> action_rows() { return kRows; }

const ActionRow& row_of(Action action) {
  const auto index = static_cast<std::size_t>(action);
  CHECK(index < kActionCount);
  CHECK(kRows[index].action == action);
  return kRows[index];
}

std::string_view to_string(Action action) { return row_of(action).name; }

std::optional<Action> action_named(std::string_view name) {
  for (const ActionRow& found : kRows) {
    if (found.name == name) return found.action;
  }
  return std::nullopt;
}

}  // namespace gpusched::access

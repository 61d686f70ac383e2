#include "api/views/job_sentences.h"

#include <set>

#include "api/contract/names.h"
#include "api/views/flow_views.h"
#include "api/views/reader_clock.h"
#include "engine/decide/feasible.h"
#include "engine/planner/planner.h"
#include "log/line.h"

namespace gpusched::api {
std::string end_sentence(EndCause cause, int32_t exit_code, int32_t signal) {
  switch (cause) {
    case EndCause::kNone:
      return "it was never started";
    case EndCause::kExited:
      return "its command exited with code " + std::to_string(exit_code);
    case EndCause::kSignaled:
      return "its command was killed by signal " + std::to_string(signal);
    case EndCause::kStartFailed:
      return "its command could not be started";
    case EndCause::kTimeout:
      return "it reached its time limit and was stopped";
    case EndCause::kStopped:
      return "it was stopped";
    case EndCause::kShimLost:
      return "its supervisor process on the node ended without an outcome; all of its processes were killed";
    case EndCause::kNodeLost:
      return "its node restarted or was declared dead";
    case EndCause::kContactLost:
      return "its node had no contact with the scheduler for too long, and the attempt was stopped";
    case EndCause::kOutOfMemory:
      return "it needed more memory than it asked for and was killed; ask for more with --mem";
    case EndCause::kNodeFault:
      return "its node could not prepare the attempt";
    case EndCause::kOverLimit:
      return "it exceeded one of its limits and was stopped";
    case EndCause::kDeviceFault:
      return "its GPU had a fault";
    case EndCause::kNotStarted:
      return "its node did not start it";
  }
  UNREACHABLE();
}

std::string end_sentence(EndCause cause, int32_t exit_code, int32_t signal, std::string_view detail) {
  const std::string sentence = end_sentence(cause, exit_code, signal);
  if (detail.empty()) return sentence;
  switch (cause) {
    case EndCause::kExited:
      return std::string(detail) + " (exit code " + std::to_string(exit_code) + ")";
    case EndCause::kShimLost:
      if (detail == "the agent no longer knows the attempt")
        return "its node knows nothing of this attempt any more";
      return std::string(detail);
    case EndCause::kOutOfMemory:
      return std::string(detail);
    case EndCause::kStopped:
      return sentence;
    default:
      return sentence + ": " + std::string(detail);
  }
}

namespace {

/// How its last attempt ended, for people: its cause, and what its node or the scheduler said of it.
std::string ending_of(const Job& job) {
  const bool says_more = job.last_cause == EndCause::kExited || job.last_cause == EndCause::kStartFailed ||
                         job.last_cause == EndCause::kShimLost || job.last_cause == EndCause::kNodeLost ||
                         is_no_fault_of_job(job.last_cause) || job.last_cause == EndCause::kOverLimit ||
                         job.last_cause == EndCause::kOutOfMemory;
  return end_sentence(job.last_cause, job.exit_code, job.signal,
                      says_more ? job.extras->last_detail.view() : std::string_view());
}

/// The sentence on a held job: what ended its last attempt where that is why, and what lets it go.
std::string holding_of(const Job& job) {
  const std::string release = "gpu-cli release " + job_name(job.id);
  const bool failed_to_start = job.node_faults > 0 || job.last_cause == EndCause::kStartFailed;
  if (!failed_to_start) return "is held; to release it: " + release;
  return ending_of(job) + "; held after " + std::to_string(std::max(job.node_faults, job.system_failures)) +
         " failed starts; fix the cause, then: " + release;
}

/// The node of its first member, and how many others there are.
std::string where_of(const Observer::View& view, const Job& job, const Node* node) {
  std::string where = node == nullptr ? std::string("a node") : node->name;
  const Attempt* attempt = view.state.find_attempt(job.id, job.attempt_count);
  if (attempt == nullptr || !attempt->is_gang()) return where;
  std::set<NodeId> nodes;
  for (const Member& member : attempt->members) nodes.insert(member.node);
  if (nodes.size() > 1)
    where += " and " + std::to_string(nodes.size() - 1) + " more " + (nodes.size() == 2 ? "node" : "nodes");
  return where + " (" + std::to_string(attempt->members.size()) + " members)";
}

}  // namespace

bool is_silent(const Node& node) {
  return node.state == NodeState::kUnreachable || node.state == NodeState::kLost;
}

std::string silence_of(const Node& node, const Job& job, Time heard) {
  std::string since;
  append_rfc3339(since, heard.valid() ? heard : node.state_since);
  return "node " + node.name + " has not reported" +
         (heard.valid() ? " since " : " and has been unreachable since ") + since +
         ", so it is unknown whether the job still runs" +
         (job.cancel_requested ? "; it was cancelled, and will be stopped when its node returns" : "") +
         "; if the node is certainly off: gpu-cli node confirm-dead " + node.name;
}

namespace {

/// For tenants without the operator's name and words.
std::string pausing_of(const Pause& pause, const Viewer& viewer) {
  std::string text = "no jobs are started while the cluster is paused";
  if (viewer.sees_all() && !pause.by.empty()) text += " by " + pause.by;
  if (viewer.sees_all() && !pause.why.empty()) text += " (" + pause.why + ")";
  return text + "; to resume: gpu-cli resume";
}

std::string describe_for(const State& state, const Promise& promise, const Viewer& viewer) {
  PromiseFacts facts = promise_facts(state, promise);
  if (!viewer.sees(state, facts.job)) facts.job = JobId{};
  return describe(facts);
}

}  // namespace

WaitReason shown_to(const Viewer& viewer, const State& state, const WaitReason& reason) {
  WaitReason shown = reason;
  // Running jobs go on using up the budget after the planner looked at it.
  const Tenant* const spent = reason.code == WaitCode::kGpuTime ? state.find_tenant(reason.tenant) : nullptr;
  if (const Time now = reader_now(state); spent != nullptr && now < reason.lifts_at)
    shown.current = std::max(shown.current, spent->gpu_time.used_by(now, spent->usage));
  if (reason.code == WaitCode::kReserved && !viewer.sees(state, reason.reserved_for))
    shown.reserved_for = JobId{};
  if (reason.tenant.valid() && !viewer.sees_tenant(state, reason.tenant)) {
    shown.tenant = TenantId{};
    shown.limit = shown.current = 0;
  }
  return shown;
}

std::string nearest_of(const Observer::View& view, const Job& job) {
  switch (view.reason_of(job).code) {
    case WaitCode::kNoMatchingGpu:
    case WaitCode::kTooLarge:
    case WaitCode::kNoFeature:
    case WaitCode::kNoLabels:
    case WaitCode::kNoSuchLayout: {
      const std::string nearest = nearest_node(view.state, view.state.class_of(job).parts.front());
      return nearest.empty() ? "" : "; " + nearest;
    }
    default:
      return "";
  }
}

std::string move_of(const State& state, const Job& job, const Viewer& viewer) {
  if (job.extras->move_detail.view().empty()) return {};
  const std::optional<MoveRecord> record = job.move_record();
  if (!record)
    return viewer.sees_all() ? std::string(job.extras->move_detail.view())
                             : "moved, or others were moved for it";
  std::string text;
  for (const JobId other : record->others) text += (text.empty() ? "" : ", ") + viewer.name_of(state, other);
  if (record->moved) {
    text = "moved from node " + (record->from.empty() ? std::string("?") : record->from) + " to node " +
           record->to + " so that " + text + " can start";
  } else {
    text += " moved away from node " + record->to + " for it";
  }
  text += ", by " + record->by;
  if (!record->why.empty()) text += ": " + record->why;
  return text;
}

std::string message_of(const Observer::View& view, const Job& job, const Node* node, const Viewer& viewer) {
  const std::string where = where_of(view, job, node);
  switch (job.state) {
    case JobState::kPending:
      if (job.held) return holding_of(job);
      if (std::string flow = flow_message(view.state, job); !flow.empty()) return flow;
      if (const Promise* promise = view.state.find_promise(job.id))
        return describe_for(view.state, *promise, viewer);
      if (job.reason == JobReason::kPreempted)
        return "was preempted by a job of higher priority, and returns to the queue shortly";
      if (!job.is_queued()) return "waits before the next attempt: " + ending_of(job);
      if (view.state.config.pause.on()) return pausing_of(view.state.config.pause, viewer);
      return describe(shown_to(viewer, view.state, view.reason_of(job))) + deadline_warning(view.state, job);
    case JobState::kScheduled:
      if (node != nullptr && is_silent(*node)) return silence_of(*node, job, {});
      return job.cancel_requested ? "is being cancelled on " + where : "is being started on " + where;
    case JobState::kRunning:
      if (node != nullptr && is_silent(*node)) return silence_of(*node, job, {});
      if (job.extras->watch != WatchdogFinding::kNone && !job.cancel_requested)
        return "runs on " + where + "; warning: " + std::string(job.extras->watch_detail.view());
      return job.cancel_requested ? "is being stopped on " + where : "runs on " + where;
    case JobState::kCompleted:
      return "completed";
    case JobState::kFailed:
      if (job.reason == JobReason::kDeadline) return "its deadline passed before it could start";
      if (job.reason == JobReason::kNotAtOnce)
        return "the resources that it requested were not free at once, as an interactive job requires; "
               "request less, or submit it as an ordinary job";
      if (job.reason == JobReason::kElements) return std::string(job.extras->last_detail.view());
      return ending_of(job);
    case JobState::kCancelled:
      if (job.reason == JobReason::kDependency)
        return "was cancelled because a dependency can no longer be met: " +
               std::string(job.extras->last_detail.view());
      if (job.reason == JobReason::kElements) return std::string(job.extras->last_detail.view());
      if (job.reason == JobReason::kIdle || job.reason == JobReason::kHung)
        return "was cancelled by the watchdog: " + std::string(job.extras->watch_detail.view());
      return job.reason == JobReason::kPreempted
                 ? "was cancelled because it was preempted by a job of higher priority"
                 : "was cancelled";
    case JobState::kPreempted:
      if (const Promise* promise = view.state.find_promise(job.id); promise != nullptr)
        return "is being ended on " + where + " and " + describe_for(view.state, *promise, viewer);
      return "is being ended on " + where + " for a job of higher priority";
  }
  UNREACHABLE();
}

}  // namespace gpusched::api

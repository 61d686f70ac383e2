// Faults of devices, and jobs that make no use of theirs.
#include "engine/decide/decide.h"

namespace gpusched::rules {

Applied note_device_fault(const State& state, const NoteDeviceFault& command, Stamp stamp, Events& events) {
  const Node* node = state.find_node(command.node);
  if (node == nullptr) return reject(RejectionCode::kNodeNotFound);
  if (command.device >= node->devices.size()) return reject(RejectionCode::kDeviceNotFound);
  const Device& device = node->devices[command.device];
  const Applied accepted{.rejection = {}, .first_id = command.node.value, .id_count = 1};
  if (command.id == device.fault_id) return accepted;  // Said again; it may have been released since.
  events.push_back(DeviceFaultChanged{.node = command.node,
                                      .device = command.device,
                                      .fault = command.fault,
                                      .code = command.code,
                                      .detail = command.detail,
                                      .id = command.id,
                                      .by = {},
                                      .at = stamp.at});
  return accepted;
}

Applied note_watch(const State& state, const ReportWatchdogFinding& command, Stamp stamp, Events& events) {
  const Job* job = state.jobs.find(command.job);
  if (job == nullptr) return reject(RejectionCode::kJobNotFound);
  const Attempt* attempt = state.find_attempt(command.job, command.attempt);
  const bool runs = attempt != nullptr && command.attempt == job->attempt_count && !attempt->abandoned &&
                    attempt->stop == StopReason::kNone && job->state == JobState::kRunning;
  if (!runs) return reject(RejectionCode::kStale);
  const bool acts = command.action != WatchAction::kWarn && command.kind != WatchdogFinding::kNone;
  if (acts || command.kind != job->extras->watch) {
    const bool warns = command.kind != WatchdogFinding::kNone;
    events.push_back(WatchdogFindingChanged{.job = command.job,
                                            .attempt = command.attempt,
                                            .kind = command.kind,
                                            .detail = warns ? command.detail : std::string(),
                                            .since = warns ? stamp.at - command.age : Time{},
                                            .action = command.action});
  }
  if (acts) {
    const StopReason ends = command.kind == WatchdogFinding::kIdle ? StopReason::kIdle : StopReason::kHung;
    events.push_back(
        StopRequested{.job = command.job,
                      .attempt = command.attempt,
                      .reason = command.action == WatchAction::kCancel ? ends : StopReason::kRequeue});
  }
  return {.rejection = {}, .first_id = command.job.value, .id_count = 1};
}

}  // namespace gpusched::rules

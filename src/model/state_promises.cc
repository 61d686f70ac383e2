// Promises: devices that are kept for a job until they are free.
#include <bit>

#include "base/check.h"
#include "base/limits.h"
#include "model/state.h"

namespace gpusched {

void State::count_promise(const Promise& promise, int64_t sign, Time at) {
  for (const Member& member : promise.members) {
    Node* node = find_node(member.node);
    CHECK(node != nullptr);
    CHECK(sign > 0 || node->promised_count > 0);
    node->cpu_milli_used += sign * member.cpu_milli;
    node->memory_mb_used += sign * member.memory_mb;
    node->promised_count += static_cast<uint32_t>(sign);
    if (member.exclusive) node->exclusive_count += static_cast<uint32_t>(sign);
    refresh_free_mask(*node);
  }
  // Its attempt counts until that ends; from then on what is kept for the next one, before feature level 10
  // nothing.
  if (promise.moves && promise.amount == Amount{}) return;
  if (sign > 0) {
    charge(promise.tenant, promise.amount, at, promise.work);
  } else {
    discharge(promise.tenant, promise.amount, at, promise.work);
  }
}

int64_t State::given_gpu_memory(const std::vector<Part>& parts, std::span<const Member> members) const {
  int64_t given = 0;
  for (const Member& member : members) {
    const Part& part = parts[member.part];
    if (part.names_gpu_memory()) continue;
    if (part.is_share()) {
      given += member.gpu_share_mb;
      continue;
    }
    const Node* node = find_node(member.node);
    CHECK(node != nullptr);
    for (uint64_t rest = member.device_mask; rest != 0; rest &= rest - 1)
      given += device_classes[node->devices[static_cast<std::size_t>(std::countr_zero(rest))].device_class]
                   .memory_mb;
  }
  return given;
}

void State::charge_move(const Job& job, Time at) {
  const auto found = promises.find(job.id);
  if (found == promises.end() || !found->second.moves || found->second.amount != Amount{}) return;
  Promise& promise = found->second;
  promise.amount = total_of(class_of(job).parts);
  promise.amount.gpu_memory_mb += given_gpu_memory(class_of(job).parts, promise.members);
  charge(promise.tenant, promise.amount, at, promise.work);
}

void State::mark_promised(const Promise& promise, JobId job) {
  for (const Member& member : promise.members) {
    Node* node = find_node(member.node);
    CHECK(node != nullptr);
    for (std::size_t i = 0; i < node->devices.size(); ++i) {
      if (((member.device_mask >> i) & 1) == 0) continue;
      // No device is promised twice.
      CHECK(node->devices[i].promised_to == (job.valid() ? JobId{} : promise.job));
      node->devices[i].promised_to = job;
    }
  }
}

void State::add_promise(Promise promise) {
  Job* job = jobs.find(promise.job);
  CHECK(job != nullptr);
  if (promise.moves) {
    CHECK(job->state == JobState::kPreempted);
  } else {
    CHECK(job->is_queued());
    leave_line(*job);
    job->promised = true;
    job->reason = JobReason::kPreempting;
    enter_line(*job);
  }
  mark_promised(promise, job->id);
  count_promise(promise, 1, promise.since);
  timers.insert(Timer{
      .due = promise.since + limits::kPromiseKept, .kind = TimerKind::kPromiseOver, .id = promise.job.value});
  const JobId id = promise.job;
  const bool inserted = promises.try_emplace(id, std::move(promise)).second;
  CHECK(inserted);
}

void State::remove_promise(JobId id, Time at) {
  const auto it = promises.find(id);
  CHECK(it != promises.end());
  const Promise promise = std::move(it->second);
  promises.erase(it);
  timers.erase(
      Timer{.due = promise.since + limits::kPromiseKept, .kind = TimerKind::kPromiseOver, .id = id.value});
  mark_promised(promise, JobId{});
  count_promise(promise, -1, at);
  Job* job = jobs.find(id);
  if (job == nullptr || promise.moves) return;
  if (job->state != JobState::kPending) {
    job->promised = false;
    return;
  }
  leave_line(*job);
  job->promised = false;
  if (!job->held) job->reason = job->attempt_count == 0 ? JobReason::kSubmitted : JobReason::kRetry;
  enter_line(*job);
}

}  // namespace gpusched

#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/testing/random_commands.h"
#include "engine/testing/wild_fields.h"

/// For tests only: everything that can be asked of the engine, in every state of what it is asked about.
namespace gpusched::testing {

/// Draws what RandomCommands draws, and also reports about jobs of every kind, nodes that are registered
/// again and again, floods of one tenant; some commands get fields drawn from all that their types can hold.
/// The same seed and states give the same commands.
class WildCommands {
 public:
  explicit WildCommands(uint64_t seed)
      : plain_(seed), fields_(plain_.prng()), anew_percent_(seed % 4 == 1 ? 40 : 3) {}

  Prng& prng() { return plain_.prng(); }
  Duration pause() { return plain_.pause(); }
  Command next(const State& state, Time now) {
    Command command = drawn(state);
    return prng().chance(350) ? fields_.changed(command, state, now) : command;
  }

 private:
  Command drawn(const State& state) {
    const uint64_t draw = prng().below(100);
    if (draw < anew_percent_) return made_anew(state);
    if (draw < anew_percent_ + 20) return plain_.plan(state);
    if (draw < anew_percent_ + 45) return about_a_job(state);
    if (draw < anew_percent_ + 47) return flood(state);
    return plain_.next(state);
  }

  template <typename Container>
  auto any(const Container& container) {
    auto it = container.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(prng().below(container.size())));
    return it;
  }
  /// A job that is promised something, holds something, is or has elements; or any number.
  JobId some_job(const State& state) {
    switch (prng().below(6)) {
      case 0:
        if (!state.promises.empty()) return any(state.promises)->first;
        break;
      case 1:
        if (!state.attempts.empty()) return any(state.attempts)->first.job;
        break;
      case 2:
        if (!state.arrays.empty()) {
          const JobArray& array = any(state.arrays)->second;
          return JobId{array.id.value + prng().below(static_cast<uint64_t>(array.count) + 1)};
        }
        break;
      case 3:
        if (!state.timers.empty()) return JobId{any(state.timers)->id};
        break;
      default:
        break;
    }
    return JobId{1 + prng().below(state.last.sequence)};
  }
  Command about_a_job(const State& state) {
    const JobId job = some_job(state);
    switch (prng().below(6)) {
      case 0:
        return CancelJob{.job = job};
      case 1:
        return HoldJob{.job = job, .held = prng().chance(600)};
      case 2:
        return RequeueJob{.job = job, .by = "operator"};
      default:
        return update(state, job);
    }
  }
  /// Mostly what it has, but for one thing.
  Command update(const State& state, JobId id) {
    UpdateJob command{
        .job = id, .given = static_cast<uint32_t>(1 + prng().below(63)), .spec = Blob("renamed")};
    const Job* job = state.jobs.find(id);
    const JobArray* array = job == nullptr ? state.array_of_element(id) : nullptr;
    if (array != nullptr) job = state.jobs.find(array->id);
    if (job == nullptr) return command;
    if (prng().chance(500)) command.given = kJobParts;
    command.priority = std::clamp(job->priority + static_cast<int32_t>(prng().between(-1, 1)),
                                  -limits::kPriorityMax, limits::kPriorityMax);
    command.max_runtime = job->max_runtime;
    command.parts = as_requested(state.class_of(*job).parts);
    Part& part = command.parts[prng().below(command.parts.size())];
    part.booking = 0;
    switch (prng().below(6)) {
      case 0:
        part.gpu_memory_mb = prng().between(0, 90'000);
        break;
      case 1:
        part.cpu_milli = static_cast<int32_t>(prng().between(0, 8'000));
        break;
      case 2:
        part.member_count = static_cast<int32_t>(prng().between(1, 3));
        break;
      case 3:
        part.gpu_count = static_cast<int32_t>(prng().between(0, 4));
        break;
      case 4:
        part.gpu_model.clear();
        break;
      default:
        part.memory_mb = prng().between(0, 30'000);
    }
    return command;
  }
  /// A machine in the place of another one, with other devices, after the old one was given up; now and then
  /// beside it.
  Command made_anew(const State& state) {
    const std::string name = "again-" + std::to_string(prng().below(2));
    const Node* node = state.find_node_named(name);
    if (node != nullptr && node->state == NodeState::kReady && prng().chance(700))
      return NodeLeaseLost{.node = node->id};
    if (node != nullptr && node->state != NodeState::kDead && prng().chance(700))
      return ConfirmNodeDead{.node = node->id, .by = state.last.sequence % 2 == 0 ? "operator" : ""};
    if (node != nullptr && prng().chance(150))
      return RemoveNode{
          .node = node->id, .boot_id = prng().chance(500) ? node->boot_id : "", .by = "operator"};
    const std::string made = name + "-" + std::to_string(state.last.sequence);
    RegisterNode offer{.name = name,
                       .instance = prng().chance(500) || node == nullptr ? made : node->instance,
                       .boot_id = made,
                       .version = "2",
                       .cpu_milli = 16'000,
                       .memory_mb = 60'000};
    for (uint64_t i = 0; i < 8; ++i) {
      offer.devices.push_back(DeviceOffer{.uuid = made + "-" + std::to_string(i),
                                          .model = "NVIDIA A100-SXM4-80GB",
                                          .memory_mb = prng().chance(950) ? 80'000 : prng().between(1, 200),
                                          .condition = DeviceCondition::kOk});
    }
    return offer;
  }
  /// Small jobs with keys, all of one user.
  Command flood(const State& state) {
    SubmitJobs command{.tenant = kDefaultTenant,
                       .request_key = "flood-" + std::to_string(state.last.sequence),
                       .user = "flooder"};
    for (uint64_t i = 1 + prng().below(30); i > 0; --i)
      command.jobs.push_back({.parts = {Part{.cpu_milli = 100}}, .spec = Blob("flood")});
    return command;
  }

  RandomCommands plain_;
  WildFields fields_;
  const uint64_t anew_percent_;  ///< For some seeds so high that slots run out unless reused.
};

}  // namespace gpusched::testing

#pragma once

#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/prng.h"
#include "engine/messages/commands.h"
#include "engine/policy/policies.h"

/// For tests only: tasks of users, and policies that know them.
namespace gpusched::testing {

/// The specification of a task.
inline Blob task_spec(const std::string& user, int64_t cost = 1, int64_t weight_milli = 1'000) {
  return Blob("task " + user + " " + std::to_string(cost) + " " + std::to_string(weight_milli));
}

/// Reads what `task_spec` makes.
class TestTaskReader final : public policy::TaskReader {
 public:
  std::optional<policy::TaskFacts> read(std::string_view spec) const override {
    if (!spec.starts_with("task ")) return std::nullopt;
    spec.remove_prefix(5);
    policy::TaskFacts facts{.user = spec.substr(0, spec.find(' '))};
    const char* const end = spec.data() + spec.size();
    int64_t cost = 0;
    const auto [cost_end, failure] = std::from_chars(facts.user.end() + 1, end, cost);
    facts.cost_milli = cost * 1'000;
    EXPECT_EQ(failure, std::errc{});
    std::from_chars(cost_end + 1, end, facts.weight_milli);
    return facts;
  }
};

inline policy::PolicySet policies_with_tasks(int64_t weight_milli_max = 1'000) {
  policy::PolicySet policies = policy::default_policies();
  policies.tasks = std::make_shared<policy::TaskOrder>(
      policy::TaskOrder{.reader = std::make_shared<TestTaskReader>(), .weight_milli_max = weight_milli_max});
  return policies;
}

/// Tasks of a few users, each with its weight, of 3,000 thousandths at most. Drawn apart from all else, so
/// that no other draw moves.
class RandomTasks {
 public:
  explicit RandomTasks(uint64_t seed) : prng_(seed * 0xD6E8FEB86659FD93ULL + 1) {}

  static constexpr int64_t kWeightMax = 3'000;

  Prng& prng() { return prng_; }
  Blob some_spec() {
    static constexpr int64_t kCosts[] = {1, 5, 10};
    const uint64_t user = prng_.below(5);
    return task_spec("u" + std::to_string(user), kCosts[prng_.below(3)],
                     500 + 613 * static_cast<int64_t>(user));
  }
  /// The command, in which more than half of the jobs that are submitted are tasks; most have a share of a
  /// GPU.
  Command among(Command command) {
    auto* const submit = std::get_if<SubmitJobs>(&command);
    if (submit == nullptr) return command;
    for (JobRequest& job : submit->jobs) {
      if (!prng_.chance(600)) continue;
      job.spec = some_spec();
      if (prng_.chance(200)) continue;
      Part part{.gpu_count = 1, .gpu_milli = static_cast<int32_t>(prng_.between(1, 6) * 100)};
      if (prng_.chance(600)) part.gpu_share_mb = prng_.between(1, 4) * 8'000;
      job.parts = {part};
    }
    return command;
  }

 private:
  Prng prng_;
};

}  // namespace gpusched::testing

#pragma once

#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

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
    const auto [cost_end, failure] = std::from_chars(facts.user.end() + 1, end, facts.cost);
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

}  // namespace gpusched::testing

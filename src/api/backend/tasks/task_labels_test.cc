#include "api/backend/tasks/task_labels.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "api/backend/tasks/task_index.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

std::string spec_of(std::string_view id, std::string_view type, std::string_view user) {
  v1::JobSpec spec;
  if (!id.empty()) (*spec.mutable_labels())[std::string(kTaskIdLabel)] = id;
  if (!type.empty()) (*spec.mutable_labels())[std::string(kTaskTypeLabel)] = type;
  if (!user.empty()) (*spec.mutable_labels())[std::string(kTaskUserLabel)] = user;
  return spec.SerializeAsString();
}

TEST(TaskLabels, SayWhoseTaskItIsAndWhatItCosts) {
  const TaskLabels labels({{"llm", 5}}, {{"chat-bot", 2'500}});
  const std::string of_bot = spec_of("t1", "llm", "chat-bot");
  const auto facts = labels.read(of_bot);
  ASSERT_TRUE(facts.has_value());
  EXPECT_EQ(facts->user, "chat-bot");
  EXPECT_EQ(facts->cost_milli, 5'000);
  EXPECT_EQ(facts->weight_milli, 2'500);
  const std::string plain = spec_of("t2", "", "");
  const auto unnamed = labels.read(plain);
  ASSERT_TRUE(unnamed.has_value());
  EXPECT_EQ(unnamed->user, "");
  EXPECT_EQ(unnamed->cost_milli, 1'000);
  EXPECT_EQ(unnamed->weight_milli, 1'000);
  EXPECT_EQ(labels.weight_milli_max(), 2'500);
}

TEST(TaskLabels, ALoadThatWasLearnedCostsUpToTwice) {
  const TaskLabels labels({{"llm", 5}}, {});
  const auto cost_milli = [&labels](const std::string& load) {
    v1::JobSpec spec;
    spec.ParseFromString(spec_of("t1", "llm", ""));
    (*spec.mutable_labels())[std::string(kTaskLoadLabel)] = load;
    const std::string packed = spec.SerializeAsString();
    return labels.read(packed)->cost_milli;
  };
  EXPECT_EQ(cost_milli("400"), 7'000);
  EXPECT_EQ(cost_milli("1000"), 10'000);
  EXPECT_EQ(cost_milli("99999"), 10'000);
  EXPECT_EQ(cost_milli("-5"), 5'000);
  EXPECT_EQ(cost_milli("much"), 5'000);
}

TEST(TaskLabels, OtherJobsAreNoTasks) {
  const TaskLabels labels({{"llm", 5}}, {});
  EXPECT_FALSE(labels.read(spec_of("", "llm", "chat-bot")).has_value());
  EXPECT_FALSE(labels.read("no specification").has_value());
  EXPECT_EQ(labels.weight_milli_max(), 1'000);
}

}  // namespace
}  // namespace gpusched::api

#include "api/backend/services/service_scaling.h"

#include <gtest/gtest.h>

#include "api/backend/services/service_labels.h"
#include "base/job_labels.h"
#include "gpusched/v1/services.pb.h"

namespace gpusched::api {
namespace {

constexpr Time kMeasuredAt{1'000'000'000'000};

ServiceScaling llm() {
  return {.queue = "task_type=llm", .min = 1, .max = 8, .per_replica = 10, .down_after = minutes(5)};
}

TEST(ServiceScaling, WantsOneForSoManyJobsWithinItsBounds) {
  for (const auto& [waiting, wanted] : {std::pair{0, 1}, {1, 1}, {10, 1}, {11, 2}, {80, 8}, {81, 8}})
    EXPECT_EQ(wanted_replicas(llm(), waiting), wanted) << waiting;
  EXPECT_EQ(wanted_replicas(llm(), INT64_MAX), 8);
  ServiceScaling to_zero = llm();
  to_zero.min = 0;
  EXPECT_EQ(wanted_replicas(to_zero, 0), 0);
}

TEST(ServiceScaling, GoesUpAtOnce) {
  const ScaleStep step = plan_scale(llm(), 1, 35, {}, kMeasuredAt);
  EXPECT_EQ(step.replicas, 4);
  EXPECT_FALSE(step.lull);
  EXPECT_EQ(step.look_again, kNever);
  EXPECT_FALSE(plan_scale(llm(), 4, 35, {}, kMeasuredAt).replicas);
}

TEST(ServiceScaling, GoesDownWhenFewerWereEnoughForSoLong) {
  ScaleStep step = plan_scale(llm(), 6, 25, {}, kMeasuredAt);
  EXPECT_FALSE(step.replicas);
  EXPECT_EQ(step.look_again, kMeasuredAt + minutes(5));
  step = plan_scale(llm(), 6, 41, step.lull, kMeasuredAt + minutes(2));
  EXPECT_EQ(step.look_again, kMeasuredAt + minutes(5));
  step = plan_scale(llm(), 6, 0, step.lull, kMeasuredAt + minutes(5) - milliseconds(1));
  EXPECT_FALSE(step.replicas);
  step = plan_scale(llm(), 6, 0, step.lull, kMeasuredAt + minutes(5));
  EXPECT_EQ(step.replicas, 5);                                          // The most that was wanted meanwhile.
  step = plan_scale(llm(), 5, 0, step.lull, kMeasuredAt + minutes(6));  // The record says so: another lull.
  EXPECT_FALSE(step.replicas);
  EXPECT_EQ(step.look_again, kMeasuredAt + minutes(11));
  EXPECT_EQ(plan_scale(llm(), 5, 0, step.lull, kMeasuredAt + minutes(11)).replicas, 1);
}

TEST(ServiceScaling, ALullEndsAsSoonAsAllAreWanted) {
  ScaleStep step = plan_scale(llm(), 2, 0, {}, kMeasuredAt);
  ASSERT_TRUE(step.lull);
  step = plan_scale(llm(), 2, 20, step.lull, kMeasuredAt + minutes(4));
  EXPECT_FALSE(step.lull);
  step = plan_scale(llm(), 2, 0, step.lull, kMeasuredAt + minutes(6));
  EXPECT_FALSE(step.replicas);
  EXPECT_EQ(step.look_again, kMeasuredAt + minutes(11));
}

TEST(ServiceScaling, ItsLabelsAreReadAsTheyWereWritten) {
  const ServiceSettings settings{.replicas = 3, .scaling = llm()};
  const std::string spec = record_spec("", settings);
  EXPECT_EQ(*read_settings(spec, {}), settings);
  EXPECT_EQ(*read_settings("", settings), settings);  // They stay.
  EXPECT_FALSE(read_settings(replica_spec(spec, "web-0", {}), {})->scaling);
  const auto read = [&settings](const std::map<std::string, std::string>& labels) {
    return read_settings(with_labels("", labels), settings);
  };
  const ServiceSettings none = *read({{std::string(kServiceQueueLabel), "none"}});
  EXPECT_FALSE(none.scaling);
  EXPECT_EQ(none.replicas, 3);
  EXPECT_EQ(*read_settings(record_spec(spec, none), {}), none);
  const ServiceSettings fewer = *read({{std::string(kServiceScaleMaxLabel), "2"}});
  EXPECT_EQ(fewer.scaling->max, 2);
  EXPECT_EQ(fewer.replicas, 2);
}

TEST(ServiceScaling, RefusesWhatIsNoQueueOrNoBounds) {
  const auto is_refused = [](const std::map<std::string, std::string>& labels) {
    return !read_settings(with_labels("", labels), {}).ok();
  };
  const std::string queue(kServiceQueueLabel), min(kServiceScaleMinLabel), max(kServiceScaleMaxLabel),
      jobs(kServiceScaleJobsLabel), down(kServiceScaleDownLabel);
  EXPECT_FALSE(is_refused({{queue, "kind"}, {max, "1"}}));
  EXPECT_FALSE(is_refused({{queue, "kind=a=b"}, {min, "0"}, {max, "1000"}, {jobs, "1000000"}, {down, "0"}}));
  EXPECT_TRUE(is_refused({{queue, "kind"}}));  // No upper bound.
  EXPECT_TRUE(is_refused({{queue, "=b"}, {max, "1"}}));
  EXPECT_TRUE(is_refused({{max, "1"}}));  // No queue.
  EXPECT_TRUE(is_refused({{queue, "none"}, {min, "1"}}));
  EXPECT_TRUE(is_refused({{queue, "kind"}, {min, "3"}, {max, "2"}}));
  EXPECT_TRUE(is_refused({{queue, "kind"}, {min, "0"}, {max, "0"}}));
  EXPECT_TRUE(is_refused({{queue, "kind"}, {max, "1001"}}));
  EXPECT_TRUE(is_refused({{queue, "kind"}, {max, "1"}, {jobs, "0"}}));
  EXPECT_TRUE(is_refused({{queue, "kind"}, {max, "1"}, {down, "86400001"}}));
}

TEST(ServiceScaling, IsRefusedByTheNamesThatItsSettingsWereGivenBy) {
  const std::string spec = with_labels("", {{std::string(kServiceQueueLabel), "kind"},
                                            {std::string(kServiceScaleMinLabel), "3"},
                                            {std::string(kServiceScaleMaxLabel), "1"}});
  const ApiError of_labels = read_settings(spec, {}).error();
  EXPECT_EQ(of_labels.field, "labels");
  EXPECT_EQ(of_labels.message,
            "the label gpusched.service-scale-max must be at least gpusched.service-scale-min, which is 3");
  const ApiError of_fields = read_settings(spec, {}, SettingNames::kFields).error();
  EXPECT_EQ(of_fields.field, "scale_max");
  EXPECT_EQ(of_fields.message, "scale_max must be at least scale_min, which is 3");
  for (const ServiceSettingName& name : kServiceSettingNames) {
    const std::string field(name.field);
    EXPECT_NE(v1::CreateServiceRequest::descriptor()->FindFieldByName(field), nullptr) << field;
    const Answer<ServiceSettings> wrong =
        read_settings(with_labels("", {{std::string(name.label), "=?"}}), {}, SettingNames::kFields);
    ASSERT_FALSE(wrong.ok()) << field;
    EXPECT_EQ(wrong.error().message.find("gpusched."), std::string::npos) << wrong.error().message;
  }
}

}  // namespace
}  // namespace gpusched::api

#include "api/fields/job_message.h"

#include <gtest/gtest.h>

namespace gpusched::api {
namespace {

v1::JobRequest plain_job() {
  v1::JobRequest message;
  v1::JobSpec& spec = *message.mutable_spec();
  spec.set_name("train");
  spec.add_command("python");
  spec.add_args("t.py");
  (*spec.mutable_labels())["team"] = "a";
  (*spec.mutable_labels())["kind"] = "b";
  (*spec.mutable_environment())["A"] = "1";
  spec.set_checkpoint_enabled(true);
  message.mutable_resources()->set_gpu_count(2);
  message.mutable_resources()->set_gpu_memory_mb(80'000);
  message.mutable_resources()->set_cpu_milli(1'500);
  message.mutable_resources()->set_memory_mb(64);
  message.set_priority(-3);
  message.set_max_runtime_ms(1'501);
  message.set_held(true);
  return message;
}

/// A reading without a close look gives the same as one with it.
TEST(JobMessage, ThatIsPlainIsReadAsAnyOther) {
  const Answer<JobRequest> plain = read_job(plain_job(), true);
  v1::JobRequest message = plain_job();
  message.mutable_resources()->set_gpu_layout("pack");  // As without, but no plain field.
  const Answer<JobRequest> closely = read_job(message, true);
  ASSERT_TRUE(plain.ok() && closely.ok());
  EXPECT_EQ(plain->spec, closely->spec);
  EXPECT_EQ(plain->name, closely->name);
  EXPECT_EQ(plain->gpu_count, closely->gpu_count);
  EXPECT_EQ(plain->gpu_memory_mb, closely->gpu_memory_mb);
  EXPECT_EQ(plain->cpu_milli, closely->cpu_milli);
  EXPECT_EQ(plain->memory_mb, closely->memory_mb);
  EXPECT_EQ(plain->priority, closely->priority);
  EXPECT_EQ(plain->max_runtime, closely->max_runtime);
  EXPECT_EQ(plain->max_runtime, milliseconds(1'501));
  EXPECT_EQ(plain->held, closely->held);
}

TEST(JobMessage, CannotSayThatItsCallerHadNoCredential) {
  v1::JobRequest message = plain_job();
  message.mutable_spec()->set_anonymous(true);
  const Answer<JobRequest> job = read_job(message, true);
  ASSERT_TRUE(job.ok());
  v1::JobSpec spec;
  ASSERT_TRUE(spec.ParseFromString(job->spec));
  EXPECT_FALSE(spec.anonymous());
}

TEST(JobMessage, WithAFieldThatIsNotKnownIsReadWithoutIt) {
  v1::JobRequest message = plain_job();
  message.mutable_spec()->GetReflection()->MutableUnknownFields(message.mutable_spec())->AddVarint(500, 1);
  const Answer<JobRequest> job = read_job(message, true);
  ASSERT_TRUE(job.ok());
  EXPECT_EQ(job->spec, read_job(plain_job(), true)->spec);
}

TEST(JobMessage, RefusesACommentThatIsTooLong) {
  v1::JobRequest message = plain_job();
  message.mutable_spec()->set_comment(std::string(1'024, 'x'));
  EXPECT_TRUE(read_job(message, true).ok());
  message.mutable_spec()->set_comment(std::string(1'025, 'x'));
  const Answer<JobRequest> job = read_job(message, true);
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.error().field, "comment");
}

}  // namespace
}  // namespace gpusched::api

#include "base/text/task_payload.h"

#include <gtest/gtest.h>

#include <string>

#include "base/text/task_content.h"
#include "base/text/task_worker.h"

namespace gpusched {
namespace {

const std::string kSpec = "\x0a\x05train";  // A JobSpec with a name.

TEST(TaskPayloads, AreReadBehindASpecificationAndLeftOutAgain) {
  std::string payload(kTaskPayloadBytesMax, '\xFF');
  payload.front() = '\0';
  std::string spec = kSpec, plain = kSpec;
  add_task_content(spec, {.high = 1, .low = 2});
  add_task_content(plain, {.high = 1, .low = 2});
  add_task_payload(spec, payload);
  for (std::string* const text : {&spec, &plain}) add_worker(*text, {.command = "answer", .idle_ms = "1"});
  EXPECT_EQ(task_payload_of(spec), payload);
  EXPECT_EQ(task_content_of(spec), (TaskContent{.high = 1, .low = 2}));
  EXPECT_EQ(worker_of(spec)->command, "answer");
  EXPECT_EQ(without_task_payload(spec), plain);
}

TEST(TaskPayloads, AreForgottenButForTheirSize) {
  std::string spec = kSpec;
  add_task_payload(spec, std::string(70'000, 'p'));
  EXPECT_EQ(task_payload_bytes_of(spec), 70'000U);
  add_worker(spec, {.command = "answer", .idle_ms = "1"});
  const std::string rest = forget_task_payload(spec);
  EXPECT_LT(rest.size(), 200U);
  EXPECT_EQ(task_payload_of(rest), "");
  EXPECT_EQ(task_payload_bytes_of(rest), 70'000U);
  EXPECT_EQ(worker_of(rest)->command, "answer");
  EXPECT_EQ(forget_task_payload(rest), rest);
  EXPECT_EQ(forget_task_payload(kSpec), kSpec);
}

TEST(TaskPayloads, AreEmptyWhereNoneWasPut) {
  std::string none = kSpec;
  add_task_payload(none, "");
  EXPECT_EQ(none, kSpec);
  const std::string cut = kSpec + "\xaa\x04\x10" + "abc";
  for (const std::string& spec : {std::string(), kSpec, cut, kSpec + "\xff"}) {
    EXPECT_EQ(task_payload_of(spec), "");
    EXPECT_EQ(task_payload_bytes_of(spec), 0U);
    EXPECT_EQ(without_task_payload(spec), spec);
  }
}

}  // namespace
}  // namespace gpusched

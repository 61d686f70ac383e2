#include "base/text/task_content.h"

#include <gtest/gtest.h>

#include <string>

#include "base/text/task_worker.h"
#include "base/text/trace_variable.h"

namespace gpusched {
namespace {

const std::string kSpec = "\x0a\x05train";  // A JobSpec with a name.
constexpr const char* kTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

TEST(TaskContents, AreReadBehindASpecificationAndTakenOutAgain) {
  const TaskContent content{.high = 0x0123'4567'89AB'CDEF, .low = 7};
  std::string spec = kSpec, plain = kSpec;
  add_task_content(spec, content);
  for (std::string* const text : {&spec, &plain}) {
    add_worker(*text, {.command = "exec answer", .idle_ms = "7000"});
    add_trace(*text, kTrace);
  }
  EXPECT_EQ(task_content_of(spec), content);
  EXPECT_EQ(worker_of(spec)->command, "exec answer");
  EXPECT_LT(without_trace(spec).size(), spec.size());
  remove_task_content(spec);
  EXPECT_EQ(spec, plain);
}

TEST(TaskContents, AreNotKnownWhereNoneWasPut) {
  const std::string no_digest = kSpec + "\xa2\x04\x03" + "abc", cut = kSpec + "\xa2\x04\x10" + "abc";
  for (const std::string& spec : {std::string(), kSpec, no_digest, cut, kSpec + "\xff"}) {
    EXPECT_FALSE(task_content_of(spec).is_known());
    std::string same = spec;
    remove_task_content(same);
    EXPECT_EQ(same, spec);
  }
  EXPECT_TRUE((TaskContent{.high = 1}).is_known());
  EXPECT_TRUE((TaskContent{.low = 1}).is_known());
}

}  // namespace
}  // namespace gpusched

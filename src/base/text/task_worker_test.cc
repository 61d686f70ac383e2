#include "base/text/task_worker.h"

#include <gtest/gtest.h>

#include <string>

#include "base/bytes.h"
#include "base/text/trace_variable.h"

namespace gpusched {
namespace {

const std::string kSpec = "\x0a\x05train";  // A JobSpec with a name.

/// An entry of the environment as all pack it: the name first.
std::string own_variable(std::string_view name, std::string_view value) {
  std::string entry, field;
  ByteWriter inner(entry);
  inner.varint(10);
  inner.bytes(name);
  inner.varint(18);
  inner.bytes(value);
  ByteWriter out(field);
  out.varint(50);
  out.bytes(entry);
  return field;
}

TEST(TaskWorker, IsReadWhereADoorPutIt) {
  std::string spec = kSpec + own_variable("TASK_ID", "t-1");
  const std::string before = spec;
  EXPECT_FALSE(worker_of(spec).has_value());
  add_worker(spec, {.command = "exec answer", .idle_ms = "7000"});
  EXPECT_TRUE(spec.starts_with(before));
  add_request_id(spec, "retry-1");
  add_trace(spec, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  const auto worker = worker_of(spec);
  ASSERT_TRUE(worker.has_value());
  EXPECT_EQ(worker->command, "exec answer");
  EXPECT_EQ(worker->idle_ms, "7000");
  std::string untraced = before;
  add_worker(untraced, *worker);
  EXPECT_EQ(without_trace(spec), untraced);
}

TEST(TaskWorker, ItsOwnerIsToldBehindTheRequestAlone) {
  std::string spec = kSpec + own_variable(kWorkerOwnerVariable, "tenant-1 2 eve");
  const std::string plain = spec;
  add_worker_owner(spec, "tenant-1 2 ana");
  EXPECT_EQ(spec, plain);  // No task of a worker.
  add_worker(spec, {.command = "exec answer", .idle_ms = "7000"});
  add_trace(spec, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  EXPECT_EQ(worker_of(spec)->owner, "");
  add_worker_owner(spec, "tenant-1 2 ana");
  EXPECT_EQ(worker_of(spec)->owner, "tenant-1 2 ana");
  EXPECT_EQ(worker_of(spec)->command, "exec answer");
}

TEST(TaskWorker, AJobsOwnVariablesAskForNone) {
  const std::string own = kSpec + own_variable(kWorkerVariable, "exec mine");
  EXPECT_FALSE(worker_of(own).has_value());
  EXPECT_FALSE(worker_of(kSpec + own_variable("A", std::string(kWorkerVariable))).has_value());
  // Not even beside the door's.
  std::string both = own;
  add_worker(both, {.command = "exec answer", .idle_ms = ""});
  EXPECT_EQ(worker_of(both + own_variable(kWorkerVariable, "exec mine"))->command, "exec answer");
  std::string torn = kSpec;
  add_worker(torn, {.command = "exec answer", .idle_ms = ""});
  torn.resize(torn.size() - 1);
  EXPECT_FALSE(worker_of(torn).has_value());
  EXPECT_FALSE(worker_of("").has_value());
}

TEST(TaskWorker, AnEndpointStandsInThePlaceOfACommand) {
  std::string spec = kSpec;
  add_worker(spec, {.idle_ms = "7000", .tasks = "4", .endpoint = "http://127.0.0.1:8000/ - 1 0 0"});
  const auto worker = worker_of(spec);
  ASSERT_TRUE(worker.has_value());
  EXPECT_EQ(worker->command, "");
  EXPECT_EQ(worker->tasks, "4");
  EXPECT_EQ(worker->endpoint, "http://127.0.0.1:8000/ - 1 0 0");
  EXPECT_FALSE(
      worker_of(kSpec + own_variable(kWorkerEndpointVariable, "http://127.0.0.1/ - 1 0 0")).has_value());
}

TEST(TaskWorker, AllNamesOfWorkersAreKept) {
  EXPECT_TRUE(is_worker_variable("GPU_SCHEDULER_WORKER"));
  EXPECT_TRUE(is_worker_variable("GPU_SCHEDULER_WORKER_IDLE_MS"));
  EXPECT_TRUE(is_worker_variable("GPU_SCHEDULER_WORKER_FD"));
  EXPECT_FALSE(is_worker_variable("GPU_SCHEDULER_REQUEST_ID"));
  EXPECT_FALSE(is_worker_variable("WORKER"));
}

}  // namespace
}  // namespace gpusched

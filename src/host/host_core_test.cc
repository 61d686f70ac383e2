#include "host/host_core.h"

#include <gtest/gtest.h>

#include <optional>

namespace gpusched {
namespace {

class FakeClock final : public Clock {
 public:
  Time monotonic() const override { return now; }
  Time wall() const override { return now + hours(400'000); }
  Time now{1'000'000'000};
};

class FakeWriter final : public GroupWriter {
 public:
  void start(DurableGroup) override { started += 1; }
  JournalSpace space() const override { return room; }
  int started = 0;
  JournalSpace room = JournalSpace::kOpen;
};

class NoSink final : public ChangeSink {
 public:
  void publish(Changes) override {}
};

/// A core whose groups become durable when the test says so.
class Core {
 public:
  Core() : core(State(), 0, HostTuning{}, clock, writer, sink, [](const Error&) {}) {}

  void commit() {
    core.turn();
    if (core.in_flight()) core.on_durable(Unit{});
  }
  std::optional<Result<Decided>> submit(const std::string& key, int32_t priority = 1) {
    SubmitJobs command{.tenant = kDefaultTenant, .request_key = key, .jobs = {}};
    command.jobs.push_back(JobRequest{.priority = priority, .parts = {Part{.cpu_milli = 1'000}}});
    std::optional<Result<Decided>> answer;
    core.propose(command, [&answer](Result<Decided> result) { answer = std::move(result); });
    commit();
    return answer;
  }

  FakeClock clock;
  FakeWriter writer;
  NoSink sink;
  HostCore core;
};

TEST(HostCore, ARememberedAnswerIsGivenWhileTheDiskIsFull) {
  Core core;
  const auto first = core.submit("key-1");
  ASSERT_TRUE(first && first->ok());
  core.writer.room = JournalSpace::kReserveOnly;
  core.core.turn();
  const int groups = core.writer.started;
  const auto again = core.submit("key-1");
  ASSERT_TRUE(again && again->ok());
  EXPECT_TRUE((*again)->applied.repeated);
  EXPECT_EQ((*again)->applied.first_id, (*first)->applied.first_id);
  const auto conflict = core.submit("key-1", 2);
  ASSERT_TRUE(conflict && conflict->ok());
  EXPECT_EQ((*conflict)->applied.rejection->code, RejectionCode::kRequestKeyConflict);
  const auto other = core.submit("key-2");
  ASSERT_TRUE(other && !other->ok());
  EXPECT_EQ(other->error().code, ErrorCode::kStorageFull);
  EXPECT_EQ(core.writer.started, groups);
}

}  // namespace
}  // namespace gpusched

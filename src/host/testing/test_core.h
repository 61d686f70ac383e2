#pragma once

#include <algorithm>
#include <optional>
#include <string>

#include "base/limits.h"
#include "host/core/host_core.h"

/// For tests only: a core whose groups become durable when the test says so.
namespace gpusched::testing {

class FakeClock final : public Clock {
 public:
  Time monotonic() const override { return now; }
  Time wall() const override { return now + hours(400'000); }
  Time now{1'000'000'000};
};

class FakeWriter final : public GroupWriter {
 public:
  explicit FakeWriter(std::size_t record_bytes) : record(record_bytes) {}
  void start(DurableGroup group) override {
    started += 1;
    largest = std::max(largest, group.payload.size());
    last = std::move(group);
  }
  JournalSpace space() const override { return room; }
  std::size_t payload_max() const override { return record; }
  int started = 0;
  std::size_t largest = 0;  ///< Payload so far.
  const std::size_t record;
  DurableGroup last;
  JournalSpace room = JournalSpace::kOpen;
};

class NoSink final : public ChangeSink {
 public:
  void publish(Changes) override { published += 1; }
  bool has_room() const override { return room; }
  int published = 0;
  bool room = true;
};

/// A core whose groups become durable when the test says so.
class Core {
 public:
  explicit Core(HostTuning tuning = {}, std::size_t record = limits::kGroupBytesMax)
      : writer(record),
        core(State(), 0, tuning, clock, writer, sink, [this](const Error& error) { fatal = error; }) {}

  void commit() {
    core.turn();
    if (core.in_flight()) core.on_durable(Unit{});
  }
  /// A batch that takes about so many bytes in the journal.
  static SubmitJobs batch_of(std::size_t bytes) {
    constexpr std::size_t kSpec = limits::kSpecBytesMax;
    SubmitJobs command{.tenant = kDefaultTenant, .jobs = {}};
    for (std::size_t left = bytes; left > 0; left -= std::min(left, kSpec)) {
      command.jobs.push_back(JobRequest{.parts = {Part{.cpu_milli = 1'000}},
                                        .spec = Blob(std::string(std::min(left, kSpec), 's'))});
    }
    return command;
  }
  std::optional<Result<Decided>> submit(const std::string& key, int32_t priority = 1) {
    SubmitJobs command{.tenant = kDefaultTenant, .request_key = key, .jobs = {}};
    command.jobs.push_back(JobRequest{.priority = priority, .parts = {Part{.cpu_milli = 1'000}}});
    std::optional<Result<Decided>> answer;
    core.propose(command, [&answer](Result<Decided> result) { answer = std::move(result); });
    commit();
    return answer;
  }

  std::optional<Error> fatal;
  FakeClock clock;
  FakeWriter writer;
  NoSink sink;
  HostCore core;
};

}  // namespace gpusched::testing

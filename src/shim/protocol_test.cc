#include "shim/protocol.h"

#include <gtest/gtest.h>

namespace gpusched::shim {
namespace {

const AttemptKey kKey{JobId{12}, 3, 1};

TEST(ShimProtocol, StartRequestIsReadInPlace) {
  const std::string packet = encode(StartRequest{.key = kKey,
                                                 .grace = seconds(5),
                                                 .max_runtime = minutes(1),
                                                 .working_directory = "/tmp",
                                                 .arguments = {"echo", "", "a b"},
                                                 .environment = {"A=1", "B="}});
  const auto view = decode_start(packet);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->key, kKey);
  EXPECT_EQ(view->grace, seconds(5));
  EXPECT_EQ(view->max_runtime, minutes(1));
  EXPECT_EQ(view->lost_contact, Duration{});
  EXPECT_STREQ(view->working_directory, "/tmp");
  ASSERT_EQ(view->arguments.size(), 4u);
  EXPECT_STREQ(view->arguments[1], "");
  EXPECT_STREQ(view->arguments[2], "a b");
  EXPECT_EQ(view->arguments[3], nullptr);
  EXPECT_STREQ(view->environment[1], "B=");
}

TEST(ShimProtocol, BoxIsReadAsWritten) {
  Box box{.user = Credentials{.uid = 1000, .gid = 100, .groups = {100, 44}},
          .cgroups = {{.path = "/sys/fs/cgroup/memory/jobs/1-1-0",
                       .settings = {{.file = "memory.limit_in_bytes", .value = "1048576", .needed = false}}},
                      {.path = "/sys/fs/cgroup/unified/jobs/1-1-0", .unified = true}},
          .devices = {{.block = true, .major = 8, .minor = -1, .write = false}},
          .fence_by_program = true,
          .cpus = {0, 7},
          .limits = {{.resource = 4, .soft = 0, .hard = ~uint64_t{0}}},
          .umask = 027,
          .oom_score = -5,
          .no_new_privileges = true,
          .own_folders = true,
          .open_tmp = true,
          .private_shm = true,
          .private_tmp = true,
          .shm_bytes_max = 1 << 20};
  box.stdin_path = "in";
  box.stdout_path = "out";
  box.stderr_path = "err";
  box.memory_bytes_max = int64_t{1} << 40;
  box.processes_max = 12;
  box.watched = true;
  const std::string packet =
      encode(StartRequest{.key = kKey, .grace = {}, .arguments = {"true"}, .box = box});
  const auto view = decode_start(packet);
  ASSERT_TRUE(view.has_value());
  EXPECT_EQ(view->box, box);
}

TEST(ShimProtocol, EveryCutOfAStartRequestIsRefused) {
  const std::string packet =
      encode(StartRequest{.key = kKey, .grace = {}, .arguments = {"true"}, .environment = {"A=1"}});
  for (std::size_t size = 0; size < packet.size(); ++size) {
    EXPECT_FALSE(decode_start(std::string_view(packet).substr(0, size)).has_value()) << size;
  }
}

TEST(ShimProtocol, AStartOfAnotherVersionIsNoneOfOursAndItsKeyIsRead) {
  std::string packet =
      encode(StartRequest{.key = {JobId{300}, 2, 5}, .grace = {}, .arguments = {"/bin/true"}});
  EXPECT_FALSE(foreign_start_key(packet).has_value());
  for (const char kind : {char{0x01}, char{0x11}}) {
    packet[0] = kind;
    EXPECT_FALSE(decode_start_key(packet).has_value());
    EXPECT_EQ(foreign_start_key(packet), (AttemptKey{JobId{300}, 2, 5}));
  }
  packet[0] = 0x22;  // A stop, whose attempt is not there.
  EXPECT_FALSE(foreign_start_key(packet).has_value());
}

TEST(ShimProtocol, EventIsReadAsWritten) {
  Event event{.kind = EventKind::kEnded, .key = kKey, .pid = 7, .shim_pid = 8, .started_unix_ns = 9};
  event.outcome = {.cause = Cause::kSignaled, .signal = 9, .detail = "ended by SIGKILL", .ended_unix_ns = 10};
  const auto read = decode_event(encode(event));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->kind, event.kind);
  EXPECT_EQ(read->key, kKey);
  EXPECT_EQ(read->outcome, event.outcome);
}

TEST(ShimProtocol, AStopIsReadAsWrittenAlsoFromASignal) {
  for (const StopRequest& stop :
       {StopRequest{.key = kKey, .grace = milliseconds(2'000'000'000), .signal = 10, .until_saved = true},
        StopRequest{.key = kKey, .grace = milliseconds(7)}}) {
    const auto read = decode_stop(encode(stop));
    ASSERT_TRUE(read.has_value());
    EXPECT_EQ(read->key, kKey);
    const StopRequest signalled = read_stop_value(stop_value(stop));
    for (const StopRequest& seen : {*read, signalled}) {
      EXPECT_EQ(seen.grace, stop.grace);
      EXPECT_EQ(seen.signal, stop.signal);
      EXPECT_EQ(seen.until_saved, stop.until_saved);
    }
    // Shims of the first version see the grace alone.
    EXPECT_EQ(stop_value(stop).sival_int, stop.grace.ms());
  }
}

TEST(ShimProtocol, WhatWasSavedIsReadAsWritten) {
  const auto read = decode_event(encode(Event{.kind = EventKind::kSaved, .key = kKey, .saved_unix_ns = 77}));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->kind, EventKind::kSaved);
  EXPECT_EQ(read->saved_unix_ns, 77);
}

TEST(ShimProtocol, OutcomeTextIsReadAsWritten) {
  const Outcome outcome{.cause = Cause::kStartFailed,
                        .exit_code = -1,
                        .detail = "cannot start 'x\ny': No such file or directory (ENOENT)",
                        .started_unix_ns = 1'700'000'000'000'000'000,
                        .ended_unix_ns = 1'700'000'000'000'000'001};
  EXPECT_EQ(parse_outcome(kKey, format_outcome(kKey, outcome)), outcome);
}

TEST(ShimProtocol, UsageIsReadAsWrittenFromTextAndEvent) {
  Outcome outcome{.cause = Cause::kExited, .detail = "two\nlines"};
  outcome.usage = {.peak_memory_bytes = int64_t{3} << 30, .peak_of_process = true, .cpu_ns = 1'500'000'000};
  EXPECT_EQ(parse_outcome(kKey, format_outcome(kKey, outcome)), outcome);
  const auto read = decode_event(encode(Event{.kind = EventKind::kEnded, .key = kKey, .outcome = outcome}));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->outcome, outcome);
}

TEST(ShimProtocol, WhatAnOlderShimSaysIsReadAndItsUsageUnknown) {
  const Outcome outcome{.cause = Cause::kExited, .exit_code = 3, .detail = "\nusage of a word"};
  EXPECT_EQ(parse_outcome(kKey, format_outcome(kKey, outcome)), outcome);
  std::string packet = encode(Event{.kind = EventKind::kEnded, .key = kKey, .outcome = outcome});
  packet.resize(packet.size() - 3);  // The three fields of an unknown usage.
  const auto read = decode_event(packet);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->outcome, outcome);
}

TEST(ShimProtocol, ADetailThatLooksLikeUsageIsADetail) {
  const Outcome outcome{.cause = Cause::kExited,
                        .detail = "\nusage peak_memory_bytes=5 peak_of_process=0 cpu_ns=7"};
  EXPECT_EQ(parse_outcome(kKey, format_outcome(kKey, outcome)), outcome);
}

TEST(ShimProtocol, TornOrChangedOutcomeTextIsNoOutcome) {
  const std::string text = format_outcome(kKey, {.cause = Cause::kExited, .exit_code = 3});
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(parse_outcome(kKey, text.substr(0, size)));
  std::string changed = text;
  changed[text.find("exit_code=") + 10] = '4';
  EXPECT_FALSE(parse_outcome(kKey, changed));
  EXPECT_FALSE(parse_outcome(kKey, std::string(text.size(), '\0')));
}

TEST(ShimProtocol, AnotherAttemptsOutcomeTextIsNoOutcome) {
  const std::string text = format_outcome({JobId{11}, 3, 1}, {.cause = Cause::kExited});
  EXPECT_FALSE(parse_outcome(kKey, text));
}

TEST(ShimProtocol, KeyTextIsReadAsWrittenAndNothingElseIsAKey) {
  EXPECT_EQ(parse_key(key_text(kKey)), kKey);
  for (const char* text : {"", "12", "12-3", "12-3-1x", "-1-3-1", "12-3--1", "a-b-c", "12-4294967296-0"}) {
    EXPECT_FALSE(parse_key(text)) << text;
  }
}

}  // namespace
}  // namespace gpusched::shim

// One shim and its job, by the orders that it gets and what it says; how agents use shims is tested above.
#include "shim/attempt/attempt_shim.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "shim/protocol.h"

namespace gpusched::shim {
namespace {

const AttemptKey kKey{JobId{7}, 1, 0};
/// Nothing here takes so long: what lasts longer hangs.
constexpr int kHangMs = 20'000;

#ifdef __SANITIZE_THREAD__
// A child that shares memory until it executes is more than the thread sanitizer bears.
constexpr bool kCanRun = false;
#else
constexpr bool kCanRun = true;
#endif

class AttemptShim : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kCanRun) GTEST_SKIP() << "not under the thread sanitizer";
    std::string name = (std::filesystem::temp_directory_path() / "gpusched-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    data_ = name;
    std::filesystem::create_directory(data_ + "/attempts");
    context_.data_folder = data_.c_str();
    context_.attempts_folder = open((data_ + "/attempts").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    context_.contact = open((data_ + "/contact").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
    context_.null_input = open("/dev/null", O_RDONLY | O_CLOEXEC);
    std::array<int, 2> events{};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, events.data()), 0);
    events_ = events[0];
    context_.events = events[1];
  }
  void TearDown() override {
    if (!kCanRun) return;
    if (pid_ > 0) {
      stop({.key = kKey, .grace = {}});
      if (!await_exit()) kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (const int file :
         {context_.attempts_folder, context_.contact, context_.null_input, events_, context_.events})
      close(file);
    std::error_code ignored;
    std::filesystem::remove_all(data_, ignored);
  }

  static StartRequest shell(const std::string& script) {
    return StartRequest{.key = kKey,
                        .grace = seconds(60),
                        .arguments = {"/bin/sh", "-c", script},
                        .environment = {"PATH=/usr/bin:/bin"}};
  }
  void start(const StartRequest& request) {
    const std::string packet = encode(request);
    pid_ = fork();
    ASSERT_GE(pid_, 0);
    if (pid_ != 0) return;
    close(events_);
    block_shim_signals();
    run_attempt_shim(context_, packet);
  }
  void stop(const StopRequest& request) const { sigqueue(pid_, stop_signal(), stop_value(request)); }

  /// Nothing: it hangs.
  std::optional<Event> next_event() const {
    pollfd source{.fd = events_, .events = POLLIN, .revents = 0};
    if (poll(&source, 1, kHangMs) != 1) return std::nullopt;
    std::array<char, 16'384> buffer{};
    const ssize_t size = recv(events_, buffer.data(), buffer.size(), 0);
    if (size <= 0) return std::nullopt;
    return decode_event({buffer.data(), static_cast<std::size_t>(size)});
  }
  std::optional<Event> next_event(EventKind kind) const {
    while (const std::optional<Event> event = next_event()) {
      if (event->kind == kind) return event;
    }
    return std::nullopt;
  }
  /// How it ended; where it did not in time, an outcome that no test expects.
  Outcome outcome() const {
    const std::optional<Event> ended = next_event(EventKind::kEnded);
    EXPECT_TRUE(ended.has_value()) << "it goes on";
    return ended ? ended->outcome : Outcome{};
  }
  /// The process of its command, by the event that says it has started.
  pid_t child() const {
    const std::optional<Event> started = next_event(EventKind::kStarted);
    EXPECT_TRUE(started.has_value()) << "it does not start";
    return started ? static_cast<pid_t>(started->pid) : -1;
  }
  std::string path(const std::string& name) const {
    return data_ + "/attempts/" + key_text(kKey) + "/" + name;
  }
  std::string content(const std::string& name) const {
    std::ifstream in(path(name));
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void await_output(const std::string& text) const {
    for (int waited = 0; content("stdout").find(text) == std::string::npos; waited += 5) {
      ASSERT_LT(waited, kHangMs) << "no '" << text << "' in: " << content("stdout");
      usleep(5'000);
    }
  }
  bool await_exit() {
    for (int waited = 0; waited < kHangMs; waited += 5) {
      siginfo_t info{};
      if (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
          info.si_pid == pid_)
        return true;
      usleep(5'000);
    }
    return false;
  }
  void mark_contact(Duration from_now) const {
    timespec now{};
    clock_gettime(CLOCK_BOOTTIME, &now);
    const int64_t at = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec + from_now.ns;
    ASSERT_EQ(pwrite(context_.contact, &at, sizeof at, 0), static_cast<ssize_t>(sizeof at));
  }

  std::string data_;
  ShimContext context_;
  int events_ = -1;
  pid_t pid_ = -1;
};

TEST_F(AttemptShim, TheOutcomeIsOnDiskWhenItIsTold) {
  start(shell("exit 42"));
  const Outcome told = outcome();
  EXPECT_EQ(told.cause, Cause::kExited);
  EXPECT_EQ(told.exit_code, 42);
  EXPECT_EQ(parse_outcome(kKey, content("outcome")), told);
}

TEST_F(AttemptShim, AScriptIsAFileUntilTheAttemptIsOver) {
  StartRequest request = shell("");
  request.arguments = {"/bin/sh", "", "x"};
  request.script = "#!/bin/sh\necho \"$0 $1\"; stat -c %a \"$0\"\n";
  request.script_argument = 1;
  start(request);
  EXPECT_EQ(outcome().exit_code, 0);
  EXPECT_EQ(content("stdout"), path("script") + " x\n700\n");
  EXPECT_TRUE(await_exit());
  EXPECT_FALSE(std::filesystem::exists(path("script")));
}

TEST_F(AttemptShim, TheExitCodeIsTheCommandsWhateverItsOrphansEndWith) {
  start(
      shell("( sh -c 'echo $$ > orphan; exit 9' & )\n"
            "until [ -s orphan ] && ! kill -0 $(cat orphan) 2>/dev/null; do sleep 0.01; done\n"
            "exit 3"));
  EXPECT_EQ(outcome().exit_code, 3);
}

TEST_F(AttemptShim, WithoutGroupsItsChildrensUseIsMeasured) {
  // A million steps of a shell in a grandchild, and 100 MB in one process.
  start(
      shell("head -c 100m /dev/zero | tail -n 1 > /dev/null\n"
            "sh -c '( i=0; while [ $i -lt 1000000 ]; do i=$((i+1)); done )'\nexit 7"));
  const Outcome told = outcome();
  EXPECT_EQ(told.exit_code, 7);
  EXPECT_GE(told.usage.peak_memory_bytes, 100 << 20);
  EXPECT_TRUE(told.usage.peak_of_process);
  EXPECT_GE(told.usage.cpu_ns, 100'000'000);
  EXPECT_EQ(parse_outcome(kKey, content("outcome")), told);
}

TEST_F(AttemptShim, ACommandThatNeverRanUsedNothing) {
  StartRequest request = shell("");
  request.arguments = {"/no/such/program"};
  start(request);
  EXPECT_EQ(outcome().usage, MeasuredUsage{});
}

TEST_F(AttemptShim, WhatLeftTheGroupOfTheCommandEndsWithIt) {
  start(
      shell("setsid sh -c 'echo $$ > daemon; while :; do sleep 0.01; done' &\n"
            "until [ -s daemon ]; do sleep 0.01; done"));
  EXPECT_EQ(outcome().cause, Cause::kExited);
  const int daemon = std::atoi(content("daemon").c_str());
  ASSERT_GT(daemon, 0);
  EXPECT_NE(kill(daemon, 0), 0) << "it would keep its GPU";
}

TEST_F(AttemptShim, AJobThatIgnoresItsStopIsKilledAfterItsGrace) {
  start(shell("trap '' TERM; echo ready; while :; do sleep 0.01; done"));
  await_output("ready");
  stop({.key = kKey, .grace = milliseconds(50)});
  const Outcome told = outcome();
  EXPECT_EQ(told.cause, Cause::kStopped);
  EXPECT_EQ(told.signal, SIGKILL);
}

TEST_F(AttemptShim, AStoppedProcessRunsItsHandlerBeforeItsEnd) {
  start(shell("trap 'echo saved; exit 3' TERM; echo ready; kill -STOP $$; sleep 1000"));
  const std::string status = "/proc/" + std::to_string(child()) + "/stat";
  await_output("ready");
  for (int waited = 0; waited < kHangMs; waited += 5) {  // Until the kernel has stopped it.
    std::ifstream in(status);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    if (text.find(") T ") != std::string::npos) break;
    usleep(5'000);
  }
  stop({.key = kKey, .grace = seconds(5)});
  const Outcome told = outcome();
  EXPECT_EQ(told.cause, Cause::kStopped);
  EXPECT_EQ(told.signal, 0) << "it was killed after its grace";
  EXPECT_EQ(content("stdout"), "ready\nsaved\n");
}

TEST_F(AttemptShim, ALaterStopGivesNoMoreTimeThanAnEarlierOne) {
  start(shell("trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done"));
  await_output("ready");
  stop({.key = kKey, .grace = milliseconds(500)});
  await_output("asked");
  stop({.key = kKey, .grace = hours(1)});
  EXPECT_EQ(outcome().cause, Cause::kStopped);
}

TEST_F(AttemptShim, ALaterStopMayGiveLessTime) {
  start(shell("trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done"));
  await_output("ready");
  stop({.key = kKey, .grace = hours(1)});
  await_output("asked");
  stop({.key = kKey, .grace = Duration{}});
  EXPECT_EQ(outcome().cause, Cause::kStopped);
}

TEST_F(AttemptShim, OnlyASaveBehindTheOrderToSaveEndsTheJob) {
  StartRequest request = shell(
      "touch -d @1000 tmp/gpu-checkpoint; trap 'asked=1' USR1; echo ready\n"
      "until [ \"$asked\" ]; do sleep 0.01; done\n"
      "sleep 0.5; touch tmp/gpu-checkpoint; sleep 1000");
  request.box.open_tmp = true;
  start(request);
  await_output("ready");
  stop({.key = kKey, .grace = hours(1), .signal = SIGUSR1, .until_saved = true});
  const std::optional<Event> saved = next_event(EventKind::kSaved);
  ASSERT_TRUE(saved.has_value());
  EXPECT_GT(saved->saved_unix_ns, 1'000'000'000'000)
      << "what it had saved before is not what it was asked for";
  EXPECT_EQ(outcome().cause, Cause::kStopped);
}

TEST_F(AttemptShim, TheMaximumRunTimeEndsTheJobAndSaysSo) {
  StartRequest request = shell("sleep 1000");
  request.max_runtime = milliseconds(100);
  start(request);
  const Outcome told = outcome();
  EXPECT_EQ(told.cause, Cause::kTimeout);
  EXPECT_EQ(told.detail, "stopped at its time limit of 100 ms");
}

TEST_F(AttemptShim, AChangedRunTimeCountsFromTheStart) {
  // The limit is said again as it is: were it counted from now, it would never be over.
  StartRequest request = shell("echo 300 > runtime; sleep 1000");
  request.max_runtime = milliseconds(300);
  start(request);
  EXPECT_EQ(outcome().cause, Cause::kTimeout);
}

TEST_F(AttemptShim, ALongerRunTimeKeepsTheJobAlive) {
  StartRequest request = shell("echo 3600000 > runtime; sleep 0.3; exit 5");
  request.max_runtime = milliseconds(100);
  start(request);
  EXPECT_EQ(outcome().exit_code, 5);
}

TEST_F(AttemptShim, SilenceEndsTheJobThatAskedForIt) {
  mark_contact(Duration{});
  StartRequest request = shell("sleep 1000");
  request.lost_contact = milliseconds(200);
  start(request);
  EXPECT_EQ(outcome().cause, Cause::kContactLost);
}

TEST_F(AttemptShim, AContactFromAnEarlierBootKeepsNobodyAlive) {
  // Each boot has a clock of its own: an earlier boot's mark lies ahead.
  mark_contact(hours(100));
  StartRequest request = shell("sleep 1000");
  request.lost_contact = milliseconds(200);
  start(request);
  EXPECT_EQ(outcome().cause, Cause::kContactLost);
}

TEST_F(AttemptShim, AnOrderThatLayAboutForTooLongIsNotCarriedOut) {
  mark_contact(Duration{} - hours(1));
  StartRequest request = shell("echo ran");
  request.lost_contact = minutes(1);
  start(request);
  EXPECT_EQ(outcome().cause, Cause::kContactLost);
  EXPECT_EQ(content("stdout"), "");
}

TEST_F(AttemptShim, AnAttemptWhoseFolderIsThereIsNotRunAgain) {
  std::filesystem::create_directory(path(""));
  start(shell("echo ran > ran"));
  EXPECT_TRUE(next_event(EventKind::kExists).has_value());
  EXPECT_TRUE(await_exit());
  EXPECT_FALSE(std::filesystem::exists(path("ran")));
}

TEST_F(AttemptShim, TheOutcomeOfAJobThatRemovedItsFolderIsWhereTheAgentLooks) {
  start(shell("rm -rf \"$PWD\"; exit 6"));
  const Outcome told = outcome();
  EXPECT_EQ(told.exit_code, 6);
  EXPECT_EQ(parse_outcome(kKey, content("outcome")), told);
}

TEST_F(AttemptShim, WithoutACgroupTooManyProcessesEndTheJob) {
  StartRequest request = shell("for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done; wait");
  request.box.watched = true;
  request.box.processes_max = 4;
  start(request);
  const Outcome told = outcome();
  EXPECT_EQ(told.cause, Cause::kOverLimit);
  EXPECT_NE(told.detail.find("its limit of 4"), std::string::npos) << told.detail;
}

}  // namespace
}  // namespace gpusched::shim

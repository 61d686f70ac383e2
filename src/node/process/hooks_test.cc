#include "node/process/hooks.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <atomic>
#include <fstream>

#include "node/testing/testing.h"

namespace {

std::atomic<int> group_kills{0};
std::atomic<int> kills_after_reaping{0};

}  // namespace

/// Instead of the C library's: counts groups that are killed when their leader was reaped already, so that
/// the number may be somebody else's.
extern "C" int kill(pid_t pid, int signal) noexcept {
  if (pid < -1 && signal == SIGKILL) {
    siginfo_t leader{};
    group_kills += 1;
    if (waitid(P_PID, static_cast<id_t>(-pid), &leader, WEXITED | WNOHANG | WNOWAIT) != 0)
      kills_after_reaping += 1;
  }
  return static_cast<int>(syscall(SYS_kill, pid, signal));
}

namespace gpusched {
namespace {

ScriptResult run_shell(const std::string& script, Duration timeout = seconds(30)) {
  return run_script({"/bin/sh", "-c", script}, {"PATH=/usr/bin:/bin", "NAME=value"}, timeout);
}

TEST(RunScript, AnExitOfZeroIsNoProblem) { EXPECT_EQ(run_shell("exit 0").problem, ""); }

TEST(RunScript, AFailureNamesTheCodeAndTheLastLine) {
  EXPECT_EQ(run_shell("echo first; echo '  the disk is gone' >&2; exit 3").problem,
            "/bin/sh exited with 3:   the disk is gone");
}

TEST(RunScript, ASignalIsNamed) {
  EXPECT_EQ(run_shell("kill -9 $$").problem, "/bin/sh was ended by signal 9");
}

TEST(RunScript, WhatIsNotThereCannotBeRun) {
  EXPECT_EQ(run_script({"/no/such/hook"}, {}, seconds(1)).problem,
            "/no/such/hook cannot be run: No such file or directory");
}

TEST(RunScript, TheEnvironmentIsExactlyTheGivenOne) {
  EXPECT_EQ(run_shell("test \"$NAME\" = value && test -z \"$HOME\"").problem, "");
}

TEST(RunScript, PastItsTimeLimitItIsKilledWithItsChildren) {
  TemporaryFolder folder;
  const std::string late = folder.path() + "/late";
  const ScriptResult result = run_shell("(sleep 2; touch " + late + ") & sleep 600", milliseconds(200));
  EXPECT_NE(result.problem.find("did not end within"), std::string::npos);
  usleep(2'500'000);
  EXPECT_NE(access(late.c_str(), F_OK), 0);
}

TEST(RunScript, ItsGroupIsKilledWhileItsNumberIsCertainlyItsOwn) {
  group_kills = 0;
  kills_after_reaping = 0;
  EXPECT_EQ(run_shell("exit 0").problem, "");
  EXPECT_NE(run_shell("exit 1").problem, "");
  EXPECT_NE(run_shell("sleep 600", milliseconds(50)).problem, "");
  EXPECT_EQ(group_kills, 3);
  EXPECT_EQ(kills_after_reaping, 0);
}

TEST(RunScript, MuchOutputDoesNotBlockIt) {
  EXPECT_EQ(run_shell("head -c 3000000 /dev/zero; exit 0").problem, "");
}

TEST(RunScript, ItIsGivenUpWhenItsCallerSaysSo) {
  const ScriptResult result = run_script({"/bin/sh", "-c", "sleep 600"}, {"PATH=/usr/bin:/bin"}, hours(1),
                                         [calls = 0]() mutable { return ++calls > 2; });
  EXPECT_FALSE(result.problem.empty());
}

class ScriptHooksTest : public ::testing::Test {
 protected:
  std::string script(const std::string& name, const std::string& body) {
    const std::string path = folder.path() + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
    chmod(path.c_str(), 0755);
    return path;
  }
  void make(HookOptions options, std::function<std::string()> fault = {}) {
    hooks.emplace(std::move(options), ScriptHooks::Facts{.node_name = "n1",
                                                         .data_folder = folder.path(),
                                                         .device_uuids = {"GPU-0", "GPU-1"},
                                                         .fault = std::move(fault)});
  }
  ScriptHooks::Finished next() {
    std::vector<ScriptHooks::Finished> finished;
    while (finished.empty()) {
      pollfd wanted{.fd = hooks->finished_event(), .events = POLLIN, .revents = 0};
      EXPECT_EQ(poll(&wanted, 1, 30'000), 1);
      finished = hooks->take_finished();
    }
    EXPECT_EQ(finished.size(), 1u);
    return finished.front();
  }
  TemporaryFolder folder;
  std::optional<ScriptHooks> hooks;
};

TEST_F(ScriptHooksTest, AHookSeesItsAttemptAndDevices) {
  make({.prolog = script("prolog",
                         "test \"$GPU_SCHEDULER_JOB_ID\" = job-7 || exit 1\n"
                         "test \"$GPU_SCHEDULER_GPU_UUIDS\" = GPU-1 || exit 2\n"
                         "test \"$GPU_SCHEDULER_NODE\" = n1 || exit 3")});
  hooks->prolog({JobId{7}, 2, 0}, {{.index = 1, .generation = 3}});
  const ScriptHooks::Finished done = next();
  EXPECT_EQ(done.kind, ScriptHooks::Finished::Kind::kProlog);
  EXPECT_EQ(done.key, (AttemptKey{JobId{7}, 2, 0}));
  EXPECT_EQ(done.problem, "");
}

TEST_F(ScriptHooksTest, AnEpilogIsToldHowItEnded) {
  make({.epilog = script("epilog", "test \"$GPU_SCHEDULER_CAUSE $GPU_SCHEDULER_EXIT_CODE\" = 'EXITED 4'")});
  v1::Outcome outcome;
  outcome.set_cause(v1::Outcome::EXITED);
  outcome.set_exit_code(4);
  hooks->epilog({JobId{7}, 1, 0}, {}, outcome);
  EXPECT_EQ(next().problem, "");
}

TEST_F(ScriptHooksTest, AFailingHealthScriptFailsTheCheck) {
  const std::string path = script("health", "echo 'no infiniband'; exit 1");
  make({.health_script = path});
  hooks->check();
  EXPECT_EQ(next().problem, "the health script " + path + " exited with 1: no infiniband");
}

TEST_F(ScriptHooksTest, AFullDiskFailsTheCheck) {
  make({.disk_free_mb_min = int64_t{1} << 40});
  hooks->check();
  EXPECT_NE(next().problem.find("MB left"), std::string::npos);
}

TEST_F(ScriptHooksTest, WhatTheAgentFoundFailsTheCheck) {
  make({}, [] { return std::string("the GPU driver does not answer"); });
  hooks->check();
  EXPECT_EQ(next().problem, "the GPU driver does not answer");
}

TEST_F(ScriptHooksTest, APrologDoesNotWaitForOthersEpilogs) {
  const std::string gate = folder.path() + "/gate";
  ASSERT_EQ(mkfifo(gate.c_str(), 0600), 0);
  make({.prolog = script("prolog", "exit 0"), .epilog = script("epilog", "read word < " + gate)});
  constexpr uint64_t kEpilogs = 12;
  for (uint64_t job = 1; job <= kEpilogs; ++job) hooks->epilog({JobId{job}, 1, 0}, {}, {});
  hooks->prolog({JobId{99}, 1, 0}, {});
  EXPECT_EQ(next().kind, ScriptHooks::Finished::Kind::kProlog);
}

TEST_F(ScriptHooksTest, WhatRunsIsGivenUpWithTheAgent) {
  const std::string began = folder.path() + "/began";
  const std::string ended = folder.path() + "/ended";
  make({.epilog = script("epilog", "touch " + began + "; sleep 600; touch " + ended)});
  hooks->epilog({JobId{1}, 1, 0}, {}, {});
  while (access(began.c_str(), F_OK) != 0) usleep(1'000);
  hooks.reset();
  EXPECT_NE(access(ended.c_str(), F_OK), 0);
}

TEST_F(ScriptHooksTest, ManyHooksRunAndAllAreAnswered) {
  make({.prolog = script("prolog", "exit 0")});
  for (uint64_t job = 1; job <= 50; ++job) hooks->prolog({JobId{job}, 1, 0}, {});
  std::size_t answered = 0;
  while (answered < 50) {
    pollfd wanted{.fd = hooks->finished_event(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&wanted, 1, 30'000), 1);
    answered += hooks->take_finished().size();
  }
}

}  // namespace
}  // namespace gpusched

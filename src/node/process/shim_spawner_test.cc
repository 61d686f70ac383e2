// With real processes: gpu-shim is the program that ships.
#include "node/process/shim_spawner.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "node/ports/system_clock.h"
#include "node/testing/attempt_key.h"
#include "node/testing/testing.h"
#include "shim/container/container_plan.h"
#include "shim/container/container_runner.h"
#include "shim/processes.h"

namespace gpusched {
namespace {

/// Other runs of this program look for shims at the same time.
const std::string kInstance = "testinstance-" + std::to_string(getpid());

class Listener final : public ShimListener {
 public:
  void on_shim_started(const AttemptKey& key, int64_t pid, int64_t) override {
    started[key] = static_cast<pid_t>(pid);
  }
  void on_shim_prepared(const AttemptKey& key) override { ++prepared[key]; }
  std::map<AttemptKey, int> prepared;
  void on_shim_saved(const AttemptKey&, int64_t unix_ns) override { saved_ns = unix_ns; }
  int64_t saved_ns = 0;
  void on_shim_ended(const AttemptKey& key, const v1::Outcome& outcome) override { ended[key] = outcome; }
  void on_shim_lost(const AttemptKey& key, const std::string& detail) override { lost[key] = detail; }
  void on_shim_found(const AttemptKey& key, int64_t pid, int64_t) override {
    found[key] = static_cast<pid_t>(pid);
  }
  std::map<AttemptKey, pid_t> started;
  std::map<AttemptKey, v1::Outcome> ended;
  std::map<AttemptKey, std::string> lost;
  std::map<AttemptKey, pid_t> found;
};

class ShimSpawnerTest : public ::testing::Test {
 protected:
  ShimSpawnerTest() { open_spawner({}); }
  ~ShimSpawnerTest() override {
    spawner_.reset();
    for (const pid_t pid : marked_processes()) kill(pid, SIGKILL);
  }

  void open_spawner(const std::vector<AttemptKey>& adopt,
                    const std::map<AttemptKey, ShimProcess>& recorded = {}) {
    spawner_.reset();
    listener_ = Listener();
    auto opened = ShimSpawner::open({.shim_program = GPUSCHED_SHIM_PATH,
                                     .data_folder = folder_.path(),
                                     .instance = kInstance,
                                     .shims = recorded},
                                    clock_, listener_);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    spawner_ = std::move(*opened);
    spawner_->adopt(adopt);
  }

  SpawnRequest shell(const std::string& script, const AttemptKey& key = kKey) const {
    return SpawnRequest{.key = key,
                        .arguments = {"/bin/sh", "-c", script},
                        .environment = {"PATH=/usr/bin:/bin", mark(key)},
                        .grace = seconds(10)};
  }
  static std::string mark(const AttemptKey& key) {
    return "GPU_SCHEDULER_ATTEMPT=" + to_string(key) + "@" + kInstance;
  }

  /// Lets events come until `done`. Gives up after a minute, as a hang.
  template <typename Done>
  void pump_until(Done done) {
    const Time give_up = clock_.monotonic() + minutes(1);
    while (!done()) {
      ASSERT_LT(clock_.monotonic(), give_up) << "nothing happened";
      pollfd source{.fd = spawner_->descriptor(), .events = POLLIN, .revents = 0};
      poll(&source, 1, 5);
      spawner_->pump();
    }
  }
  void pump_until_ended(const AttemptKey& key = kKey) {
    pump_until([&] { return listener_.ended.contains(key) || listener_.lost.contains(key); });
  }
  void pump_until_started(const AttemptKey& key = kKey) {
    pump_until([&] { return listener_.started.contains(key) || listener_.found.contains(key); });
  }
  /// Until the command wrote `text` to its output.
  void pump_until_output(const std::string& text) {
    pump_until([&] { return output("stdout").find(text) != std::string::npos; });
  }

  std::string output(const std::string& name, const AttemptKey& key = kKey) const {
    std::ifstream in(folder_.path() + "/attempts/" + shim::key_text(key) + "/" + name);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  std::vector<pid_t> marked_processes(const AttemptKey& key = kKey) const {
    return shim::processes_with_environment(mark(key));
  }
  pid_t shim_pid(const AttemptKey& key = kKey) const {
    for (const pid_t pid : shim::all_processes()) {
      const std::vector<std::string> words = shim::command_line(pid);
      if (words.size() > 1 && words[1] == to_string(key) + "@" + kInstance) return pid;
    }
    return -1;
  }
  const v1::Outcome& outcome(const AttemptKey& key = kKey) { return listener_.ended.at(key); }

  TemporaryFolder folder_;
  SystemClock clock_;
  Listener listener_;
  std::unique_ptr<ShimSpawner> spawner_;
};

TEST_F(ShimSpawnerTest, ExitCodeIsReported) {
  spawner_->start(shell("exit 42"));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::EXITED);
  EXPECT_EQ(outcome().exit_code(), 42);
  EXPECT_GT(outcome().started_unix_ns(), 0);
  EXPECT_GE(outcome().ended_unix_ns(), outcome().started_unix_ns());
  EXPECT_TRUE(listener_.started.contains(kKey));
}

TEST_F(ShimSpawnerTest, AGatedAttemptRunsWhenItIsLetGo) {
  SpawnRequest request = shell("echo ran; cat \"$GPU_SCHEDULER_HOSTFILE\"");
  request.gated = true;
  request.hosts = "n1 slots=2\n";
  spawner_->start(request);
  pump_until([&] { return listener_.prepared.contains(kKey); });
  EXPECT_FALSE(listener_.started.contains(kKey));
  EXPECT_EQ(output("stdout"), "");
  spawner_->go(kKey);
  spawner_->go(kKey);
  pump_until_ended();
  EXPECT_TRUE(listener_.started.contains(kKey));
  EXPECT_EQ(outcome().cause(), v1::Outcome::EXITED);
  EXPECT_EQ(output("stdout"), "ran\nn1 slots=2\n");
}

TEST_F(ShimSpawnerTest, AGatedAttemptThatIsStoppedNeverRuns) {
  SpawnRequest request = shell("echo ran");
  request.gated = true;
  spawner_->start(request);
  pump_until([&] { return listener_.prepared.contains(kKey); });
  spawner_->stop(kKey, StopOrder(seconds(10)));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
  EXPECT_FALSE(listener_.started.contains(kKey));
  EXPECT_EQ(output("stdout"), "");
}

TEST_F(ShimSpawnerTest, AGatedAttemptWaitsOnBeneathARestartedAgent) {
  SpawnRequest request = shell("sleep 60");
  request.gated = true;
  spawner_->start(request);
  pump_until([&] { return listener_.prepared.contains(kKey); });
  open_spawner({kKey});
  pump_until([&] { return listener_.prepared.contains(kKey); });
  EXPECT_FALSE(listener_.found.contains(kKey));
  spawner_->go(kKey);
  pump_until_started();
  spawner_->stop(kKey, StopOrder(Duration{}));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
}

TEST_F(ShimSpawnerTest, AGatedAttemptWhosePortIsTakenDoesNotStart) {
  const int taken = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  socklen_t size = sizeof place;
  ASSERT_EQ(bind(taken, reinterpret_cast<const sockaddr*>(&place), size), 0);
  ASSERT_EQ(listen(taken, 1), 0);
  ASSERT_EQ(getsockname(taken, reinterpret_cast<sockaddr*>(&place), &size), 0);
  SpawnRequest request = shell("echo ran");
  request.gated = true;
  request.port = ntohs(place.sin_port);
  spawner_->start(request);
  pump_until_ended();
  close(taken);
  EXPECT_EQ(outcome().cause(), v1::Outcome::START_FAILED);
  EXPECT_NE(outcome().detail().find("is in use"), std::string::npos);
  EXPECT_FALSE(listener_.prepared.contains(kKey));
}

/// 0, or why nobody can listen at the port.
int listen_error(uint32_t port) {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  setsockopt(probe, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_port = htons(static_cast<uint16_t>(port));
  const bool free =
      bind(probe, reinterpret_cast<const sockaddr*>(&place), sizeof place) == 0 && listen(probe, 1) == 0;
  const int error = free ? 0 : errno;
  close(probe);
  return error;
}

uint32_t some_free_port() {
  const int probe = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in place{};
  place.sin_family = AF_INET;
  socklen_t size = sizeof place;
  EXPECT_EQ(bind(probe, reinterpret_cast<const sockaddr*>(&place), size), 0);
  EXPECT_EQ(getsockname(probe, reinterpret_cast<sockaddr*>(&place), &size), 0);
  close(probe);
  return ntohs(place.sin_port);
}

TEST_F(ShimSpawnerTest, ThePortOfAGangIsNobodyElsesUntilItsCommandRuns) {
  SpawnRequest request = shell("sleep 60");
  request.gated = true;
  request.port = some_free_port();
  spawner_->start(request);
  pump_until([&] { return listener_.prepared.contains(kKey); });
  EXPECT_EQ(listen_error(request.port), EADDRINUSE);
  spawner_->go(kKey);
  pump_until_started();
  EXPECT_EQ(listen_error(request.port), 0);  // The command may bind it.
}

TEST_F(ShimSpawnerTest, ThePortOfAGangInContainersIsKeptToo) {
  const std::string runtime = folder_.path() + "/runtime";
  std::ofstream(runtime) << "#!/bin/sh\n"
                            "case \"$*\" in *inspect*) echo id sha256:d;; run*) exec sleep 60;; esac\n";
  chmod(runtime.c_str(), 0755);
  shim::ContainerPlan plan;
  plan.client = {
      .runtime = shim::ContainerRuntime::kDocker, .program = runtime, .environment = {"PATH=/usr/bin:/bin"}};
  plan.key = shim::key_text(kKey);
  plan.name = "test";
  plan.folder = folder_.path() + "/attempts/" + shim::key_text(kKey);
  plan.images_folder = folder_.path() + "/images";
  plan.image = "train:3";
  SpawnRequest request = shell("");
  request.arguments = {GPUSCHED_SHIM_PATH, std::string(shim::kContainerFlag)};
  for (std::string& word : shim::plan_words(plan)) request.arguments.push_back(std::move(word));
  request.container = true;
  request.gated = true;
  request.port = some_free_port();
  spawner_->start(request);
  pump_until([&] { return listener_.prepared.contains(kKey); });
  EXPECT_EQ(listen_error(request.port), EADDRINUSE);
  spawner_->go(kKey);
  pump_until_started();
  EXPECT_EQ(listen_error(request.port), 0);
  spawner_->stop(kKey, StopOrder(Duration{}));
  pump_until_ended();  // With its runtime, which is gone with this test.
}

TEST_F(ShimSpawnerTest, ALimitThatIsSetBeforeTheFolderIsThereCounts) {
  SpawnRequest request = shell("sleep 1.5; exit 5");
  request.max_runtime = milliseconds(500);
  spawner_->start(request);
  spawner_->set_max_runtime(kKey, minutes(1));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::EXITED);
  EXPECT_EQ(outcome().exit_code(), 5);
}

/// While it stands this process can open nothing.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit none = before_;
    none.rlim_cur = 3;  // All of these are open.
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

TEST_F(ShimSpawnerTest, WithoutDescriptorsAStartWaitsAndKeepsNobodyBusy) {
  spawner_->start(shell("exit 0"));
  pump_until_ended();
  const AttemptKey late{JobId{8}, 1, 0};
  SpawnRequest large = shell("exit 6", late);
  large.environment.push_back("FILL=" + std::string(100'000, 'x'));
  {
    const NoDescriptors none;
    spawner_->start(large);
    int wakes = 0;
    for (const Time until = clock_.monotonic() + milliseconds(400); clock_.monotonic() < until;) {
      const Duration left = spawner_->next_deadline() - clock_.monotonic();
      pollfd source{.fd = spawner_->descriptor(), .events = POLLIN, .revents = 0};
      poll(&source, 1, static_cast<int>(std::clamp<int64_t>(left.ms(), 0, 100)));
      spawner_->pump();
      wakes += 1;
    }
    EXPECT_LT(wakes, 20);
    EXPECT_FALSE(listener_.started.contains(late));
  }
  pump_until_ended(late);
  EXPECT_EQ(outcome(late).exit_code(), 6);
}

TEST_F(ShimSpawnerTest, WhatCannotBeReadIsNotTakenForGone) {
  spawner_->start(shell("sleep 60"));
  pump_until_started();
  open_spawner({kKey});
  {
    const NoDescriptors none;
    for (const Time until = clock_.monotonic() + milliseconds(400); clock_.monotonic() < until; usleep(5'000))
      spawner_->pump();
    EXPECT_FALSE(listener_.lost.contains(kKey));
    EXPECT_TRUE(listener_.ended.empty());
  }
  pump_until_started();
  spawner_->stop(kKey, StopOrder(Duration{}));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
}

/// How often the process went to sleep so far.
int64_t sleeps_of(pid_t pid) {
  const std::string status =
      shim::read_small_file(("/proc/" + std::to_string(pid) + "/status").c_str(), 16 * 1024);
  constexpr std::string_view kLine = "\nvoluntary_ctxt_switches:";
  const std::size_t at = status.find(kLine);
  return at == std::string::npos ? 0 : std::atoll(status.c_str() + at + kLine.size());
}

constexpr const char* kBecomeRoot = "GPUSCHED_TEST_BECOME_ROOT";  ///< A program that runs others as root.

/// Tests an agent that is not root's. By itself it is none: the one below runs it as another user.
TEST_F(ShimSpawnerTest, ASetUserIdProgramOfAPlainAgent) {
  const char* const become_root = std::getenv(kBecomeRoot);
  if (become_root == nullptr) GTEST_SKIP() << "run by the next one";
  // Wholly: a program whose real user is ours still could be ended by us.
  const std::string command = std::string(become_root) + " --reuid 0 --clear-groups sleep";
  // The job is over, and what it left cannot be ended: nobody tries ten times a second.
  spawner_->start(shell(command + " 6 & sleep 0.4; exit 3"));
  pump_until_started();
  const pid_t shim = shim_pid();
  ASSERT_GT(shim, 0);
  usleep(1'500'000);
  const int64_t shim_before = sleeps_of(shim);
  usleep(2'000'000);
  EXPECT_LT(sleeps_of(shim) - shim_before, 8);
  pump_until_ended();
  EXPECT_EQ(outcome().exit_code(), 3);
  // Told to end it anyway the agent ends its shim, and lets go of what it may not end.
  const AttemptKey second{JobId{8}, 1, 0};
  spawner_->start(shell(command + " 6 & sleep 0.4; exit 3", second));
  pump_until_started(second);
  usleep(800'000);
  spawner_->force_end(second);
  pump_until([&] { return listener_.lost.contains(second); });
  const int64_t server_before = sleeps_of(spawner_->server_pid());
  usleep(1'000'000);
  EXPECT_LT(sleeps_of(spawner_->server_pid()) - server_before, 30);
}

TEST_F(ShimSpawnerTest, ASetUserIdProgramIsNotKilledForEverByAnAgentThatMayNot) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can make a set-user-id program of root's";
  constexpr uid_t kNobody = 65534;
  constexpr const char* kSetpriv = "/usr/bin/setpriv";
  if (access(kSetpriv, X_OK) != 0) GTEST_SKIP() << "there is no " << kSetpriv;
  const std::string program = folder_.path() + "/setpriv";
  std::filesystem::copy_file(kSetpriv, program);
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  ASSERT_EQ(chmod(folder_.path().c_str(), 0755), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    setenv(kBecomeRoot, program.c_str(), 1);
    if (setgroups(0, nullptr) != 0 || setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(2);
    execl("/proc/self/exe", "node_test", "--gtest_filter=ShimSpawnerTest.ASetUserIdProgramOfAPlainAgent",
          nullptr);
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

TEST_F(ShimSpawnerTest, ExitCode127OfTheCommandItselfIsItsExitCode) {
  spawner_->start(shell("exit 127"));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::EXITED);
  EXPECT_EQ(outcome().exit_code(), 127);
}

TEST_F(ShimSpawnerTest, SignalIsReported) {
  spawner_->start(shell("kill -SEGV $$"));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::SIGNALED);
  EXPECT_EQ(outcome().signal(), SIGSEGV);
  EXPECT_EQ(outcome().detail(), "killed by SIGSEGV");
}

TEST_F(ShimSpawnerTest, OutputGoesToFilesInTheAttemptsFolderWhichIsWhereItRuns) {
  spawner_->start(shell("echo out; echo err >&2; pwd; cat"));
  pump_until_ended();
  EXPECT_EQ(outcome().exit_code(), 0);  // `cat` found its input empty.
  EXPECT_EQ(output("stdout"), "out\n" + folder_.path() + "/attempts/7-1-0\n");
  EXPECT_EQ(output("stderr"), "err\n");
}

TEST_F(ShimSpawnerTest, AJobThatCutItsOwnOutputShortIsTold) {
  spawner_->start(shell("echo first; echo kept >&2; sleep 0.6; echo x > /dev/stdout; sleep 0.6; exit 4"));
  pump_until_ended();
  EXPECT_EQ(outcome().exit_code(), 4);
  EXPECT_EQ(output("stdout"), "x\n");
  EXPECT_EQ(output("stderr"),
            "kept\ngpu-shim: the job truncated its stdout, as '> /dev/stdout' does: earlier output is lost; "
            "'>> /dev/stdout' or '>&1' keeps it\n");
}

TEST_F(ShimSpawnerTest, EnvironmentIsExactlyTheOneAsked) {
  SpawnRequest request = shell("");
  request.arguments = {"env"};
  spawner_->start(request);
  pump_until_ended();
  EXPECT_EQ(output("stdout"), "PATH=/usr/bin:/bin\n" + mark(kKey) + "\n");
}

TEST_F(ShimSpawnerTest, CommandHasNoBlockedSignalsNoCoreAndNoForeignDescriptors) {
  spawner_->start(shell("grep SigBlk /proc/self/status; ulimit -c; ls /proc/self/fd | wc -l"));
  pump_until_ended();
  EXPECT_EQ(output("stdout"), "SigBlk:\t0000000000000000\n0\n4\n");  // ls has its folder open, too.
}

TEST_F(ShimSpawnerTest, WorkingDirectoryIsEntered) {
  SpawnRequest request = shell("pwd");
  request.working_directory = "/usr";
  spawner_->start(request);
  pump_until_ended();
  EXPECT_EQ(output("stdout"), "/usr\n");
}

TEST_F(ShimSpawnerTest, AnOptionalFolderThatIsNotThereIsToldAndItsOwnServes) {
  SpawnRequest request = shell("pwd; echo more >&2");
  request.working_directory = "/no/such";
  request.working_directory_optional = true;
  spawner_->start(request);
  pump_until_ended();
  EXPECT_EQ(outcome().exit_code(), 0);
  EXPECT_EQ(output("stdout"), folder_.path() + "/attempts/7-1-0\n");
  EXPECT_EQ(output("stderr"),
            "gpu-scheduler: cannot enter the folder '/no/such' on this node (ENOENT); the job runs in a "
            "folder of its own instead; --chdir selects another\nmore\n");
}

TEST_F(ShimSpawnerTest, AnOptionalFolderThatIsThereIsEnteredWithoutAWord) {
  SpawnRequest request = shell("pwd");
  request.working_directory = "/usr";
  request.working_directory_optional = true;
  spawner_->start(request);
  pump_until_ended();
  EXPECT_EQ(output("stdout"), "/usr\n");
  EXPECT_EQ(output("stderr"), "");
}

TEST_F(ShimSpawnerTest, MissingCommandEndsAsInAShellAndSaysWhy) {
  SpawnRequest request = shell("");
  request.arguments = {"no-such-command"};
  spawner_->start(request);
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::EXITED);
  EXPECT_EQ(outcome().exit_code(), 127);
  EXPECT_EQ(output("stderr"), "no-such-command is not installed on this node\n");
  EXPECT_FALSE(listener_.started.contains(kKey));
}

TEST_F(ShimSpawnerTest, FileThatMayNotRunEndsAsInAShellAndSaysWhy) {
  SpawnRequest request = shell("");
  request.arguments = {"/etc/passwd"};
  spawner_->start(request);
  pump_until_ended();
  EXPECT_EQ(outcome().exit_code(), 126);
  EXPECT_EQ(outcome().detail(), "cannot start '/etc/passwd': Permission denied (EACCES)");
}

TEST_F(ShimSpawnerTest, MissingWorkingDirectoryFailsToStartWithASentence) {
  SpawnRequest request = shell("true");
  request.working_directory = "/no/such";
  spawner_->start(request);
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::START_FAILED);
  EXPECT_EQ(outcome().detail(),
            "cannot enter the working directory '/no/such': No such file or directory (ENOENT); give one "
            "that exists and that the job's user may enter");
}

TEST_F(ShimSpawnerTest, ARequestLargerThanAPacketStarts) {
  SpawnRequest request = shell("");
  request.arguments = {"/bin/sh", "-c", "echo $#", "x"};
  for (int i = 0; i < 3000; ++i) request.arguments.push_back(std::string(300, 'a'));
  spawner_->start(request);
  pump_until_ended();
  EXPECT_EQ(output("stdout"), "3000\n");
}

TEST_F(ShimSpawnerTest, StopLetsTheJobEndItselfInItsGrace) {
  spawner_->start(shell("trap 'echo saved; exit 5' TERM; echo ready; while :; do sleep 0.01; done"));
  pump_until_output("ready");
  spawner_->stop(kKey, minutes(5));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
  EXPECT_EQ(outcome().exit_code(), 5);
  EXPECT_EQ(output("stdout"), "ready\nsaved\n");
}

TEST_F(ShimSpawnerTest, AJobThatIgnoresSigtermIsKilledAfterItsGrace) {
  spawner_->start(shell("trap '' TERM; echo ready; while :; do sleep 0.01; done"));
  pump_until_output("ready");
  spawner_->stop(kKey, milliseconds(50));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
  EXPECT_EQ(outcome().signal(), SIGKILL);
  EXPECT_TRUE(marked_processes().empty());
}

TEST_F(ShimSpawnerTest, ALaterStopMayBeLessPatient) {
  spawner_->start(shell("trap '' TERM; echo ready; while :; do sleep 0.01; done"));
  pump_until_output("ready");
  spawner_->stop(kKey, hours(1));
  spawner_->stop(kKey, milliseconds(10));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
}

TEST_F(ShimSpawnerTest, AStopUntilSavedSendsItsSignalAndEndsWithTheJobsWord) {
  // As a job that was started with a folder of its own does it: the file is in the attempt's tmp folder.
  SpawnRequest request = shell(
      "touch \"$FILE\"; trap 'echo asked; touch \"$FILE\"' USR1; trap 'echo terminated' TERM; echo ready; "
      "while :; do sleep 0.01; done");
  request.environment.push_back("FILE=" + folder_.path() + "/attempts/" + shim::key_text(kKey) + "/tmp/" +
                                shim::kCheckpointFile);
  request.box.own_folders = true;
  spawner_->start(request);
  pump_until_output("ready");
  StopOrder order(hours(1));
  order.signal = SIGUSR1;
  order.until_saved = true;
  spawner_->stop(kKey, order);
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
  EXPECT_EQ(outcome().signal(), SIGKILL);
  EXPECT_EQ(output("stdout"), "ready\nasked\n");
  EXPECT_GT(listener_.saved_ns, 0);
}

TEST_F(ShimSpawnerTest, APlainStopBehindASignalOfItsOwnSendsSigterm) {
  spawner_->start(
      shell("trap 'echo asked' USR1; trap 'exit 6' TERM; echo ready; while :; do sleep 0.01; done"));
  pump_until_output("ready");
  StopOrder order(hours(1));
  order.signal = SIGUSR1;
  order.until_saved = true;
  spawner_->stop(kKey, order);
  pump_until([&] { return output("stdout").find("asked") != std::string::npos; });
  spawner_->stop(kKey, hours(1));
  pump_until_ended();
  EXPECT_EQ(outcome().exit_code(), 6);
  EXPECT_EQ(listener_.saved_ns, 0);
}

TEST_F(ShimSpawnerTest, SigtermToTheShimIsAStop) {
  spawner_->start(shell("echo ready; exec sleep 1000"));
  pump_until_output("ready");
  kill(shim_pid(), SIGTERM);
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
  EXPECT_EQ(outcome().signal(), SIGTERM);
}

TEST_F(ShimSpawnerTest, AStopRightBehindTheStartIsNotLost) {
  spawner_->start(shell("exec sleep 1000"));
  spawner_->stop(kKey, seconds(1));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
}

TEST_F(ShimSpawnerTest, ADoubleForkIntoANewSessionDoesNotEscapeTheEnd) {
  // The escaped one also loses its mark: only the shim, as the reaper of orphans, can find it.
  const std::string time = "1000." + std::to_string(getpid());  // No other sleep of this machine's.
  spawner_->start(shell("(env -i setsid sleep " + time + " &) ; sleep 0.05; exit 3"));
  pump_until_started();
  const pid_t shim = shim_pid();
  pump_until_ended();
  EXPECT_EQ(outcome().exit_code(), 3);
  EXPECT_TRUE(shim::descendants_of(shim).empty());
  for (const pid_t pid : shim::all_processes()) {
    EXPECT_NE(shim::command_line(pid), (std::vector<std::string>{"sleep", time})) << pid;
  }
}

TEST_F(ShimSpawnerTest, MaximumRuntimeEndsTheAttempt) {
  SpawnRequest request = shell("exec sleep 1000");
  request.max_runtime = milliseconds(30);
  spawner_->start(request);
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::TIMEOUT);
  EXPECT_EQ(outcome().detail(), "stopped at its time limit of 30 ms");
}

TEST_F(ShimSpawnerTest, SilenceOfTheSchedulerEndsAnAttemptThatAskedForIt) {
  SpawnRequest request = shell("exec sleep 1000");
  request.lost_contact = milliseconds(200);
  spawner_->start(request);
  spawner_->mark_contact(Duration{});
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::CONTACT_LOST);
}

TEST_F(ShimSpawnerTest, AnAttemptThatAskedForItIsNotStartedWithoutContact) {
  SpawnRequest request = shell("echo never");
  request.lost_contact = milliseconds(200);
  spawner_->mark_contact(milliseconds(300));
  spawner_->start(request);
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::CONTACT_LOST);
  EXPECT_TRUE(listener_.started.empty());
}

TEST_F(ShimSpawnerTest, ContactKeepsSuchAnAttemptAlive) {
  SpawnRequest request = shell("exec sleep 1000");
  request.lost_contact = seconds(2);
  spawner_->start(request);
  const Time until = clock_.monotonic() + milliseconds(2500);
  pump_until([&] {
    spawner_->mark_contact(Duration{});
    return clock_.monotonic() > until;
  });
  EXPECT_TRUE(listener_.ended.empty());
  spawner_->stop(kKey, seconds(1));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
}

TEST_F(ShimSpawnerTest, AKilledShimLeavesNoProcessAndIsReportedLost) {
  spawner_->start(shell("(setsid sleep 1000 &); (env -i setsid sleep 1001 &); echo ready; exec sleep 1002"));
  pump_until_output("ready");
  const pid_t shim = shim_pid();
  std::vector<pid_t> processes;
  while (processes.size() < 3) processes = shim::descendants_of(shim);
  kill(shim, SIGKILL);
  pump_until_ended();
  EXPECT_TRUE(listener_.lost.contains(kKey));
  EXPECT_EQ(listener_.lost[kKey], "its shim was killed by signal 9");
  for (const pid_t pid : processes) EXPECT_TRUE(shim::command_line(pid).empty()) << pid;
}

TEST_F(ShimSpawnerTest, ARunningAttemptIsAdoptedByTheNextAgentWithItsExitCode) {
  spawner_->start(shell("echo ready; while [ ! -e go ]; do sleep 0.01; done; exit 9"));
  pump_until_output("ready");
  pump_until_started();
  const pid_t command = listener_.started.at(kKey);
  open_spawner({kKey});
  pump_until_started();
  EXPECT_EQ(listener_.found.at(kKey), command);
  std::ofstream(folder_.path() + "/attempts/7-1-0/go") << "now";
  pump_until_ended();
  ASSERT_TRUE(listener_.ended.contains(kKey));
  EXPECT_EQ(outcome().exit_code(), 9);
}

TEST_F(ShimSpawnerTest, AnAttemptThatEndedWhileNoAgentRanHasItsExitCode) {
  spawner_->start(shell("echo ready; while [ ! -e go ]; do sleep 0.01; done; exit 9"));
  pump_until_output("ready");
  const pid_t shim = shim_pid();
  spawner_.reset();
  std::ofstream(folder_.path() + "/attempts/7-1-0/go") << "now";
  while (kill(shim, 0) == 0 && !shim::command_line(shim).empty()) std::this_thread::yield();
  open_spawner({kKey});
  pump_until_ended();
  ASSERT_TRUE(listener_.ended.contains(kKey));
  EXPECT_EQ(outcome().exit_code(), 9);
}

TEST_F(ShimSpawnerTest, AnAdoptedAttemptIsStopped) {
  spawner_->start(shell("trap 'exit 6' TERM; echo ready; while :; do sleep 0.01; done"));
  pump_until_output("ready");
  open_spawner({kKey});
  spawner_->stop(kKey, minutes(5));  // Before it is found.
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
  EXPECT_EQ(outcome().exit_code(), 6);
}

/// A process of our program, as this user, with the attempt's name: it never gets its sentence out.
pid_t start_impostor() {
  const std::string title = to_string(kKey) + "@" + kInstance;
  std::array<int, 2> full{};
  EXPECT_EQ(pipe(full.data()), 0);
  const pid_t pid = fork();
  if (pid != 0) {
    close(full[1]);
    return pid;  // The reading end stays open.
  }
  fcntl(full[1], F_SETFL, O_NONBLOCK);
  while (write(full[1], "x", 1) == 1) {
  }
  fcntl(full[1], F_SETFL, 0);
  dup2(full[1], STDERR_FILENO);
  execl(GPUSCHED_SHIM_PATH, "gpu-shim", title.c_str(), nullptr);
  _exit(1);
}

TEST_F(ShimSpawnerTest, OfTwoWithOneNameTheOneOnRecordIsAdopted) {
  const pid_t impostor = start_impostor();
  while (shim_pid() != impostor) usleep(1'000);
  spawner_->start(shell("echo up; exec sleep 600"));
  pump_until_started();
  const ShimProcess recorded = spawner_->shim_of(kKey);
  EXPECT_NE(recorded.pid, impostor);
  EXPECT_GT(recorded.start_ticks, 0u);
  open_spawner({kKey}, {{kKey, recorded}});
  pump_until_started();
  EXPECT_EQ(spawner_->shim_of(kKey), recorded);
  spawner_->stop(kKey, seconds(5));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
  EXPECT_EQ(kill(impostor, SIGKILL), 0);
  EXPECT_EQ(waitpid(impostor, nullptr, 0), impostor);
}

TEST_F(ShimSpawnerTest, AShimWhoseRecordedProcessIsGoneIsNobodyElse) {
  spawner_->start(shell("echo up; exec sleep 600"));
  pump_until_started();
  ShimProcess recorded = spawner_->shim_of(kKey);
  recorded.start_ticks += 1;  // The pid was given to another process since.
  open_spawner({kKey}, {{kKey, recorded}});
  pump_until_ended();
  EXPECT_TRUE(listener_.lost.contains(kKey));
  EXPECT_TRUE(marked_processes().empty());
}

TEST_F(ShimSpawnerTest, AnAdoptedShimThatIsKilledLeavesNoProcess) {
  // The second daemon loses its mark: only the first agent's server, which waits for its shims, can find it.
  spawner_->start(shell("(setsid sleep 1000 &); (env -i setsid sleep 1001 &); echo ready; exec sleep 1002"));
  pump_until_output("ready");
  open_spawner({kKey});
  pump_until_started();
  std::vector<pid_t> processes;
  while (processes.size() < 3) processes = shim::descendants_of(shim_pid());
  kill(shim_pid(), SIGKILL);
  pump_until_ended();
  EXPECT_TRUE(listener_.lost.contains(kKey));
  for (const pid_t pid : processes) EXPECT_TRUE(shim::command_line(pid).empty()) << pid;
}

TEST_F(ShimSpawnerTest, TheServerOfAnEarlierAgentEndsWithItsLastShim) {
  spawner_->start(shell("echo ready; exec sleep 1000"));
  pump_until_output("ready");
  const pid_t server = spawner_->server_pid();
  open_spawner({kKey});
  pump_until_started();
  EXPECT_FALSE(shim::command_line(server).empty());
  spawner_->stop(kKey, seconds(1));
  pump_until_ended();
  while (!shim::command_line(server).empty()) std::this_thread::yield();
}

TEST_F(ShimSpawnerTest, AnAttemptThatNobodyStartedIsLostWithoutRunning) {
  open_spawner({kKey});  // Its intent was recorded, and the agent died before the shim was asked for.
  pump_until_ended();
  EXPECT_TRUE(listener_.lost.contains(kKey));
  struct stat facts{};
  EXPECT_NE(stat((folder_.path() + "/attempts/7-1-0").c_str(), &facts), 0);
}

TEST_F(ShimSpawnerTest, ARunningAttemptThatTheRecordsForgotIsFound) {
  spawner_->start(shell("echo ready; exec sleep 1000"));
  pump_until_output("ready");
  open_spawner({});
  pump_until_started();
  EXPECT_TRUE(listener_.found.contains(kKey));
  spawner_->stop(kKey, seconds(1));
  pump_until_ended();
  EXPECT_EQ(outcome().cause(), v1::Outcome::STOPPED);
}

TEST_F(ShimSpawnerTest, AKilledServerEndsNoAttemptAndTheNextOneStartsMore) {
  spawner_->start(shell("echo ready; while [ ! -e go ]; do sleep 0.01; done; exit 4"));
  pump_until_output("ready");
  kill(spawner_->server_pid(), SIGKILL);
  const AttemptKey other{JobId{8}, 1, 0};
  spawner_->start(shell("exit 5", other));
  pump_until_ended(other);  // Started by the next server, or ended as lost: never both, never silent.
  std::ofstream(folder_.path() + "/attempts/7-1-0/go") << "now";
  pump_until_ended();
  ASSERT_TRUE(listener_.ended.contains(kKey));
  EXPECT_EQ(outcome().exit_code(), 4);
  const AttemptKey third{JobId{9}, 1, 0};
  spawner_->start(shell("exit 6", third));
  pump_until_ended(third);
  EXPECT_EQ(outcome(third).exit_code(), 6);
}

TEST_F(ShimSpawnerTest, AnAttemptWhoseFolderExistsIsNotRunAgain) {
  spawner_->start(shell("echo once; exit 3"));
  pump_until_ended();
  listener_ = Listener();
  spawner_->start(shell("echo twice; exit 4"));
  pump_until_ended();
  EXPECT_EQ(outcome().exit_code(), 3);
  EXPECT_EQ(output("stdout"), "once\n");
}

TEST_F(ShimSpawnerTest, ASpareFolderIsTakenOverWithoutATraceOfItsPast) {
  const std::string spare = folder_.path() + "/spare/1";
  std::filesystem::create_directories(spare);
  std::ofstream(spare + "/stdout") << "old output";
  std::ofstream(spare + "/outcome") << shim::format_outcome({JobId{6}, 1, 0},
                                                            {.cause = shim::Cause::kExited});
  SpareFolders spares(folder_.path());
  spawner_.reset();
  auto opened = ShimSpawner::open({.shim_program = GPUSCHED_SHIM_PATH,
                                   .data_folder = folder_.path(),
                                   .instance = kInstance,
                                   .spares = &spares},
                                  clock_, listener_);
  ASSERT_TRUE(opened.ok());
  spawner_ = std::move(*opened);
  spawner_->adopt({});
  spawner_->start(shell("echo new; exit 2"));
  pump_until_ended();
  EXPECT_EQ(outcome().exit_code(), 2);
  EXPECT_EQ(output("stdout"), "new\n");
  EXPECT_EQ(output("outcome").find("attempt=7-1-0 "), 0u);
  EXPECT_FALSE(std::filesystem::exists(spare));
}

TEST_F(ShimSpawnerTest, ManyAtOnceAllEndOnceWithTheirOwnCodes) {
  constexpr uint64_t kCount = 200;
  for (uint64_t job = 1; job <= kCount; ++job) {
    const AttemptKey key{JobId{job}, 1, 0};
    spawner_->start(shell("exit " + std::to_string(job % 256), key));
  }
  pump_until([&] { return listener_.ended.size() == kCount; });
  for (uint64_t job = 1; job <= kCount; ++job) {
    EXPECT_EQ(outcome({JobId{job}, 1, 0}).exit_code(), static_cast<int>(job % 256));
  }
  EXPECT_TRUE(listener_.lost.empty());
}

}  // namespace
}  // namespace gpusched

// Effects of a box, with the program that ships and this machine's own cgroups, users and mounts. Parts that
// the machine or the caller may not do are skipped by name.
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>

#include "node/ports/system_clock.h"
#include "node/process/shim_spawner.h"
#include "node/testing/testing.h"
#include "shim/cgroup.h"
#include "shim/processes.h"
#include "shim/server.h"

namespace gpusched {
namespace {

const AttemptKey kBoxKey{JobId{9}, 1, 0};
constexpr const char* kInstance = "boxinstance";
constexpr uint32_t kNobody = 65534;

class OneEnd final : public ShimListener {
 public:
  void on_shim_started(const AttemptKey&, int64_t started_pid, int64_t) override { pid = started_pid; }
  void on_shim_prepared(const AttemptKey&) override { ++prepared; }
  int prepared = 0;
  void on_shim_saved(const AttemptKey&, int64_t unix_ns) override { saved_ns = unix_ns; }
  int64_t saved_ns = 0;
  void on_shim_ended(const AttemptKey&, const v1::Outcome& end) override { outcome = end; }
  void on_shim_lost(const AttemptKey&, const std::string& why) override { lost = why; }
  void on_shim_found(const AttemptKey&, int64_t found_pid, int64_t) override { pid = found_pid; }
  int64_t pid = 0;
  std::optional<v1::Outcome> outcome;
  std::optional<std::string> lost;
};

/// A version 1 hierarchy of this machine, or the version 2 one, in which we may make groups; empty: none.
std::string hierarchy(const std::string& name) {
  const std::string path = "/sys/fs/cgroup/" + name;
  const bool mounted = access((path + "/cgroup.procs").c_str(), W_OK) == 0;
  return mounted ? path : std::string();
}

class BoxSpawnTest : public ::testing::Test {
 protected:
  BoxSpawnTest() {
    chmod(folder_.path().c_str(), 0711);
    open_spawner({});
    chmod((folder_.path() + "/attempts").c_str(), 0711);
  }
  ~BoxSpawnTest() override {
    spawner_.reset();
    const std::string mark = "GPU_SCHEDULER_ATTEMPT=" + to_string(kBoxKey) + "@" + kInstance;
    for (const pid_t pid : shim::processes_with_environment(mark)) kill(pid, SIGKILL);
    for (const shim::CgroupFolder& group : groups_) {
      for (int tries = 0; tries < 1'000 && !shim::kill_cgroup(group.path); ++tries) usleep(1'000);
      for (int tries = 0; tries < 1'000 && !shim::remove_cgroup(group.path); ++tries) usleep(1'000);
    }
  }

  void open_spawner(const std::vector<AttemptKey>& adopt) {
    auto opened = ShimSpawner::open(
        {.shim_program = GPUSCHED_SHIM_PATH, .data_folder = folder_.path(), .instance = kInstance}, clock_,
        listener_);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    spawner_ = std::move(*opened);
    spawner_->adopt(adopt);
  }

  shim::CgroupFolder group(const std::string& parent, std::vector<shim::CgroupSetting> settings = {}) {
    groups_.push_back({.path = parent + "/gpusched-test-" + std::to_string(getpid()),
                       .unified = parent.ends_with("unified"),
                       .settings = std::move(settings)});
    return groups_.back();
  }

  SpawnRequest shell(const std::string& script, shim::Box box) const {
    return SpawnRequest{.key = kBoxKey,
                        .arguments = {"/bin/sh", "-c", script},
                        .environment = {"PATH=/usr/bin:/bin",
                                        "GPU_SCHEDULER_ATTEMPT=" + to_string(kBoxKey) + "@" + kInstance},
                        .grace = seconds(10),
                        .box = std::move(box)};
  }

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
  const v1::Outcome& run(const SpawnRequest& request) {
    spawner_->start(request);
    pump_until([&] { return listener_.outcome.has_value() || listener_.lost.has_value(); });
    if (!listener_.outcome) listener_.outcome.emplace();
    return *listener_.outcome;
  }
  std::string output(const std::string& name = "stdout") const {
    std::ifstream in(folder_.path() + "/attempts/" + to_string(kBoxKey) + "/" + name);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  static bool exists(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

  TemporaryFolder folder_;
  SystemClock clock_;
  OneEnd listener_;
  std::unique_ptr<ShimSpawner> spawner_;
  std::vector<shim::CgroupFolder> groups_;
};

#define NEEDS_ROOT() \
  if (geteuid() != 0) GTEST_SKIP() << "needs root"
#define NEEDS(path, what) \
  if ((path).empty()) GTEST_SKIP() << "this machine has no writable " what

TEST_F(BoxSpawnTest, RunsAsTheUserWithItsGroupsFoldersMaskAndLimits) {
  NEEDS_ROOT();
  shim::Box box{.user = shim::Credentials{.uid = kNobody, .gid = kNobody, .groups = {kNobody, 44}},
                .limits = {{.resource = RLIMIT_NOFILE, .soft = 100, .hard = 200}},
                .umask = 027,
                .oom_score = 321,
                .no_new_privileges = true,
                .own_folders = true};
  run(
      shell("id -u; id -g; id -G; umask; ulimit -Sn; ulimit -Hn; cat /proc/self/oom_score_adj; "
            "grep NoNewPrivs /proc/self/status; pwd; touch file; touch ../tmp/file; echo again > /dev/stdout",
            box));
  EXPECT_EQ(listener_.outcome->exit_code(), 0) << output("stderr");
  const std::string folder = folder_.path() + "/attempts/" + to_string(kBoxKey);
  EXPECT_EQ(output(), "again\n" + std::string()) << "by name it is truncated, as any shell does";
  struct stat facts{};
  ASSERT_EQ(stat((folder + "/work/file").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_uid, kNobody);
  EXPECT_EQ(facts.st_mode & 0777, 0640u);
  pump_until([&] { return !exists(folder + "/tmp"); });
}

TEST_F(BoxSpawnTest, SaysWhoItIs) {
  NEEDS_ROOT();
  shim::Box box{.user = shim::Credentials{.uid = kNobody, .gid = kNobody, .groups = {kNobody, 44}},
                .limits = {{.resource = RLIMIT_NOFILE, .soft = 100, .hard = 200}},
                .umask = 027,
                .oom_score = 321,
                .no_new_privileges = true};
  box.own_folders = true;
  run(
      shell("id -u; id -g; id -G; umask; ulimit -Sn; ulimit -Hn; cat /proc/self/oom_score_adj; "
            "grep -c 'NoNewPrivs:.1' /proc/self/status",
            box));
  EXPECT_EQ(output(), "65534\n65534\n65534 44\n0027\n100\n200\n321\n1\n");
}

TEST_F(BoxSpawnTest, FilesAreOpenedAsTheUserAndAppendedTo) {
  NEEDS_ROOT();
  const std::string home = folder_.path() + "/home";
  mkdir(home.c_str(), 0700);
  ASSERT_EQ(chown(home.c_str(), kNobody, kNobody), 0);
  shim::Box box{.user = shim::Credentials{.uid = kNobody, .gid = kNobody}};
  box.stdin_path = "in";
  box.stdout_path = home + "/out";
  box.stderr_path = home + "/out";
  std::ofstream(home + "/in") << "word\n";
  std::ofstream(home + "/out") << "before\n";
  ASSERT_EQ(chown((home + "/out").c_str(), kNobody, kNobody), 0);
  SpawnRequest request = shell("cat; echo error >&2", box);
  request.working_directory = home;
  run(request);
  std::ifstream in(home + "/out");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "before\nword\nerror\n");
}

TEST_F(BoxSpawnTest, AFileThatTheUserMayNotWriteFailsToStart) {
  NEEDS_ROOT();
  shim::Box box{.user = shim::Credentials{.uid = kNobody, .gid = kNobody}};
  box.stdout_path = "/root/no";
  SpawnRequest request = shell("true", box);
  request.working_directory = "/";
  EXPECT_EQ(run(request).cause(), v1::Outcome::START_FAILED);
  EXPECT_EQ(
      listener_.outcome->detail(),
      "cannot open '/root/no' for standard output as the user with uid 65534: Permission denied (EACCES)");
}

TEST_F(BoxSpawnTest, AFolderThatTheUserMayNotEnterFailsToStart) {
  NEEDS_ROOT();
  SpawnRequest request = shell("true", {.user = shim::Credentials{.uid = kNobody, .gid = kNobody}});
  request.working_directory = folder_.path() + "/spare-none";
  mkdir(request.working_directory.c_str(), 0700);
  EXPECT_EQ(run(request).cause(), v1::Outcome::START_FAILED);
  EXPECT_NE(listener_.outcome->detail().find("Permission denied"), std::string::npos);
}

TEST_F(BoxSpawnTest, AnOptionalFolderThatTheUserMayNotEnterIsLeftForWorkInItsOwn) {
  NEEDS_ROOT();
  SpawnRequest request = shell("pwd > where", {.user = shim::Credentials{.uid = kNobody, .gid = kNobody}});
  request.box.own_folders = true;
  request.working_directory = folder_.path() + "/spare-none";
  request.working_directory_optional = true;
  mkdir(request.working_directory.c_str(), 0700);
  const v1::Outcome outcome = run(request);
  EXPECT_EQ(outcome.cause(), v1::Outcome::EXITED) << outcome.detail();
  const std::string work = folder_.path() + "/attempts/" + to_string(request.key) + "/work";
  std::ifstream in(work + "/where");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), work + "\n");
}

TEST_F(BoxSpawnTest, SharedMemoryIsItsOwnAndGoesWithIt) {
  NEEDS_ROOT();
  const std::string name = "/dev/shm/gpusched-test-" + std::to_string(getpid());
  run(shell("touch " + name + " && ls /dev/shm", {.private_shm = true, .shm_bytes_max = 1 << 20}));
  EXPECT_EQ(output(), name.substr(9) + "\n");
  EXPECT_FALSE(exists(name));
}

TEST_F(BoxSpawnTest, TmpIsItsOwnWhenAsked) {
  NEEDS_ROOT();
  const std::string name = "gpusched-test-" + std::to_string(getpid());
  shim::Box box{.own_folders = true};
  box.private_tmp = true;
  run(shell("touch /tmp/" + name + " && ls /tmp /var/tmp", box));
  EXPECT_EQ(output(), "/tmp:\n" + name + "\n\n/var/tmp:\n" + name + "\n");
  EXPECT_FALSE(exists("/tmp/" + name));
}

TEST_F(BoxSpawnTest, TheKernelsKillForMemoryIsReportedAsSuch) {
  const std::string memory = hierarchy("memory");
  NEEDS(memory, "memory cgroup of version 1");
  shim::Box box{
      .cgroups = {
          group(memory, {{.file = "memory.limit_in_bytes", .value = "33554432"},
                         {.file = "memory.memsw.limit_in_bytes", .value = "33554432", .needed = false}})}};
  box.memory_bytes_max = 32 << 20;
  run(shell("head -c 200m /dev/zero | tail -n 1 > /dev/null", box));
  EXPECT_EQ(listener_.outcome->cause(), v1::Outcome::OUT_OF_MEMORY) << listener_.outcome->detail();
  EXPECT_NE(listener_.outcome->detail().find("32 MB"), std::string::npos);
  pump_until([&] { return !exists(groups_.front().path); });
}

TEST_F(BoxSpawnTest, TheMemoryGroupTellsThePeakOfAllItsProcesses) {
  const std::string memory = hierarchy("memory");
  NEEDS(memory, "memory cgroup of version 1");
  shim::Box box{.cgroups = {group(memory)}};
  // Two processes with 60 MB each at the same time.
  const std::string hold = "(head -c 60m /dev/zero; sleep 0.5) | tail -n 1 > /dev/null";
  run(shell(hold + " & " + hold + "; wait", box));
  EXPECT_GE(listener_.outcome->usage().peak_memory_bytes(), 120 << 20);
  EXPECT_FALSE(listener_.outcome->usage().peak_of_process());
  EXPECT_GT(listener_.outcome->usage().cpu_ns(), 0);
}

TEST_F(BoxSpawnTest, ALimitOfProcessesHoldsAndIsNamed) {
  const std::string pids = hierarchy("pids");
  NEEDS(pids, "pids cgroup of version 1");
  shim::Box box{.cgroups = {group(pids, {{.file = "pids.max", .value = "4"}})}};
  box.processes_max = 4;
  run(shell("for i in 1 2 3 4 5 6 7 8; do sleep 60 & done; wait", box));
  EXPECT_EQ(listener_.outcome->cause(), v1::Outcome::EXITED);
  EXPECT_NE(listener_.outcome->exit_code(), 0);
  EXPECT_NE(listener_.outcome->detail().find("limit of 4 processes"), std::string::npos)
      << listener_.outcome->detail();
}

TEST_F(BoxSpawnTest, DevicesAreFencedByTheVersion1Group) {
  const std::string devices = hierarchy("devices");
  NEEDS(devices, "devices cgroup of version 1");
  const std::string node = folder_.path() + "/made-up-gpu";
  if (mknod(node.c_str(), S_IFCHR | 0666, makedev(1, 11)) != 0) GTEST_SKIP() << "cannot make device nodes";
  shim::Box box{.cgroups = {group(devices, {{.file = "devices.deny", .value = "a"},
                                            {.file = "devices.allow", .value = "c 1:3 rwm"}})}};
  run(shell("true < /dev/null && echo null; true < " + node + " && echo gpu; true", box));
  EXPECT_EQ(output(), "null\n");
}

TEST_F(BoxSpawnTest, DevicesAreFencedByAProgram) {
  const std::string unified = hierarchy("unified").empty() ? hierarchy(".") : hierarchy("unified");
  NEEDS(unified, "cgroup of version 2");
  const std::string node = folder_.path() + "/made-up-gpu";
  if (mknod(node.c_str(), S_IFCHR | 0666, makedev(1, 11)) != 0) GTEST_SKIP() << "cannot make device nodes";
  shim::Box box{.cgroups = {group(unified)},
                .devices = {{.major = 1, .minor = 3}, {.major = 1, .minor = 5, .write = false}},
                .fence_by_program = true};
  box.cgroups.front().unified = true;
  run(
      shell("true < /dev/null && echo null; true < /dev/zero && echo zero; true > /dev/zero && echo written; "
            "true < " +
                node + " && echo gpu; true",
            box));
  if (listener_.outcome->cause() == v1::Outcome::START_FAILED &&
      listener_.outcome->detail().find("device fence") != std::string::npos) {
    GTEST_SKIP() << listener_.outcome->detail();
  }
  EXPECT_EQ(output(), "null\nzero\n");
}

TEST_F(BoxSpawnTest, WhatIsLeftInTheGroupDiesWithTheAttempt) {
  for (const char* name : {"unified", "freezer", "cpu"}) {
    SCOPED_TRACE(name);
    const std::string parent = hierarchy(name);
    NEEDS(parent, "cgroups");
    groups_.clear();
    listener_ = OneEnd();
    const shim::CgroupFolder folder = group(parent);
    SpawnRequest request =
        shell("while ! test -e " + folder_.path() + "/go; do sleep 0.02; done", {.cgroups = {folder}});
    request.key.member = static_cast<uint32_t>(name[0]);
    spawner_->start(request);
    pump_until([&] { return listener_.pid != 0; });
    // No child of the shim's, and without its mark: only the group knows it.
    pid_t stranger = 0;
    std::string sleep = "sleep";
    std::string time = "600";
    char* words[] = {sleep.data(), time.data(), nullptr};
    char* nothing[] = {nullptr};
    ASSERT_EQ(posix_spawnp(&stranger, "sleep", nullptr, nullptr, words, nothing), 0);
    std::ofstream(folder.path + "/cgroup.procs") << stranger;
    EXPECT_EQ(shim::cgroup_processes(folder.path).size() >= 2, true);
    std::ofstream(folder_.path() + "/go") << "1";
    int status = 0;
    EXPECT_EQ(waitpid(stranger, &status, 0), stranger);
    EXPECT_TRUE(WIFSIGNALED(status));
    pump_until([&] { return listener_.outcome.has_value(); });
    EXPECT_EQ(listener_.outcome->cause(), v1::Outcome::EXITED);
    pump_until([&] { return !exists(folder.path); });
    unlink((folder_.path() + "/go").c_str());
  }
}

TEST_F(BoxSpawnTest, WithoutCgroupsTheShimEndsWhatUsesTooMuchMemory) {
  shim::Box box{.memory_bytes_max = 64 << 20, .watched = true};
  run(shell("(head -c 300m /dev/zero; sleep 600) | tail -n 1", box));
  EXPECT_EQ(listener_.outcome->cause(), v1::Outcome::OUT_OF_MEMORY);
  EXPECT_NE(listener_.outcome->detail().find("limit of 64 MB"), std::string::npos)
      << listener_.outcome->detail();
}

TEST_F(BoxSpawnTest, WithoutCgroupsTheShimEndsWhatHasTooManyProcesses) {
  shim::Box box{.processes_max = 10, .watched = true};
  run(shell("for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 600 & done; wait", box));
  EXPECT_EQ(listener_.outcome->cause(), v1::Outcome::OVER_LIMIT);
  EXPECT_NE(listener_.outcome->detail().find("limit of 10"), std::string::npos);
}

TEST_F(BoxSpawnTest, GraceIsOverWhenOnlyADaemonRemains) {
  spawner_->start(
      shell("setsid sh -c 'trap \"\" TERM; while :; do sleep 1; done' & "
            "echo up; exec sleep 600",
            {}));
  pump_until([&] { return output() == "up\n"; });
  spawner_->stop(kBoxKey, hours(1));
  pump_until([&] { return listener_.outcome.has_value(); });
  EXPECT_EQ(listener_.outcome->cause(), v1::Outcome::STOPPED);
}

TEST_F(BoxSpawnTest, GraceIsKeptForWhoGotTheSignal) {
  spawner_->start(
      shell("(trap 'sleep 0.3; echo saved; exit' TERM; echo up; while :; do sleep 0.05; done) & "
            "trap 'exit' TERM; wait",
            {}));
  pump_until([&] { return output() == "up\n"; });
  spawner_->stop(kBoxKey, hours(1));
  pump_until([&] { return listener_.outcome.has_value(); });
  EXPECT_EQ(output(), "up\nsaved\n");
}

}  // namespace
}  // namespace gpusched

#include "ops/checks.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "ops/machine.h"

namespace gpusched::ops {
namespace {

/// A machine made of files.
class Machine : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = ::testing::TempDir() + "gpusched_machine_XXXXXX";
    ASSERT_NE(::mkdtemp(folder.data()), nullptr);
    patient_ = {.unit = "gpu-agent", .runs_jobs = true, .root = folder};
  }
  void TearDown() override { std::filesystem::remove_all(patient_.root); }
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = patient_.root + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  static Finding only(const std::vector<Finding>& findings, const std::string& check) {
    for (const Finding& finding : findings) {
      if (finding.check == check) return finding;
    }
    ADD_FAILURE() << "nothing about " << check;
    return {};
  }

  Patient patient_;
};

void expect_mendable(const Finding& finding, Verdict verdict) {
  EXPECT_EQ(finding.verdict, verdict) << finding.check << ": " << finding.detail;
  EXPECT_EQ(finding.fix.empty(), verdict == Verdict::kOk) << finding.check << ": " << finding.fix;
}

TEST_F(Machine, WithAGpuAndNoDriverFails) {
  put("/sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n");
  put("/sys/bus/pci/devices/0000:01:00.0/class", "0x030200\n");
  put("/sys/bus/pci/devices/0000:01:00.1/vendor", "0x10de\n");
  put("/sys/bus/pci/devices/0000:01:00.1/class", "0x040300\n");  // Its audio function.
  const Finding finding = only(check_nvidia(patient_, "/nowhere/libnvidia-ml.so"), "driver");
  expect_mendable(finding, Verdict::kFail);
  EXPECT_EQ(finding.detail, "1 NVIDIA GPUs on the PCI bus, but no driver is loaded");
}

TEST_F(Machine, WithADriverWithoutItsLibraryFails) {
  put("/proc/driver/nvidia/version",
      "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\n");
  const Finding finding = only(check_nvidia(patient_, "/nowhere/libnvidia-ml.so"), "driver");
  expect_mendable(finding, Verdict::kFail);
  EXPECT_NE(finding.detail.find("driver 535.104.05 is loaded"), std::string::npos) << finding.detail;
}

TEST_F(Machine, WithoutGpusIsWellForCpuJobs) {
  expect_mendable(only(check_nvidia(patient_, "/nowhere/libnvidia-ml.so"), "driver"), Verdict::kOk);
}

TEST_F(Machine, WithAWritableVersion2TreeLimitsAndFences) {
  put("/proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
  put("/proc/self/cgroup", "0::/system.slice/gpu-agent.service\n");
  put("/proc/self/status", "CapEff:\t000001ffffffffff\n");
  put("/sys/fs/cgroup/system.slice/gpu-agent.service/cgroup.controllers", "cpuset cpu io memory pids\n");
  const std::vector<Finding> found = check_cgroups(patient_);
  expect_mendable(only(found, "cgroup"), Verdict::kOk);
  expect_mendable(only(found, "fence"), Verdict::kOk);
}

TEST_F(Machine, WithoutTheMemoryControllerWarns) {
  put("/proc/self/mounts", "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n");
  put("/proc/self/cgroup", "0::/a\n");
  put("/proc/self/status", "CapEff:\t0000000000000000\n");
  put("/sys/fs/cgroup/a/cgroup.controllers", "cpu pids\n");
  const std::vector<Finding> found = check_cgroups(patient_);
  expect_mendable(only(found, "cgroup"), Verdict::kWarn);
  EXPECT_NE(only(found, "cgroup").detail.find("without the controllers memory"), std::string::npos);
  expect_mendable(only(found, "fence"), Verdict::kWarn);
  EXPECT_TRUE(only(found, "fence").detail.starts_with("advisory"));
  expect_mendable(check_user_switch(patient_), Verdict::kWarn);
}

TEST_F(Machine, WithVersion1NeedsEachController) {
  put("/proc/self/mounts",
      "cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0\n"
      "cgroup /sys/fs/cgroup/cpu cgroup rw,cpu,cpuacct 0 0\n"
      "cgroup /sys/fs/cgroup/devices cgroup rw,devices 0 0\n"
      "cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n");
  put("/proc/self/cgroup", "4:memory:/\n3:cpu,cpuacct:/\n2:devices:/\n0::/\n");
  for (const char* const folder : {"memory", "cpu", "devices"})
    put(std::string("/sys/fs/cgroup/") + folder + "/tasks", "");
  const std::vector<Finding> found = check_cgroups(patient_);
  expect_mendable(only(found, "cgroup"), Verdict::kWarn);
  EXPECT_NE(only(found, "cgroup").detail.find("cannot be used here: pids"), std::string::npos)
      << only(found, "cgroup").detail;
  EXPECT_NE(only(found, "fence").detail.find("devices controller"), std::string::npos);
}

TEST_F(Machine, WithoutCgroupsWarns) {
  expect_mendable(only(check_cgroups(patient_), "cgroup"), Verdict::kWarn);
}

TEST_F(Machine, KnowsWhetherItsUnitIsEnabled) {
  expect_mendable(check_unit(patient_), Verdict::kWarn);
  EXPECT_NE(check_unit(patient_).detail.find("systemd is not running"), std::string::npos);
  std::filesystem::create_directories(patient_.root + "/run/systemd/system");
  EXPECT_NE(check_unit(patient_).detail.find("not installed"), std::string::npos);
  put("/usr/local/lib/systemd/system/gpu-agent.service", "");
  EXPECT_NE(check_unit(patient_).detail.find("not enabled"), std::string::npos);
  put("/etc/systemd/system/multi-user.target.wants/gpu-agent.service", "");
  expect_mendable(check_unit(patient_), Verdict::kOk);
}

TEST_F(Machine, TellsDisksByTheirFileSystem) {
  const std::string data = patient_.root + "/data";
  std::filesystem::create_directories(data);
  const std::string real = std::filesystem::canonical(data).string();
  put("/proc/self/mounts", "disk / ext4 rw 0 0\nmemory " + real + " tmpfs rw 0 0\n");
  expect_mendable(only(check_disk(patient_, data), "filesystem"), Verdict::kWarn);
  Patient scheduler = patient_;
  scheduler.runs_jobs = false;
  expect_mendable(only(check_disk(scheduler, data), "filesystem"), Verdict::kFail);
  put("/proc/self/mounts", "disk / ext4 rw 0 0\nserver:/x " + real + " nfs4 rw 0 0\n");
  expect_mendable(only(check_disk(patient_, data + "/not/yet/there"), "filesystem"), Verdict::kWarn);
  put("/proc/self/mounts", "disk / ext4 rw 0 0\n");
  EXPECT_EQ(only(check_disk(patient_, data), "filesystem").detail, data + " is on ext4");
}

TEST_F(Machine, SaysWhenAVolumeIsSmall) {
  EXPECT_EQ(check_volume(patient_.root, 1).verdict, Verdict::kOk);
  expect_mendable(check_volume(patient_.root, UINT64_MAX), Verdict::kWarn);
}

TEST_F(Machine, JudgesFoldersAndTokensByWhoCanReadThem) {
  const std::string folder = patient_.root + "/folder";
  EXPECT_NE(check_folder(patient_, folder, true).detail.find("first start creates it"), std::string::npos);
  std::filesystem::create_directories(folder);
  ::chmod(folder.c_str(), 0700);
  expect_mendable(check_folder(patient_, folder, true), Verdict::kOk);
  ::chmod(folder.c_str(), 0755);
  expect_mendable(check_folder(patient_, folder, true), Verdict::kWarn);
  expect_mendable(check_folder(patient_, folder, false), Verdict::kOk);
  ::chmod(folder.c_str(), 0777);
  EXPECT_EQ(check_folder(patient_, folder, true).fix, "chmod 0700 " + folder);

  const std::string token = folder + "/token";
  expect_mendable(check_token(token, "get one"), Verdict::kFail);
  std::ofstream(token) << "0123456789abcdef\n";
  ::chmod(token.c_str(), 0600);
  expect_mendable(check_token(token, "get one"), Verdict::kOk);
  ::chmod(token.c_str(), 0640);
  EXPECT_EQ(check_token(token, "get one").fix, "chmod 600 " + token);
  std::ofstream(token) << "short\n";
  ::chmod(token.c_str(), 0600);
  EXPECT_EQ(check_token(token, "get one").fix, "get one");
}

TEST_F(Machine, NamesTheFolderThatOtherUsersCannotPass) {
  std::filesystem::create_directories(patient_.root + "/srv/agent");
  const std::string data = patient_.root + "/srv/agent/data";
  for (const char* above : {"", "/srv", "/srv/agent"}) ::chmod((patient_.root + above).c_str(), 0755);
  expect_mendable(check_way_to(data), Verdict::kOk);
  ::chmod((patient_.root + "/srv").c_str(), 0700);
  const Finding closed = check_way_to(data);
  expect_mendable(closed, Verdict::kWarn);
  EXPECT_EQ(closed.fix, "chmod o+x " + shell_quoted(patient_.root + "/srv"));
  // The folder's owner and its group are judged by their own bits.
  EXPECT_FALSE(closed_folder_above(data, {.uid = ::geteuid()}).has_value());
  ::chmod((patient_.root + "/srv").c_str(), 0710);
  EXPECT_FALSE(closed_folder_above(data, {.uid = 4711, .groups = {::getegid()}}).has_value());
  EXPECT_EQ(closed_folder_above(data, {.uid = 4711, .gid = 4711}), patient_.root + "/srv");
}

TEST_F(Machine, TimesADurableWriteAndLeavesNothing) {
  EXPECT_TRUE(check_sync(patient_.root + "/nowhere").empty());
  const std::vector<Finding> found = check_sync(patient_.root);
  EXPECT_NE(only(found, "sync").detail.find("a durable write of 4 KiB takes "), std::string::npos);
  EXPECT_TRUE(names_in(patient_.root).empty());
}

TEST(Ports, AreFreeOrHeldBySomebody) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof at;
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&at), size), 0);
  ASSERT_EQ(::listen(socket, 1), 0);
  ASSERT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&at), &size), 0);
  const uint16_t port = ntohs(at.sin_port);
  const Patient patient{.unit = "gpu-scheduler"};
  const Finding held = check_port(patient, "api.http_port", port, 0);
  expect_mendable(held, Verdict::kFail);
  EXPECT_NE(held.detail.find("process " + std::to_string(::getpid())), std::string::npos) << held.detail;
  EXPECT_NE(held.detail.find("127.0.0.1"), std::string::npos) << held.detail;
  expect_mendable(check_port(patient, "api.http_port", port, ::getpid()), Verdict::kOk);
  ::close(socket);
  expect_mendable(check_port(patient, "api.http_port", port, 0), Verdict::kOk);
  expect_mendable(check_port(patient, "api.http_port", 0, 0), Verdict::kOk);
}

TEST(ClockSkew, IsJudgedBeyondWhatIsUncertain) {
  expect_mendable(check_clock_skew(milliseconds(100), milliseconds(1), "the scheduler"), Verdict::kOk);
  expect_mendable(check_clock_skew(milliseconds(-2'000), milliseconds(1), "the scheduler"), Verdict::kWarn);
  expect_mendable(check_clock_skew(seconds(60), milliseconds(1), "the scheduler"), Verdict::kFail);
  expect_mendable(check_clock_skew(seconds(2), seconds(3), "the scheduler"), Verdict::kOk);
  EXPECT_NE(
      check_clock_skew(seconds(-60), {}, "the scheduler").detail.find("60000 ms behind the scheduler's"),
      std::string::npos);
}

TEST(DiagnosisText, ShowsTheCommandBelowItsCheckAndSumsUp) {
  Diagnosis diagnosis;
  diagnosis.add({.check = "one", .detail = "fine"});
  EXPECT_EQ(diagnosis.exit_code(), 0);
  diagnosis.add({.check = "second", .verdict = Verdict::kWarn, .detail = "so-so", .fix = "do this"});
  EXPECT_EQ(diagnosis.exit_code(), 1);
  diagnosis.add({.check = "x", .verdict = Verdict::kFail, .detail = "\"bad\"", .fix = "do that"});
  EXPECT_EQ(diagnosis.exit_code(), 2);
  EXPECT_EQ(diagnosis.text(),
            "ok    one     fine\n"
            "warn  second  so-so\n"
            "              fix: do this\n"
            "fail  x       \"bad\"\n"
            "              fix: do that\n"
            "1 ok, 1 warn, 1 fail\n");
  EXPECT_TRUE(diagnosis.json("gpu-agent", "n1")
                  .starts_with("{\"program\":\"gpu-agent\",\"host\":\"n1\",\"verdict\":\"fail\",\"checks\":[{"
                               "\"check\":\"one\","));
}

TEST(ShellQuoted, LeavesPlainTextAlone) {
  EXPECT_EQ(shell_quoted("/var/lib/gpu-agent"), "/var/lib/gpu-agent");
  EXPECT_EQ(shell_quoted("it's here"), "'it'\\''s here'");
  EXPECT_EQ(shell_quoted(""), "''");
}

}  // namespace
}  // namespace gpusched::ops

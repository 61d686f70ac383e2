#include "node/gpu/gpu_daemons.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "node/testing/testing.h"

namespace gpusched {
namespace {

TEST(GpuDaemons, AreSetApartAndJobsAreNot) {
  const std::map<int64_t, ProgramFacts> machine = {
      {1, {.name = "nvidia-cuda-mps-server", .trusted = true, .mps_directory = "/run/mps"}},
      {2, {.name = "python3", .trusted = true}},
      {3, {.name = "Xorg", .trusted = false}},
      {4, {.name = "nvidia-cuda-mps", .trusted = true}}};
  DeviceReading reading{.processes = {1, 2, 3, 4, 5}, .process_memory_mb = {30, 40, 50, -1, 60}};
  reading.slices = {{.profile = "1g.10gb", .processes = {1, 2}}};
  set_daemons_apart(reading, default_gpu_daemons(), [&](int64_t pid) -> std::optional<ProgramFacts> {
    const auto found = machine.find(pid);
    if (found == machine.end()) return std::nullopt;
    return found->second;
  });
  EXPECT_EQ(reading.processes, (std::vector<int64_t>{2, 3, 5}));
  EXPECT_EQ(reading.process_memory_mb, (std::vector<int64_t>{40, 50, 60}));
  ASSERT_EQ(reading.daemons.size(), 2u);
  EXPECT_EQ(reading.daemons[0].memory_mb, 30);
  EXPECT_EQ(reading.daemons[1].pid, 4);
  EXPECT_EQ(reading.slices[0].processes, std::vector<int64_t>{2});
  ASSERT_NE(find_mps(reading), nullptr);
  EXPECT_EQ(find_mps(reading)->mps_directory, "/run/mps");
}

TEST(GpuDaemons, OnlyAnExecutableThatRootAloneCanPutThereIsTrusted) {
  const std::optional<ProgramFacts> self = program_of_process(getpid());
  ASSERT_TRUE(self.has_value());
  EXPECT_EQ(self->name, std::filesystem::read_symlink("/proc/self/exe").filename().string());
  EXPECT_FALSE(program_of_process(int64_t{1} << 40).has_value());

  const TemporaryFolder proc;
  const std::string folder = proc.path() + "/17";
  std::filesystem::create_directory(folder);
  const std::string program = proc.path() + "/Xorg";
  std::ofstream(program) << "text";
  std::filesystem::create_symlink(program, folder + "/exe");
  chmod(program.c_str(), 0755);
  const std::optional<ProgramFacts> clean = program_of_process(17, proc.path());
  ASSERT_TRUE(clean.has_value());
  EXPECT_EQ(clean->name, "Xorg");
  EXPECT_EQ(clean->trusted, geteuid() == 0);
  std::ofstream(folder + "/environ") << "PATH=/bin" << '\0' << "CUDA_MPS_PIPE_DIRECTORY=/run/mps" << '\0'
                                     << "A=b";
  EXPECT_EQ(program_of_process(17, proc.path())->mps_directory, "/run/mps");
  chmod(program.c_str(), 0775);
  EXPECT_FALSE(program_of_process(17, proc.path())->trusted);
  if (geteuid() != 0) return;
  chmod(program.c_str(), 0755);
  ASSERT_EQ(chown(program.c_str(), 1000, 1000), 0);
  EXPECT_FALSE(program_of_process(17, proc.path())->trusted);
}

}  // namespace
}  // namespace gpusched

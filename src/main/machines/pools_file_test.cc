#include "main/machines/pools_file.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

std::string problem(const std::string& text) {
  const Result<PoolsFile> file = parse_pools_file("p.yaml", text);
  return file.ok() ? "" : file.error().message;
}

TEST(PoolsFile, IsReadAsItIsWritten) {
  const Result<PoolsFile> file = parse_pools_file("p.yaml", R"(
every_ms: 500
pools:
  - name: burst
    driver: command
    command: [/usr/local/bin/machines, --region, a]
    timeout_seconds: 60
    settings: {image: gpu-node-7}
    machine: {gpus: 8, gpu_model: H100-SXM5-80GB, gpu_memory_mb: 81559, cpu_cores: 96, memory_mb: 1000000,
              features: [container], labels: {zone: a}}
    minimum: 1
    maximum: 4
    price_per_hour: 27.5
    budget_per_hour: 60
    idle_seconds: 300
  - name: trial-2
    driver: local
    delay_ms: 250
    folder: /var/lib/gpu-machines
    machine: {cpu_cores: 2, memory_mb: 4096}
    maximum: 2
  - name: cloud
    driver: slurm
    resume: [/opt/cloud/resume, --quiet]
    suspend: [/opt/cloud/suspend]
    resume_fail: [/opt/cloud/failed]
    suspend_seconds: 90
    region: south
    timeout_seconds: 45
    machine: {cpu_cores: 2, memory_mb: 4096}
    maximum: 2
)");
  ASSERT_TRUE(file.ok()) << file.error().message;
  ASSERT_EQ(file->pools.size(), 3U);
  EXPECT_EQ(file->every, milliseconds(500));
  const PoolEntry& burst = file->pools[0];
  EXPECT_EQ(burst.pool.name, "burst");
  EXPECT_EQ(burst.command.size(), 3U);
  EXPECT_EQ(burst.timeout, seconds(60));
  EXPECT_EQ(burst.settings.at("image"), "gpu-node-7");
  EXPECT_EQ(burst.pool.shape.gpus, 8);
  EXPECT_EQ(burst.pool.shape.cpu_milli, 96'000);
  EXPECT_EQ(burst.pool.shape.labels.front().value, "a");
  EXPECT_EQ(burst.pool.price_milli, 27'500);
  EXPECT_EQ(burst.pool.budget_milli, 60'000);
  EXPECT_EQ(burst.pool.idle_after, minutes(5));
  EXPECT_EQ(burst.pool.minimum, 1);
  EXPECT_EQ(file->pools[1].delay, milliseconds(250));
  EXPECT_EQ(file->pools[1].pool.maximum, 2);
  EXPECT_EQ(file->pools[1].folder, "/var/lib/gpu-machines");
  const PoolEntry& cloud = file->pools[2];
  EXPECT_EQ(cloud.resume, (std::vector<std::string>{"/opt/cloud/resume", "--quiet"}));
  EXPECT_EQ(cloud.suspend, std::vector<std::string>{"/opt/cloud/suspend"});
  EXPECT_EQ(cloud.resume_fail, std::vector<std::string>{"/opt/cloud/failed"});
  EXPECT_EQ(cloud.suspend_time, seconds(90));
  ASSERT_EQ(cloud.pool.shape.labels.size(), 1U);
  EXPECT_EQ(cloud.pool.shape.labels.front().name + "=" + cloud.pool.shape.labels.front().value,
            "region=south");
  EXPECT_EQ(cloud.timeout, seconds(45));
}

TEST(PoolsFile, SaysAllThatIsWrongWithLines) {
  EXPECT_EQ(problem("{}"), "p.yaml: it needs `pools:`, a list of 1 to 64 pools");
  EXPECT_NE(problem("[]").find("the file is no map"), std::string::npos);
  const std::string all = problem(R"(pools:
  - name: Burst
    driver: cloud
    machine: {gpus: 4, cpu_cores: 0, memory_mb: 10, labels: {pool: x}}
    minimum: 3
    maximum: 2
    budget_per_hour: 5
    colour: red
)");
  for (const char* const sentence :
       {"p.yaml:2: a pool's name is up to 40", "p.yaml:3: `driver:` is neither command, slurm nor local",
        "p.yaml:4: it needs a `gpu_model:`", "p.yaml:4: it needs a `gpu_memory_mb:`",
        "p.yaml:4: `cpu_cores:` is no whole number from 1", "p.yaml:4: the label `pool` is the pool's name",
        "p.yaml:2: `minimum:` is above `maximum:`", "p.yaml:2: `budget_per_hour:` limits nothing without",
        "p.yaml:8: a pool has no key colour"})
    EXPECT_NE(all.find(sentence), std::string::npos) << sentence << "\n" << all;
  const std::string pool =
      "  - {name: a, driver: local, maximum: 1, machine: {cpu_cores: 1, memory_mb: 1}}\n";
  EXPECT_EQ(problem("pools:\n" + pool), "");
  EXPECT_NE(problem("pools:\n" + pool + pool).find("another pool a"), std::string::npos);
  EXPECT_NE(
      problem("pools:\n  - {name: a, driver: command, maximum: 1, machine: {cpu_cores: 1, memory_mb: 1}}")
          .find("it needs a `command:`"),
      std::string::npos);
  EXPECT_NE(problem("pools:\n  - {name: a, driver: local, maximum: 1, region: x, "
                    "machine: {cpu_cores: 1, memory_mb: 1, labels: {region: y}}}")
                .find("which `machine:` has, too: keep one"),
            std::string::npos);
  const std::string slurm = problem(
      "pools:\n  - {name: a, driver: slurm, maximum: 1, delay_ms: 5, resume: [resume], "
      "machine: {cpu_cores: 1, memory_mb: 1}}");
  for (const char* const sentence :
       {"it needs a `resume:`", "it needs a `suspend:`", "`delay_ms:` is for the driver local"})
    EXPECT_NE(slurm.find(sentence), std::string::npos) << sentence << "\n" << slurm;
}

}  // namespace
}  // namespace gpusched

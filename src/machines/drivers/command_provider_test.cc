#include "machines/drivers/command_provider.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "client/json.h"

namespace gpusched::machines {
namespace {

const provision::Pool kCommandPool{.name = "burst",
                                   .shape = {.cpu_milli = 16'000,
                                             .memory_mb = 65'536,
                                             .gpus = 4,
                                             .gpu_model = "A100-SXM4-80GB",
                                             .gpu_memory_mb = 81'920,
                                             .labels = {{.name = "zone", .value = "a"}}},
                                   .maximum = 3};

/// An operator's program for one test.
class CommandProviderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string shape = (std::filesystem::temp_directory_path() / "provider-XXXXXX").string();
    ASSERT_NE(::mkdtemp(shape.data()), nullptr);
    folder_ = shape;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  ProviderAnswer create(const std::string& script, Duration timeout = seconds(30)) {
    return provider(script, timeout).create(kCommandPool, "burst-1");
  }
  CommandProvider provider(const std::string& script, Duration timeout = seconds(30)) {
    return CommandProvider({.command = {"/bin/sh", "-c", "cd " + folder_ + "\n" + script},
                            .timeout = timeout,
                            .owner = "cluster-a",
                            .settings = {{"image", "gpu-node-7"}}});
  }
  std::string file(const std::string& name) const {
    std::ifstream in(folder_ + "/" + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string folder_;
};

TEST_F(CommandProviderTest, PassesTheRequestAsOneJsonObject) {
  ::setenv("GPU_SCHEDULER_DATABASE_PASSWORD", "hidden", 1);
  const ProviderAnswer answer =
      create("cat >request; env >environment; echo '{\"state\":\"starting\",\"message\":\"zone a\"}'");
  ::unsetenv("GPU_SCHEDULER_DATABASE_PASSWORD");
  EXPECT_FALSE(answer.fault.has_value()) << answer.message;
  EXPECT_EQ(answer.state, ProviderState::kStarting);
  EXPECT_EQ(answer.message, "zone a");
  const Result<Json> request = Json::parse(file("request"));
  ASSERT_TRUE(request.ok());
  EXPECT_EQ((*request)["version"].integer(), 1);
  EXPECT_EQ((*request)["operation"].text(), "create");
  EXPECT_EQ((*request)["name"].text(), "burst-1");
  EXPECT_EQ((*request)["pool"].text(), "burst");
  EXPECT_EQ((*request)["owner"].text(), "cluster-a");
  EXPECT_EQ((*request)["labels"]["pool"].text(), "burst");
  EXPECT_EQ((*request)["labels"]["zone"].text(), "a");
  EXPECT_EQ((*request)["shape"]["gpu_count"].integer(), 4);
  EXPECT_EQ((*request)["settings"]["image"].text(), "gpu-node-7");
  EXPECT_EQ(file("environment").find("hidden"), std::string::npos);
}

TEST_F(CommandProviderTest, HostileProgramsLeaveNothingKnownAndSayWhy) {
  struct Row {
    const char* script;
    const char* why;
  };
  const Row rows[] = {
      {"exit 3", "exit status 3"},
      {"echo 'no route to host' >&2; exit 1", "no route to host"},
      {"echo '{\"state\":\"running\"}'; exit 1", "exit status 1"},
      {"echo 'Machine started!'", "not one JSON object"},
      {"printf '{\"state\":\"run'", "not one JSON object"},
      {"echo '{\"state\":\"running\"}{\"state\":\"running\"}'", "not one JSON object"},
      {"echo '[]'", "not one JSON object"},
      {"echo '{\"state\":\"booting\"}'", "no `state`"},
      {"echo '{\"state\":7}'", "no `state`"},
      {"echo '{}'", "no `state`"},
      {"echo '{\"name\":\"burst-2\",\"state\":\"running\"}'", "answered about burst-2"},
      {"echo '{\"error\":{\"code\":1}}'", "error"},
      {"head -c 3000000 /dev/zero", "not one JSON object"},
      {"kill -9 $$", "was killed"},
  };
  for (const Row& row : rows) {
    const ProviderAnswer answer = create(row.script);
    ASSERT_TRUE(answer.fault.has_value()) << row.script;
    EXPECT_EQ(*answer.fault, Fault::kUnavailable) << row.script;
    EXPECT_NE(answer.message.find(row.why), std::string::npos) << row.script << ": " << answer.message;
    EXPECT_LE(answer.message.size(), 600u) << row.script;
    EXPECT_EQ(answer.message.find('\n'), std::string::npos) << row.script;
  }
}

TEST_F(CommandProviderTest, AProgramThatHangsIsEnded) {
  const auto began = std::chrono::steady_clock::now();
  const ProviderAnswer answer = create("sleep 1000 & wait", milliseconds(200));
  EXPECT_EQ(answer.fault, Fault::kUnavailable);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

TEST_F(CommandProviderTest, RefusalsAreToldApart) {
  EXPECT_EQ(create("echo '{\"error\":\"quota\",\"message\":\"8 of 8 used\"}'").fault, Fault::kQuota);
  EXPECT_EQ(create("echo '{\"error\":\"quota\",\"message\":\"8 of 8 used\"}'").message, "8 of 8 used");
  EXPECT_EQ(create("echo '{\"error\":\"invalid\"}'").fault, Fault::kInvalid);
  EXPECT_EQ(create("echo '{\"error\":\"who knows\"}'").fault, Fault::kUnavailable);
}

TEST_F(CommandProviderTest, ListsNames) {
  EXPECT_EQ(provider("echo '{\"machines\":[\"burst-1\",\"burst-9\"]}'").list(kCommandPool).machines,
            (std::vector<std::string>{"burst-1", "burst-9"}));
  for (const char* const script : {"echo '{}'", "echo '{\"machines\":[7]}'", "echo '{\"machines\":[\"\"]}'",
                                   "echo '{\"machines\":[\"a\\nb\"]}'", "echo '{\"machines\":\"burst-1\"}'"})
    EXPECT_EQ(provider(script).list(kCommandPool).fault, Fault::kUnavailable) << script;
}

}  // namespace
}  // namespace gpusched::machines

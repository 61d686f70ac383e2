#include "machines/drivers/local_provider.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace gpusched::machines {
namespace {

const provision::Pool kLocalPool{.name = "burst",
                                 .shape = {.gpus = 2, .gpu_model = "A100-SXM4-80GB", .gpu_memory_mb = 81'920},
                                 .maximum = 3};

/// In the place of an agent a program that writes its arguments down and goes on until it is told to end.
class LocalProviderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string shape = (std::filesystem::temp_directory_path() / "machines-XXXXXX").string();
    ASSERT_NE(::mkdtemp(shape.data()), nullptr);
    folder_ = shape;
  }
  void TearDown() override {
    LocalProvider provider = make("exit 1", milliseconds(0));
    for (const std::string& name : provider.list(kLocalPool).machines) settle(provider, name);
    std::filesystem::remove_all(folder_);
  }
  LocalProvider make(const std::string& script, Duration patience = seconds(10)) {
    return LocalProvider(
        {.folder = folder_,
         .agent = [script] { return std::vector<std::string>{"/bin/sh", "-c", script, "agent"}; },
         .patience = patience});
  }
  static bool wait_for(const std::function<bool()>& holds) {
    for (int i = 0; i < 1'000 && !holds(); ++i) ::poll(nullptr, 0, 10);
    return holds();
  }
  /// Destroys until it is gone.
  static bool settle(LocalProvider& provider, const std::string& name) {
    return wait_for([&] { return provider.destroy(kLocalPool, name).state == ProviderState::kAbsent; });
  }
  int starts(const std::string& name) const {
    std::ifstream in(folder_ + "/" + name + "/starts");
    int count = 0;
    for (std::string line; std::getline(in, line);) ++count;
    return count;
  }
  static constexpr const char* kRuns = "echo \"$@\" >>starts; exec sleep 1000";
  std::string folder_;
};

TEST_F(LocalProviderTest, ARepeatedCreateIsTheSameMachine) {
  LocalProvider provider = make(kRuns);
  EXPECT_EQ(provider.describe(kLocalPool, "burst-1").state, ProviderState::kAbsent);
  EXPECT_EQ(provider.create(kLocalPool, "burst-1").state, ProviderState::kStarting);
  ASSERT_TRUE(wait_for([&] { return starts("burst-1") == 1; }));
  // Another scheduler's process, after a crash, knows nothing of the first.
  LocalProvider next = make(kRuns);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(next.create(kLocalPool, "burst-1").state, ProviderState::kRunning);
  EXPECT_EQ(next.list(kLocalPool).machines, std::vector<std::string>{"burst-1"});
  EXPECT_EQ(starts("burst-1"), 1);
  EXPECT_TRUE(settle(next, "burst-1"));
  EXPECT_EQ(next.describe(kLocalPool, "burst-1").state, ProviderState::kAbsent);
  EXPECT_TRUE(next.list(kLocalPool).machines.empty());
}

TEST_F(LocalProviderTest, ManyCreatesAtOnceStartOne) {
  std::vector<std::thread> threads;
  LocalProvider provider = make(kRuns);
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { provider.create(kLocalPool, "burst-1"); });
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(wait_for([&] { return starts("burst-1") > 0; }));
  ::poll(nullptr, 0, 200);
  EXPECT_EQ(starts("burst-1"), 1);
}

TEST_F(LocalProviderTest, TheAgentGetsThePoolsShape) {
  LocalProvider provider = make(kRuns);
  provider.create(kLocalPool, "burst-1");
  ASSERT_TRUE(wait_for([&] { return starts("burst-1") == 1; }));
  std::ifstream in(folder_ + "/burst-1/starts");
  std::string words;
  std::getline(in, words);
  EXPECT_NE(words.find("--node burst-1 "), std::string::npos) << words;
  EXPECT_NE(words.find("--sim-gpus 2xA100-SXM4-80GB "), std::string::npos) << words;
  EXPECT_NE(words.find("--label pool=burst"), std::string::npos) << words;
}

TEST_F(LocalProviderTest, AnEndedProcessIsAFailedMachineThatIsNotStartedAgain) {
  LocalProvider provider = make("echo >>starts; exit 1");
  provider.create(kLocalPool, "burst-1");
  ASSERT_TRUE(
      wait_for([&] { return provider.describe(kLocalPool, "burst-1").state == ProviderState::kFailed; }));
  EXPECT_EQ(provider.create(kLocalPool, "burst-1").state, ProviderState::kFailed);
  EXPECT_EQ(starts("burst-1"), 1);
  EXPECT_EQ(provider.destroy(kLocalPool, "burst-1").state, ProviderState::kAbsent);
}

TEST_F(LocalProviderTest, WhatDoesNotEndWhenItIsToldIsKilled) {
  LocalProvider provider =
      make("trap '' TERM; echo >>starts; while :; do sleep 0.05; done", milliseconds(300));
  provider.create(kLocalPool, "burst-1");
  ASSERT_TRUE(wait_for([&] { return starts("burst-1") == 1; }));
  EXPECT_EQ(provider.destroy(kLocalPool, "burst-1").state, ProviderState::kEnding);
  EXPECT_EQ(provider.describe(kLocalPool, "burst-1").state, ProviderState::kEnding);
  EXPECT_TRUE(settle(provider, "burst-1"));
}

TEST_F(LocalProviderTest, TheFileFailMakesCreateFail) {
  LocalProvider provider = make(kRuns);
  for (const auto& [word, fault] :
       {std::pair{"quota", Fault::kQuota}, {"invalid", Fault::kInvalid}, {"down", Fault::kUnavailable}}) {
    std::ofstream(folder_ + "/fail") << word << "\n";
    EXPECT_EQ(provider.create(kLocalPool, "burst-1").fault, fault);
  }
  std::filesystem::remove(folder_ + "/fail");
  EXPECT_EQ(provider.describe(kLocalPool, "burst-1").state, ProviderState::kAbsent);
}

}  // namespace
}  // namespace gpusched::machines

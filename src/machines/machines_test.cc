#include "machines/machines.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/testing/test_engine.h"

namespace gpusched::machines {
namespace {

using testing::TestEngine;

/// A provider in memory, which does as its test wants. What it was asked is kept.
class FakeProvider final : public Provider {
 public:
  explicit FakeProvider(std::string record) : record_(std::move(record)) {}

  ProviderAnswer create(const provision::Pool&, const std::string& name) override {
    // The record has every machine that a provider may have.
    const Result<Records> records = load_records(record_);
    EXPECT_TRUE(records.ok() && records->machines.contains(name));
    const std::lock_guard lock(mutex_);
    ++creates[name];
    if (refuses) return {.fault = *refuses, .message = "so the test wants it"};
    if (!machines.contains(name)) ++started;
    machines.emplace(name, ProviderState::kStarting);
    if (half_creates) return {.fault = Fault::kUnavailable, .message = "the answer was lost"};
    return {.state = machines[name]};
  }
  ProviderAnswer describe(const provision::Pool&, const std::string& name) override {
    while (hangs && !stopping_) ::poll(nullptr, 0, 2);
    const std::lock_guard lock(mutex_);
    ++describes;
    if (fails) return {.fault = Fault::kUnavailable, .message = "it is down"};
    if (denies || !machines.contains(name)) return {.state = ProviderState::kAbsent};
    return {.state = machines[name]};
  }
  ProviderAnswer destroy(const provision::Pool&, const std::string& name) override {
    const Result<Records> records = load_records(record_);
    EXPECT_TRUE(records.ok() && records->machines.contains(name) && records->machines.at(name).ending);
    const std::lock_guard lock(mutex_);
    ++destroys[name];
    if (!denies) machines.erase(name);
    return {.state = ProviderState::kEnding};
  }
  ProviderAnswer list(const provision::Pool&) override {
    const std::lock_guard lock(mutex_);
    ProviderAnswer answer;
    if (fails) return {.fault = Fault::kUnavailable, .message = "it is down"};
    for (const auto& [name, state] : machines) answer.machines.push_back(name);
    return answer;
  }
  template <typename Look>
  auto with(Look look) {
    const std::lock_guard lock(mutex_);
    return look(*this);
  }

  std::optional<Fault> refuses;
  bool half_creates = false;
  bool denies = false;  ///< Says of machines that are there that they are absent.
  bool fails = false;
  std::atomic<bool> hangs = false;
  std::map<std::string, ProviderState> machines;
  std::map<std::string, int> creates, destroys;
  int describes = 0;
  int started = 0;

 private:
  std::mutex mutex_;
  const std::string record_;
};

provision::Pool pool_of(const std::string& name, int64_t price_milli = 3'600) {
  return {.name = name,
          .shape = {.cpu_milli = 64'000,
                    .memory_mb = 512'000,
                    .gpus = 4,
                    .gpu_model = "NVIDIA A100-SXM4-80GB",
                    .gpu_memory_mb = 81'920},
          .maximum = 3,
          .price_milli = price_milli,
          .idle_after = milliseconds(30)};
}

class MachinesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string shape = (std::filesystem::temp_directory_path() / "record-XXXXXX").string();
    ASSERT_NE(::mkdtemp(shape.data()), nullptr);
    folder_ = shape;
    provider_ = std::make_shared<FakeProvider>(record());
    pool_ = pool_of("burst");
    EngineConfig config;
    config.feature_level = kFeatureLevel;
    engine_.apply(Configure{.config = config});
  }
  void TearDown() override {
    kill();
    std::filesystem::remove_all(folder_);
  }
  std::string record() const { return folder_ + "/machines.json"; }
  MachinesOptions options() {
    MachinesOptions options{.record_file = record(),
                            .every = milliseconds(5),
                            .pause = milliseconds(5),
                            .pause_most = milliseconds(20),
                            .pool_pause = milliseconds(60),
                            .pool_pause_most = milliseconds(120),
                            .echo_most = milliseconds(50)};
    options.pools = {{.pool = pool_,
                      .driver = "fake",
                      .provider = provider_,
                      .poll = milliseconds(5),
                      .sweep = milliseconds(20),
                      .calls_per_minute = 1'000'000}};
    if (other_ != nullptr) {
      options.pools.push_back(options.pools.front());
      options.pools.back().pool = pool_of("dear", 9'000);
      options.pools.back().provider = other_;
    }
    return options;
  }
  void start() {
    Result<std::unique_ptr<Machines>> opened = Machines::open(options());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    machines_ = std::move(*opened);
    machines_->start({.read =
                          [this](uint64_t, const auto& look) {
                            const std::lock_guard lock(mutex_);
                            engine_.cycle();
                            std::vector<WaitReason> reasons;
                            for (uint32_t i = 0; i < engine_.state().classes.size(); ++i)
                              reasons.push_back(engine_.planner().reason(i));
                            look(engine_.state(), reasons);
                          },
                      .propose =
                          [this](const Command& command, const auto& done) {
                            std::unique_lock lock(mutex_);
                            if (before_propose_) before_propose_(command);
                            const bool accepted = !engine_.apply(command).rejection.has_value();
                            lock.unlock();
                            done(accepted, 1);
                          }});
  }
  /// As far as one process can: its threads end, and what it knew is lost.
  void kill() {
    if (machines_ != nullptr) machines_->stop();
    machines_.reset();
  }
  static bool wait_for(const std::function<bool()>& holds) {
    for (int i = 0; i < 2'000 && !holds(); ++i) ::poll(nullptr, 0, 5);
    return holds();
  }
  static void rest() { ::poll(nullptr, 0, 150); }
  template <typename Change>
  auto with_engine(Change change) {
    const std::lock_guard lock(mutex_);
    return change(engine_);
  }
  bool has(const std::string& name) {
    return provider_->with([&](FakeProvider& provider) { return provider.machines.contains(name); });
  }
  void boot(const std::string& name) {
    with_engine([&](TestEngine& engine) {
      node_ = engine.add_node(name, {.gpus = 4, .labels = {{.name = "pool", .value = "burst"}}});
      engine.cycle();
    });
  }
  std::string state_of(const std::string& name) const {
    for (const MachineView& machine : machines_->view().machines) {
      if (machine.name == name) return machine.state;
    }
    return "none";
  }
  PoolView pool() const { return machines_->view().pools.front(); }

  std::string folder_;
  provision::Pool pool_;
  std::shared_ptr<FakeProvider> provider_, other_;
  std::mutex mutex_;
  TestEngine engine_;
  NodeId node_;
  std::function<void(const Command&)> before_propose_;
  std::unique_ptr<Machines> machines_;
};

TEST_F(MachinesTest, AJobBringsAMachineWhichGoesWhenItIsIdle) {
  start();
  rest();
  EXPECT_EQ(provider_->with([](FakeProvider& provider) { return provider.creates.size(); }), 0u);
  const JobId job = with_engine([](TestEngine& engine) { return engine.submit_gpus(4); });
  ASSERT_TRUE(wait_for([&] { return has("burst-1"); }));
  ASSERT_TRUE(wait_for([&] { return state_of("burst-1") == "provisioning"; }));
  const uint32_t job_class = with_engine([&](TestEngine& engine) { return engine.job(job).job_class; });
  ASSERT_TRUE(wait_for([&] { return machines_->outlook_of(job_class).has_value(); }));
  EXPECT_EQ(machines_->outlook_of(job_class)->outlook, provision::Outlook::kStarting);
  EXPECT_EQ(machines_->outlook_of(job_class)->pool, "burst");
  boot("burst-1");
  with_engine([&](TestEngine& engine) { engine.started(job); });
  ASSERT_TRUE(wait_for([&] { return state_of("burst-1") == "busy"; }));
  rest();
  EXPECT_EQ(state_of("burst-1"), "busy");  // However long it is not idle.
  with_engine([&](TestEngine& engine) { engine.finish(job); });
  ASSERT_TRUE(wait_for([&] { return !has("burst-1"); }));
  with_engine([&](TestEngine& engine) { engine.apply(NodeLeaseLost{.node = node_}); });
  ASSERT_TRUE(wait_for([&] { return machines_->view().machines.empty(); }));
  EXPECT_EQ(with_engine([](TestEngine& engine) { return engine.state().node_count(); }), 0);
  EXPECT_EQ(pool().made, 1);
  EXPECT_EQ(pool().gone, 1);
  EXPECT_GT(pool().cost_micro, 0);
  EXPECT_EQ(provider_->with([](FakeProvider& provider) { return provider.started; }), 1);
}

TEST_F(MachinesTest, KilledAtAnyMomentItLeaksNoneAndStartsNoneTwice) {
  const JobId job = with_engine([](TestEngine& engine) { return engine.submit_gpus(4); });
  for (int i = 0; i < 40 && !has("burst-1"); ++i) {
    start();
    ::usleep(500 * (i % 8));
    kill();
  }
  start();
  ASSERT_TRUE(wait_for([&] { return has("burst-1"); }));
  boot("burst-1");
  with_engine([&](TestEngine& engine) { engine.started(job); });
  for (int i = 0; i < 20; ++i) {
    kill();
    start();
    ::usleep(500 * (i % 8));
  }
  EXPECT_TRUE(has("burst-1"));
  with_engine([&](TestEngine& engine) { engine.finish(job); });
  for (int i = 0; i < 400 && has("burst-1"); ++i) {
    kill();
    start();
    ::usleep(40'000 + 1'000 * (i % 40));
  }
  with_engine([&](TestEngine& engine) { engine.apply(NodeLeaseLost{.node = node_}); });
  ASSERT_TRUE(wait_for([&] { return machines_->view().machines.empty(); }));
  EXPECT_EQ(provider_->with([](FakeProvider& provider) { return provider.started; }), 1);
  EXPECT_TRUE(provider_->with([](FakeProvider& provider) { return provider.machines.empty(); }));
  EXPECT_EQ(pool().made, 1);
}

TEST_F(MachinesTest, AnAnswerThatIsLostIsNoSecondMachine) {
  provider_->half_creates = true;
  with_engine([](TestEngine& engine) { engine.submit_gpus(4); });
  start();
  ASSERT_TRUE(wait_for([&] { return has("burst-1"); }));
  rest();
  EXPECT_EQ(provider_->with([](FakeProvider& provider) { return provider.creates["burst-1"]; }), 1);
  EXPECT_EQ(provider_->with([](FakeProvider& provider) { return provider.started; }), 1);
}

TEST_F(MachinesTest, AQuotaClosesThePoolForAWhileAndAnotherOneHelps) {
  other_ = std::make_shared<FakeProvider>(record());
  provider_->refuses = Fault::kQuota;
  with_engine([](TestEngine& engine) { engine.submit_gpus(4); });
  start();
  ASSERT_TRUE(wait_for(
      [&] { return other_->with([](FakeProvider& other) { return other.machines.contains("dear-1"); }); }));
  // A refused machine may exist in part: it is ended all the same, and then forgotten.
  EXPECT_TRUE(wait_for([&] {
    return provider_->with([](FakeProvider& provider) { return provider.destroys["burst-1"] > 0; });
  }));
  EXPECT_TRUE(wait_for([&] { return state_of("burst-1") == "none"; }));
  EXPECT_NE(pool().trouble.find("so the test wants it"), std::string::npos);
}

TEST_F(MachinesTest, AProviderThatIsDownIsCalledLessAndLess) {
  provider_->fails = true;
  with_engine([](TestEngine& engine) { engine.submit_gpus(4); });
  start();
  ASSERT_TRUE(wait_for([&] { return !pool().open; }));
  EXPECT_NE(pool().trouble.find("it is down"), std::string::npos);
  const int before = provider_->with([](FakeProvider& provider) { return provider.describes; });
  ::poll(nullptr, 0, 300);
  // One call each 60 ms or more in place of one each 20 ms or less.
  EXPECT_LE(provider_->with([](FakeProvider& provider) { return provider.describes; }) - before, 6);
  provider_->with([](FakeProvider& provider) { return provider.fails = false; });
  EXPECT_TRUE(wait_for([&] { return has("burst-1") && pool().open; }));
}

TEST_F(MachinesTest, AProviderThatHangsHoldsUpNeitherTheOthersNorTheEnd) {
  other_ = std::make_shared<FakeProvider>(record());
  provider_->hangs = true;
  pool_.maximum = 1;
  with_engine([](TestEngine& engine) {
    engine.submit_gpus(4);
    engine.submit_gpus(4);
  });
  start();
  EXPECT_TRUE(wait_for(
      [&] { return other_->with([](FakeProvider& other) { return other.machines.contains("dear-1"); }); }));
  kill();
}

TEST_F(MachinesTest, WhatNobodyHereKnowsIsReportedAndLeftAlone) {
  provider_->machines["burst-7"] = ProviderState::kRunning;
  start();
  ASSERT_TRUE(wait_for([&] { return pool().orphans == std::vector<std::string>{"burst-7"}; }));
  rest();
  EXPECT_TRUE(has("burst-7"));
  EXPECT_EQ(provider_->with([](FakeProvider& provider) { return provider.destroys.size(); }), 0u);
}

TEST_F(MachinesTest, ANameThatSomebodyHasIsNotGivenAgain) {
  // As after a restore: the record is old, and a machine of later on is there.
  provider_->machines["burst-1"] = ProviderState::kRunning;
  with_engine([](TestEngine& engine) { engine.add_node("burst-2", {.gpus = 1}); });
  start();
  ASSERT_TRUE(wait_for([&] { return !pool().orphans.empty(); }));
  with_engine([](TestEngine& engine) { engine.submit_gpus(4); });
  ASSERT_TRUE(wait_for([&] { return has("burst-3"); }));
  EXPECT_EQ(provider_->with([](FakeProvider& provider) { return provider.creates.size(); }), 1u);
}

TEST_F(MachinesTest, AJobThatCameBeforeTheLastLookKeepsItsMachine) {
  pool_.minimum = 1;
  start();
  ASSERT_TRUE(wait_for([&] { return has("burst-1"); }));
  boot("burst-1");
  ASSERT_TRUE(wait_for([&] { return state_of("burst-1") == "ready"; }));
  kill();
  pool_.minimum = 0;
  int drains = 0;
  JobId job;
  before_propose_ = [&](const Command& command) {
    const auto* change = std::get_if<SetNodeAvailability>(&command);
    if (change == nullptr || change->to != Availability::kDraining || ++drains != 2) return;
    // Between the decision and the last drain somebody resumes the node, and a job starts there.
    EXPECT_TRUE(machines_->is_returning("burst-1"));
    engine_.apply(SetNodeAvailability{.node = node_, .to = Availability::kInService, .by = "operator"});
    job = engine_.run({.gpus = 4});
  };
  start();
  ASSERT_TRUE(wait_for([&] { return with_engine([&](TestEngine&) { return job.valid(); }); }));
  rest();
  EXPECT_TRUE(has("burst-1"));
  EXPECT_FALSE(machines_->is_returning("burst-1"));
  with_engine([&](TestEngine& engine) { engine.finish(job); });
  EXPECT_TRUE(wait_for([&] { return !has("burst-1"); }));
}

TEST_F(MachinesTest, AMachineIsNotGoneWhileItsNodeReports) {
  with_engine([](TestEngine& engine) { engine.submit_gpus(4); });
  start();
  ASSERT_TRUE(wait_for([&] { return has("burst-1"); }));
  boot("burst-1");
  with_engine([&](TestEngine& engine) {
    const JobId job = engine.state().nodes[0].attempts.front().job;
    engine.started(job);
    engine.finish(job);
  });
  provider_->with([](FakeProvider& provider) { return provider.denies = true; });
  ASSERT_TRUE(wait_for([&] {
    return provider_->with([](FakeProvider& provider) { return provider.destroys["burst-1"] >= 2; });
  }));
  EXPECT_EQ(state_of("burst-1"), "deprovisioning");
  provider_->with([](FakeProvider& provider) { return provider.denies = false; });
  ASSERT_TRUE(wait_for([&] { return !has("burst-1"); }));
  with_engine([&](TestEngine& engine) { engine.apply(NodeLeaseLost{.node = node_}); });
  EXPECT_TRUE(wait_for([&] { return machines_->view().machines.empty(); }));
}

TEST_F(MachinesTest, AMachineWhoseNodeDoesNotComeIsReturned) {
  pool_.boot_limit = milliseconds(60);
  pool_.maximum = 1;
  with_engine([](TestEngine& engine) { engine.submit_gpus(4); });
  start();
  ASSERT_TRUE(wait_for([&] { return has("burst-1"); }));
  EXPECT_TRUE(wait_for([&] { return !has("burst-1"); }));
  EXPECT_TRUE(wait_for([&] { return has("burst-2"); }));  // After a pause another one is tried.
}

TEST_F(MachinesTest, AVanishedMachineIsNotForgottenWhileItsNodeHasWork) {
  const JobId job = with_engine([](TestEngine& engine) { return engine.submit_gpus(4); });
  start();
  ASSERT_TRUE(wait_for([&] { return has("burst-1"); }));
  boot("burst-1");
  with_engine([&](TestEngine& engine) { engine.started(job); });
  ASSERT_TRUE(wait_for([&] { return state_of("burst-1") == "busy"; }));
  provider_->with([](FakeProvider& provider) { return provider.machines.erase("burst-1"); });
  with_engine([&](TestEngine& engine) { engine.apply(NodeLeaseLost{.node = node_}); });
  ASSERT_TRUE(wait_for([&] { return state_of("burst-1") == "unreachable"; }));
  rest();
  EXPECT_EQ(state_of("burst-1"), "unreachable");
  const std::string boot = with_engine([&](TestEngine& engine) { return engine.node(node_).boot_id; });
  with_engine([&](TestEngine& engine) { engine.apply(ConfirmNodeDead{.node = node_, .boot_id = boot}); });
  // The job is another machine's now, and this one is forgotten.
  EXPECT_TRUE(wait_for([&] { return state_of("burst-1") == "none"; }));
}

TEST_F(MachinesTest, ADamagedRecordIsRefusedWithWhatToDo) {
  std::ofstream(record()) << "{\"version\":1,\"machines\":[{\"na";
  const Result<std::unique_ptr<Machines>> opened = Machines::open(options());
  ASSERT_FALSE(opened.ok());
  EXPECT_EQ(opened.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(opened.error().message.find("move it away"), std::string::npos);
}

TEST_F(MachinesTest, NothingIsAskedForThatCannotBeRecorded) {
  with_engine([](TestEngine& engine) { engine.submit_gpus(4); });
  std::filesystem::create_directory(record() + ".new");  // The record's draft cannot be written.
  start();
  rest();
  EXPECT_EQ(provider_->with([](FakeProvider& provider) { return provider.creates.size(); }), 0u);
  std::filesystem::remove(record() + ".new");
  EXPECT_TRUE(wait_for([&] { return has("burst-1"); }));
}

TEST(MachineRecord, IsReadAsItWasWritten) {
  std::string shape = (std::filesystem::temp_directory_path() / "record-XXXXXX").string();
  ASSERT_NE(::mkdtemp(shape.data()), nullptr);
  Records records;
  records.machines["burst-4"] = {.name = "burst-4",
                                 .pool = "burst",
                                 .asked_ms = 1'700'000'000'123,
                                 .ready_ms = 5,
                                 .ending = true,
                                 .why = "it was \"idle\"",
                                 .price_milli = 2'500};
  records.pools["burst"] = {.next = 5, .spent_micro = 77, .made = 4, .gone = 3, .boots_ms = {4, 5}};
  ASSERT_TRUE(save_records(shape + "/r", records).ok());
  const Result<Records> read = load_records(shape + "/r");
  ASSERT_TRUE(read.ok()) << read.error().message;
  const MachineRecord& machine = read->machines.at("burst-4");
  EXPECT_EQ(machine.pool, "burst");
  EXPECT_EQ(machine.asked_ms, 1'700'000'000'123);
  EXPECT_TRUE(machine.ending);
  EXPECT_EQ(machine.why, "it was \"idle\"");
  EXPECT_EQ(machine.price_milli, 2'500);
  EXPECT_EQ(read->pools.at("burst").next, 5);
  EXPECT_EQ(read->pools.at("burst").boots_ms, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(cost_micro(2'500, 3'600'000), 2'500'000);
  std::filesystem::remove_all(shape);
}

}  // namespace
}  // namespace gpusched::machines

#include "history/postgres_history.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <thread>

#include "history/store/store.h"
#include "history/testing/place.h"
#include "history/testing/postgres_server.h"
#include "history/testing/random_world.h"

namespace gpusched::history {
namespace {

using testing::Place;
using testing::PostgresProcess;
using testing::RandomWorld;

class PostgresHistoryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!PostgresProcess::programs().empty()) process_ = new PostgresProcess();
  }
  static void TearDownTestSuite() {
    delete process_;
    process_ = nullptr;
  }
  void SetUp() override {
    if (process_ != nullptr) return;
    ASSERT_EQ(std::getenv("CI"), nullptr) << "PostgreSQL is not installed: tools/install-deps --extra";
    GTEST_SKIP() << "PostgreSQL is not installed (Debian: postgresql)";
  }

  static PostgresOptions options_of(const PostgresServer& server) {
    return {.server = server, .days = 0, .linger = milliseconds(1), .retry = milliseconds(20)};
  }
  static Backlog::Source journal_of(const RandomWorld& world) {
    return [&world](uint64_t after, uint64_t until, const Backlog::Sink& sink) -> Result<Unit> {
      for (uint64_t position = after + 1; position <= until; ++position) {
        if (!sink(world.batches()[position - 1])) break;
      }
      return Unit{};
    };
  }
  static bool comes_true(const std::function<bool()>& done) {
    for (int i = 0; i < 30'000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return done();
  }
  static void expect_as_sqlite(const PostgresServer& server, const std::vector<Batch>& batches) {
    Place place;
    Result<std::unique_ptr<Store>> sqlite = Store::open(place.file());
    ASSERT_TRUE(sqlite.ok());
    ASSERT_TRUE((*sqlite)->write(batches).ok());
    Connection connection = process_->connect(server.database);
    for (const auto& [ours, theirs] : testing::same_rows())
      EXPECT_EQ(testing::rows_of(connection, theirs), testing::rows_of(place.file(), ours)) << theirs;
  }

  static PostgresProcess* process_;
};
PostgresProcess* PostgresHistoryTest::process_ = nullptr;

TEST_F(PostgresHistoryTest, AServerThatDiesAgainAndAgainHasEachRecordOnce) {
  RandomWorld world(21);
  world.run(3'000);
  const PostgresServer server = process_->make("dies");
  PostgresOptions options = options_of(server);
  options.events_max = 400;  // Now and then the journal has to be read.
  PostgresHistory history(options, 0, journal_of(world));
  std::size_t next = 0;
  for (int i = 0; i < 6; ++i) {
    for (int k = 0; k < 500; ++k) {
      history.offer(world.batches()[next++]);
      if (k % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    }
    process_->stop_at_once();
    EXPECT_TRUE(comes_true([&] { return history.stats().lag.ns > 0 && !history.stats().trouble.empty(); }) ||
                history.stats().position == next);
    process_->start();
  }
  EXPECT_TRUE(comes_true([&] { return history.stats().lag.ns == 0; })) << history.stats().trouble;
  EXPECT_GT(history.stats().write_errors, 0U);
  history.stop();
  EXPECT_EQ(history.stats().gaps, 0U);
  expect_as_sqlite(server, world.batches());
}

TEST_F(PostgresHistoryTest, ADatabaseThatDoesNotAnswerHoldsNobodyUp) {
  RandomWorld world(22);
  world.run(2'000);
  const PostgresServer server = process_->make("slow");
  PostgresHistory history(options_of(server), 0, journal_of(world));
  history.offer(world.batches()[0]);
  ASSERT_TRUE(comes_true([&] { return history.stats().position == 1; })) << history.stats().trouble;
  Connection blocker = process_->connect(server.database);
  ASSERT_TRUE(blocker.run("BEGIN").ok());
  ASSERT_TRUE(blocker.run("LOCK TABLE position IN ACCESS EXCLUSIVE MODE").ok());
  const auto before = std::chrono::steady_clock::now();
  for (std::size_t i = 1; i < world.batches().size(); ++i) history.offer(world.batches()[i]);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(2));
  EXPECT_TRUE(comes_true([&] { return history.stats().lag.ns > milliseconds(300).ns; }));
  EXPECT_EQ(history.stats().position, 1U);
  ASSERT_TRUE(blocker.run("COMMIT").ok());
  EXPECT_TRUE(comes_true([&] { return history.stats().lag.ns == 0; }));
  EXPECT_EQ(history.stats().catch_ups, 0U);
  history.stop();
  expect_as_sqlite(server, world.batches());
}

TEST_F(PostgresHistoryTest, ItEndsAlthoughTheDatabaseDoesNotAnswer) {
  RandomWorld world(23);
  world.run(50);
  const PostgresServer server = process_->make("hangs");
  PostgresHistory history(options_of(server), 0, journal_of(world));
  history.offer(world.batches()[0]);
  ASSERT_TRUE(comes_true([&] { return history.stats().position == 1; })) << history.stats().trouble;
  Connection blocker = process_->connect(server.database);
  ASSERT_TRUE(blocker.run("BEGIN").ok());
  ASSERT_TRUE(blocker.run("LOCK TABLE position IN ACCESS EXCLUSIVE MODE").ok());
  for (std::size_t i = 1; i < world.batches().size(); ++i) history.offer(world.batches()[i]);
  const auto before = std::chrono::steady_clock::now();
  history.stop();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));
  EXPECT_EQ(history.stats().position, 1U);
}

TEST_F(PostgresHistoryTest, AStartReadsFromTheJournalWhatItLacks) {
  RandomWorld world(24);
  world.run(1'000);
  const PostgresServer server = process_->make("later");
  {
    PostgresHistory history(options_of(server), 0, journal_of(world));
    for (std::size_t i = 0; i < 300; ++i) history.offer(world.batches()[i]);
    history.stop();
    EXPECT_EQ(history.stats().position, 300U);
  }
  PostgresHistory history(options_of(server), 700, journal_of(world));
  for (std::size_t i = 700; i < world.batches().size(); ++i) history.offer(world.batches()[i]);
  EXPECT_TRUE(comes_true([&] { return history.stats().lag.ns == 0; })) << history.stats().trouble;
  history.stop();
  EXPECT_EQ(history.stats().catch_ups, 1U);
  expect_as_sqlite(server, world.batches());
}

}  // namespace
}  // namespace gpusched::history

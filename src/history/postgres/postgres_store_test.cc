#include "history/postgres/postgres_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <span>

#include "base/prng.h"
#include "history/postgres/schema.h"
#include "history/store/store.h"
#include "history/testing/place.h"
#include "history/testing/postgres_server.h"
#include "history/testing/random_world.h"

namespace gpusched::history {
namespace {

using testing::Place;
using testing::PostgresProcess;
using testing::RandomWorld;

class PostgresStoreTest : public ::testing::Test {
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

  static Result<std::unique_ptr<PostgresStore>> try_open(const PostgresServer& server, uint64_t term = 1) {
    return PostgresStore::open(server, term, seconds(60), process_->never());
  }
  /// Waits for the server to notice that the one before is gone.
  static std::unique_ptr<PostgresStore> open(const PostgresServer& server) {
    Result<std::unique_ptr<PostgresStore>> store = try_open(server);
    for (int i = 0; i < 1'000 && !store.ok() && store.error().code == ErrorCode::kLocked; ++i) {
      ::usleep(10'000);
      store = try_open(server);
    }
    EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
    return store.ok() ? std::move(*store) : nullptr;
  }
  static void write_rest(BatchStore& store, const std::vector<Batch>& batches, Prng& prng) {
    while (store.position() < batches.size()) {
      const std::size_t left = batches.size() - store.position();
      const std::size_t now = std::min<std::size_t>(left, static_cast<std::size_t>(prng.between(1, 20)));
      const Result<Unit> written = store.write(std::span(batches).subspan(store.position(), now));
      ASSERT_TRUE(written.ok()) << written.error().message;
    }
  }
  /// Every row of the SQLite history, which counts right, and no other.
  static void expect_as_sqlite(const PostgresServer& server, const std::vector<Batch>& batches) {
    Place place;
    Result<std::unique_ptr<Store>> sqlite = Store::open(place.file());
    ASSERT_TRUE(sqlite.ok());
    ASSERT_TRUE((*sqlite)->write(batches).ok());
    Connection connection = process_->connect(server.database);
    for (const auto& [ours, theirs] : testing::same_rows())
      EXPECT_EQ(testing::rows_of(connection, theirs), testing::rows_of(place.file(), ours)) << theirs;
  }
  /// Jobs that are not over, and what tenants use.
  static void expect_present(const PostgresServer& server, const State& state) {
    std::string jobs, tenants;
    state.jobs.for_each([&](const Job& job) {
      if (is_final(job.state)) return true;
      jobs += "job-" + std::to_string(job.id.value) + "|" + std::string(to_string(job.state)) + "|" +
              std::to_string(job.priority) + "|\n";
      return true;
    });
    for (const auto& [id, tenant] : state.tenants) {
      const std::optional<int64_t> most = tenant.limits.resources.gpus;
      tenants += "tenant-" + std::to_string(id.value) + "|" + (most ? std::to_string(*most) : "") + "|" +
                 std::to_string(tenant.usage.gpus) + "|" + (tenant.deleted ? "f" : "t") + "|\n";
    }
    Connection connection = process_->connect(server.database);
    EXPECT_EQ(testing::rows_of(connection,
                               "SELECT id, state, priority FROM jobs WHERE ended_ms IS NULL ORDER BY job"),
              jobs);
    EXPECT_EQ(testing::rows_of(connection,
                               "SELECT id, max_gp_us, current_gp_us, active FROM tenants ORDER BY tenant"),
              tenants);
  }

  static PostgresProcess* process_;
};
PostgresProcess* PostgresStoreTest::process_ = nullptr;

TEST_F(PostgresStoreTest, HasTheRowsOfTheSqliteHistoryAndThePresent) {
  for (const uint64_t seed : {1U, 2U, 3U}) {
    RandomWorld world(seed);
    world.run(1'500);
    const PostgresServer server = process_->make("rows" + std::to_string(seed));
    Prng prng(seed);
    {
      const auto store = open(server);
      write_rest(*store, world.batches(), prng);
    }
    expect_as_sqlite(server, world.batches());
    expect_present(server, world.state());
  }
}

// 20 kills; GPUSCHED_HISTORY_KILLS=200 in a nightly run.
TEST_F(PostgresStoreTest, KilledAtRandomPointsHasEachRecordOnce) {
  RandomWorld world(11);
  world.run(2'000);
  const PostgresServer server = process_->make("kills");
  const char* const wanted = std::getenv("GPUSCHED_HISTORY_KILLS");
  const int kills = wanted == nullptr ? 20 : std::atoi(wanted);
  Prng prng(11);
  int between = 0;
  for (int i = 0; i < kills; ++i) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      Prng pieces(static_cast<uint64_t>(i));
      const auto store = open(server);
      if (store == nullptr) ::_exit(1);
      write_rest(*store, world.batches(), pieces);
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(prng.between(5'000, 120'000)));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
    const auto store = open(server);
    if (store->position() > 0 && store->position() < world.batches().size()) ++between;
  }
  EXPECT_GT(between, 0);
  const auto store = open(server);
  write_rest(*store, world.batches(), prng);
  expect_as_sqlite(server, world.batches());
  expect_present(server, world.state());
}

TEST_F(PostgresStoreTest, BatchesThatItHasAreLeftOut) {
  RandomWorld world(5);
  world.run(300);
  const PostgresServer server = process_->make("again");
  const auto store = open(server);
  ASSERT_TRUE(store->write(std::span(world.batches()).first(200)).ok());
  ASSERT_TRUE(store->write(world.batches()).ok());
  ASSERT_TRUE(store->write(world.batches()).ok());
  expect_as_sqlite(server, world.batches());
}

TEST_F(PostgresStoreTest, OneSchedulerWritesAndNoneOfAnOlderTerm) {
  const PostgresServer server = process_->make("one");
  const RandomWorld world = [] {
    RandomWorld made(6);
    made.run(50);
    return made;
  }();
  auto store = open(server);
  ASSERT_TRUE(store->write(std::span(world.batches()).first(20)).ok());
  const Result<std::unique_ptr<PostgresStore>> other = try_open(server);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().message,
            "another scheduler writes this database: give each cluster one of its own");
  Connection connection = process_->connect(server.database);
  // Whoever moved the row: what follows does not go on from there.
  ASSERT_TRUE(connection.run("UPDATE position SET position = 25").ok());
  const Result<Unit> moved = store->write(world.batches());
  ASSERT_FALSE(moved.ok());
  EXPECT_EQ(moved.error().code, ErrorCode::kLocked);
  EXPECT_FALSE(store->is_usable());
  store.reset();
  ASSERT_TRUE(connection.run("UPDATE position SET position = 20, term = 3").ok());
  Result<std::unique_ptr<PostgresStore>> older = try_open(server);
  for (int i = 0; i < 500 && !older.ok() && older.error().message.starts_with("another"); ++i) {
    ::usleep(10'000);
    older = try_open(server);
  }
  ASSERT_FALSE(older.ok());
  EXPECT_EQ(older.error().message, "a scheduler of term 3 writes this database, and this one has term 1");
  EXPECT_EQ(testing::rows_of(connection, "SELECT position, term FROM position"), "20|3|\n");
}

TEST_F(PostgresStoreTest, TablesOfOthersAreLeftAlone) {
  const PostgresServer server = process_->make("taken");
  Connection connection = process_->connect(server.database);
  ASSERT_TRUE(connection.run("CREATE TABLE jobs(id TEXT); INSERT INTO jobs VALUES ('theirs')").ok());
  const Result<std::unique_ptr<PostgresStore>> store = try_open(server);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(testing::rows_of(connection, "SELECT * FROM jobs"), "theirs|\n");
  EXPECT_EQ(testing::rows_of(connection, "SELECT to_regclass('tenants') IS NULL"), "t|\n");
}

TEST_F(PostgresStoreTest, ANewerSchemaIsRefused) {
  const PostgresServer server = process_->make("newer");
  open(server).reset();
  Connection connection = process_->connect(server.database);
  ASSERT_TRUE(connection.run("UPDATE gpu_scheduler_schema SET version = 99").ok());
  Result<std::unique_ptr<PostgresStore>> store = try_open(server);
  for (int i = 0; i < 500 && !store.ok() && store.error().code == ErrorCode::kLocked; ++i) {
    ::usleep(10'000);
    store = try_open(server);
  }
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kVersion);
}

TEST_F(PostgresStoreTest, BytesThatAreNoTextDoNotStopIt) {
  const PostgresServer server = process_->make("bytes");
  Batch batch{.position = 1, .at = Time{} + seconds(1'764'000'000), .events = {}};
  JobRow job{.id = JobId{7}, .tenant = kDefaultTenant, .tenant_name = "de\"f\\ault", .state = "completed"};
  job.name = std::string("a\0b\xff{,}\n'", 9);
  job.submitted_at = job.ended_at = batch.at;
  batch.events.emplace_back(Finished{job});
  const auto store = open(server);
  const Result<Unit> written = store->write(std::span(&batch, 1));
  ASSERT_TRUE(written.ok()) << written.error().message;
  Connection connection = process_->connect(server.database);
  EXPECT_EQ(testing::rows_of(connection, "SELECT tenant_name, name FROM jobs"), "de\"f\\ault|a?b?{,}\n'|\n");
}

TEST_F(PostgresStoreTest, AfterAGapItHasWhatTheStateHas) {
  RandomWorld world(8);
  world.run(1'000);
  const PostgresServer server = process_->make("gap");
  const auto store = open(server);
  ASSERT_TRUE(store->write(std::span(world.batches()).first(300)).ok());
  Batch batch{.position = 1'000, .at = world.now(), .events = {}};
  batch.events.emplace_back(adopt(world.state(), 300, nullptr));
  batch.present = all_present(world.state(), nullptr);
  const Result<Unit> written = store->write(std::span(&batch, 1));
  ASSERT_TRUE(written.ok()) << written.error().message;
  // SQLite's rule for what is missing is the same.
  Place place;
  Result<std::unique_ptr<Store>> sqlite = Store::open(place.file());
  ASSERT_TRUE(sqlite.ok());
  ASSERT_TRUE((*sqlite)->write(std::span(world.batches()).first(300)).ok());
  ASSERT_TRUE((*sqlite)->write(std::span(&batch, 1)).ok());
  Connection connection = process_->connect(server.database);
  for (const auto& [ours, theirs] : testing::same_rows())
    EXPECT_EQ(testing::rows_of(connection, theirs), testing::rows_of(place.file(), ours)) << theirs;
  EXPECT_EQ(testing::rows_of(connection, "SELECT after_position, until_position FROM gaps"), "300|1000|\n");
  expect_present(server, world.state());
}

TEST_F(PostgresStoreTest, OldRowsAreForgottenAndDaysAreKept) {
  RandomWorld world(9);
  world.run(800);
  const PostgresServer server = process_->make("old");
  const auto store = open(server);
  ASSERT_TRUE(store->write(world.batches()).ok());
  Connection connection = process_->connect(server.database);
  const std::string days = testing::rows_of(connection, "SELECT SUM(gpu_us) FROM usage_days");
  EXPECT_NE(testing::rows_of(connection, "SELECT COUNT(*) FROM jobs WHERE ended_ms IS NOT NULL"), "0|\n");
  for (int i = 0; i < 10'000; ++i) {
    const Result<bool> more = store->forget(world.now() + hours(2));
    ASSERT_TRUE(more.ok()) << more.error().message;
    if (!*more && testing::rows_of(connection, "SELECT COUNT(*) FROM usage_hours") == "0|\n") break;
  }
  EXPECT_EQ(testing::rows_of(connection, "SELECT COUNT(*) FROM jobs WHERE ended_ms IS NOT NULL"), "0|\n");
  EXPECT_EQ(testing::rows_of(connection, "SELECT SUM(gpu_us) FROM usage_days"), days);
  expect_present(server, world.state());
}

}  // namespace
}  // namespace gpusched::history

#include "history/store/store.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>
#include <span>

#include "base/prng.h"
#include "history/store/queries.h"
#include "history/store/schema.h"
#include "history/testing/place.h"
#include "history/testing/random_world.h"

namespace gpusched::history {
namespace {

using testing::Place;
using testing::RandomWorld;

/// Writes what is missing, in pieces of a drawn size.
void write_rest(Store& store, const std::vector<Batch>& batches, Prng& prng) {
  while (store.position() < batches.size()) {
    const std::size_t left = batches.size() - store.position();
    const std::size_t now = std::min<std::size_t>(left, static_cast<std::size_t>(prng.between(1, 40)));
    const Result<Unit> written = store.write(std::span(batches).subspan(store.position(), now));
    ASSERT_TRUE(written.ok()) << written.error().message;
  }
}

std::unique_ptr<Store> opened(const std::string& path) {
  Result<std::unique_ptr<Store>> store = Store::open(path);
  EXPECT_TRUE(store.ok()) << (store.ok() ? "" : store.error().message);
  return store.ok() ? std::move(*store) : nullptr;
}

/// Counts and sums are those of the world, which counts in a way of its own.
void expect_true(const std::string& path, const RandomWorld& world) {
  EXPECT_EQ(testing::use_of(path, world.now()), world.expected().all_gpu_us());
  std::map<TenantId, int64_t> tenants;
  std::map<std::string, int64_t> users;
  for (const auto& [key, us] : world.expected().gpu_us) {
    tenants[key.first] += us;
    users[key.second] += us;
  }
  for (const auto& [tenant, us] : tenants) EXPECT_EQ(testing::use_of(path, world.now(), tenant), us);
  for (const auto& [user, us] : users) EXPECT_EQ(testing::use_of(path, world.now(), {}, user), us);
  std::string jobs;
  for (const auto& [state, count] : world.expected().jobs)
    jobs += state + "|" + std::to_string(count) + "|\n";
  EXPECT_EQ(testing::rows_of(path, "SELECT state, COUNT(*) FROM jobs GROUP BY state ORDER BY state"), jobs);
}

class RandomStore : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomStore, GpuTimeAndCountsEqualARecomputationOfWhatTheStateHeld) {
  Place place;
  RandomWorld world(GetParam());
  world.run(3'000);
  const auto store = opened(place.file());
  Prng prng(GetParam());
  write_rest(*store, world.batches(), prng);
  expect_true(place.file(), world);
  EXPECT_GT(world.expected().all_gpu_us(), 0);
  EXPECT_EQ(testing::rows_of(place.file(), "SELECT SUM(gpu_us) FROM usage_hours"),
            testing::rows_of(place.file(), "SELECT SUM(gpu_us) FROM usage_days"));
  EXPECT_EQ(testing::rows_of(place.file(), "SELECT SUM(gpu_us) FROM attempts"),
            testing::rows_of(place.file(), "SELECT SUM(gpu_us) FROM usage_days"));
}
INSTANTIATE_TEST_SUITE_P(Seeds, RandomStore, ::testing::Range<uint64_t>(1, 7));

/// A process that writes, and is killed at some moment: it writes until it has all.
void write_until_killed(const std::string& path, const std::vector<Batch>& batches, uint64_t seed,
                        useconds_t after_us) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Result<std::unique_ptr<Store>> store = Store::open(path);
    if (!store.ok()) ::_exit(1);
    Prng prng(seed);
    while ((*store)->position() < batches.size()) {
      const std::size_t left = batches.size() - (*store)->position();
      const std::size_t now = std::min<std::size_t>(left, static_cast<std::size_t>(prng.between(1, 12)));
      if (!(*store)->write(std::span(batches).subspan((*store)->position(), now)).ok()) ::_exit(2);
      if (prng.chance(100)) static_cast<void>((*store)->checkpoint());
    }
    ::_exit(0);
  }
  ::usleep(after_us);
  ::kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0) << WEXITSTATUS(status);
}

// 20 kills; GPUSCHED_HISTORY_KILLS=200 in a nightly run.
TEST(Store, KilledAtRandomPointsHasEachRecordOnce) {
  Place place;
  RandomWorld world(11);
  world.run(2'000);
  Prng prng(11);
  {
    const auto whole = opened(place.file("whole.db"));
    write_rest(*whole, world.batches(), prng);
  }
  const char* const wanted = std::getenv("GPUSCHED_HISTORY_KILLS");
  const int kills = wanted == nullptr ? 20 : std::atoi(wanted);
  std::set<uint64_t> points;
  // On a slow machine most kills come before the first write: more of them then.
  bool enough = false;
  for (int i = 0; !enough; ++i) {
    ASSERT_LT(i, kills * 50);
    write_until_killed(place.file(), world.batches(), static_cast<uint64_t>(i),
                       static_cast<useconds_t>(prng.between(200, 40'000)));
    if (::testing::Test::HasFatalFailure()) return;
    const auto store = opened(place.file());
    points.insert(store->position());
    enough = i + 1 >= kills && points.size() > static_cast<std::size_t>(kills / 4);
    // Begun again, so that kills do not come to an end.
    if (store->position() == world.batches().size() && !enough) {
      for (const char* const suffix : {"", "-wal", "-shm"}) std::filesystem::remove(place.file() + suffix);
    }
  }
  const auto store = opened(place.file());
  write_rest(*store, world.batches(), prng);
  EXPECT_EQ(testing::dump_of(place.file()), testing::dump_of(place.file("whole.db")));
  expect_true(place.file(), world);
}

TEST(Store, BatchesThatItHasAreLeftOut) {
  Place place;
  RandomWorld world(5);
  world.run(400);
  const auto store = opened(place.file());
  ASSERT_TRUE(store->write(std::span(world.batches()).first(300)).ok());
  ASSERT_TRUE(store->write(world.batches()).ok());
  ASSERT_TRUE(store->write(world.batches()).ok());
  expect_true(place.file(), world);
}

TEST(Store, AStateAloneGivesFinishedJobsAndWhatRuns) {
  Place place;
  RandomWorld world(7);
  world.run(1'500);
  const std::size_t lost_from = 500;
  const auto store = opened(place.file());
  ASSERT_TRUE(store->write(std::span(world.batches()).first(lost_from)).ok());
  Batch batch{.position = world.batches().size(), .at = world.now(), .events = {}};
  batch.events.emplace_back(adopt(world.state(), lost_from, nullptr));
  ASSERT_TRUE(store->write(std::span(&batch, 1)).ok());
  EXPECT_EQ(*store->gaps(), 1);
  std::size_t held = 0;
  for (const auto& [key, attempt] : world.state().attempts) {
    if (attempt.abandoned) continue;
    for (const Member& member : attempt.members) held += member.state == MemberState::kEnded ? 0 : 1;
  }
  EXPECT_EQ(store->open_members().size(), held);
  for (const JobId id : world.state().finished)
    EXPECT_EQ(
        testing::rows_of(place.file(), "SELECT COUNT(*) FROM jobs WHERE id=" + std::to_string(id.value)),
        "1|\n");
}

TEST(Store, ForgetsOldJobsAndHoursAndKeepsDays) {
  Place place;
  RandomWorld world(3);
  world.run(1'500);
  const auto store = opened(place.file());
  ASSERT_TRUE(store->write(world.batches()).ok());
  const std::string days = testing::rows_of(place.file(), "SELECT SUM(gpu_us) FROM usage_days");
  for (bool more = true; more;) {
    const Result<bool> forgotten = store->forget(world.now() + hours(48));
    ASSERT_TRUE(forgotten.ok()) << forgotten.error().message;
    more = *forgotten;
  }
  EXPECT_EQ(testing::rows_of(place.file(),
                             "SELECT (SELECT COUNT(*) FROM jobs), (SELECT COUNT(*) FROM job_nodes"
                             " WHERE job NOT IN (SELECT job FROM attempts))"),
            "0|0|\n");
  EXPECT_EQ(testing::rows_of(place.file(), "SELECT SUM(gpu_us) FROM usage_days"), days);
}

TEST(Store, ACopyIsAWholeDatabaseAndNeverReplacesAFile) {
  Place place;
  RandomWorld world(4);
  world.run(500);
  const auto store = opened(place.file());
  ASSERT_TRUE(store->write(world.batches()).ok());
  ASSERT_TRUE(store->copy_to(place.file("copy.db")).ok());
  EXPECT_EQ(testing::dump_of(place.file("copy.db")), testing::dump_of(place.file()));
  EXPECT_FALSE(store->copy_to(place.file("copy.db")).ok());
}

TEST(Store, ANewerSchemaIsRefusedAndLeftAlone) {
  Place place;
  opened(place.file()).reset();
  {
    Result<Database> database = Database::open(place.file(), Database::Mode::kWriter);
    ASSERT_TRUE(database->run("PRAGMA user_version=" + std::to_string(schema_version() + 1)).ok());
  }
  const Result<std::unique_ptr<Store>> store = Store::open(place.file());
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.error().code, ErrorCode::kVersion);
}

TEST(Database, AReaderChangesNothingAndNeverCheckpoints) {
  Place place;
  const auto store = opened(place.file());
  Result<Database> reader = Database::open(place.file(), Database::Mode::kReader);
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(*reader->integer("PRAGMA wal_autocheckpoint"), 0);
  EXPECT_EQ(*reader->integer("PRAGMA query_only"), 1);
  EXPECT_FALSE(reader->run("DELETE FROM jobs").ok());
}

}  // namespace
}  // namespace gpusched::history

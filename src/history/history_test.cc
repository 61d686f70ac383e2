#include "history/history.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "history/testing/place.h"
#include "history/testing/random_world.h"

namespace gpusched::history {
namespace {

using testing::Place;
using testing::RandomWorld;

/// A journal that gives a world's records again, from the first on or from a later one.
class Records {
 public:
  explicit Records(const RandomWorld& world) : world_(world) {}
  History::Source source(uint64_t first = 1) {
    return [this, first](uint64_t after, uint64_t until, const History::Sink& sink) -> Result<Unit> {
      ++readings_;
      if (after + 1 < first) {
        Batch batch{.position = first - 1, .at = world_.now(), .events = {}};
        batch.events.emplace_back(Adopted{.after = after, .jobs = {}, .running = {}, .begun = {}});
        if (!sink(batch)) return Unit{};
        after = first - 1;
      }
      for (uint64_t position = after + 1; position <= until; ++position) {
        if (!sink(world_.batches()[position - 1])) return Unit{};
      }
      return Unit{};
    };
  }
  int readings() const { return readings_; }

 private:
  const RandomWorld& world_;
  std::atomic<int> readings_{0};
};

HistoryOptions options_of(const Place& place) {
  return {.path = place.file(), .days = 0, .linger = milliseconds(1), .retry = milliseconds(20)};
}

void expect_true(const Place& place, const RandomWorld& world) {
  EXPECT_EQ(testing::use_of(place.file(), world.now()), world.expected().all_gpu_us());
  EXPECT_EQ(testing::rows_of(place.file(), "SELECT position FROM position"),
            std::to_string(world.batches().size()) + "|\n");
}

template <typename Done>
void wait_until(const Done& done) {
  for (int i = 0; i < 20'000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(done());
}

TEST(History, WhatIsOfferedIsInTheDatabaseWhenItHasStopped) {
  Place place;
  RandomWorld world(1);
  world.run(1'000);
  Records records(world);
  History history(options_of(place), 0, records.source());
  for (const Batch& batch : world.batches()) history.offer(batch);
  history.stop();
  EXPECT_EQ(history.durable_position(), world.batches().size());
  EXPECT_EQ(records.readings(), 0);
  expect_true(place, world);
}

TEST(History, AfterAStartItReadsWhatItHasNotSeenFromTheJournal) {
  Place place;
  RandomWorld world(2);
  world.run(1'000);
  Records records(world);
  {
    History history(options_of(place), 0, records.source());
    for (std::size_t i = 0; i < 300; ++i) history.offer(world.batches()[i]);
    history.stop();
  }
  History history(options_of(place), 700, records.source());
  for (std::size_t i = 700; i < world.batches().size(); ++i) history.offer(world.batches()[i]);
  wait_until([&] { return history.stats().lag.ns == 0; });
  history.stop();
  EXPECT_EQ(records.readings(), 1);
  EXPECT_EQ(history.stats().gaps, 0u);
  expect_true(place, world);
}

TEST(History, MoreThanMayWaitIsReadFromTheJournalLater) {
  Place place;
  RandomWorld world(3);
  world.run(2'000);
  Records records(world);
  HistoryOptions options = options_of(place);
  options.events_max = 20;
  History history(options, 0, records.source());
  for (const Batch& batch : world.batches()) history.offer(batch);
  wait_until([&] { return history.stats().lag.ns == 0; });
  history.stop();
  EXPECT_GT(history.stats().overruns, 0u);
  EXPECT_GT(records.readings(), 0);
  expect_true(place, world);
}

TEST(History, WithoutRoomItSaysSoAndFallsBehindAndCatchesUpLater) {
  Place place;
  RandomWorld world(4);
  world.run(500);
  Records records(world);
  HistoryOptions options = options_of(place);
  options.leaves_bytes = UINT64_MAX;
  {
    History history(options, 0, records.source());
    for (const Batch& batch : world.batches()) history.offer(batch);
    wait_until([&] { return !history.stats().trouble.empty(); });
    EXPECT_GT(history.stats().lag.ns, 0);
    history.stop();
    EXPECT_EQ(history.durable_position(), 0u);
  }
  History history(options_of(place), world.batches().size(), records.source());
  wait_until([&] { return history.stats().lag.ns == 0; });
  history.stop();
  expect_true(place, world);
}

TEST(History, RecordsThatAreGoneAreToldAsAGap) {
  Place place;
  RandomWorld world(5);
  world.run(600);
  Records records(world);
  {
    History history(options_of(place), 0, records.source());
    for (std::size_t i = 0; i < 100; ++i) history.offer(world.batches()[i]);
    history.stop();
  }
  for (int start = 0; start < 2; ++start) {  // Nor is it forgotten at the next start.
    History history(options_of(place), world.batches().size(), records.source(400));
    wait_until([&] { return history.stats().lag.ns == 0; });
    EXPECT_EQ(history.stats().gaps, 1u);
    history.stop();
  }
  EXPECT_EQ(testing::rows_of(place.file(), "SELECT after_position, until_position FROM gaps"), "100|399|\n");
}

TEST(History, AFileThatIsNoDatabaseIsSetAsideAndBegunAgain) {
  Place place;
  RandomWorld world(6);
  world.run(300);
  std::ofstream(place.file()) << std::string(8'192, 'x');
  Records records(world);
  History history(options_of(place), world.batches().size(), records.source());
  wait_until([&] { return history.stats().lag.ns == 0; });
  history.stop();
  expect_true(place, world);
  int aside = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(place.file()).parent_path()))
    aside += entry.path().string().find(".damaged-") == std::string::npos ? 0 : 1;
  EXPECT_EQ(aside, 1);
}

TEST(History, AnOlderCopyOfTheFolderGoesOnFromWhereItIs) {
  Place place;
  RandomWorld world(7);
  world.run(300);
  Records records(world);
  {
    History history(options_of(place), 0, records.source());
    for (const Batch& batch : world.batches()) history.offer(batch);
    history.stop();
  }
  History history(options_of(place), 100, records.source());
  Batch batch{.position = 101, .at = world.now(), .events = {}};
  batch.events.emplace_back(Preempted{.job = JobId{1}, .attempt = 1, .at = world.now()});
  wait_until([&] { return history.stats().lag.ns == 0; });
  history.offer(batch);
  history.stop();
  EXPECT_EQ(history.durable_position(), 101u);
}

TEST(History, QuestionsAndCopiesAreAnswered) {
  Place place;
  RandomWorld world(8);
  world.run(300);
  Records records(world);
  History history(options_of(place), 0, records.source());
  for (const Batch& batch : world.batches()) history.offer(batch);
  wait_until([&] { return history.durable_position() > 0; });
  std::promise<bool> asked;
  history.ask([&](Result<Queries*> queries) { asked.set_value(queries.ok() && (*queries)->check().ok()); });
  EXPECT_TRUE(asked.get_future().get());
  std::promise<Result<std::string>> copied;
  history.copy([&](Result<std::string> path) { copied.set_value(std::move(path)); });
  const Result<std::string> path = copied.get_future().get();
  ASSERT_TRUE(path.ok()) << path.error().message;
  EXPECT_NE(testing::dump_of(*path), "");
  history.stop();
}

}  // namespace
}  // namespace gpusched::history

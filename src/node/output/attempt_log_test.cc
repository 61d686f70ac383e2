#include "node/output/attempt_log.h"

#include <gtest/gtest.h>
#include <sys/mount.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "node/testing/testing.h"

namespace gpusched {
namespace {

using Kind = StoreRecord::Kind;

const AttemptKey kFirstKey{JobId{1}, 1, 0};

std::unique_ptr<AttemptLog> open_log(const TemporaryFolder& folder) {
  Result<std::unique_ptr<AttemptLog>> log = AttemptLog::open(folder.path());
  EXPECT_TRUE(log.ok());
  return std::move(*log);
}

StoreRecord ended(const AttemptKey& key, int exit_code) {
  StoreRecord record{.kind = Kind::kEnded, .key = key};
  record.outcome.set_cause(v1::Outcome::EXITED);
  record.outcome.set_exit_code(exit_code);
  return record;
}

std::string only_segment(const TemporaryFolder& folder) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().filename().string().starts_with("attempts.")) found.push_back(entry.path());
  }
  EXPECT_EQ(found.size(), 1u);
  return found.front();
}

TEST(AttemptLog, WhatWasAppendedIsThereAfterOpeningAgain) {
  const TemporaryFolder folder;
  {
    const auto log = open_log(folder);
    log->append({.kind = Kind::kBoot, .boot_id = "b", .epoch = 1});
    log->append({.kind = Kind::kIntent, .key = kFirstKey, .devices = {{.index = 3, .generation = 8}}});
    log->append({.kind = Kind::kStarted,
                 .key = kFirstKey,
                 .pid = 77,
                 .started_unix_ns = 5,
                 .identity = shim::Credentials{.uid = 1000, .gid = 100, .groups = {100, 44}},
                 .shim = {.pid = 76, .start_ticks = 123}});
    log->append(ended(kFirstKey, 9));
    log->flush();
  }
  open_log(folder);  // Once through a snapshot too.
  const auto log = open_log(folder);
  EXPECT_EQ(log->image().boot_id, "b");
  EXPECT_EQ(log->image().epoch, 1u);
  const StoredAttempt& attempt = log->image().attempts.at(kFirstKey);
  EXPECT_EQ(attempt.devices, (std::vector<HeldDevice>{{.index = 3, .generation = 8}}));
  EXPECT_EQ(attempt.pid, 77);
  EXPECT_EQ(attempt.identity, (shim::Credentials{.uid = 1000, .gid = 100, .groups = {100, 44}}));
  EXPECT_EQ(attempt.shim, (ShimProcess{.pid = 76, .start_ticks = 123}));
  ASSERT_TRUE(attempt.outcome.has_value());
  EXPECT_EQ(attempt.outcome->exit_code(), 9);
  EXPECT_FALSE(attempt.acked);
}

TEST(AttemptLog, WhichAttemptsAreOfAnEarlierBootIsKept) {
  const TemporaryFolder folder;
  const AttemptKey later{JobId{2}, 1, 0};
  {
    const auto log = open_log(folder);
    log->append({.kind = Kind::kBoot, .boot_id = "b", .epoch = 1});
    log->append({.kind = Kind::kIntent, .key = kFirstKey});
    log->append({.kind = Kind::kBoot, .boot_id = "b", .epoch = 2});
    EXPECT_FALSE(log->image().attempts.at(kFirstKey).of_earlier_boot);
    log->append({.kind = Kind::kBoot, .boot_id = "c", .epoch = 3});
    log->append({.kind = Kind::kIntent, .key = later});
    log->append({.kind = Kind::kBoot, .boot_id = "c", .epoch = 4});
    log->flush();
  }
  for (int opening = 0; opening < 3; ++opening) {  // From records, then from a snapshot.
    const auto log = open_log(folder);
    EXPECT_EQ(log->image().boot_id, "c");
    EXPECT_EQ(log->image().epoch, 4u);
    EXPECT_TRUE(log->image().attempts.at(kFirstKey).of_earlier_boot);
    EXPECT_FALSE(log->image().attempts.at(later).of_earlier_boot);
  }
}

TEST(AttemptLog, SharesAndSlicesOfAnAttemptAreKept) {
  const TemporaryFolder folder;
  const AttemptKey other{JobId{2}, 1, 0};
  const HeldDevice slice{.index = 1,
                         .generation = 2,
                         .share_of = kFirstKey,
                         .milli = 142,
                         .memory_mb = 10'240,
                         .mig_profile = "1g.10gb",
                         .mig_start = 6};
  const HeldDevice share{.index = 1, .generation = 2, .share_of = other, .milli = 300, .memory_mb = 900};
  {
    const auto log = open_log(folder);
    log->append({.kind = Kind::kIntent, .key = kFirstKey, .devices = {slice}});
    log->append({.kind = Kind::kIntent, .key = other, .devices = {share}});
    log->flush();
  }
  const auto log = open_log(folder);
  EXPECT_EQ(log->image().attempts.at(kFirstKey).devices, std::vector<HeldDevice>{slice});
  EXPECT_EQ(log->image().attempts.at(other).devices, std::vector<HeldDevice>{share});
}

TEST(AttemptLog, WhichDevicesAnAttemptHasIsKeptByUuid) {
  const TemporaryFolder folder;
  for (int life = 0; life < 3; ++life) {  // Written, read and written again by the next one's snapshot.
    const auto log = open_log(folder);
    if (life == 0) {
      log->append({.kind = Kind::kIntent, .key = kFirstKey, .devices = {{.index = 3, .generation = 8}}});
      log->append({.kind = Kind::kDevices, .key = kFirstKey, .device_uuids = {"GPU-c"}});
      log->flush();
    }
    EXPECT_EQ(log->image().attempts.at(kFirstKey).device_uuids, std::vector<std::string>{"GPU-c"});
  }
}

TEST(AttemptLog, SegmentsOfOlderAgentsAreRead) {
  const TemporaryFolder folder;
  {
    const auto log = open_log(folder);
    log->append({.kind = Kind::kIntent, .key = kFirstKey, .devices = {{.index = 3, .generation = 8}}});
    log->flush();
  }
  std::fstream segment(only_segment(folder), std::ios::in | std::ios::out | std::ios::binary);
  segment.write("GPUATT01", 8);
  segment.close();
  const auto log = open_log(folder);
  EXPECT_EQ(log->image().attempts.at(kFirstKey).devices.front().index, 3u);
  EXPECT_TRUE(log->image().attempts.at(kFirstKey).device_uuids.empty());
}

TEST(AttemptLog, SyncIsAnsweredWithThePositionOfTheLastRecord) {
  const TemporaryFolder folder;
  const auto log = open_log(folder);
  uint64_t last = 0;
  for (uint64_t job = 1; job <= 100; ++job) last = log->append(ended({JobId{job}, 1, 0}, 0));
  log->flush();
  log->sync();
  wait_readable(log->synced_event());
  while (log->synced_position() < last) wait_readable(log->synced_event());
  EXPECT_EQ(log->synced_position(), last);
}

TEST(AttemptLog, ATornTailIsCutToTheLastWholeRecord) {
  const TemporaryFolder folder;
  {
    const auto log = open_log(folder);
    log->append(ended({JobId{1}, 1, 0}, 1));
    log->append(ended({JobId{2}, 1, 0}, 2));
    log->flush();
  }
  const std::string path = only_segment(folder);
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  const auto log = open_log(folder);
  EXPECT_TRUE(log->image().attempts.contains({JobId{1}, 1, 0}));
  EXPECT_FALSE(log->image().attempts.contains({JobId{2}, 1, 0}));
}

TEST(AttemptLog, ASegmentTornInsideItsSnapshotLeavesTheOlderOneInForce) {
  const TemporaryFolder folder;
  {
    const auto log = open_log(folder);
    log->append(ended(kFirstKey, 4));
    log->flush();
  }
  const std::string path = only_segment(folder);
  std::ifstream in(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::ofstream(folder.path() + "/attempts.99.log", std::ios::binary) << text.substr(0, 20);
  const auto log = open_log(folder);
  EXPECT_TRUE(log->image().attempts.contains(kFirstKey));
}

TEST(AttemptLog, GrowingSegmentsAreReplacedAndKeepEverythingThatCounts) {
  const TemporaryFolder folder;
  {
    const auto log = open_log(folder);
    log->set_segment_bytes(4096);
    for (uint64_t job = 1; job <= 2000; ++job) {
      const AttemptKey key{JobId{job}, 1, 0};
      log->append(ended(key, static_cast<int>(job % 100)));
      log->append({.kind = Kind::kClosed, .key = key});
      if (job > 10) log->append({.kind = Kind::kForgotten, .key = {JobId{job - 10}, 1, 0}});
      log->flush();
    }
  }
  EXPECT_LT(std::filesystem::file_size(only_segment(folder)), 40'000u);
  const auto log = open_log(folder);
  EXPECT_EQ(log->image().attempts.size(), 10u);
  EXPECT_EQ(log->image().closed.size(), 10u);
  EXPECT_EQ(log->image().attempts.at({JobId{1999}, 1, 0}).outcome->exit_code(), 99);
}

/// A file system with little room, where we may mount one.
class SmallDisk {
 public:
  SmallDisk() {
    std::filesystem::create_directory(path());
    mounted_ = mount("small", path().c_str(), "tmpfs", 0, "size=8m") == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(path().c_str(), MNT_DETACH);
  }
  bool mounted() const { return mounted_; }
  std::string path() const { return folder_.path() + "/disk"; }
  /// Nothing more goes on it, the reserve excepted.
  void fill() const {
    std::ofstream hog(path() + "/hog", std::ios::binary | std::ios::app);
    const std::string chunk(4'096, 'x');
    while (hog.write(chunk.data(), static_cast<std::streamsize>(chunk.size())).flush()) {
    }
  }

 private:
  TemporaryFolder folder_;
  bool mounted_ = false;
};

TEST(AttemptLog, OnAFullDiskItOpensAndEndsAreRecorded) {
  const SmallDisk disk;
  if (!disk.mounted()) GTEST_SKIP() << "only root can mount a small disk";
  for (int life = 0; life < 4; ++life) {
    Result<std::unique_ptr<AttemptLog>> log = AttemptLog::open(disk.path());
    ASSERT_TRUE(log.ok()) << "life " << life << ": " << log.error().message;
    const AttemptKey key{JobId{static_cast<uint64_t>(life + 1)}, 1, 0};
    (*log)->append({.kind = Kind::kIntent, .key = key});
    (*log)->append(ended(key, life));
    EXPECT_TRUE((*log)->flush()) << "life " << life;
    EXPECT_EQ((*log)->image().attempts.size(), static_cast<std::size_t>(life + 1));
    disk.fill();
    if (life == 1) std::filesystem::remove(disk.path() + "/reserve");  // Nothing is kept free any more.
    disk.fill();
  }
}

TEST(AttemptLog, ADamagedRecordTakesNoneOfThoseBehindItWithIt) {
  const TemporaryFolder folder;
  {
    const auto log = open_log(folder);
    for (uint64_t job = 1; job <= 20; ++job) log->append(ended({JobId{job}, 1, 0}, 7));
    log->flush();
  }
  const std::string path = only_segment(folder);
  std::fstream segment(path, std::ios::in | std::ios::out | std::ios::binary);
  segment.seekp(static_cast<std::streamoff>(std::filesystem::file_size(path) / 2));
  segment.write("damage", 6);
  segment.close();
  const auto log = open_log(folder);
  EXPECT_GE(log->image().attempts.size(), 18u);
  EXPECT_TRUE(log->image().attempts.contains({JobId{20}, 1, 0}));
  // The snapshot that the next one reads drops none either.
  const auto again = open_log(folder);
  EXPECT_EQ(again->image().attempts.size(), log->image().attempts.size());
}

TEST(AttemptLog, ANewerVersionIsRefused) {
  const TemporaryFolder folder;
  std::ofstream(folder.path() + "/attempts.1.log") << "GPUATT03whatever";
  const Result<std::unique_ptr<AttemptLog>> log = AttemptLog::open(folder.path());
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.error().code, ErrorCode::kVersion);
}

TEST(AttemptLog, EveryCutOfARecordIsRefused) {
  const std::string bytes = encode_store_record({.kind = Kind::kIntent,
                                                 .key = kFirstKey,
                                                 .devices = {{.index = 1, .generation = 2}},
                                                 .user = "ada",
                                                 .cores = {1, 300}});
  const auto read = decode_store_record(bytes);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->user, "ada");
  EXPECT_EQ(read->cores, (std::vector<uint32_t>{1, 300}));
  const std::size_t without_time = bytes.size() - 1;  // As agents wrote it before orders had times,
  const std::size_t without_box = bytes.size() - 9;   // and before attempts had boxes.
  EXPECT_EQ(decode_store_record(std::string_view(bytes).substr(0, without_box))->devices, read->devices);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    if (size == without_box || size == without_time) continue;
    EXPECT_FALSE(decode_store_record(std::string_view(bytes).substr(0, size)).has_value()) << size;
  }
}

}  // namespace
}  // namespace gpusched

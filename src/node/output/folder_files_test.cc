#include "node/output/folder_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "node/ports/system_clock.h"
#include "node/testing/attempt_key.h"
#include "node/testing/testing.h"

namespace gpusched {
namespace {

class FolderFilesTest : public ::testing::Test {
 protected:
  FolderFilesTest() {
    std::filesystem::create_directory(folder_.path() + "/attempts");
    spares_ = std::make_unique<SpareFolders>(folder_.path());
    files_ = std::make_unique<FolderFiles>(
        FolderFilesOptions{.data_folder = folder_.path(), .spares = spares_.get(), .finished_kept = 5});
  }

  std::string attempt() const { return folder_.path() + "/attempts/7-1-0"; }
  void make_attempt(const std::string& output) {
    mkdir(attempt().c_str(), 0750);
    for (const char* name : {"stdout", "stderr", "outcome"}) {
      std::ofstream(attempt() + "/" + name) << output;
      chmod((attempt() + "/" + name).c_str(), 0640);
    }
  }
  bool removed() {
    files_->remove(kKey);
    files_->wait_idle();
    return !std::filesystem::exists(attempt());
  }

  TemporaryFolder folder_;
  std::unique_ptr<SpareFolders> spares_;
  std::unique_ptr<FolderFiles> files_;
};

TEST_F(FolderFilesTest, OutputThatWentWithItsFolderIsNoted) {
  make_attempt("0123456789");
  files_->ended(kKey);
  EXPECT_TRUE(removed());
  v1::ReadLog order;
  *order.mutable_key() = to_wire(kKey);
  files_->read(order, AttemptLife::kUnknown);
  wait_readable(files_->chunks_event());
  const std::vector<v1::LogChunk> chunks = files_->take_chunks();
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(chunks[0].code(), "log_removed");
  EXPECT_NE(chunks[0].error().find("this node keeps the output of only the last 5 ended attempts"),
            std::string::npos);
}

TEST_F(FolderFilesTest, NothingIsTooOldByAClockThatNobodyConfirmed) {
  make_attempt("0123456789");
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(attempt() + "/outcome", now - std::chrono::hours(3));
  files_ = std::make_unique<FolderFiles>(
      FolderFilesOptions{.data_folder = folder_.path(), .logs_kept = hours(2), .finished_kept = 5});
  files_->wait_idle();
  // The clock stands three hours after the end: that may be its own fault.
  EXPECT_TRUE(std::filesystem::exists(attempt() + "/stdout"));
  // It was; what is confirmed is an hour after it, and stays so whatever the clock says afterwards.
  files_->note_time(SystemClock().wall() - hours(2));
  files_->began({JobId{8}, 1, 0});
  files_->wait_idle();
  EXPECT_TRUE(std::filesystem::exists(attempt() + "/stdout"));
  files_->note_time(SystemClock().wall());
  files_->began({JobId{9}, 1, 0});
  files_->wait_idle();
  EXPECT_FALSE(std::filesystem::exists(attempt() + "/stdout"));
}

TEST_F(FolderFilesTest, AFolderWithNothingButItsOwnFilesBecomesAnEmptySpare) {
  make_attempt("secret");
  EXPECT_TRUE(removed());
  const std::string spare = spares_->take();
  ASSERT_FALSE(spare.empty());
  for (const char* name : {"stdout", "stderr", "outcome"}) {
    EXPECT_EQ(std::filesystem::file_size(folder_.path() + "/spare/" + spare + "/" + name), 0u);
  }
  EXPECT_TRUE(spares_->take().empty());
}

TEST_F(FolderFilesTest, ASpareHasNoTimesOfAnEarlierOutput) {
  make_attempt("x");
  std::ofstream(attempt() + "/log-times") << "old";
  EXPECT_TRUE(removed());
  const std::string spare = spares_->take();
  ASSERT_FALSE(spare.empty());
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/spare/" + spare + "/log-times"));
}

TEST_F(FolderFilesTest, AFolderWithAnythingElseIsDeleted) {
  make_attempt("x");
  std::ofstream(attempt() + "/model.bin") << "weights";
  EXPECT_TRUE(removed());
  EXPECT_TRUE(spares_->take().empty());
}

TEST_F(FolderFilesTest, AFileWithAnotherNameElsewhereIsNeverUsedAgainNorEmptied) {
  make_attempt("kept");
  std::filesystem::create_hard_link(attempt() + "/stdout", folder_.path() + "/copy");
  EXPECT_TRUE(removed());
  EXPECT_TRUE(spares_->take().empty());
  std::ifstream in(folder_.path() + "/copy");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), "kept");
}

TEST_F(FolderFilesTest, ALinkInAFolderIsDeletedAndNotFollowed) {
  std::ofstream(folder_.path() + "/precious") << "kept";
  mkdir(attempt().c_str(), 0750);
  std::filesystem::create_symlink(folder_.path() + "/precious", attempt() + "/stdout");
  EXPECT_TRUE(removed());
  EXPECT_EQ(std::filesystem::file_size(folder_.path() + "/precious"), 4u);
}

TEST_F(FolderFilesTest, SparesAreFoundAgainByTheNextAgent) {
  make_attempt("x");
  EXPECT_TRUE(removed());
  SpareFolders next(folder_.path());
  EXPECT_EQ(next.take(), "1");
}

TEST_F(FolderFilesTest, EndedFoldersThatNobodyKnowsAreRemoved) {
  make_attempt("x");
  mkdir((folder_.path() + "/attempts/8-1-0").c_str(), 0750);  // No outcome: it may run.
  files_->remove_unknown({});
  files_->wait_idle();
  EXPECT_FALSE(std::filesystem::exists(attempt()));
  EXPECT_TRUE(std::filesystem::exists(folder_.path() + "/attempts/8-1-0"));
}

TEST_F(FolderFilesTest, APayloadIsKeptUntilItsAttemptHasEnded) {
  const std::string path = folder_.path() + "/payloads/7-1-0";
  const std::string payload(3'000'000, '\xFF');
  ASSERT_TRUE(files_->keep_payload(kKey, payload).ok());
  struct stat facts{};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_size, 3'000'000);
  EXPECT_EQ(facts.st_mode & 07777, 0600U);
  ASSERT_EQ(stat((folder_.path() + "/payloads").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700U);
  files_->ended(kKey);
  files_->wait_idle();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(FolderFilesTest, PayloadsOfAttemptsThatAreOverAreRemoved) {
  const AttemptKey over{JobId{8}, 1, 0}, unknown{JobId{9}, 1, 0};
  for (const AttemptKey& key : {kKey, over, unknown}) ASSERT_TRUE(files_->keep_payload(key, "payload").ok());
  files_->remove_unknown({{kKey, {}}, {over, {.outcome = v1::Outcome()}}});
  const std::string folder = folder_.path() + "/payloads/";
  EXPECT_TRUE(std::filesystem::exists(folder + "7-1-0"));
  EXPECT_FALSE(std::filesystem::exists(folder + "8-1-0"));
  EXPECT_FALSE(std::filesystem::exists(folder + "9-1-0"));
}

TEST_F(FolderFilesTest, APayloadThatCannotBeKeptIsSaid) {
  std::filesystem::remove(folder_.path() + "/payloads");
  const Result<Unit> kept = files_->keep_payload(kKey, "payload");
  ASSERT_FALSE(kept.ok());
  EXPECT_NE(kept.error().message.find("cannot keep the task's payload in " + folder_.path() + "/payloads"),
            std::string::npos)
      << kept.error().message;
}

}  // namespace
}  // namespace gpusched

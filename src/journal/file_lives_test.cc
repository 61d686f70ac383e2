// Many lives of one journal folder on a disk that breaks: processes are killed at any call, the power goes,
// calls fail with and without effect, the kernel forgets pages that a failed sync left. Whatever was
// acknowledged in one life is there in every later one, and no start is refused for good.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "journal/disk/memory_disk.h"
#include "journal/disk/process_disk.h"
#include "journal/file_journal.h"

namespace gpusched {
namespace {

using Call = MemoryDisk::Call;
using Outcome = MemoryDisk::Outcome;

constexpr uint64_t kSeeds = 1'500;
constexpr int kLives = 12;
constexpr int kCallsBroken = static_cast<int>(MemoryDisk::kCallCount) + 1;

class Lives {
 public:
  explicit Lives(uint64_t seed) : prng_(seed), disk_(seed) {
    CHECK(disk_.make_dir("data").ok());
    CHECK(disk_.sync_dir(".").ok());
  }

  void run() {
    for (int life = 0; life < kLives && failure_.empty(); ++life) {
      if (prng_.chance(400)) disk_.drop_cache();
      if (begin()) live();
      end();
    }
    // At last nothing breaks any more.
    disk_.heal();
    disk_.set_capacity(UINT64_MAX);
    if (failure_.empty() && !begin(false)) fail("the last start is refused: " + refusal_);
  }
  const std::string& failure() const { return failure_; }

 private:
  void fail(const std::string& sentence) {
    if (failure_.empty()) failure_ = sentence + "; lives:" + story_;
  }
  void tell(const std::string& what) { story_ += " " + what; }

  MemoryDisk::Verdict some_failure() {
    return {.outcome = prng_.chance(500) ? Outcome::kFails : Outcome::kFailsLate,
            .code = prng_.chance(200) ? ErrorCode::kStorageFull : ErrorCode::kIo};
  }
  void break_something() {
    if (prng_.chance(500)) {
      process_->die_at(prng_.below(60), prng_.chance(500));
      tell("dies");
    }
    if (prng_.chance(400)) {
      const auto call = static_cast<Call>(prng_.below(MemoryDisk::kCallCount));
      disk_.fail_once(call, some_failure(), prng_.below(20));
      tell("fails " + std::to_string(static_cast<int>(call)));
    }
    if (prng_.chance(300)) {
      disk_.fail_once(Call::kRemove, some_failure(), prng_.below(3));
      tell("stays");
    }
    if (prng_.chance(100)) {
      disk_.fail_once(Call::kRead, {.outcome = Outcome::kLies, .code = ErrorCode::kIo}, prng_.below(20));
      tell("misreads");
    }
  }

  /// A new process opens the journal. False: it could not, and that is the disk's fault.
  bool begin(bool breaks = true) {
    process_ = std::make_unique<ProcessDisk>(disk_);
    const bool at_once = breaks && prng_.chance(500);
    if (at_once) break_something();
    tell("opens");
    Result<std::unique_ptr<FileJournal>> opened = open();
    for (int attempt = 0; attempt < kCallsBroken && !opened && !process_->is_dead(); ++attempt) {
      // One failed call may end one start, and as many may be planned as there are kinds.
      refusal_ = opened.error().message;
      tell("again");
      opened = open();
    }
    if (!opened) {
      refusal_ = opened.error().message;
      if (!process_->is_dead()) fail("a start is refused: " + refusal_);
      return false;
    }
    journal_ = std::move(*opened);
    if (!compare()) return false;
    if (breaks && !at_once) break_something();
    return true;
  }

  Result<std::unique_ptr<FileJournal>> open() {
    // Now and then another size; the records fit both.
    const uint64_t segment_bytes = prng_.chance(200) ? 24'576 : 16'384;
    return FileJournal::open("data/journal", {.segment_bytes = segment_bytes,
                                              .reserve_bytes = 1,
                                              .background = false,
                                              .disk = process_.get(),
                                              .store_id = 77});
  }

  /// False: what is there could not be read in this life, or is not what should be.
  bool compare() {
    const uint64_t last = journal_->last_position();
    if (last < acknowledged_) {
      fail("record " + std::to_string(acknowledged_) + " was acknowledged, the journal ends at " +
           std::to_string(last));
    }
    if (last > records_.size()) fail("the journal invents record " + std::to_string(last));
    if (cutting_ && last != *cutting_ && last != records_.size()) fail("a truncation was done by half");
    if (journal_->first_position() > kept_from_) fail("records are gone that nobody gave up");
    if (!failure_.empty()) return false;
    uint64_t position = journal_->first_position();
    const Result<Unit> read = journal_->read_from(position, [&](const JournalRecord& record) -> Result<Unit> {
      if (record.position != position || record.payload != records_[position - 1]) {
        fail("record " + std::to_string(position) + " is not what was written");
      }
      position += 1;
      return Unit{};
    });
    if (!read) return false;
    if (position != last + 1) fail("records are missing");
    // What was found is told to clients.
    cutting_.reset();
    records_.resize(last);
    acknowledged_ = last;
    return failure_.empty();
  }

  void live() {
    const uint64_t steps = prng_.below(60);
    for (uint64_t step = 0; step < steps && !process_->is_dead() && failure_.empty(); ++step) {
      if (!do_something()) return;
    }
  }

  /// False: the journal takes nothing more.
  bool do_something() {
    const uint64_t draw = prng_.below(100);
    if (draw < 55) return append();
    if (draw < 85) return sync();
    if (draw < 90) return truncate();
    if (draw < 97) return compact();
    if (draw < 98) return seal();
    disk_.write_back(prng_);
    return true;
  }
  bool append() {
    std::string payload = std::to_string(written_++) + "/";
    const std::size_t bytes = prng_.below(3'000);
    while (payload.size() < bytes) payload.push_back(static_cast<char>('a' + prng_.below(26)));
    const uint64_t position = journal_->last_position() + 1;
    CHECK(position == records_.size() + 1);
    const Result<Unit> done = journal_->append({.position = position, .term = 1, .payload = payload});
    if (done) records_.push_back(payload);
    return done.ok() || done.error().code == ErrorCode::kStorageFull;
  }
  bool sync() {
    if (!journal_->sync() || process_->is_dead()) return false;
    acknowledged_ = journal_->last_position();
    return true;
  }
  bool truncate() {
    const uint64_t low = std::max(journal_->first_position(), kept_from_) - 1;
    const uint64_t position = low + prng_.below(journal_->last_position() - low + 1);
    tell("truncates");
    if (!sync()) return false;
    acknowledged_ = position;
    cutting_ = position;
    if (!journal_->truncate_after(position) || process_->is_dead()) return false;
    cutting_.reset();
    records_.resize(position);
    return true;
  }
  bool compact() {
    kept_from_ = std::max(kept_from_, acknowledged_ - std::min<uint64_t>(acknowledged_, prng_.below(20)));
    tell("compacts");
    return journal_->compact_before(kept_from_).ok() || !process_->is_dead();
  }
  bool seal() {
    tell("seals");
    if (journal_->seal() && !process_->is_dead()) acknowledged_ = journal_->last_position();
    return false;
  }

  void end() {
    if (prng_.chance(300)) disk_.write_back(prng_);
    process_->die();
    journal_.reset();
    process_.reset();
    if (prng_.chance(300)) disk_.heal();
    if (!prng_.chance(400)) return tell("is killed;");
    disk_.lose_power(prng_);
    tell("loses power;");
  }

  Prng prng_;
  MemoryDisk disk_;
  std::unique_ptr<ProcessDisk> process_;
  std::unique_ptr<FileJournal> journal_;
  std::vector<std::string> records_;  ///< By position - 1: what may be there.
  uint64_t acknowledged_ = 0;
  uint64_t kept_from_ = 1;
  std::optional<uint64_t> cutting_;  ///< A truncation whose end was not seen.
  uint64_t written_ = 0;
  std::string failure_;
  std::string refusal_;
  std::string story_;
};

/// GPUSCHED_JOURNAL_SEEDS=FROM..TO runs others.
TEST(FileLives, NothingAcknowledgedIsLostAndNoStartIsRefusedWhateverBreaks) {
  uint64_t from = 1;
  uint64_t to = kSeeds;
  if (const char* range = std::getenv("GPUSCHED_JOURNAL_SEEDS")) {
    const std::string text = range;
    const std::size_t dots = text.find("..");
    from = std::stoull(text.substr(0, dots));
    to = dots == std::string::npos ? from : std::stoull(text.substr(dots + 2));
  }
  for (uint64_t seed = from; seed <= to; ++seed) {
    Lives lives(seed);
    lives.run();
    ASSERT_EQ(lives.failure(), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace gpusched

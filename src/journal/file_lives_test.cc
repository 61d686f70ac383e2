// Many lives of one journal folder on a disk that breaks: processes are killed at any call, the power goes,
// calls fail with and without effect, the kernel forgets pages that a failed sync left. All that was
// acknowledged in one life is there in every later one, and no start is refused for good.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "base/prng.h"
#include "journal/disk/memory_disk.h"
#include "journal/disk/process_disk.h"
#include "journal/file_journal.h"
#include "journal/testing/proof_left.h"

namespace gpusched {
namespace {

using Call = MemoryDisk::Call;
using Outcome = MemoryDisk::Outcome;

constexpr uint64_t kSeeds = 1'500;
constexpr int kLives = 12;
constexpr uint64_t kStoreId = 77;
constexpr int kCallsBroken = static_cast<int>(MemoryDisk::kCallCount) + 1;

class Lives {
 public:
  /// `lies`: the disk also says that it did what it did not, or does it elsewhere.
  explicit Lives(uint64_t seed, bool lies = false) : prng_(seed), disk_(seed), lies_(lies) {
    if (lies) disk_.set_rule([this](Call call, const std::string&) { return lie_or_not(call); });
    CHECK(disk_.make_dir("data").ok());
    CHECK(disk_.sync_dir(".").ok());
  }

  void run() {
    for (int life = 0; life < kLives && is_going_on(); ++life) {
      if (prng_.chance(400)) disk_.drop_cache();
      if (begin()) live();
      end();
    }
    // At last nothing breaks any more.
    disk_.heal();
    disk_.set_capacity(UINT64_MAX);
    planned_lies_.clear();
    if (is_going_on() && !begin(false) && is_going_on()) fail("the last start is refused: " + refusal_);
  }
  const std::string& failure() const { return failure_; }

 private:
  void fail(const std::string& sentence) {
    if (failure_.empty()) failure_ = sentence + "; lives:" + story_;
  }
  void tell(const std::string& what) { story_ += " " + what; }
  bool is_going_on() const { return failure_.empty() && !excused_; }

  MemoryDisk::Verdict lie_or_not(Call call) {
    const auto due = std::find_if(planned_lies_.begin(), planned_lies_.end(),
                                  [&](const PlannedLie& lie) { return lie.call == call; });
    if (due == planned_lies_.end()) return {};
    if (due->after > 0) {
      due->after -= 1;
      return {};
    }
    const MemoryDisk::Verdict verdict{.outcome = due->outcome};
    planned_lies_.erase(due);
    // The last group is in danger, too: a start writes it again, and nothing proves it to the next one.
    lied_from_ = std::min(lied_from_.value_or(UINT64_MAX), proven_ + 1);
    tell("[lies]");
    return verdict;
  }
  void plan_a_lie() {
    static constexpr std::array<std::pair<Call, Outcome>, 4> kLies = {{{Call::kSync, Outcome::kLies},
                                                                       {Call::kSyncDir, Outcome::kLies},
                                                                       {Call::kWrite, Outcome::kLies},
                                                                       {Call::kWrite, Outcome::kStrays}}};
    const auto& [call, outcome] = kLies[prng_.below(kLies.size())];
    planned_lies_.push_back({.call = call, .outcome = outcome, .after = prng_.below(12)});
  }
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
    if (lies_ && prng_.chance(700)) plan_a_lie();
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
      disk_.repair();  // As an operator would.
      tell("again");
      opened = open();
    }
    if (!opened) {
      refusal_ = opened.error().message;
      excused_ = !process_->is_dead() && lied_from_;
      if (!process_->is_dead() && !excused_) fail("a start is refused: " + refusal_);
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
    if (lied_from_) proof_left_ = proof_left(disk_, "data/journal", kStoreId);
    return FileJournal::open("data/journal", {.segment_bytes = segment_bytes,
                                              .reserve_bytes = 1,
                                              .background = false,
                                              .disk = process_.get(),
                                              .store_id = kStoreId});
  }

  /// False: what is there could not be read in this life, or is not what should be.
  bool compare() {
    const uint64_t last = journal_->last_position();
    // Nobody can know a loss by a lie without a trace; records of which there was any proof must be there.
    if (last < acknowledged_ && lied_from_ && (*lied_from_ <= last + 1 || proof_left_ <= last)) {
      excused_ = true;
      return false;
    }
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
    // Records that were found are told to clients.
    cutting_.reset();
    records_.resize(last);
    acknowledged_ = last;
    proven_ = std::min(proven_, last);
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
    if (draw < 90 && !lies_) return truncate();
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
    if (acknowledged_ < journal_->last_position()) proven_ = acknowledged_;
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

  struct PlannedLie {
    Call call;
    Outcome outcome;
    uint64_t after = 0;
  };

  Prng prng_;
  MemoryDisk disk_;
  const bool lies_;
  std::vector<PlannedLie> planned_lies_;
  std::optional<uint64_t> lied_from_;  ///< Records from here on may be lost with the power.
  uint64_t proof_left_ = 0;            ///< Before this start.
  bool excused_ = false;               ///< A lying disk has lost what it confirmed: nothing can be promised.
  std::unique_ptr<ProcessDisk> process_;
  std::unique_ptr<FileJournal> journal_;
  std::vector<std::string> records_;  ///< By position - 1: what may be there.
  uint64_t acknowledged_ = 0;
  uint64_t proven_ = 0;  ///< Records behind this one are proven by no later one.
  uint64_t kept_from_ = 1;
  std::optional<uint64_t> cutting_;  ///< A truncation whose end was not seen.
  uint64_t written_ = 0;
  std::string failure_;
  std::string refusal_;
  std::string story_;
};

/// GPUSCHED_JOURNAL_SEEDS=FROM..TO: others than the first kSeeds.
std::pair<uint64_t, uint64_t> seeds() {
  const char* range = std::getenv("GPUSCHED_JOURNAL_SEEDS");
  if (range == nullptr) return {1, kSeeds};
  const std::string text = range;
  const std::size_t dots = text.find("..");
  const uint64_t from = std::stoull(text.substr(0, dots));
  return {from, dots == std::string::npos ? from : std::stoull(text.substr(dots + 2))};
}

TEST(FileLives, NothingAcknowledgedIsLostAndNoStartIsRefusedWhateverBreaks) {
  const auto [from, to] = seeds();
  for (uint64_t seed = from; seed <= to; ++seed) {
    Lives lives(seed);
    lives.run();
    ASSERT_EQ(lives.failure(), "") << "seed " << seed;
  }
}

TEST(FileLives, ADiskThatLiesLosesOnlyWhatItsLiesConcern) {
  const auto [from, to] = seeds();
  for (uint64_t seed = from; seed <= to; ++seed) {
    Lives lives(seed, /*lies=*/true);
    lives.run();
    ASSERT_EQ(lives.failure(), "") << "seed " << seed;
  }
}

}  // namespace
}  // namespace gpusched

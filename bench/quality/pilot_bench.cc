// rooms: anticipate base
//
// Does a pilot with the built-in rules foresee the needs of invented developers? Twenty times ten days, two
// of each ten with words that the others do not have. A lease that was asked for is right if a need begins in
// the next 20 minutes or goes on. A need is foreseen if a lease was asked for no later than 5 seconds after
// its begin, or was held then.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "anticipate/anticipator.h"
#include "developer_days.h"
#include "table.h"

namespace gpusched {
namespace {

using anticipate::Anticipator;
using anticipate::Decision;
using quality::DeveloperDay;
using quality::Need;

constexpr int kDays = 10, kKeptOut = 2;
constexpr Duration kAhead = minutes(20), kLate = seconds(5), kStart = seconds(20), kTick = seconds(10);

struct Score {
  std::size_t events = 0, leases = 0, right = 0, needs = 0, foreseen = 0;

  void add(const Score& other) {
    events += other.events;
    leases += other.leases;
    right += other.right;
    needs += other.needs;
    foreseen += other.foreseen;
  }
  double precision() const {
    return leases == 0 ? 0 : static_cast<double>(right) / static_cast<double>(leases);
  }
  double recall() const {
    return needs == 0 ? 0 : static_cast<double>(foreseen) / static_cast<double>(needs);
  }
};

/// One pilot's day, second by second where something happens.
class Replay {
 public:
  explicit Replay(const DeveloperDay& day)
      : day_(day), pilot_(anticipate::builtin_rules(), {}), foreseen_(day.needs.size()) {}

  Score run() {
    Time now = day_.events.front().at;
    for (const quality::DayEvent& event : day_.events) {
      for (; now + kTick < event.at; now = now + kTick) tick(now);
      now = event.at;
      note_held(now);
      act(pilot_.observe(event.seen, now), now);
    }
    Score score{.events = day_.events.size(), .leases = leases_, .right = right_, .needs = day_.needs.size()};
    for (const bool one : foreseen_) score.foreseen += one ? 1 : 0;
    return score;
  }

 private:
  bool is_needed(Time now) const {
    for (const Need& need : day_.needs) {
      if (need.begin <= now && now < need.end) return true;
    }
    return false;
  }

  void act(const std::vector<Decision>& decisions, Time now) {
    for (const Decision& decision : decisions) {
      if (decision.kind == Decision::Kind::kAllocate) {
        leases_ += 1;
        bool is_right = false;
        for (const Need& need : day_.needs) is_right |= need.begin - kAhead <= now && now < need.end;
        right_ += is_right ? 1 : 0;
        pilot_.lease_seen(decision.lease, {.is_ready = true, .expires_at = now + kStart + minutes(10)},
                          now + kStart);
        note_held(now);
      }
      if (decision.kind == Decision::Kind::kExtend)
        pilot_.lease_seen(decision.lease, {.is_ready = true, .expires_at = now + minutes(10)}, now);
      if (decision.kind == Decision::Kind::kRelease)
        pilot_.lease_seen(decision.lease, {.is_gone = true, .expires_at = {}}, now);
    }
  }

  void tick(Time now) {
    for (const anticipate::Lease& lease : pilot_.leases())
      pilot_.lease_use(lease.number, is_needed(now), now);
    act(pilot_.tick(now), now);
    note_held(now);
  }

  /// Needs that begin about now, while a lease is held.
  void note_held(Time now) {
    if (pilot_.leases().empty()) return;
    for (std::size_t at = 0; at < day_.needs.size(); ++at) {
      const Need& need = day_.needs[at];
      if (need.begin - kTick <= now && now <= need.begin + kLate) foreseen_[at] = true;
    }
  }

  const DeveloperDay& day_;
  Anticipator pilot_;
  std::vector<bool> foreseen_;
  std::size_t leases_ = 0, right_ = 0;
};

bool print(const std::string& what, const Score& score) {
  std::printf("%s: %zu events, %zu leases, %zu of them right, %zu needs, %zu of them foreseen\n",
              what.c_str(), score.events, score.leases, score.right, score.needs, score.foreseen);
  const bool precise = quality::print_row("pilot, " + what + ": precision by rules alone", ">= 0.90",
                                          quality::grouped(score.precision(), 3), score.precision() >= 0.9);
  const bool complete = quality::print_row("pilot, " + what + ": recall by rules alone", ">= 0.80",
                                           quality::grouped(score.recall(), 3), score.recall() >= 0.8);
  return precise && complete;
}

int run(int sets) {
  Score tuned, kept_out;
  std::size_t events = 0;
  for (int day = 0; day < sets * kDays; ++day) {
    const bool is_kept_out = day % kDays >= kDays - kKeptOut;
    const DeveloperDay made = quality::DayMaker(static_cast<uint64_t>(day) + 1, is_kept_out).make();
    if (day < kDays) events += made.events.size();
    (is_kept_out ? kept_out : tuned).add(Replay(made).run());
  }
  const bool met = print("days of tuning", tuned);
  const bool met_too = print("days kept out", kept_out);
  const bool enough = quality::print_row("pilot, events of ten days", ">= 2,000",
                                         quality::grouped(static_cast<double>(events)), events >= 2'000);
  return met && met_too && enough ? 0 : 1;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  const int sets = argc > 1 ? std::atoi(argv[1]) : gpusched::quality::kShakenRuns;
  if (sets >= 1 && sets <= 1'000) return gpusched::run(sets);
  std::fprintf(stderr, "usage: tools/bench quality pilot [SETS]: 1 to 1000 times ten days\n");
  return 2;
}

#include "published/gang_replay.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "base/check.h"

namespace gpusched::replay {
namespace {

constexpr Duration kEver{kNever.ns};

/// GPUs by node, and who has which.
class Gpus {
 public:
  explicit Gpus(const GangRules& rules)
      : rules_(rules),
        free_(rules.nodes, rules.gpus_per_node),
        total_(int64_t{rules.nodes} * rules.gpus_per_node) {}

  struct Share {
    uint32_t node = 0;
    uint32_t gpus = 0;
  };

  int64_t free() const { return total_; }

  /// Nothing, if it does not fit.
  std::vector<Share> take(int64_t size) {
    if (size > total_) return {};
    std::vector<Share> shares;
    if (!rules_.consolidated) {
      shares.push_back({.node = 0, .gpus = static_cast<uint32_t>(size)});
    } else if (!choose(size, shares)) {
      return {};
    }
    total_ -= size;
    if (rules_.consolidated) {
      for (const Share& share : shares) free_[share.node] -= share.gpus;
    }
    return shares;
  }

  void give_back(const std::vector<Share>& shares) {
    for (const Share& share : shares) {
      total_ += share.gpus;
      if (rules_.consolidated) free_[share.node] += share.gpus;
    }
  }

 private:
  bool choose(int64_t size, std::vector<Share>& shares) const {
    const uint32_t each = rules_.gpus_per_node;
    int64_t whole = size / each;
    const auto rest = static_cast<uint32_t>(size % each);
    uint32_t best = rules_.nodes;
    for (uint32_t node = 0; node < rules_.nodes; ++node) {
      if (whole > 0 && free_[node] == each) {
        shares.push_back({.node = node, .gpus = each});
        --whole;
      } else if (rest > 0 && free_[node] >= rest && (best == rules_.nodes || free_[node] < free_[best])) {
        best = node;
      }
    }
    if (whole > 0 || (rest > 0 && best == rules_.nodes)) return false;
    if (rest > 0) shares.push_back({.node = best, .gpus = rest});
    return true;
  }

  const GangRules& rules_;
  std::vector<uint32_t> free_;
  int64_t total_;
};

class GangReplay {
 public:
  GangReplay(std::span<const TraceJob> jobs, const GangRules& rules, GangOrder& order)
      : jobs_(jobs), rules_(rules), order_(order), gpus_(rules_), lives_(jobs.size()) {
    outcome_.runs.resize(jobs.size());
  }

  ReplayOutcome run() {
    uint32_t arriving = 0;
    while (arriving < jobs_.size() || !there_.empty()) {
      Duration next = next_change();
      if (arriving < jobs_.size()) next = std::min(next, jobs_[arriving].submitted);
      CHECK(next != kEver);
      advance(next);
      end_what_is_over();
      while (arriving < jobs_.size() && jobs_[arriving].submitted <= now_) {
        CHECK(jobs_[arriving].size <= int64_t{rules_.nodes} * rules_.gpus_per_node);
        lives_[arriving].remaining = jobs_[arriving].run;
        lives_[arriving].waits_since = now_;
        order_.submitted(arriving, jobs_[arriving], now_);
        there_.push_back(arriving++);
      }
      place();
      ++outcome_.cycles;
    }
    return std::move(outcome_);
  }

 private:
  struct Life {
    Duration remaining;
    Duration attained;
    Duration restarting;  ///< The part of `remaining` that is no work.
    Duration waited;      ///< In all, until it was last put in line.
    Duration waits_since;
    std::vector<Gpus::Share> holds;
    int64_t key = 0;
    bool patient = true;
    bool runs = false;
    bool ever_ran = false;
  };

  GangView view_of(uint32_t job) const {
    const Life& life = lives_[job];
    return {.job = job,
            .what = jobs_[job],
            .attained = life.attained,
            .remaining = life.remaining + (life.ever_ran && !life.runs ? rules_.restart : Duration{}),
            .runs = life.runs};
  }

  Duration next_change() {
    Duration next = kEver;
    for (const uint32_t job : there_) {
      const Life& life = lives_[job];
      if (!life.runs) {
        const Duration due = life.waits_since + rules_.patience - life.waited;
        if (rules_.patience.ns > 0 && due > now_) next = std::min(next, due);
        continue;
      }
      next = std::min(next, now_ + life.remaining);
      if (!rules_.preemptive) continue;
      const Duration change = order_.key_changes_after(view_of(job));
      if (change < kEver - now_ - life.restarting) next = std::min(next, now_ + life.restarting + change);
    }
    return next;
  }

  void advance(Duration to) {
    const Duration by = to - now_;
    CHECK(by.ns >= 0);
    for (const uint32_t job : there_) {
      Life& life = lives_[job];
      if (!life.runs) continue;
      life.remaining = life.remaining - by;
      const Duration restarted = std::min(life.restarting, by);
      life.restarting = life.restarting - restarted;
      life.attained = life.attained + (by - restarted);
    }
    now_ = to;
  }

  void end_what_is_over() {
    std::erase_if(there_, [&](uint32_t job) {
      Life& life = lives_[job];
      if (!life.runs || life.remaining.ns > 0) return false;
      gpus_.give_back(life.holds);
      outcome_.runs[job].ended = now_;
      outcome_.runs[job].ran = true;
      order_.finished(job, jobs_[job], now_);
      return true;
    });
  }

  void sort_by_turn(std::vector<uint32_t>& line) {
    for (const uint32_t job : line) {
      Life& life = lives_[job];
      life.key = order_.key(view_of(job));
      const Duration waited = life.waited + (life.runs ? Duration{} : now_ - life.waits_since);
      life.patient = rules_.patience.ns == 0 || waited < rules_.patience;
    }
    std::sort(line.begin(), line.end(), [&](uint32_t a, uint32_t b) {
      const Life& x = lives_[a];
      const Life& y = lives_[b];
      // The impatient among themselves as they came.
      const int64_t x_key = x.patient ? x.key : 0;
      const int64_t y_key = y.patient ? y.key : 0;
      return std::tie(x.patient, x_key, a) < std::tie(y.patient, y_key, b);
    });
  }

  void place() {
    if (rules_.preemptive) return place_anew();
    std::vector<uint32_t> line;
    for (const uint32_t job : there_) {
      if (!lives_[job].runs) line.push_back(job);
    }
    if (line.empty() || gpus_.free() == 0) return;
    sort_by_turn(line);
    for (const uint32_t job : line) {
      std::vector<Gpus::Share> shares = gpus_.take(jobs_[job].size);
      if (!shares.empty()) {
        start(job, std::move(shares));
      } else if (!rules_.pass_blocked || !lives_[job].patient) {
        return;
      }
    }
  }

  // Everybody in turn gets what is left; a job that gets nothing and has something is stopped. One that goes
  // on keeps what it has, as long as GPUs are all alike.
  void place_anew() {
    CHECK(!rules_.consolidated);
    std::vector<uint32_t> line = there_;
    sort_by_turn(line);
    int64_t left = int64_t{rules_.nodes} * rules_.gpus_per_node;
    std::vector<uint32_t> starting;
    std::vector<uint32_t> stopping;
    bool blocked = false;
    for (const uint32_t job : line) {
      const bool runs = !blocked && jobs_[job].size <= left;
      if (runs) left -= jobs_[job].size;
      if (!runs && (!rules_.pass_blocked || !lives_[job].patient)) blocked = true;
      if (runs && !lives_[job].runs) starting.push_back(job);
      if (!runs && lives_[job].runs) stopping.push_back(job);
    }
    for (const uint32_t job : stopping) stop(job);
    for (const uint32_t job : starting) start(job, gpus_.take(jobs_[job].size));
  }

  void start(uint32_t job, std::vector<Gpus::Share> shares) {
    CHECK(!shares.empty());
    Life& life = lives_[job];
    life.holds = std::move(shares);
    life.runs = true;
    life.waited = life.waited + (now_ - life.waits_since);
    if (life.ever_ran) {
      life.restarting = rules_.restart;
      life.remaining = life.remaining + rules_.restart;
    } else {
      outcome_.runs[job].started = now_;
    }
    life.ever_ran = true;
    order_.started(job, jobs_[job], now_);
  }

  void stop(uint32_t job) {
    Life& life = lives_[job];
    gpus_.give_back(life.holds);
    life.runs = false;
    // A restart that was not over is to be done again from its begin.
    life.remaining = life.remaining - life.restarting;
    life.restarting = {};
    life.waits_since = now_;
    ++outcome_.preemptions;
    ++outcome_.runs[job].preemptions;
    order_.stopped(job, jobs_[job], now_);
  }

  std::span<const TraceJob> jobs_;
  const GangRules rules_;
  GangOrder& order_;
  Gpus gpus_;
  std::vector<Life> lives_;
  std::vector<uint32_t> there_;  ///< Submitted and not ended.
  Duration now_;
  ReplayOutcome outcome_;
};

}  // namespace

ReplayOutcome replay_gangs(std::span<const TraceJob> jobs, const GangRules& rules, GangOrder& order) {
  CHECK(rules.nodes > 0);
  CHECK(rules.gpus_per_node > 0);
  return GangReplay(jobs, rules, order).run();
}

std::pair<int64_t, int64_t> AttainedLevels::level_of(const GangView& view) const {
  const int64_t attained = view.attained.ms() * view.what.size;
  int64_t level = 0;
  int64_t bound = base_gpu_s_ * 1000;
  while (attained >= bound && bound < std::numeric_limits<int64_t>::max() / ratio_per_mille_) {
    bound = bound * ratio_per_mille_ / 1000;
    ++level;
  }
  return {level, bound};
}

int64_t AttainedLevels::key(const GangView& view) {
  constexpr int64_t kSizes = int64_t{1} << 32;
  return (level_of(view).first * kSizes + view.what.size) * 2 + (view.runs ? 0 : 1);
}

Duration AttainedLevels::key_changes_after(const GangView& view) {
  const int64_t left = level_of(view).second - view.attained.ms() * view.what.size;
  // Rounded up to whole milliseconds: then the level is really over.
  return milliseconds(left / view.what.size + 1);
}

}  // namespace gpusched::replay

#include "predict/learned.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"
#include "predict/fixed_log.h"

namespace gpusched::predict {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr uint64_t kOne = 1u << 16;  ///< The weight of the newest run of exactly the same kind.
constexpr std::size_t kStepsMax = 64;
constexpr int64_t kMinute = 60'000;
constexpr std::size_t kCrowdVoices = 16;  ///< As many of the crowd's quantiles are looked at.

uint64_t times_per_mille(uint64_t value, uint32_t per_mille) { return value * per_mille / 1000; }

// first, first * step, first * step^2, ... of 65,536.
std::vector<uint32_t> steps_of(uint64_t first, uint32_t step_per_mille, std::size_t count) {
  std::vector<uint32_t> steps;
  // Kept finer than what is handed out, so that rounding does not add up.
  uint64_t value = first << 16;
  for (std::size_t i = 0; i < count; ++i) {
    steps.push_back(static_cast<uint32_t>(value >> 16));
    value = times_per_mille(value, step_per_mille);
  }
  return steps;
}

std::size_t quarter_octaves(int32_t a, int32_t b) {
  return std::min<std::size_t>(static_cast<std::size_t>(std::abs(a - b)) / 64, kStepsMax - 1);
}

uint64_t mixed(uint64_t a, uint64_t b) {
  uint64_t x = (a * 0x9E3779B97F4A7C15ULL) ^ (b + 0x7F4A7C15F39CC060ULL + (a << 6));
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  return x ^ (x >> 31);
}

std::size_t crowd_of(int64_t limit_ms, int32_t limit_log) {
  return limit_ms <= 0 ? 0 : 1 + static_cast<std::size_t>(limit_log) / 128;
}

}  // namespace

Learned::Learned() : Learned(Options{}) {}

Learned::Learned(const Options& options) : options_(options) {
  CHECK(options.window > 0);
  CHECK(options.window <= 256);
  CHECK(options.running_max <= 256);
  CHECK(options.crowd_window <= 256);
  CHECK(options.lines_max > 0);
  decay_ = steps_of(kOne, options.decay_per_mille, options.window);
  size_steps_ = steps_of(kOne * options.other_size_per_mille / 1000, options.size_step_per_mille, kStepsMax);
  limit_steps_ =
      steps_of(kOne * options.other_limit_per_mille / 1000, options.limit_step_per_mille, kStepsMax);
  crowd_.resize(1 + 64 * 2);
}

Learned::Past Learned::like_of(const JobFacts& facts, int64_t run_ms) {
  return {.user = facts.user,
          .name = facts.name,
          .shape = facts.shape,
          .size = facts.size,
          .limit_ms = facts.limit_ms,
          .run_ms = run_ms,
          .size_log = log2_q8(static_cast<uint64_t>(std::max<int64_t>(facts.size, 0))),
          .limit_log = log2_q8(static_cast<uint64_t>(std::max<int64_t>(facts.limit_ms, 0)))};
}

void Learned::push(Ring& ring, const Past& past, uint32_t window) {
  if (ring.runs.size() < window) {
    ring.runs.push_back(past);
    return;
  }
  ring.runs[ring.next] = past;
  ring.next = (ring.next + 1) % window;
}

const Learned::Line* Learned::find(const Lines& lines, uint64_t key) {
  const auto found = lines.index.find(key);
  return found == lines.index.end() ? nullptr : &lines.lines[found->second];
}

Learned::Line& Learned::line_of(Lines& lines, uint64_t key) {
  uint32_t slot = 0;
  if (const auto found = lines.index.find(key); found != lines.index.end()) {
    slot = found->second;
    lines.by_use.erase({lines.lines[slot].used, slot});
  } else if (lines.lines.size() < options_.lines_max) {
    slot = static_cast<uint32_t>(lines.lines.size());
    lines.lines.emplace_back();
    lines.index.emplace(key, slot);
  } else {
    slot = lines.by_use.begin()->second;
    lines.by_use.erase(lines.by_use.begin());
    lines.index.erase(lines.lines[slot].key);
    lines.lines[slot] = Line{};
    lines.index.emplace(key, slot);
  }
  Line& line = lines.lines[slot];
  line.key = key;
  line.used = ++uses_;
  line.changed = line.used;  // A caller that asks for it changes it.
  lines.by_use.insert({line.used, slot});
  return line;
}

// How much a run says about the wanted one: 65,536 when they are alike.
uint64_t Learned::likeness(const Past& past, const Past& wanted) const {
  uint64_t weight = kOne;
  if (past.size != wanted.size) {
    weight = weight * size_steps_[quarter_octaves(past.size_log, wanted.size_log)] >> 16;
  }
  if (past.limit_ms != wanted.limit_ms) {
    weight = weight * limit_steps_[quarter_octaves(past.limit_log, wanted.limit_log)] >> 16;
  }
  if (past.name != wanted.name) weight = times_per_mille(weight, options_.other_name_per_mille);
  if (past.shape != wanted.shape) weight = times_per_mille(weight, options_.other_shape_per_mille);
  if (past.user != wanted.user) weight = times_per_mille(weight, options_.other_user_per_mille);
  return weight;
}

void Learned::observe_ring(const Ring& ring, const Past& wanted, bool others_only,
                           std::vector<Observed>& seen) const {
  const std::size_t count = ring.runs.size();
  for (std::size_t age = 0; age < count; ++age) {
    const Past& past = ring.runs[(ring.next + count - 1 - age) % count];
    if (others_only && past.user == wanted.user) continue;  // The user's own line has it.
    const uint64_t weight = decay_[age] * likeness(past, wanted) >> 16;
    seen.push_back({.run_ms = past.run_ms, .weight = weight});
  }
}

void Learned::push_crowd(const Past& past) {
  Crowd& crowd = crowd_[crowd_of(past.limit_ms, past.limit_log)];
  crowd.changed = ++uses_;
  const auto index = static_cast<uint32_t>(
      crowd.ring.runs.size() < options_.crowd_window ? crowd.ring.runs.size() : crowd.ring.next);
  std::erase(crowd.shortest_first, index);
  push(crowd.ring, past, options_.crowd_window);
  const std::vector<Past>& runs = crowd.ring.runs;
  const auto shorter = [&](uint32_t a, uint32_t b) {
    // a.run / a.limit < b.run / b.limit, in whole numbers.
    const auto share = [](const Past& x, const Past& y) {
      return static_cast<Wide>(x.run_ms) * static_cast<uint64_t>(std::max<int64_t>(y.limit_ms, 1));
    };
    return share(runs[a], runs[b]) < share(runs[b], runs[a]);
  };
  const auto place =
      std::upper_bound(crowd.shortest_first.begin(), crowd.shortest_first.end(), index, shorter);
  crowd.shortest_first.insert(place, index);
}

// Everybody's jobs with such a limit, as shares of their limits.
void Learned::observe_crowd(const Past& wanted, std::vector<Observed>& seen) const {
  const uint64_t all = times_per_mille(kOne, options_.crowd_per_mille);
  const Crowd& crowd = crowd_[crowd_of(wanted.limit_ms, wanted.limit_log)];
  const std::size_t count = crowd.shortest_first.size();
  if (count == 0) {
    if (wanted.limit_ms > 0) seen.push_back({.run_ms = wanted.limit_ms, .weight = all});
    return;
  }
  const std::size_t voices = std::min(count, kCrowdVoices);
  for (std::size_t i = 0; i < voices; ++i) {
    const Past& past = crowd.ring.runs[crowd.shortest_first[(2 * i + 1) * count / (2 * voices)]];
    int64_t run_ms = past.run_ms;
    if (past.limit_ms > 0 && wanted.limit_ms > 0) {
      run_ms = static_cast<int64_t>(static_cast<Wide>(past.run_ms) * static_cast<uint64_t>(wanted.limit_ms) /
                                    static_cast<uint64_t>(past.limit_ms));
    }
    seen.push_back({.run_ms = run_ms, .weight = all / voices});
  }
}

// Gives the weight of each run that goes on to the ones that were longer, in their proportions. With none
// longer, it is taken to end at twice what it has run.
std::vector<RunTimes::Sample> Learned::spread(std::vector<Observed>& seen, int64_t limit_ms) {
  constexpr uint64_t kUnit = 1u << 20;
  constexpr uint64_t kGrownMax = kUnit << 8;
  std::sort(seen.begin(), seen.end(), [](const Observed& a, const Observed& b) {
    return std::pair(a.run_ms, a.goes_on) < std::pair(b.run_ms, b.goes_on);
  });
  uint64_t rest = 0;
  for (const Observed& one : seen) rest += one.weight;
  uint64_t grown = kUnit;  // Present size of a unit of weight, by the shorter runs that go on.
  std::vector<RunTimes::Sample> samples;
  samples.reserve(seen.size());
  for (const Observed& one : seen) {
    rest -= one.weight;
    int64_t run_ms = one.run_ms;
    if (one.goes_on) {
      if (rest > 0) {
        grown = std::min(grown + grown * one.weight / rest, kGrownMax);
        continue;
      }
      run_ms = 2 * run_ms + kMinute;
    }
    if (limit_ms > 0) run_ms = std::min(run_ms, limit_ms);
    samples.push_back({.run_ms = run_ms, .weight = one.weight * grown >> 4});
  }
  return samples;
}

const Learned::Line* Learned::user_of(const JobFacts& facts) const {
  return facts.user == 0 ? nullptr : find(users_, facts.user);
}

const Learned::Line* Learned::named_of(const JobFacts& facts) const {
  return facts.name == 0 && facts.shape == 0 ? nullptr : find(names_, mixed(facts.name, facts.shape));
}

Learned::Basis Learned::basis(const JobFacts& facts, int64_t at_ms) const {
  const Past wanted = like_of(facts, 0);
  Basis basis{.crowd = crowd_[crowd_of(wanted.limit_ms, wanted.limit_log)].changed};
  if (const Line* user = user_of(facts); user != nullptr) {
    basis.user = user->changed;
    if (!user->running.empty()) basis.at_ms = at_ms;
  }
  if (const Line* named = named_of(facts); named != nullptr) basis.name = named->changed;
  return basis;
}

RunTimes Learned::predict(const JobFacts& facts, int64_t at_ms) const {
  const Past wanted = like_of(facts, 0);
  std::vector<Observed> seen;
  if (const Line* user = user_of(facts); user != nullptr) {
    observe_ring(user->ring, wanted, false, seen);
    for (const Running& running : user->running) {
      const uint64_t weight = times_per_mille(likeness(running.like, wanted), options_.running_per_mille);
      seen.push_back(
          {.run_ms = std::max<int64_t>(at_ms - running.started_ms, 0), .weight = weight, .goes_on = true});
    }
  }
  if (const Line* named = named_of(facts); named != nullptr)
    observe_ring(named->ring, wanted, facts.user != 0, seen);
  observe_crowd(wanted, seen);
  return RunTimes::of(spread(seen, facts.limit_ms));
}

void Learned::started(const JobFacts& facts, int64_t at_ms) {
  if (facts.user == 0) return;
  std::vector<Running>& running = line_of(users_, facts.user).running;
  if (running.size() >= options_.running_max) return;
  running.push_back({.job = facts.job, .started_ms = at_ms, .like = like_of(facts, 0)});
}

void Learned::finished(const JobFacts& facts, int64_t run_ms, int64_t /*at_ms*/) {
  CHECK(run_ms >= 0);
  left(facts);
  const Past past = like_of(facts, run_ms);
  if (facts.user != 0) push(line_of(users_, facts.user).ring, past, options_.window);
  if (facts.name != 0 || facts.shape != 0) {
    push(line_of(names_, mixed(facts.name, facts.shape)).ring, past, options_.window);
  }
  if (options_.crowd_window > 0) push_crowd(past);
}

void Learned::left(const JobFacts& facts) {
  const auto found = users_.index.find(facts.user);
  if (found == users_.index.end()) return;
  Line& line = users_.lines[found->second];
  line.changed = ++uses_;
  std::erase_if(line.running, [&](const Running& one) { return one.job == facts.job; });
}

}  // namespace gpusched::predict

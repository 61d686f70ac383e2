#pragma once

#include <bit>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/testing/random_commands.h"
#include "history/record/events.h"
#include "history/record/translate.h"
#include "model/state.h"

/// For tests only: what a busy and unreliable cluster gives a history, and what it has to come to.
namespace gpusched::history::testing {

/// Sums by a way of its own: at each command, what the state says is held, times the time until the next.
struct Expected {
  std::map<std::pair<TenantId, std::string>, int64_t> gpu_us;  ///< By tenant and user.
  std::map<std::string, int64_t> jobs;                         ///< Finished jobs by state.
  int64_t cpu_us = 0;

  int64_t all_gpu_us() const {
    int64_t sum = 0;
    for (const auto& [key, value] : gpu_us) sum += value;
    return sum;
  }
};

class RandomWorld {
 public:
  explicit RandomWorld(uint64_t seed) : random_(seed) {}

  /// Some records; each has one command or several of one time.
  void run(int records) {
    for (int i = 0; i < records; ++i) next();
  }
  const std::vector<Batch>& batches() const { return batches_; }
  const Expected& expected() const { return expected_; }
  const State& state() const { return state_; }
  Time now() const { return now_; }

 private:
  void next() {
    const Time at = now_ + random_.pause();
    count_use(at.ms() - now_.ms());
    now_ = at;
    Events all;
    const auto commands = static_cast<int>(random_.prng().between(1, 4));
    for (int i = 0; i < commands; ++i) {
      const bool is_due = state_.next_due() <= now_ && random_.prng().chance(700);
      const Command command = is_due                       ? Command(AdvanceTime{})
                              : random_.prng().chance(250) ? random_.plan(state_)
                                                           : random_.next(state_);
      Events events;
      apply(state_, command, {.sequence = state_.last.sequence + 1, .at = now_}, events);
      for (const auto& event : events) {
        if (const auto* const finished = std::get_if<JobFinished>(&event))
          expected_.jobs[std::string(to_string(finished->state))] += 1;
      }
      all.insert(all.end(), events.begin(), events.end());
    }
    Batch batch{.position = batches_.size() + 1, .at = now_, .events = {}};
    translate(state_, all, now_, nullptr, batch.events);
    batch.present = present_of(state_, all, batches_.empty(), nullptr);
    batches_.push_back(std::move(batch));
  }

  void count_use(int64_t ms) {
    for (const auto& [key, attempt] : state_.attempts) {
      if (attempt.abandoned) continue;
      const Job& job = state_.job_at(attempt.job);
      for (const Member& member : attempt.members) {
        if (member.state == MemberState::kEnded) continue;
        const int64_t milli =
            member.gpu_milli > 0 ? member.gpu_milli : int64_t{1'000} * std::popcount(member.device_mask);
        expected_.gpu_us[{job.tenant, user_of(state_, job)}] += milli * ms;
        expected_.cpu_us += int64_t{member.cpu_milli} * ms;
      }
    }
  }

  gpusched::testing::RandomCommands random_;
  State state_;
  Time now_ = Time{} + seconds(1'764'000'000);
  std::vector<Batch> batches_;
  Expected expected_;
};

}  // namespace gpusched::history::testing

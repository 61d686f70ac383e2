#include "node/attempts/endings.h"

#include <algorithm>
#include <utility>

#include "log/log.h"

namespace gpusched::agent {
namespace {

constexpr int kForgottenAtOnce = 64;
constexpr std::size_t kDetailBytesMax = 4'096;

}  // namespace

v1::Outcome Endings::outcome(v1::Outcome::Cause cause, const std::string& detail) const {
  v1::Outcome outcome;
  outcome.set_cause(cause);
  outcome.set_detail(clean_text(detail, kDetailBytesMax));
  outcome.set_ended_unix_ns(ports_.clock.wall().ns);
  return outcome;
}

namespace {

/// Tells how busy its GPUs were, if this agent watched them for at least half of the time that it ran: less
/// would be a guess.
void add_gpu_use(const AttemptRow& attempt, v1::Outcome& outcome) {
  const auto told = std::count_if(attempt.devices.begin(), attempt.devices.end(),
                                  [](const HeldDevice& device) { return !device.is_slice(); });
  const int64_t run_ms = (outcome.ended_unix_ns() - outcome.started_unix_ns()) / 1'000'000;
  const int64_t watched_ms = attempt.gpu_use.watched_ms();
  if (outcome.started_unix_ns() == 0 || watched_ms == 0 || watched_ms < run_ms * told / 2) return;
  outcome.mutable_usage()->set_gpu_watched_ms(watched_ms);
  outcome.mutable_usage()->set_gpu_busy_ms(attempt.gpu_use.busy_ms());
}

}  // namespace

void Endings::end(AttemptRow& attempt, v1::Outcome outcome) {
  const AttemptKey& key = attempt.key;
  attempts_.move(attempt, AttemptState::kEnded);
  outcome.set_detail(clean_text(outcome.detail(), kDetailBytesMax));
  if (!attempt.over_share.empty() && outcome.cause() == v1::Outcome::STOPPED) {
    outcome.set_cause(v1::Outcome::OVER_LIMIT);
    outcome.set_detail(attempt.over_share);
  }
  if (outcome.started_unix_ns() == 0) outcome.set_started_unix_ns(attempt.started_unix_ns);
  add_gpu_use(attempt, outcome);
  if (attempt.peak_gpu_memory_mb > 0)
    outcome.mutable_usage()->set_peak_gpu_memory_mb(attempt.peak_gpu_memory_mb);
  attempt.outcome = std::move(outcome);
  if (ports_.boxes != nullptr) ports_.boxes->release(key);
  if (ports_.sessions != nullptr) ports_.sessions->attempt_ended(key);
  if (ports_.endpoints != nullptr) ports_.endpoints->ended(key);
  record_again(attempt);
  records_.want_sync();
  ports_.files.ended(key);
  log_event(LogLevel::kInfo, "agent", "task_completed", {.id = key.job},
            {{"attempt", key.attempt},
             {"cause", v1::Outcome::Cause_Name(attempt.outcome->cause())},
             {"exit_code", attempt.outcome->exit_code()},
             {"detail", attempt.outcome->detail()}});
}

void Endings::record_again(AttemptRow& attempt) {
  attempt.ended_position =
      records_.append({.kind = StoreRecord::Kind::kEnded, .key = attempt.key, .outcome = *attempt.outcome});
  unsynced_.push_back(&attempt);
}

void Endings::on_acked(const v1::Ended& ended) {
  AttemptRow* const attempt = attempts_.find(from_wire(ended.key()));
  if (attempt == nullptr || !attempt->was_placed(ended.placed_at_ns())) return;
  if (!attempt->over()) {
    log_event(LogLevel::kWarning, "agent", "word_refused", {.id = attempt->key.job},
              {{"attempt", attempt->key.attempt},
               {"state", to_string(attempt->state())},
               {"told", "its end is acknowledged"}});
    return;
  }
  attempt->ended_report = 0;
  if (attempt->acked) return;
  attempt->acked = true;
  records_.append({.kind = StoreRecord::Kind::kAcked, .key = attempt->key});
  close_if_done(*attempt);
}

void Endings::close_if_done(AttemptRow& attempt) {
  if (!attempt.acked || attempt.unreleased > 0 || attempt.state() != AttemptState::kReleasing) return;
  attempts_.move(attempt, AttemptState::kClosed);
  closed_.push_back(attempt.key);
  records_.append({.kind = StoreRecord::Kind::kClosed, .key = attempt.key});
}

void Endings::forget_oldest() {
  for (int count = 0; closed_.size() > kept_ && count < kForgottenAtOnce; ++count) {
    const AttemptKey key = closed_.front();
    closed_.pop_front();
    AttemptRow* const attempt = attempts_.find(key);
    if (attempt == nullptr) continue;
    attempts_.erase(*attempt);
    records_.append({.kind = StoreRecord::Kind::kForgotten, .key = key});
    ports_.files.remove(key);
  }
}

}  // namespace gpusched::agent

#include "node/attempts/report_outbox.h"

#include <utility>

namespace gpusched {
namespace {

constexpr Duration kResendAfter = seconds(5);
constexpr int kLateAtOnceMax = 256;

}  // namespace

uint64_t ReportOutbox::add(v1::Report report) {
  const uint64_t id = next_id_++;
  report.set_id(id);
  waiting_.emplace_hint(waiting_.end(), id, Waiting{.report = std::move(report), .sent_at = {}});
  return id;
}

void ReportOutbox::withdraw(uint64_t id) { waiting_.erase(id); }

std::optional<v1::Report> ReportOutbox::acknowledge(uint64_t id) {
  const auto found = waiting_.find(id);
  if (found == waiting_.end()) return std::nullopt;
  v1::Report report = std::move(found->second.report);
  waiting_.erase(found);
  return report;
}

void ReportOutbox::send_new(Time now, const Send& send) {
  for (auto it = waiting_.lower_bound(first_unsent_); it != waiting_.end(); ++it) {
    it->second.sent_at = now;
    send(it->second.report);
    if (late_at_ == kNever) late_at_ = now + kResendAfter;
  }
  first_unsent_ = next_id_;
}

void ReportOutbox::send_late(Time now, const Send& send) {
  if (now < late_at_) return;
  int count = 0;
  Time oldest = kNever;
  for (auto& [id, waiting] : waiting_) {
    if (!waiting.sent_at.valid()) continue;
    if (now - waiting.sent_at >= kResendAfter && count < kLateAtOnceMax) {
      waiting.sent_at = now;
      send(waiting.report);
      ++count;
    }
    oldest = std::min(oldest, waiting.sent_at);
  }
  late_at_ = oldest == kNever ? kNever : std::max(oldest + kResendAfter, now + milliseconds(1));
}

void ReportOutbox::forget_sendings() {
  for (auto& [id, waiting] : waiting_) waiting.sent_at = {};
  first_unsent_ = 0;
  late_at_ = kNever;
}

Time ReportOutbox::next_late() const { return waiting_.empty() ? kNever : late_at_; }

}  // namespace gpusched

#include "node/core/leases.h"

#include <algorithm>

namespace gpusched::agent {
namespace {

constexpr Duration kHeartbeatDefault = seconds(5);
constexpr Duration kHeartbeatMin = milliseconds(50);
constexpr Duration kHeartbeatMax = minutes(5);
constexpr Duration kContactMarkPause = milliseconds(250);
constexpr std::size_t kHeartbeatsRemembered = 64;
constexpr int64_t kUnansweredMin = 3;

}  // namespace

Leases::Leases(const NodePorts& ports) : ports_(ports), heartbeat_every_(kHeartbeatDefault) {}

void Leases::on_link_up() {
  registered_ = false;
  sequence_ = 0;
  sent_at_.clear();
  registration_sent_at_ = ports_.clock.monotonic();
}

void Leases::on_link_down() {
  registered_ = false;
  next_beat_ = kNever;
}

void Leases::on_registered(int64_t heartbeat_ms, int64_t lease_ms) {
  const Duration wanted = heartbeat_ms > 0 ? milliseconds(heartbeat_ms) : kHeartbeatDefault;
  heartbeat_every_ = std::clamp(wanted, kHeartbeatMin, kHeartbeatMax);
  registered_ = true;
  patience_ = lease_ms > 0 ? std::max(milliseconds(lease_ms), heartbeat_every_ * kUnansweredMin) : Duration{};
  answered_at_ = ports_.clock.monotonic();
  unanswered_ = 0;
  note_contact(registration_sent_at_);
  next_beat_ = ports_.clock.monotonic();
}

uint64_t Leases::beat(Time now) {
  next_beat_ = now + heartbeat_every_;
  sent_at_.push_back(now);
  if (sent_at_.size() > kHeartbeatsRemembered) sent_at_.pop_front();
  ++unanswered_;
  return ++sequence_;
}

bool Leases::is_unanswered(Time now) const {
  // An agent that was stopped for a while finds the answer to the one heartbeat before it soon.
  return registered_ && patience_.ns > 0 && unanswered_ >= kUnansweredMin && now - answered_at_ >= patience_;
}

void Leases::on_heartbeat_seen(uint64_t sequence) {
  const uint64_t first = sequence_ + 1 - sent_at_.size();
  if (sequence < first || sequence > sequence_) return;
  answered_at_ = ports_.clock.monotonic();
  unanswered_ = static_cast<int64_t>(sequence_ - sequence);
  note_contact(sent_at_[sequence - first]);
}

void Leases::note_contact(Time sent_at) {
  if (contact_at_.valid() && sent_at <= contact_at_) return;
  contact_at_ = sent_at;
  if (contact_marked_at_.valid() && contact_at_ - contact_marked_at_ < kContactMarkPause) return;
  contact_marked_at_ = contact_at_;
  ports_.spawner.mark_contact(ports_.clock.monotonic() - contact_at_);
}

}  // namespace gpusched::agent

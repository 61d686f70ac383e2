#include <algorithm>

#include "base/check.h"
#include "base/limits.h"
#include "engine/decide/decide.h"

namespace gpusched::rules {
namespace {

/// The tenant is `ancestor` or stands below it.
bool belongs(const State& state, TenantId tenant, TenantId ancestor) {
  for (const Tenant* at = state.find_tenant(tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    if (at->id == ancestor) return true;
  }
  return false;
}

/// Another booking of one of the same nodes at the same time.
const Booking* rival_of(const State& state, const Booking& wanted) {
  for (const auto& [id, other] : state.bookings) {
    const bool shared = std::any_of(wanted.nodes.begin(), wanted.nodes.end(), [&](NodeId node) {
      return std::binary_search(other.nodes.begin(), other.nodes.end(), node);
    });
    if (shared && wanted.overlaps(other)) return &other;
  }
  return nullptr;
}

}  // namespace

Applied make_booking(const State& state, const MakeBooking& command, Stamp stamp, Events& events) {
  if (state.bookings.size() >= limits::kBookingsMax) return reject(RejectionCode::kBookingLimit);
  if (state.find_booking_named(command.name) != nullptr) return reject(RejectionCode::kBookingExists);
  if (command.tenant.valid()) {
    const Tenant* tenant = state.find_tenant(command.tenant);
    if (tenant == nullptr || tenant->deleted) return reject(RejectionCode::kTenantNotFound);
  }
  Booking booking{.id = BookingId{stamp.sequence},
                  .name = command.name,
                  .tenant = command.tenant,
                  .users = command.users,
                  .nodes = command.nodes,
                  .begin = command.begin_at.valid() ? command.begin_at : stamp.at + command.begin_after,
                  .length = command.length,
                  .every = command.every,
                  .reason = command.reason};
  std::sort(booking.nodes.begin(), booking.nodes.end());
  booking.nodes.erase(std::unique(booking.nodes.begin(), booking.nodes.end()), booking.nodes.end());
  const bool known = std::all_of(booking.nodes.begin(), booking.nodes.end(),
                                 [&](NodeId node) { return state.find_node(node) != nullptr; });
  if (!known || booking.nodes.empty()) return reject(RejectionCode::kNodeNotFound);
  if (booking.end() <= stamp.at || (booking.repeats() && booking.length > booking.every))
    return reject(RejectionCode::kBookingTimes);
  if (state.config.feature_level >= 6 && booking.begin > stamp.at + limits::kBookingMax)
    return reject(RejectionCode::kBookingTooFar);
  if (const Booking* rival = rival_of(state, booking)) {
    return reject(
        Rejection{.code = RejectionCode::kBookingTaken, .requested = static_cast<int64_t>(rival->id.value)});
  }
  events.push_back(BookingMade{.booking = std::move(booking)});
  return {.rejection = {}, .first_id = stamp.sequence, .id_count = 1};
}

Applied cancel_booking(const State& state, const CancelBooking& command, Stamp stamp, Events& events) {
  const Booking* booking = state.find_booking(command.booking);
  if (booking == nullptr) return reject(RejectionCode::kBookingNotFound);
  events.push_back(BookingEnded{.booking = booking->id, .at = stamp.at, .cancelled = true});
  return {.rejection = {}, .first_id = command.booking.value, .id_count = 1};
}

std::optional<Rejection> book(const State& state, const SubmitJobs& command, const std::string& name,
                              std::vector<Part>& parts) {
  const Booking* booking = state.find_booking_named(name);
  if (booking == nullptr) return Rejection{.code = RejectionCode::kBookingNotFound};
  if (!booking->tenant.valid() || !belongs(state, command.tenant, booking->tenant) ||
      !booking->allows(command.user)) {
    return Rejection{.code = RejectionCode::kBookingDenied};
  }
  for (Part& part : parts) part.booking = booking->id.value;
  return std::nullopt;
}

void booking_due(const State& state, const Timer& timer, Time now, Events& events) {
  const Booking* booking = state.find_booking(BookingId{timer.id});
  CHECK(booking != nullptr);
  if (!booking->active && booking->end() > now) {
    events.push_back(BookingBegan{.booking = booking->id, .at = timer.due});
  } else {  // Over, or nobody was there during all of it.
    events.push_back(
        BookingEnded{.booking = booking->id, .at = std::max(now, booking->end()), .cancelled = false});
  }
}

std::optional<Rejection> check_longer(const State& state, const Job& job, Duration limit, Time now) {
  if (job.state == JobState::kPending || job.max_runtime.ns == 0) return std::nullopt;
  if (limit.ns != 0 && limit <= job.max_runtime) return std::nullopt;
  const Rejection refused{.code = RejectionCode::kRuntimeRaised};
  if (!state.line.empty()) return refused;
  const Attempt* attempt = state.find_attempt(job.id, job.attempt_count);
  CHECK(attempt != nullptr);
  const BookingId own{state.class_of(job).parts.front().booking};
  if (own.valid() && state.config.feature_level < 11) return std::nullopt;
  const Time begin = attempt->started_at.valid() ? attempt->started_at : now;
  const Time end = limit.ns == 0 ? kNever : begin + limit + limits::kRuntimeSlack;
  const bool meets = std::any_of(attempt->members.begin(), attempt->members.end(), [&](const Member& member) {
    const Time next = state.next_booking_of_others(state.node_at(member.node), own);
    return next != kNever && next <= end;
  });
  return meets ? std::optional(refused) : std::nullopt;
}

}  // namespace gpusched::rules

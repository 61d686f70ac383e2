// Reservations of nodes.
#include <algorithm>

#include "base/check.h"
#include "model/state.h"

namespace gpusched {

const Booking* State::find_booking(BookingId id) const {
  const auto it = bookings.find(id);
  return it == bookings.end() ? nullptr : &it->second;
}

const Booking* State::find_booking_named(std::string_view name) const {
  const auto it = std::find_if(bookings.begin(), bookings.end(),
                               [&](const auto& entry) { return entry.second.name == name; });
  return it == bookings.end() ? nullptr : &it->second;
}

namespace {

Timer timer_of(const Booking& booking) {
  return {.due = booking.active ? booking.end() : booking.begin,
          .kind = TimerKind::kBooking,
          .id = booking.id.value};
}

}  // namespace

void State::put_booking(Booking booking) {
  const auto before = bookings.find(booking.id);
  if (before != bookings.end()) timers.erase(timer_of(before->second));
  timers.insert(timer_of(booking));
  const std::vector<NodeId> its_nodes = booking.nodes;
  bookings.insert_or_assign(booking.id, std::move(booking));
  refresh_booked(its_nodes);
}

void State::remove_booking(BookingId id) {
  const auto it = bookings.find(id);
  CHECK(it != bookings.end());
  timers.erase(timer_of(it->second));
  const std::vector<NodeId> its_nodes = std::move(it->second.nodes);
  bookings.erase(it);
  refresh_booked(its_nodes);
}

Time State::next_booking_of_others(const Node& node, BookingId own) const {
  if (!own.valid() || node.booked_from == kNever) return node.booked_from;
  Time next = kNever;
  for (const auto& [id, booking] : bookings) {
    if (id == own || !std::binary_search(booking.nodes.begin(), booking.nodes.end(), node.id)) continue;
    if (!booking.active) next = std::min(next, booking.begin);
    if (booking.active && booking.repeats()) next = std::min(next, booking.begin + booking.every);
  }
  return next;
}

void State::refresh_booked(const std::vector<NodeId>& nodes_of_it) {
  for (const NodeId id : nodes_of_it) {
    Node* node = find_node(id);
    CHECK(node != nullptr);
    node->booked_by = 0;
    node->booked_from = kNever;
    for (const auto& [booking_id, booking] : bookings) {
      if (!std::binary_search(booking.nodes.begin(), booking.nodes.end(), id)) continue;
      if (booking.active) node->booked_by = booking_id.value;
      const Time next = booking.active ? booking.begin + booking.every : booking.begin;
      if (!booking.active || booking.repeats()) node->booked_from = std::min(node->booked_from, next);
    }
  }
}

}  // namespace gpusched

#include <algorithm>
#include <charconv>

#include "api/backend/host_backend.h"
#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "api/views/state_views.h"
#include "api/views/tenant_visibility.h"
#include "base/utf8.h"

namespace gpusched::api {
namespace {

ReservationView view_of(const State& state, const Booking& booking) {
  ReservationView view{.id = reservation_name(booking.id.value),
                       .name = booking.name,
                       .tenant = {},
                       .users = booking.users,
                       .nodes = {},
                       .begin = booking.begin,
                       .end = booking.end(),
                       .every = booking.every,
                       .reason = utf8_cleaned(booking.reason),
                       .active = booking.active};
  if (const Tenant* tenant = state.find_tenant(booking.tenant)) view.tenant = tenant->name;
  for (const NodeId id : booking.nodes) {
    if (const Node* node = state.find_node(id)) view.nodes.push_back(node->name);
  }
  std::sort(view.nodes.begin(), view.nodes.end());
  return view;
}

ApiError not_found(const std::string& reservation) {
  return {ErrorKind::kReservationNotFound, "no such reservation: " + reservation.substr(0, 64) +
                                               "; gpu-cli reservation list shows the existing ones"};
}

/// The nodes of these names and patterns, or an error about the first that fits none.
Answer<std::vector<NodeId>> nodes_of(const State& state, const std::vector<std::string>& names) {
  std::vector<NodeId> nodes;
  for (const std::string& name : names) {
    const std::size_t before = nodes.size();
    for (const Node& node : state.nodes) {
      if (!node.removed && glob_matches(name, node.name)) nodes.push_back(node.id);
    }
    if (nodes.size() == before) {
      return ApiError{ErrorKind::kNodeNotFound, "no such node: " + name.substr(0, 64), "node_names"};
    }
  }
  return nodes;
}

const Booking* booking_named(const State& state, const std::string& name) {
  if (const Booking* booking = state.find_booking_named(name)) return booking;
  constexpr std::string_view kPrefix = "reservation-";
  if (!name.starts_with(kPrefix)) return nullptr;
  uint64_t id = 0;
  const char* const end = name.data() + name.size();
  const auto [rest, failure] = std::from_chars(name.data() + kPrefix.size(), end, id);
  return failure == std::errc{} && rest == end ? state.find_booking(BookingId{id}) : nullptr;
}

}  // namespace

void HostBackend::make_reservation(const CallerPtr& caller, ReservationRequest request,
                                   Done<ReservationView> done) {
  if (auto refused = refuse(*caller, access::Action::kMakeReservation, "reserve nodes"))
    return done(std::move(*refused));
  if (sheds_read(done)) return;
  read([this, caller, request = std::move(request), done = std::move(done)](const Observer::View& view) {
    MakeBooking command{.name = request.name,
                        .tenant = {},
                        .users = request.users,
                        .nodes = {},
                        .begin_at = request.begin_at,
                        .begin_after = request.begin_after,
                        .length = request.length,
                        .every = request.every,
                        .reason = request.reason};
    if (!request.tenant.empty()) {
      const Answer<const Tenant*> tenant = find_tenant(view.state, *caller, request.tenant);
      if (!tenant) return done(tenant.error());
      command.tenant = (*tenant)->id;
    }
    Answer<std::vector<NodeId>> nodes = nodes_of(view.state, request.nodes);
    if (!nodes) return done(nodes.error());
    command.nodes = std::move(*nodes);
    propose(*caller, std::move(command), [this, caller, done](Result<Decided> decided) {
      if (auto refused = refusal(decided)) return done(std::move(*refused));
      const BookingId id{decided->applied.first_id};
      host_.observer().read(decided->sequence, [caller, id, done](const Observer::View& then) {
        const Booking* booking = then.state.find_booking(id);
        if (booking == nullptr) return done(not_found(reservation_name(id.value)));
        ReservationView shown = view_of(then.state, *booking);
        TenantVisibility(then.state, *caller).conceal(*booking, shown);
        done(std::move(shown));
      });
    });
  });
}

void HostBackend::list_reservations(const CallerPtr& caller, Done<std::vector<ReservationView>> done) {
  if (auto refused = refuse(*caller, access::Action::kSeeReservation, "see reservations"))
    return done(std::move(*refused));
  if (sheds_read(done)) return;
  read([caller, done = std::move(done)](const Observer::View& view) {
    TenantVisibility wall(view.state, *caller);
    std::vector<ReservationView> found;
    for (const auto& [id, booking] : view.state.bookings) {
      found.push_back(view_of(view.state, booking));
      wall.conceal(booking, found.back());
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const ReservationView& a, const ReservationView& b) { return a.begin < b.begin; });
    done(std::move(found));
  });
}

void HostBackend::cancel_reservation(const CallerPtr& caller, const std::string& reservation,
                                     Done<Unit> done) {
  if (auto refused = refuse(*caller, access::Action::kCancelReservation, "cancel a reservation"))
    return done(std::move(*refused));
  if (sheds_read(done)) return;
  read([this, caller, reservation, done = std::move(done)](const Observer::View& view) {
    const Booking* booking = booking_named(view.state, reservation);
    if (booking == nullptr) return done(not_found(reservation));
    propose(*caller, CancelBooking{.booking = booking->id}, [done](Result<Decided> decided) {
      if (auto refused = refusal(decided)) return done(std::move(*refused));
      done(Unit{});
    });
  });
}

}  // namespace gpusched::api

#pragma once

#include <string>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "base/time.h"

/// Reservations of nodes.
namespace gpusched::api {

/// Nodes to be kept for a time; the engine's Booking.
struct ReservationRequest {
  std::string name;
  std::string tenant;  ///< Empty: nobody's, for maintenance.
  std::vector<std::string> users;
  std::vector<std::string> nodes;  ///< Names or patterns.
  Time begin_at;
  Duration begin_after = {};
  Duration length = {};
  Duration every = {};
  std::string reason;
};

struct ReservationView {
  std::string id, name;
  std::string tenant;  ///< Its name; empty: nobody's.
  std::vector<std::string> users, nodes;
  Time begin, end;
  Duration every = {};
  std::string reason;
  bool active = false;
};

/// Reservations of nodes. Everything is thread-safe and returns at once; answers come by `Done`.
class ReservationBackend {
 public:
  virtual ~ReservationBackend() = default;

  virtual void make_reservation(const CallerPtr& caller, ReservationRequest request,
                                Done<ReservationView> done) = 0;
  /// By begin.
  virtual void list_reservations(const CallerPtr& caller, Done<std::vector<ReservationView>> done) = 0;
  /// By its name or its id.
  virtual void cancel_reservation(const CallerPtr& caller, const std::string& reservation,
                                  Done<Unit> done) = 0;
};

}  // namespace gpusched::api

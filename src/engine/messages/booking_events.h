#pragma once

#include "base/fields.h"
#include "base/time.h"
#include "model/booking.h"

namespace gpusched {

struct BookingMade {
  Boxed<Booking> booking;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "booking", self.booking);
  }
};

/// Its nodes are its own from now on.
struct BookingBegan {
  BookingId booking;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "booking", self.booking);
    visit(2, "at", self.at);
  }
};

/// Its time is over; one that repeats waits for its next, unless it was cancelled.
struct BookingEnded {
  BookingId booking;
  Time at;
  bool cancelled = false;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "booking", self.booking);
    visit(2, "at", self.at);
    visit(3, "cancelled", self.cancelled);
  }
};

}  // namespace gpusched

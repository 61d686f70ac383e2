#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace gpusched {

using BookingId = Id<struct BookingTag>;

/// Nodes that are kept for somebody at a time agreed before, once or again and again; or for nobody, for
/// their maintenance. While it is on, its nodes take the jobs that named it and no others; before it, they
/// take what will have ended by then. Called a reservation by users; in the engine that word is the
/// backfilling's.
struct Booking {
  BookingId id;
  std::string name;                ///< Name, unique among current bookings.
  TenantId tenant;                 ///< Tenant, with its children, that may use it; none: nobody.
  std::vector<std::string> users;  ///< Only these users of the tenant; empty: all.
  std::vector<NodeId> nodes;       ///< Sorted.
  Time begin;                      ///< Start of its current or next occurrence.
  Duration length;
  Duration every;      ///< Time from one start to the next; zero: once.
  std::string reason;  ///< An operator's words.
  bool active = false;

  Time end() const { return begin + length; }
  /// Returns whether a further occurrence follows the current one.
  bool repeats() const { return every.ns > 0; }
  bool allows(const std::string& user) const {
    return users.empty() || std::find(users.begin(), users.end(), user) != users.end();
  }
  /// Whether some time of the one is also a time of the other, from now on.
  bool overlaps(const Booking& other) const {
    if (!repeats() && !other.repeats()) return begin < other.end() && other.begin < end();
    if (!other.repeats() && other.end() <= begin) return false;  // Over before the first of these.
    if (!repeats() && end() <= other.begin) return false;
    const int64_t period = std::gcd(every.ns, other.every.ns);
    const int64_t after = (((other.begin - begin).ns % period) + period) % period;
    return after < length.ns || after + other.length.ns > period;
  }

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "id", self.id);
    visit(2, "name", self.name);
    visit(3, "tenant", self.tenant);
    visit(4, "users", self.users);
    visit(5, "nodes", self.nodes);
    visit(6, "begin", self.begin);
    visit(7, "length", self.length);
    visit(8, "every", self.every);
    visit(9, "reason", self.reason);
    visit(10, "active", self.active);
  }
};

}  // namespace gpusched

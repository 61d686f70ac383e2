#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/time.h"

namespace gpusched {

/// Cost in tokens of a job of one type at admission.
struct TaskCost {
  std::string type;
  int64_t tokens = 1;

  friend bool operator==(const TaskCost&, const TaskCost&) = default;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "type", self.type);
    visit(2, "tokens", self.tokens);
  }
};

/// Limits of the rate of submissions. Each user of each tenant has a bucket of `burst` tokens that fills with
/// `rate_milli` thousandths of a token a second, and may spend `daily` tokens in a day (UTC); a submission
/// spends its jobs' costs. While more than `soft_queue` jobs wait (throttling), a user's jobs are let in one
/// by one, `throttled_milli` thousandths of a job a second. Zero switches a rule off.
struct AdmissionPolicy {
  int64_t rate_milli = 0;
  int64_t burst = 0;
  int64_t daily = 0;
  int64_t soft_queue = 0;
  int64_t throttled_milli = 0;
  std::vector<TaskCost> costs;  ///< Types whose jobs cost other than one token.

  bool active() const { return rate_milli > 0 || daily > 0 || soft_queue > 0; }
  friend bool operator==(const AdmissionPolicy&, const AdmissionPolicy&) = default;
};

/// Tokens that one user spent, as far as it still matters. The bucket is kept as the generic cell rate
/// algorithm does (ITU-T I.371): not as a level but as the time at which it will be full again.
struct Submitter {
  TenantId tenant;
  std::string user;   ///< Name as the API knows it; empty: callers without a name.
  Time full_at;       ///< The bucket is full again.
  Time next_at;       ///< While throttled: the next job may come.
  int64_t day = 0;    ///< Days since the epoch.
  int64_t spent = 0;  ///< Tokens on that day.

  static constexpr Duration kDay = hours(24);
  static int64_t day_of(Time at) { return at.ns / kDay.ns; }

  /// Time from which this entry has no effect.
  Time forgettable_at() const {
    Time latest = std::max(full_at, next_at);
    if (spent > 0) latest = std::max(latest, Time{(day + 1) * kDay.ns});
    return latest;
  }

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
    visit(2, "user", self.user);
    visit(3, "full_at", self.full_at);
    visit(4, "next_at", self.next_at);
    visit(5, "day", self.day);
    visit(6, "spent", self.spent);
  }
};

}  // namespace gpusched

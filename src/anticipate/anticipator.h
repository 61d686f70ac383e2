#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "anticipate/learning.h"
#include "anticipate/observation.h"
#include "anticipate/rule.h"
#include "base/time.h"

namespace gpusched::anticipate {

/// How much may be asked for, whatever a text says.
struct Bounds {
  int32_t gpus_max = 1;               ///< GPUs in one lease.
  int32_t leases_max = 1;             ///< Leases at a time.
  int64_t gpu_minutes_per_day = 480;  ///< GPUs times minutes held, in 24 hours.
  Duration held_max = hours(4);       ///< A lease is not extended beyond this.
};

struct Settings {
  Bounds bounds = {};
  int32_t threshold = 100;          ///< Sum of weights from which on a lease is asked for.
  Duration window = minutes(15);    ///< Age up to which what was seen counts.
  Duration cooldown = minutes(10);  ///< After a lease was asked for its monitors ask for none so long.
  Duration lease = minutes(10);     ///< Length of a lease, and of each extension.
  Duration idle = minutes(5);       ///< A lease that was used goes back after so long without use.
  Duration unused = minutes(10);    ///< A lease that nobody used goes back after so long.
};

/// A sign that was seen, and how much it counts.
struct Reason {
  std::string rule, monitor, origin;
  Source source = Source::kLog;
  std::string text;    ///< The beginning of it.
  int32_t weight = 0;  ///< After what was learned.
  int32_t gpus = 1;
  Time at;
};

/// The request for a lease. Nothing of it is out of a text but numbers, and those are within bounds.
struct LeaseRequest {
  int32_t gpus = 1;
  std::string gpu_model = {};  ///< From a rule of the user; empty: any.
  int64_t memory_gb = 0;       ///< From a rule of the user; 0: any.
  Duration length;
};

/// Where a lease stands.
struct Lease {
  uint64_t number = 0;  ///< The pilot's own, from 1 on.
  LeaseRequest request;
  std::vector<std::string> rules = {};  ///< Rules that asked for it.
  Time asked_at;
  Time ready_at;    ///< Not valid: it waits.
  Time expires_at;  ///< Not valid: unknown yet.
  Time used_at;     ///< The last time that it was seen in use; not valid: never.
  Time needed_at;   ///< The last time that something called for it.
  Time counted_to;  ///< Up to then its GPU time is counted.
  bool in_use = false;
  bool is_over = false;      ///< A rule said that the need is over.
  bool is_released = false;  ///< Its release was decided.
  bool is_at_limit = false;  ///< It was decided not to extend it.
};

/// The scheduler's word about a lease.
struct LeaseSeen {
  bool is_gone = false;
  bool is_ready = false;
  bool in_use = false;
  Time expires_at;  ///< On the clock of the calls; not valid: unknown.
};

struct Decision {
  enum class Kind : uint8_t {
    kWait,      ///< The signs do not suffice.
    kAllocate,  ///< Ask for `lease`.
    kExtend,    ///< Extend it by `request.length`.
    kRelease,   ///< Give it back.
    kRefuse,    ///< Enough was seen, and a bound or a rest forbids a lease; or an extension.
  };
  Kind kind = Kind::kWait;
  uint64_t lease = 0;  ///< 0: none.
  LeaseRequest request = {};
  int32_t score = 0;
  std::string why = {};  ///< One sentence.
  std::vector<Reason> reasons = {};
};

std::string_view to_string(Decision::Kind kind);

/// The part that outlives the process.
struct Memory {
  static constexpr std::size_t kHours = 24;
  Learning learning = {};
  std::vector<Lease> leases = {};
  uint64_t last_number = 0;
  /// GPU seconds held in each hour of the last day, by the number of the hour modulo 24.
  std::array<int64_t, kHours> spent_gpu_seconds = {};
  int64_t spent_hour = 0;  ///< The newest hour in it, since 1970.
};

/// Weighs what monitors see, and decides when to ask for a lease, extend it and give it back. Pure: it acts
/// by what it returns, and knows the time from its callers, who never let it run backwards. Not thread-safe.
class Anticipator {
 public:
  Anticipator(std::vector<Rule> rules, Settings settings, Memory memory = {});

  /// Decides about something that was seen. Empty: no rule matches, or it was seen before.
  std::vector<Decision> observe(const Observation& seen, Time now);
  /// Weighs what somebody else concluded, such as a model: as a rule of that name would.
  std::vector<Decision> conclude(const Observation& seen, const std::string& name, int32_t weight,
                                 int32_t gpus, Time now);
  /// Extensions and releases that are due. Called every second or so.
  std::vector<Decision> tick(Time now);

  /// Takes the scheduler's word about a lease that was asked for.
  void lease_seen(uint64_t number, const LeaseSeen& seen, Time now);
  /// Whether somebody uses the lease at this moment.
  void lease_use(uint64_t number, bool in_use, Time now);
  /// The lease was not granted, or is not there any more.
  void lease_failed(uint64_t number);

  /// Sum of the weights of what counts now, and what that is.
  int32_t score(Time now) const;
  std::vector<Reason> reasons(Time now) const;
  const std::vector<Lease>& leases() const { return memory_.leases; }
  const Memory& memory() const { return memory_; }
  const Settings& settings() const { return settings_; }
  const std::vector<Rule>& rules() const { return rules_; }

 private:
  struct Key {
    std::string rule, monitor, origin;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  void end_need(const Observation& seen, Time now);
  Decision decide(std::vector<Reason> reasons, Time now);
  LeaseRequest request_of(const std::vector<Reason>& reasons) const;
  std::string forbidden(const LeaseRequest& request, Time now) const;
  std::optional<Decision> look_after(Lease& lease, Time now);
  std::string release_reason(const Lease& lease, Time now) const;
  std::string limit_reason(const Lease& lease, Time now) const;
  void end_lease(std::size_t at, bool counts);
  void count_time(Lease& lease, Time now);
  int64_t spent_gpu_seconds(Time now) const;
  Lease* find(uint64_t number);
  const Rule* find_rule(const std::string& name) const;

  const std::vector<Rule> rules_;
  const Settings settings_;
  Memory memory_;
  std::map<Key, Reason> evidence_;
  std::map<std::string, Time> resting_until_;  // By monitor.
};

}  // namespace gpusched::anticipate

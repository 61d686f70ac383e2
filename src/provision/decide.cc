#include "provision/decide.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/limits.h"

namespace gpusched::provision {
namespace {

/// Members of one job that are laid on trial, at most.
constexpr int64_t kMembersMax = 1'024;
/// Jobs that are laid in one decision, at most; the others are for a later one.
constexpr uint64_t kJobsMax = 1'024;

struct PoolCount {
  int64_t machines = 0;  ///< All that are not known to be gone, and those asked for in this decision.
  int64_t staying = 0;   ///< Those of them that neither end nor drain.
  int64_t asked = 0;     ///< In this decision.
};

/// A place for members of waiting jobs.
struct Place {
  Capacity capacity;
  std::size_t pool = 0;
  const Machine* machine = nullptr;  ///< Null: a new machine, or with `gangs_only` another node.
  bool gangs_only = false;
  Time ready_at;  ///< Not valid: it is there.
};

class Decider {
 public:
  explicit Decider(const Situation& situation) : in_(situation), counts_(situation.pools.size()) {}
  Decisions run();

 private:
  std::optional<std::size_t> pool_named(const std::string& name) const;
  void count_and_place();
  void lay(const Demand& demand, uint64_t& job);
  /// Lays one job whole, or nothing of it.
  bool lay_job(const Demand& demand, uint64_t job, ClassOutlook& outlook);
  bool lay_member(const Part& part, uint64_t job, bool gang, ClassOutlook& outlook);
  /// Why the pool gets no further machine; nothing: it may.
  std::optional<Outlook> refusal(std::size_t pool) const;
  std::optional<std::size_t> pool_for(const Part& part);
  void add_machine(std::size_t pool);
  void keep_minimum();
  void scale_in();
  void scale_in(const Machine& machine, std::size_t pool, bool needed);

  const Situation& in_;
  std::vector<PoolCount> counts_;
  std::vector<Place> places_;
  std::optional<Outlook> refused_;  ///< Why a pool that could hold the job being laid gets no machine.
  std::string refused_by_;
  std::map<std::size_t, Capacity> undo_;  ///< Places as they were before the job being laid.
  Decisions out_;
};

std::optional<std::size_t> Decider::pool_named(const std::string& name) const {
  for (std::size_t i = 0; i < in_.pools.size(); ++i) {
    if (in_.pools[i].pool.name == name) return i;
  }
  return std::nullopt;
}

void Decider::count_and_place() {
  for (const Machine& machine : in_.machines) {
    const std::optional<std::size_t> pool = pool_named(machine.pool);
    if (!pool) continue;
    PoolCount& count = counts_[*pool];
    ++count.machines;
    const bool drains = machine.node && machine.node->drained;
    if (machine.ending) continue;
    if (!drains) ++count.staying;
    if (!machine.node) {
      places_.push_back({.capacity = Capacity(node_of(in_.pools[*pool].pool, machine.name),
                                              classes_of(in_.pools[*pool].pool)),
                         .pool = *pool,
                         .machine = &machine,
                         .ready_at = std::max(in_.now, machine.asked_at + in_.pools[*pool].boot)});
    } else if (machine.node->capacity && (!drains || machine.node->drained_by_us)) {
      places_.push_back({.capacity = *machine.node->capacity, .pool = *pool, .machine = &machine});
    }
  }
  // Machines that are there before those that are coming, and what drains last.
  const auto rank = [](const Place& place) {
    if (place.ready_at.valid()) return 1;
    return place.machine->node->drained ? 2 : 0;
  };
  std::ranges::stable_sort(places_, {}, rank);
  for (const Capacity& free : in_.free) places_.push_back({.capacity = free, .gangs_only = true});
}

std::optional<Outlook> Decider::refusal(std::size_t pool) const {
  const Pool& of = in_.pools[pool].pool;
  const PoolCount& count = counts_[pool];
  if (count.machines >= of.maximum) return Outlook::kAtMaximum;
  if (of.budget_milli > 0 && (count.machines + 1) * of.price_milli > of.budget_milli)
    return Outlook::kOverBudget;
  if (!in_.pools[pool].open || count.asked >= of.requests_max) return Outlook::kUnavailable;
  return std::nullopt;
}

std::optional<std::size_t> Decider::pool_for(const Part& part) {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < in_.pools.size(); ++i) {
    const Pool& pool = in_.pools[i].pool;
    if (!could_hold(node_of(pool, pool.name), classes_of(pool), part)) continue;
    if (const std::optional<Outlook> why = refusal(i)) {
      if (!refused_) {
        refused_ = why;
        refused_by_ = pool.name;
      }
      continue;
    }
    if (!best || pool.price_milli < in_.pools[*best].pool.price_milli) best = i;
  }
  return best;
}

void Decider::add_machine(std::size_t pool) {
  ++counts_[pool].machines;
  ++counts_[pool].staying;
  ++counts_[pool].asked;
}

bool Decider::lay_member(const Part& part, uint64_t job, bool gang, ClassOutlook& outlook) {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (place.gangs_only && !gang) continue;
    if (gang) undo_.try_emplace(i, place.capacity);
    if (!place.capacity.take(part, job)) continue;
    if (place.ready_at.valid() && place.ready_at >= outlook.ready_at) {
      outlook.ready_at = place.ready_at;
      outlook.pool = in_.pools[place.pool].pool.name;
    }
    return true;
  }
  const std::optional<std::size_t> pool = pool_for(part);
  if (!pool) return false;
  const Pool& of = in_.pools[*pool].pool;
  Place place{.capacity = Capacity(node_of(of, of.name), classes_of(of)),
              .pool = *pool,
              .ready_at = in_.now + in_.pools[*pool].boot};
  if (!place.capacity.take(part, job)) return false;
  add_machine(*pool);
  outlook.ready_at = std::max(outlook.ready_at, place.ready_at);
  outlook.pool = of.name;
  places_.push_back(std::move(place));
  return true;
}

bool Decider::lay_job(const Demand& demand, uint64_t job, ClassOutlook& outlook) {
  refused_.reset();
  undo_.clear();
  const std::size_t places = places_.size();
  const std::vector<PoolCount> counts = counts_;
  const bool gang = is_gang(demand.parts);
  for (const Part& part : demand.parts) {
    for (int32_t i = 0; i < part.member_count; ++i) {
      if (lay_member(part, job, gang, outlook)) continue;
      // A job that does not fit whole leaves no trace.
      for (auto& [index, before] : undo_) {
        if (index < places) places_[index].capacity = std::move(before);
      }
      places_.erase(places_.begin() + static_cast<std::ptrdiff_t>(places), places_.end());
      counts_ = counts;
      return false;
    }
  }
  return true;
}

void Decider::lay(const Demand& demand, uint64_t& job) {
  int64_t members = 0;
  for (const Part& part : demand.parts) members += part.member_count;
  if (members > kMembersMax) return;
  for (int64_t i = 0; i < demand.jobs && job < kJobsMax; ++i) {
    ClassOutlook outlook{.job_class = demand.job_class};
    const bool laid = lay_job(demand, ++job, outlook);
    if (i == 0 && laid && outlook.ready_at.valid()) out_.outlooks.push_back(outlook);
    if (laid) continue;
    // A pool that could hold it gets no further machine now; without one there is nothing to say.
    if (i == 0 && refused_) {
      out_.outlooks.push_back(
          {.job_class = demand.job_class, .outlook = *refused_, .pool = refused_by_, .ready_at = {}});
    }
    return;  // The others want the same.
  }
}

void Decider::keep_minimum() {
  for (std::size_t i = 0; i < in_.pools.size(); ++i) {
    while (counts_[i].staying < in_.pools[i].pool.minimum && !refusal(i)) add_machine(i);
    for (int64_t k = 0; k < counts_[i].asked; ++k) out_.create.push_back(in_.pools[i].pool.name);
  }
}

void Decider::scale_in(const Machine& machine, std::size_t pool, bool needed) {
  const Pool& of = in_.pools[pool].pool;
  if (!machine.node) {
    if (in_.now - machine.asked_at >= of.boot_limit) {
      out_.end.push_back(
          {.machine = machine.name,
           .why = "its node did not come within " + std::to_string(of.boot_limit.ms() / 1'000) + " s"});
      --counts_[pool].staying;
    }
    return;
  }
  const MachineNode& node = *machine.node;
  if (!node.quiet || node.kept || node.silent) return;
  const bool long_idle = machine.quiet_since.valid() && in_.now - machine.quiet_since >= of.idle_after;
  if (node.drained_by_us) {
    if (needed) {
      out_.resume.push_back(machine.name);
      ++counts_[pool].staying;
    } else {
      out_.end.push_back({.machine = machine.name, .why = "it was idle", .of_node = true});
    }
    return;
  }
  if (!long_idle) return;
  if (node.drained) {
    out_.end.push_back({.machine = machine.name, .why = "it was drained and idle", .of_node = true});
  } else if (!needed && node.in_service && counts_[pool].staying > of.minimum) {
    out_.drain.push_back(machine.name);
    --counts_[pool].staying;
  }
}

void Decider::scale_in() {
  std::vector<std::pair<Time, const Machine*>> by_idle;
  for (const Machine& machine : in_.machines)
    by_idle.emplace_back(machine.quiet_since.valid() ? machine.quiet_since : kNever, &machine);
  std::ranges::stable_sort(by_idle, {}, &std::pair<Time, const Machine*>::first);
  for (const auto& [since, machine] : by_idle) {
    const std::optional<std::size_t> pool = pool_named(machine->pool);
    if (!pool || machine->ending) continue;
    const bool needed = std::ranges::any_of(
        places_, [&](const Place& place) { return place.machine == machine && place.capacity.used(); });
    scale_in(*machine, *pool, needed);
  }
}

Decisions Decider::run() {
  count_and_place();
  uint64_t job = 0;
  for (const Demand& demand : in_.demand) lay(demand, job);
  scale_in();
  keep_minimum();
  return std::move(out_);
}

}  // namespace

std::string_view to_string(Outlook outlook) {
  switch (outlook) {
    case Outlook::kStarting:
      return "starting";
    case Outlook::kAtMaximum:
      return "at_maximum";
    case Outlook::kOverBudget:
      return "over_budget";
    case Outlook::kUnavailable:
      return "unavailable";
  }
  return "unknown";
}

Decisions decide(const Situation& situation) { return Decider(situation).run(); }

}  // namespace gpusched::provision

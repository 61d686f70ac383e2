#include <gtest/gtest.h>

#include <bit>
#include <optional>
#include <set>
#include <string>

#include "base/limits.h"
#include "engine/engine.h"
#include "engine/planner/planner.h"
#include "engine/policy/policies.h"
#include "engine/testing/random_commands.h"
#include "engine/testing/test_tasks.h"
#include "engine/testing/worlds.h"

namespace gpusched {
namespace {

using testing::RandomCommands;
using testing::RandomTasks;

/// Somewhere on the device none of the slots of a slice of the part is another one's.
bool slice_fits(const State& state, const Device& device, const Part& part) {
  const DeviceClass& kind = state.device_classes[device.device_class];
  const mig::Table* table = mig::table_of(kind.model, kind.memory_mb);
  if (table == nullptr) return false;
  std::vector<bool> taken(8, false);
  bool media = false;
  const auto slots_of = [&](std::string_view name) { return table->profile(name)->slots; };
  for (const Share& share : device.shares) {
    media = media || share.mig_profile.ends_with("+me");
    for (int32_t i = 0; i < slots_of(share.mig_profile); ++i)
      taken[static_cast<std::size_t>(share.mig_start + i)] = true;
  }
  const mig::Profile* profile = table->profile(part.mig_profile);
  if (profile == nullptr || (media && part.mig_profile.ends_with("+me"))) return false;
  for (int32_t start = 0; start < 8; ++start) {
    bool fits = ((profile->starts >> start) & 1) != 0;
    for (int32_t i = 0; i < profile->slots && fits; ++i) fits = !taken[static_cast<std::size_t>(start + i)];
    if (fits) return true;
  }
  return false;
}

/// By what all who have shares of it left over.
bool share_fits(const State& state, const Device& device, const Part& part, uint32_t kind) {
  if (state.device_classes[kind].mig == part.mig_profile.empty() || device.next_class) return false;
  if (device.device_class != kind || device.condition != DeviceCondition::kOk || device.barred ||
      device.hot || device.fault >= FaultClass::kDrain || device.promised_to.valid())
    return false;
  if (device.state != DeviceState::kFree && device.state != DeviceState::kShared) return false;
  if (!part.mig_profile.empty()) return slice_fits(state, device, part);
  int64_t milli = part.gpu_milli;
  int64_t memory_mb = part.gpu_share_mb > 0 ? part.gpu_share_mb : device.memory_mb * part.gpu_milli / 1000;
  for (const Share& share : device.shares) {
    milli += share.milli;
    memory_mb += share.memory_mb;
  }
  return milli <= 1000 && memory_mb <= device.memory_mb;
}

const std::string* label_value(const Node& node, const std::string& name) {
  for (const Label& label : node.labels) {
    if (label.name == name) return &label.value;
  }
  for (const Label& label : node.agent_labels) {
    if (label.name == name) return &label.value;
  }
  return nullptr;
}

/// The node's labels and what else runs on it.
bool node_pleases(const State& state, const Node& node, const Part& part) {
  bool exclusive = false;
  bool busy = false;
  for (const AttemptKey& key : node.attempts) {
    exclusive = exclusive || state.find_attempt(key.job, key.attempt)->members[key.member].exclusive;
    busy = true;
  }
  for (const auto& [job, promise] : state.promises) {
    for (const Member& member : promise.members) busy = busy || member.node == node.id;
  }
  for (const Device& device : node.devices) {
    busy = busy || device.state == DeviceState::kDraining;
    for (const Share& share : device.shares) busy = busy || share.draining_since.valid();
  }
  if (exclusive) return false;
  if (part.place.empty()) return true;
  const PlaceRequest& place = part.place.front();
  if (place.exclusive && busy) return false;
  for (const LabelTerm& term : place.labels) {
    const std::string* value = label_value(node, term.name);
    if (value == nullptr || (!term.any_value && *value != term.value)) return false;
  }
  for (const LabelTerm& term : place.without_labels) {
    const std::string* value = label_value(node, term.name);
    if (value != nullptr && (term.any_value || *value == term.value)) return false;
  }
  return true;
}

/// Some of the devices in `free` lie as the part asks, by trying all sets of them.
bool some_please(const Node& node, const Part& part, uint64_t free) {
  if (part.place.empty()) return std::popcount(free) >= part.gpu_count;
  const PlaceRequest& place = part.place.front();
  const std::size_t count = node.devices.size();
  for (uint64_t mask = 0; mask < (uint64_t{1} << count); ++mask) {
    if ((mask & ~free) != 0 || std::popcount(mask) != part.gpu_count) continue;
    if (place.device_mask != 0 && mask != place.device_mask) continue;
    bool pleases = true;
    std::size_t named = 0;
    for (std::size_t a = 0; a < count; ++a) {
      if (((mask >> a) & 1) == 0) continue;
      const auto& uuids = place.device_uuids;
      named += static_cast<std::size_t>(std::count(uuids.begin(), uuids.end(), node.devices[a].uuid));
      const bool gap = place.layout == Layout::kContiguous && a > 0 && (mask >> (a - 1) & 1) == 0 &&
                       (mask & ((uint64_t{1} << a) - 1)) != 0;
      pleases = pleases && !gap;
      std::size_t at = 0;
      for (std::size_t x = 0; x < count; ++x) {
        for (std::size_t y = x + 1; y < count; ++y, ++at) {
          if (x != a || ((mask >> y) & 1) == 0) continue;
          const int64_t gbs = node.links.empty() ? 0 : node.links[at] / 16;
          pleases = pleases && gbs >= place.bandwidth_min;
        }
      }
    }
    if (pleases && named == place.device_uuids.size()) return true;
  }
  return false;
}

/// The node has the features that the part asks for, is external if the part is, and is not avoided.
bool can_do(const State& state, const Node& node, const Part& part) {
  const auto has = [&](const char* feature) {
    return std::find(node.features.begin(), node.features.end(), feature) != node.features.end();
  };
  if ((part.features & kFeatureContainer) != 0 && !has("container")) return false;
  const bool external = has("external") && state.config.feature_level >= 12;
  if (external != ((part.features & kFeatureExternal) != 0)) return false;
  return part.place.empty() ||
         std::none_of(part.place.front().avoided.begin(), part.place.front().avoided.end(),
                      [&](const AvoidedNode& one) { return one.until.valid() && one.node == node.name; });
}

/// A node that may take a member of the part, if it has room.
bool is_open(const State& state, const Node& node, const Part& part) {
  // A booking keeps its nodes; before one, who may still start there depends on the jobs' lengths.
  const bool booked = std::any_of(state.bookings.begin(), state.bookings.end(), [&](const auto& entry) {
    const auto& [id, booking] = entry;
    const bool here = std::count(booking.nodes.begin(), booking.nodes.end(), node.id) > 0;
    return here && id.value != part.booking && (booking.active || part.booking == 0);
  });
  const Booking* own = state.find_booking(BookingId{part.booking});
  const bool on =
      own != nullptr && own->active && std::count(own->nodes.begin(), own->nodes.end(), node.id) > 0;
  if (booked || (part.booking != 0 && !on)) return false;
  if (node.state != NodeState::kReady || node.availability != Availability::kInService) return false;
  return can_do(state, node, part);
}

/// Devices that a member of the part could have, one by one, of each kind.
std::vector<int32_t> units_of(const State& state, const Node& node, const Part& part) {
  std::vector<int32_t> units(state.device_classes.size(), 0);
  for (uint32_t kind = 0; kind < units.size(); ++kind) {
    for (const Device& device : node.devices) {
      const bool whole = device.device_class == kind && device.state == DeviceState::kFree &&
                         !state.device_classes[kind].mig && device.condition == DeviceCondition::kOk &&
                         !device.barred && !device.hot && device.fault < FaultClass::kDrain &&
                         !device.promised_to.valid();
      if (part.gpu_milli > 0 ? share_fits(state, device, part, kind) : whole) ++units[kind];
    }
  }
  return units;
}

/// The rest of the nodes while members are put on them, one way after the other.
struct Search {
  struct Left {
    const Node* node = nullptr;
    int64_t cpu_milli = 0;
    int64_t memory_mb = 0;
    std::size_t attempts = 0;
    std::vector<int32_t> units;  ///< By kind.
    int members = 0;
  };
  const State& state;
  const std::vector<Part>& parts;
  std::vector<Left> left = {};

  bool in_one_domain() const {
    const Part& part = parts.front();
    if (!part.domain_required || part.domain == DomainLevel::kAny || !is_gang(parts)) return true;
    for (int level = 1; level <= static_cast<int>(part.domain); ++level) {
      std::set<std::string> domains;
      for (const Left& one : left) {
        if (one.members > 0)
          domains.insert(domain_of(state.config.policy, *one.node, static_cast<DomainLevel>(level)));
      }
      if (domains.size() == 1 && !domains.contains("")) return true;
    }
    return false;
  }
  bool put(std::size_t index, int32_t member, std::size_t from) {
    if (index == parts.size()) return in_one_domain();
    const Part& part = parts[index];
    if (member == part.member_count) return put(index + 1, 0, 0);
    for (std::size_t at = from; at < left.size(); ++at) {
      Left& here = left[at];
      if (part.one_member_per_node && is_gang(parts) && here.members > 0) continue;
      if (!is_open(state, *here.node, part) || !node_pleases(state, *here.node, part) ||
          here.attempts >= limits::kAttemptsPerNodeMax)
        continue;
      if (here.cpu_milli < part.cpu_milli || here.memory_mb < part.memory_mb) continue;
      const Left before = here;
      here.cpu_milli -= part.cpu_milli;
      here.memory_mb -= part.memory_mb;
      ++here.attempts;
      ++here.members;
      if (part.gpu_count == 0 && put(index, member + 1, at)) return true;
      for (uint32_t kind = 0; kind < here.units.size() && part.gpu_count > 0; ++kind) {
        const DeviceClass& device_class = state.device_classes[kind];
        if (device_class.memory_mb < part.gpu_memory_mb || here.units[kind] < part.gpu_count) continue;
        if (!gpu_model_matches(device_class.model, part.gpu_model)) continue;
        here.units[kind] -= part.gpu_count;
        if (put(index, member + 1, at)) return true;
        here.units[kind] += part.gpu_count;
      }
      left[at] = before;
    }
    return false;
  }
};

/// All members at once, by trying every way.
bool members_fit(const State& state, const std::vector<Part>& parts) {
  Search search{.state = state, .parts = parts};
  for (const Node& node : state.nodes) {
    search.left.push_back({.node = &node,
                           .cpu_milli = node.cpu_milli - node.cpu_milli_used,
                           .memory_mb = node.memory_mb - node.memory_mb_used,
                           .attempts = node.attempts.size() + node.promised_count,
                           .units = units_of(state, node, parts.front())});
  }
  return search.put(0, 0, 0);
}

/// Memory that devices of this kind give to the part's members, if it names no size.
int64_t given_by(const State& state, const Part& part, uint32_t kind) {
  const DeviceClass& device_class = state.device_classes[kind];
  if (part.gpu_count == 0 || part.names_gpu_memory() || !device_class.serves(part)) return 0;
  const int64_t each = part.gpu_milli > 0 ? device_class.share_mb_of(part, device_class.memory_mb)
                                          : part.gpu_count * device_class.memory_mb;
  return part.member_count * each;
}

/// The tenants' limits of GPU memory leave room for what devices of this kind would give; without a kind for
/// the most that each part may be given.
bool memory_left(const State& state, const Job& job, std::optional<uint32_t> kind = {}) {
  if (state.config.feature_level < 10) return true;
  Amount amount = total_of(state.class_of(job).parts);
  for (const Part& part : state.class_of(job).parts) {
    int64_t given = kind.has_value() ? given_by(state, part, *kind) : 0;
    for (uint32_t each = 0; each < state.device_classes.size() && !kind.has_value(); ++each)
      given = std::max(given, given_by(state, part, each));
    amount.gpu_memory_mb += given;
  }
  for (const Tenant* at = state.find_tenant(job.tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    const int64_t limit = at->limits.get(Resource::kGpuMemory);
    if (limit != Limits::kUnlimited && amount.gpu_memory_mb > 0 &&
        at->usage.gpu_memory_mb + amount.gpu_memory_mb > limit)
      return false;
  }
  return true;
}

bool pool_has_room(const State& state, const JobClass& job_class) {
  const PoolShares& pools = state.config.pools;
  const int64_t wanted = total_of(job_class.parts).gpu_thousandths();
  if (!pools.on() || pools.lends() || wanted == 0) return true;
  int64_t gpus = 0;
  for (const Node& node : state.nodes) gpus += node.in_service() ? std::ssize(node.devices) : 0;
  const WorkClass work = work_of(job_class.parts);
  const int64_t share = pools.gpus_of(work == WorkClass::kOnline, gpus) * kMilliPerGpu;
  return state.pool_of(work).milli + wanted <= share;
}

/// Slow and plain: whether the job could be placed right now, by looking at everything.
bool could_be_placed(const State& state, const Job& job) {
  const JobClass& job_class = state.class_of(job);
  const Amount amount = total_of(job_class.parts);
  for (const Tenant* at = state.find_tenant(job.tenant); at != nullptr; at = state.find_tenant(at->parent)) {
    for (const Resource resource :
         {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
      const int64_t wanted = amount_of(amount, resource);
      const int64_t limit = at->limits.get(resource);
      if (wanted == 0 || limit == Limits::kUnlimited) continue;
      const bool gpus = resource == Resource::kGpus;
      const int64_t milli = gpus ? at->usage.gpu_milli + amount.gpu_milli : 0;
      const int64_t whole = gpus ? at->usage.gpus + amount.gpus : amount_of(at->usage, resource) + wanted;
      if (whole * 1000 + milli > limit * 1000) return false;
    }
    const GpuTime& gpu_time = at->gpu_time;
    if (amount.gpus + amount.gpu_milli > 0 && gpu_time.length.ns > 0 &&
        gpu_time.used_by(state.last.at, at->usage) >= gpu_time.max_ms)
      return false;
  }
  if (!pool_has_room(state, job_class)) return false;
  if (is_gang(job_class.parts)) return memory_left(state, job) && members_fit(state, job_class.parts);
  const Part& part = job_class.parts.front();
  for (const Node& node : state.nodes) {
    // A booking keeps its nodes; before one, who may still start there depends on the jobs' lengths.
    const bool booked = std::any_of(state.bookings.begin(), state.bookings.end(), [&](const auto& entry) {
      const auto& [id, booking] = entry;
      const bool here = std::count(booking.nodes.begin(), booking.nodes.end(), node.id) > 0;
      return here && id.value != part.booking && (booking.active || part.booking == 0);
    });
    const Booking* own = state.find_booking(BookingId{part.booking});
    const bool on =
        own != nullptr && own->active && std::count(own->nodes.begin(), own->nodes.end(), node.id) > 0;
    if (booked || (part.booking != 0 && !on)) continue;
    if (node.state != NodeState::kReady || node.availability != Availability::kInService) continue;
    if (!can_do(state, node, part)) continue;
    if (node.cpu_milli - node.cpu_milli_used < part.cpu_milli) continue;
    if (node.memory_mb - node.memory_mb_used < part.memory_mb) continue;
    if (node.attempts.size() + node.promised_count >= limits::kAttemptsPerNodeMax) continue;
    if (!node_pleases(state, node, part)) continue;
    if (part.gpu_count == 0) return true;
    for (uint32_t kind = 0; kind < state.device_classes.size(); ++kind) {
      const DeviceClass& device_class = state.device_classes[kind];
      if (device_class.memory_mb < part.gpu_memory_mb || !memory_left(state, job, kind)) continue;
      if (!gpu_model_matches(device_class.model, part.gpu_model)) continue;
      const auto is_of = [&](const std::string& model) {
        return gpu_model_matches(device_class.model, model);
      };
      if (!part.place.empty() && !part.place.front().gpu_models.empty() &&
          std::none_of(part.place.front().gpu_models.begin(), part.place.front().gpu_models.end(), is_of))
        continue;
      uint64_t free = 0;
      for (const Device& device : node.devices) {
        if (part.gpu_milli > 0 && share_fits(state, device, part, kind)) return true;
        if (part.gpu_milli == 0 && device.device_class == kind && device.state == DeviceState::kFree &&
            !device_class.mig && device.condition == DeviceCondition::kOk && !device.barred && !device.hot &&
            device.fault < FaultClass::kDrain && !device.promised_to.valid()) {
          free |= uint64_t{1} << (&device - node.devices.data());
        }
      }
      if (part.gpu_milli == 0 && some_please(node, part, free)) return true;
    }
  }
  return false;
}

/// The jobs that wait although they could run.
std::vector<JobId> forgotten_jobs(const State& state) {
  std::vector<JobId> found;
  for (OrderedJobs::Cursor cursor = state.line.begin(); !cursor.at_end(); cursor.next()) {
    if (could_be_placed(state, *state.jobs.find((*cursor).job))) found.push_back((*cursor).job);
  }
  return found;
}

/// Without reservations and victims: whatever fits starts, which is simple enough to be said again by a slow
/// planner.
policy::PolicySet greedy_policies(const char* job_order, const char* queue_order, bool tasks) {
  policy::PolicySet policies =
      tasks ? testing::policies_with_tasks(RandomTasks::kWeightMax) : policy::default_policies();
  const SchedulingPolicy chosen{.attained_levels = {60, 600}};
  policies.job_order = policy::make_job_order(job_order, chosen);
  policies.queue_order = policy::make_queue_order(queue_order);
  policies.overtaking = minutes(3);
  policies.reservations = 0;
  policies.victims = nullptr;
  return policies;
}

/// A state, and a planner that saw each event of it.
struct Scheduler {
  Scheduler(const char* job_order, const char* queue_order, uint64_t seed, bool with_tasks)
      : planner(greedy_policies(job_order, queue_order, with_tasks)), tasks(seed), has_tasks(with_tasks) {}

  State state;
  Planner planner;
  RandomTasks tasks;
  bool has_tasks = false;
  Time now = Time{} + seconds(1'700'000'000);

  void apply(const Command& command) {
    Events events;
    gpusched::apply(state, command, {.sequence = state.last.sequence + 1, .at = now}, events);
    for (const Event& event : events) {
      planner.observe(state, event);
      if (!std::holds_alternative<AttemptPlaced>(event)) continue;
      const Job& job = state.job_at(std::get<AttemptPlaced>(event).job);
      placed_.push_back({.job = job.id, .at = now, .job_class = job.job_class, .spec = job.spec});
    }
  }
  void apply_drawn(const Command& command) { apply(has_tasks ? tasks.among(command) : command); }
  /// Late placements are told by the jobs that are kept, each once and as it was: a planner that begins now
  /// counts the same use of each user.
  bool tells_use() {
    std::erase_if(placed_, [&](const Placed& one) { return one.at + minutes(6) < state.last.at; });
    return std::all_of(placed_.begin(), placed_.end(), [&](const Placed& one) {
      const Job* job = state.jobs.find(one.job);
      return job != nullptr && job->scheduled_at == one.at && job->job_class == one.job_class &&
             job->spec.view() == one.spec.view();
    });
  }

 private:
  struct Placed {
    JobId job;
    Time at;
    uint32_t job_class = 0;
    Blob spec;
  };
  std::vector<Placed> placed_;
};

/// Plans until nothing is left, the last time at the state's own time: a window of GPU hours may have begun
/// meanwhile. Between planning and committing, `meanwhile` happens.
template <typename Meanwhile>
std::size_t cycle(Scheduler& scheduler, Meanwhile&& meanwhile) {
  std::size_t placed = 0;
  for (int slice = 0; slice < 1000; ++slice) {
    const Time planned_at = scheduler.state.last.at;
    const Planner::Slice planned = scheduler.planner.plan(scheduler.state, planned_at);
    if (!planned.plan.groups.empty()) {
      meanwhile();
      const std::size_t before = scheduler.state.attempts.size();
      scheduler.apply(planned.plan);
      placed += scheduler.state.attempts.size() - before;
    }
    scheduler.planner.plan_applied(scheduler.state);
    const bool up_to_date = planned_at == scheduler.state.last.at;
    if (!planned.more && up_to_date && !scheduler.planner.wants_cycle()) return placed;
  }
  ADD_FAILURE() << "a cycle without end";
  return placed;
}

/// Fewest jobs placed in each world, or it shows nothing. In some, nearly all that waits does so for a strict
/// pool, or for GPU hours that are used up.
constexpr std::size_t kPlacedLeast = 10;

/// Seeds, each with an order of jobs.
class RandomCycles : public ::testing::TestWithParam<uint64_t> {
 public:
  static const char* job_order() {
    static constexpr const char* kOrders[] = {"priority_aging", "deadline", "shortest", "least_attained"};
    return kOrders[GetParam() % 4];
  }
  static const char* queue_order() {
    static constexpr const char* kOrders[] = {"fair_share", "priority_aging", "cost_aware", "fifo",
                                              "strict_priority"};
    return kOrders[GetParam() % 5];
  }
  static bool has_tasks() { return GetParam() / 8 % 2 == 1; }
  /// One that does not drift, and ranks a tenant's jobs among all as among its own: with another one, what is
  /// looked at because something was freed for it may stand elsewhere than beside all that waits.
  static const char* steady_order() { return GetParam() % 2 == 0 ? "priority_aging" : "strict_priority"; }
};

TEST_P(RandomCycles, AfterACycleNoJobWaitsThatCouldRun) {
  RandomCommands random(GetParam());
  Scheduler scheduler(job_order(), queue_order(), GetParam(), has_tasks());
  scheduler.planner.reset(scheduler.state);
  std::size_t placed = 0;
  const auto step = [&] {
    scheduler.now = scheduler.now + random.pause();
    const bool due = scheduler.state.next_due() <= scheduler.now && random.prng().chance(700);
    scheduler.apply_drawn(due ? Command(AdvanceTime{}) : random.next(scheduler.state));
  };
  for (int i = 0; i < 400; ++i) {
    const uint64_t steps = random.prng().below(4);
    for (uint64_t each = 0; each < steps; ++each) step();
    placed += cycle(scheduler, [&] {
      while (random.prng().chance(400)) step();
    });
    const std::vector<JobId> forgotten = forgotten_jobs(scheduler.state);
    ASSERT_TRUE(forgotten.empty()) << "job " << forgotten.front().value << " after round " << i << ": "
                                   << describe(scheduler.planner.reason(
                                          scheduler.state.jobs.find(forgotten.front())->job_class));
  }
  EXPECT_GT(placed, kPlacedLeast);
}

TEST_P(RandomCycles, PlacementByFragmentationForgetsNoJobEither) {
  RandomCommands random(GetParam() + 900);
  Scheduler scheduler(job_order(), queue_order(), GetParam(), has_tasks());
  EngineConfig config = scheduler.state.config;
  config.policy = {.queue_order = queue_order(), .reservations = 0, .job_order = job_order()};
  config.policy.placement = GetParam() % 2 == 0 ? "fgd" : "least_value_lost";
  scheduler.planner.reset(scheduler.state);
  scheduler.apply(Configure{.config = config});
  std::size_t placed = 0;
  for (int i = 0; i < 300; ++i) {
    const uint64_t steps = random.prng().below(6);
    for (uint64_t each = 0; each < steps; ++each) {
      scheduler.now = scheduler.now + random.pause();
      scheduler.apply_drawn(random.next(scheduler.state));
      // Another configuration would be another planner.
      if (!(scheduler.state.config.policy == config.policy)) scheduler.apply(Configure{.config = config});
    }
    placed += cycle(scheduler, [] {});
    const std::vector<JobId> forgotten = forgotten_jobs(scheduler.state);
    ASSERT_TRUE(forgotten.empty()) << "job " << forgotten.front().value << " after round " << i << ": "
                                   << describe(scheduler.planner.reason(
                                          scheduler.state.jobs.find(forgotten.front())->job_class));
  }
  EXPECT_GT(placed, kPlacedLeast);
}

TEST_P(RandomCycles, APlannerThatSawEverythingPlansLikeAFreshOne) {
  RandomCommands random(GetParam() + 500);
  Scheduler scheduler(job_order(), steady_order(), GetParam(), has_tasks());
  scheduler.planner.reset(scheduler.state);
  for (int i = 0; i < 150; ++i) {
    const uint64_t steps = 1 + random.prng().below(8);
    for (uint64_t each = 0; each < steps; ++each) {
      scheduler.now = scheduler.now + random.pause();
      scheduler.apply_drawn(random.next(scheduler.state));
    }
    Planner fresh(greedy_policies(job_order(), steady_order(), has_tasks()));
    fresh.reset(scheduler.state);
    const CommitPlan theirs = fresh.plan(scheduler.state, scheduler.state.last.at).plan;
    const CommitPlan ours = scheduler.planner.plan(scheduler.state, scheduler.state.last.at).plan;
    // With guarantees a tenant stands where the first of its jobs that are looked at does, and blocked ones
    // are looked at by the fresh planner only.
    const bool ranked = std::any_of(scheduler.state.tenants.begin(), scheduler.state.tenants.end(),
                                    [](const auto& entry) { return entry.second.guarantee != Amount{}; }) ||
                        (has_tasks() && !scheduler.tells_use());
    if (!ranked) {
      ASSERT_EQ(ours.groups.size(), theirs.groups.size()) << "round " << i;
    }
    for (std::size_t group = 0; group < ours.groups.size() && !ranked; ++group) {
      EXPECT_EQ(ours.groups[group].job, theirs.groups[group].job);
      ASSERT_EQ(ours.groups[group].members.size(), theirs.groups[group].members.size());
      for (std::size_t member = 0; member < ours.groups[group].members.size(); ++member) {
        EXPECT_EQ(ours.groups[group].members[member].node, theirs.groups[group].members[member].node);
        EXPECT_EQ(ours.groups[group].members[member].device_mask,
                  theirs.groups[group].members[member].device_mask);
      }
    }
    // Every placement is one that decide takes.
    const std::size_t before = scheduler.state.attempts.size();
    scheduler.apply(ours);
    scheduler.planner.plan_applied(scheduler.state);
    ASSERT_EQ(scheduler.state.attempts.size() - before, ours.groups.size());
    // A waiting job has the reason that a fresh look would give.
    fresh.plan_applied(scheduler.state);
    Planner judge(greedy_policies(job_order(), steady_order(), has_tasks()));
    judge.reset(scheduler.state);
    EXPECT_TRUE(judge.plan(scheduler.state, scheduler.state.last.at).plan.groups.empty());
  }
}

// Eight without tasks, eight with them, and so on.
INSTANTIATE_TEST_SUITE_P(Seeds, RandomCycles, ::testing::Range<uint64_t>(0, testing::worlds_to_draw(16)));

}  // namespace
}  // namespace gpusched

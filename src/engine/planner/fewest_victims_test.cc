#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "base/prng.h"
#include "engine/testing/test_engine.h"
#include "engine/testing/test_tasks.h"
#include "engine/testing/worlds.h"

// Choice of victims, in small worlds, some of them with tasks of users on shares of GPUs, who are never
// ended: compared with every set of jobs that might be.
namespace gpusched {
namespace {

using testing::TestEngine;

constexpr Duration kProtection = seconds(60);
constexpr Duration kSilentMax = minutes(5);

struct Room {
  int64_t gpus = 0;
  int64_t cpu_milli = 0;
  int64_t memory_mb = 0;

  void take(const Room& other) {
    gpus -= other.gpus;
    cpu_milli -= other.cpu_milli;
    memory_mb -= other.memory_mb;
  }
  bool holds(const Room& other) const {
    return gpus >= other.gpus && cpu_milli >= other.cpu_milli && memory_mb >= other.memory_mb;
  }
};

struct Running {
  JobId job;
  NodeId node;
  Room held;
  Time since;
  TenantId tenant;
  int32_t priority = 0;
  bool exempt = false;
  bool ended = false;  ///< For one that was looked at before.
};

struct Asker {
  JobId job;
  Room wanted;
  TenantId tenant;
  int32_t priority = 0;
  bool served = false;
};

/// Loss by ending these, by the first of the figures that the policy compares.
struct Loss {
  int64_t spared = 0;
  int64_t counted_gpu_ms = 0;
  int64_t real_gpu_ms = 0;
  friend auto operator<=>(const Loss&, const Loss&) = default;
};

enum class Asking : uint8_t {
  kOne,      ///< One of a tenant that may end others, beside a reservation.
  kSeveral,  ///< Several of it.
  kOwner,    ///< One of a tenant that is guaranteed something.
  kMixed,    ///< Several of both.
};

class SmallWorld {
 public:
  SmallWorld(uint64_t seed, Asking asking, bool has_tasks)
      : asking_(asking),
        prng_(seed),
        tasks_(seed),
        engine_(has_tasks ? testing::policies_with_tasks(testing::RandomTasks::kWeightMax)
                          : policy::default_policies()) {
    EngineConfig config{.feature_level = kFeatureLevel};
    // No job of several that wait is promised a node, from which it would keep the others.
    if (is_crowded()) config.policy.reservations = 0;
    engine_.apply(Configure{.config = config});
    meek_ = tenant("meek", true, false);
    firm_ = tenant("firm", false, false);
    lord_ = tenant("lord", false, true);
    owner_ = tenant("owner", false, false);
    const int64_t nodes = prng_.between(1, 3);
    for (int64_t i = 0; i < nodes; ++i) {
      nodes_.push_back(
          engine_.add_node("n" + std::to_string(i), {.gpus = static_cast<int>(prng_.between(0, gpus_most())),
                                                     .cpu_milli = prng_.between(4, 8) * 1'000,
                                                     .memory_mb = prng_.between(4, 8) * 1'000}));
    }
    for (int64_t count = prng_.between(1, 6); count > 0; --count) {
      run_one();
      if (has_tasks && tasks_.prng().chance(600)) run_task();
    }
    engine_.advance(minutes(prng_.between(0, 8)));
    if (has_owner()) {
      guarantee(owner_, prng_.between(1, 6));
      if (prng_.chance(500)) guarantee(meek_, prng_.between(1, 3));
      if (prng_.chance(300)) guarantee(firm_, prng_.between(1, 3));
    }
    for (const Running& one : running_) used_milli_[one.tenant] += one.held.gpus * kMilliPerGpu;
  }

  void check() {
    const bool several = asking_ == Asking::kSeveral || asking_ == Asking::kMixed;
    for (int64_t count = several ? prng_.between(2, 4) : 1; count > 0; --count) ask();
    const std::vector<PlanGroup> groups = engine_.cycle();
    for (const PlanGroup& group : groups) {
      const auto at = std::ranges::find(askers_, group.job, &Asker::job);
      ASSERT_NE(at, askers_.end());
      at->served = true;
      check_group(*at, group);
      if (::testing::Test::HasFailure()) return;
      promised_[group.members.front().node].push_back(at->wanted);
      used_milli_[at->tenant] += at->wanted.gpus * kMilliPerGpu;
    }
    // Jobs ended later for others may have kept a guarantee from covering those that wait.
    if (asking_ == Asking::kMixed) return;
    for (const Asker& asker : askers_) {
      if (asker.served || !is_head(asker) || is_room_coming(asker)) continue;
      // Beside what others give back somebody may have to be ended: that is looked at when it is back.
      if (std::ranges::any_of(running_, &Running::ended)) continue;
      EXPECT_EQ(least_loss(asker), std::nullopt) << "nobody is ended, and somebody may be";
    }
  }

  static inline uint64_t preemptions = 0;
  static inline uint64_t beside_tasks = 0;

 private:
  bool is_crowded() const { return asking_ == Asking::kSeveral || asking_ == Asking::kMixed; }
  bool has_owner() const { return asking_ == Asking::kOwner || asking_ == Asking::kMixed; }
  int64_t gpus_most() const { return is_crowded() ? 8 : 4; }

  TenantId tenant(std::string_view name, bool allow, bool can) {
    return TenantId{engine_
                        .apply(CreateTenant{
                            .name = std::string(name), .allow_preemption = allow, .can_preempt_others = can})
                        .first_id};
  }
  void guarantee(TenantId tenant, int64_t gpus) {
    guaranteed_[tenant] = gpus;
    engine_.apply(UpdateTenant{.tenant = tenant, .given = kTenantGuaranteeGpus, .guarantee = {.gpus = gpus}});
  }
  void ask() {
    const bool owner = asking_ == Asking::kOwner || (asking_ == Asking::kMixed && prng_.chance(500));
    Asker asker{.wanted = {.gpus = prng_.between(owner ? 1 : 0, gpus_most()),
                           .cpu_milli = prng_.between(0, 6) * 1'000,
                           .memory_mb = prng_.between(0, 6) * 1'000},
                .tenant = owner ? owner_ : lord_,
                .priority = static_cast<int32_t>(is_crowded() ? prng_.between(9, 11) : 10)};
    asker.job = submit(asker.wanted, asker.tenant, asker.priority, false);
    askers_.push_back(asker);
  }
  JobId submit(const Room& room, TenantId tenant, int32_t priority, bool exempt) {
    return engine_.submit({.gpus = static_cast<int32_t>(room.gpus),
                           .cpu_milli = static_cast<int32_t>(room.cpu_milli),
                           .memory_mb = room.memory_mb,
                           .priority = priority,
                           .tenant = tenant,
                           .preemption_exempt = exempt});
  }
  void run_one() {
    Running one{.held = {.gpus = prng_.between(0, is_crowded() ? 4 : 2),
                         .cpu_milli = prng_.between(0, 3) * 1'000,
                         .memory_mb = prng_.between(0, 3) * 1'000},
                .tenant = prng_.chance(200) ? firm_ : meek_,
                .priority = static_cast<int32_t>(prng_.between(8, 11)),
                .exempt = prng_.chance(50)};
    one.job = submit(one.held, one.tenant, one.priority, one.exempt);
    engine_.cycle();
    if (engine_.state_of(one.job) != JobState::kScheduled) {
      engine_.apply(CancelJob{.job = one.job});
      return;
    }
    engine_.started(one.job);
    one.node = engine_.job(one.job).node;
    one.since = engine_.now();
    running_.push_back(one);
    engine_.advance(seconds(prng_.between(0, 100)));
  }
  void run_task() {
    Prng& prng = tasks_.prng();
    JobRequest request = testing::request_of({.gpus = 1,
                                              .cpu_milli = static_cast<int32_t>(prng.between(0, 1)) * 1'000,
                                              .memory_mb = prng.between(0, 1) * 1'000,
                                              .priority = static_cast<int32_t>(prng.between(8, 11)),
                                              .gpu_milli = static_cast<int32_t>(prng.between(1, 6) * 100),
                                              .gpu_share_mb = prng.between(1, 4) * 8'000});
    request.spec = tasks_.some_spec();
    const TenantId tenant = prng.chance(200) ? firm_ : meek_;
    const JobId job{engine_.apply(SubmitJobs{.tenant = tenant, .jobs = {request}}).first_id};
    engine_.cycle();
    if (engine_.state_of(job) != JobState::kScheduled) {
      engine_.apply(CancelJob{.job = job});
      return;
    }
    engine_.started(job);
    const Part& part = request.parts.front();
    tasks_on_[engine_.job(job).node].push_back({.cpu_milli = part.cpu_milli, .memory_mb = part.memory_mb});
    used_milli_[tenant] += part.gpu_milli;
    engine_.advance(seconds(prng.between(0, 100)));
  }

  void check_group(const Asker& asker, const PlanGroup& group) {
    if (group.preemptions.empty()) return;  // It fits.
    const NodeId node = group.members.front().node;
    EXPECT_LT(rooms_coming(asker), asking_alike(asker)) << "others are ended beside room that comes";
    std::vector<const Running*> chosen;
    for (const Preemption& one : group.preemptions) {
      const auto at = std::ranges::find(running_, one.job, &Running::job);
      ASSERT_NE(at, running_.end());
      EXPECT_TRUE(!at->ended && may_end(asker, *at));
      EXPECT_EQ(at->node, node) << "what it gives back is of no use";
      chosen.push_back(&*at);
    }
    ++preemptions;
    beside_tasks += tasks_on_.contains(node) ? 1 : 0;
    EXPECT_TRUE(suffices(asker, node, chosen));
    EXPECT_TRUE(leaves_guarantees(asker, chosen));
    for (std::size_t left_out = 0; left_out < chosen.size(); ++left_out) {
      std::vector<const Running*> fewer = chosen;
      fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(left_out));
      EXPECT_FALSE(suffices(asker, node, fewer)) << "one is ended for nothing";
    }
    EXPECT_EQ(loss_of(asker, chosen), least_loss(asker));
    for (const Running* one : chosen) {
      running_[static_cast<std::size_t>(one - running_.data())].ended = true;
      used_milli_[one->tenant] -= one->held.gpus * kMilliPerGpu;
    }
  }

  /// Its tenant holds no more with it than it is guaranteed.
  bool is_covered(const Asker& asker) const {
    const auto own = guaranteed_.find(asker.tenant);
    return own != guaranteed_.end() &&
           used_of(asker.tenant) + asker.wanted.gpus * kMilliPerGpu <= own->second * kMilliPerGpu;
  }
  /// In thousandths of GPUs.
  int64_t used_of(TenantId tenant) const {
    const auto found = used_milli_.find(tenant);
    return found == used_milli_.end() ? 0 : found->second;
  }
  bool is_protected(const Running& one) const { return engine_.now() < one.since + kProtection; }
  bool may_end(const Asker& asker, const Running& one) const {
    if (one.exempt) return false;
    if (asker.tenant == owner_) return is_covered(asker) && one.tenant != owner_;
    return one.tenant == meek_ && one.priority < asker.priority && !is_protected(one);
  }
  /// Nobody loses of what it is guaranteed; what is idle of it already may stay so.
  bool leaves_guarantees(const Asker& asker, const std::vector<const Running*>& gone) const {
    std::map<TenantId, int64_t> lost;
    for (const Running* one : gone) lost[one->tenant] += one->held.gpus * kMilliPerGpu;
    return std::ranges::all_of(lost, [&](const auto& entry) {
      const auto& [tenant, milli] = entry;
      const auto own = guaranteed_.find(tenant);
      if (own == guaranteed_.end() || tenant == asker.tenant) return true;
      const int64_t own_milli = own->second * kMilliPerGpu;
      const int64_t idle = std::max<int64_t>(own_milli - used_of(tenant), 0);
      return own_milli - (used_of(tenant) - milli) <= idle;
    });
  }
  /// Room for one more once those are gone, and all who were ended before.
  Room room_on(NodeId id, const std::vector<const Running*>& gone) const {
    const Node& node = engine_.node(id);
    Room room{.gpus = std::ssize(node.devices), .cpu_milli = node.cpu_milli, .memory_mb = node.memory_mb};
    // A share of a GPU takes all of it from whoever wants whole ones.
    room.gpus -= std::ranges::count(node.devices, DeviceState::kShared, &Device::state);
    if (const auto there = tasks_on_.find(id); there != tasks_on_.end()) {
      for (const Room& one : there->second) room.take(one);
    }
    for (const Running& one : running_) {
      if (one.node != id || one.ended || std::ranges::find(gone, &one) != gone.end()) continue;
      room.take(one.held);
    }
    if (const auto there = promised_.find(id); there != promised_.end()) {
      for (const Room& one : there->second) room.take(one);
    }
    return room;
  }
  bool suffices(const Asker& asker, NodeId id, const std::vector<const Running*>& gone) const {
    return room_on(id, gone).holds(asker.wanted);
  }
  bool is_room_coming(const Asker& asker) const {
    return std::ranges::any_of(nodes_, [&](NodeId node) { return suffices(asker, node, {}); });
  }
  /// Jobs like this one that what comes back could hold.
  int64_t rooms_coming(const Asker& asker) const {
    int64_t rooms = 0;
    for (const NodeId node : nodes_) {
      Room room = room_on(node, {});
      // A job that wants nothing fits as often as one likes.
      for (; rooms < std::ssize(askers_) && room.holds(asker.wanted); ++rooms) room.take(asker.wanted);
    }
    return rooms;
  }
  /// Jobs that wait and ask for the same as this one, it among them.
  int64_t asking_alike(const Asker& asker) const {
    return std::ranges::count_if(askers_, [&](const Asker& other) {
      const bool waits = !other.served || other.job == asker.job;
      return waits && engine_.job(other.job).job_class == engine_.job(asker.job).job_class;
    });
  }
  /// Others are ended only for the first in line of its tenant's jobs that ask for the same.
  bool is_head(const Asker& asker) const {
    return std::ranges::none_of(askers_, [&](const Asker& other) {
      if (other.served || engine_.job(other.job).job_class != engine_.job(asker.job).job_class) return false;
      return engine_.job(other.job).order() < engine_.job(asker.job).order();
    });
  }
  Loss loss_of(const Asker& asker, const std::vector<const Running*>& gone) const {
    Loss loss;
    for (const Running* one : gone) {
      const Duration real = engine_.now() - one->since;
      loss.spared += asker.tenant == owner_ && is_protected(*one) ? 1 : 0;
      loss.counted_gpu_ms += one->held.gpus * std::min(real, kSilentMax).ms();
      loss.real_gpu_ms += one->held.gpus * real.ms();
    }
    return loss;
  }
  /// Looks at all sets of jobs that it may end, on whatever node.
  std::optional<Loss> least_loss(const Asker& asker) const {
    std::optional<Loss> least;
    for (const NodeId node : nodes_) {
      std::vector<const Running*> here;
      for (const Running& one : running_) {
        if (one.node == node && !one.ended && may_end(asker, one)) here.push_back(&one);
      }
      for (uint32_t set = 1; set < (uint32_t{1} << here.size()); ++set) {
        std::vector<const Running*> gone;
        for (std::size_t i = 0; i < here.size(); ++i) {
          if (((set >> i) & 1) != 0) gone.push_back(here[i]);
        }
        if (!suffices(asker, node, gone) || !leaves_guarantees(asker, gone)) continue;
        const Loss loss = loss_of(asker, gone);
        if (!least.has_value() || loss < *least) least = loss;
      }
    }
    return least;
  }

  const Asking asking_;
  Prng prng_;
  testing::RandomTasks tasks_;
  TestEngine engine_;
  TenantId meek_, firm_, lord_, owner_;
  std::vector<NodeId> nodes_;
  std::vector<Running> running_;
  std::vector<Asker> askers_;
  std::map<NodeId, std::vector<Room>> promised_;  ///< Room of jobs promised or placed there.
  std::map<TenantId, int64_t> guaranteed_;
  std::map<NodeId, std::vector<Room>> tasks_on_;  ///< Room that tasks hold beside their shares.
  std::map<TenantId, int64_t> used_milli_;        ///< Use of GPUs that each holds and keeps.
};

class FewestVictims : public ::testing::TestWithParam<std::tuple<Asking, bool>> {};

TEST_P(FewestVictims, NobodyIsEndedForNothingAndNoOtherSetLosesLess) {
  const auto [asking, has_tasks] = GetParam();
  SmallWorld::preemptions = SmallWorld::beside_tasks = 0;
  const uint64_t worlds = testing::worlds_to_draw(400);
  for (uint64_t seed = 1; seed <= worlds && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    SmallWorld(seed, asking, has_tasks).check();
  }
  EXPECT_GT(SmallWorld::preemptions, worlds / 20);
  if (has_tasks) {
    EXPECT_GT(SmallWorld::beside_tasks, worlds / 40);
  }
}

INSTANTIATE_TEST_SUITE_P(Askers, FewestVictims,
                         ::testing::Combine(::testing::Values(Asking::kOne, Asking::kSeveral, Asking::kOwner,
                                                              Asking::kMixed),
                                            ::testing::Bool()));

}  // namespace
}  // namespace gpusched

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <tuple>

#include "codec/group.h"
#include "codec/snapshot.h"
#include "engine/engine.h"
#include "engine/testing/random_commands.h"
#include "engine/testing/wild_commands.h"

namespace gpusched {
namespace {

using testing::RandomCommands;

std::string snapshot_of(const State& state) {
  std::string bytes;
  const Result<Unit> written = encode_snapshot(state, [&](std::string_view piece) -> Result<Unit> {
    bytes += piece;
    return Unit{};
  });
  EXPECT_TRUE(written.ok());
  return bytes;
}

State restored(const State& state) {
  Result<State> copy = decode_snapshot(snapshot_of(state));
  EXPECT_TRUE(copy.ok()) << (copy.ok() ? "" : copy.error().message);
  return std::move(*copy);
}

std::vector<OrderKey> line_of(const OrderedJobs& jobs) {
  std::vector<OrderKey> keys;
  for (OrderedJobs::Cursor cursor = jobs.begin(); !cursor.at_end(); cursor.next()) keys.push_back(*cursor);
  return keys;
}

/// Expects the state's sums of its specifications to be those of its jobs, each piece of memory once.
void expect_exact_spec_bytes(const State& state) {
  std::set<const void*> all;
  std::map<const void*, TenantId> unfinished;
  std::map<const void*, int64_t> sizes;
  state.jobs.for_each([&](const Job& job) {
    if (job.spec.empty()) return true;
    sizes[job.spec.identity()] = static_cast<int64_t>(job.spec.view().size());
    all.insert(job.spec.identity());
    if (!is_final(job.state)) unfinished[job.spec.identity()] = job.tenant;
    return true;
  });
  int64_t bytes = 0;
  for (const void* const one : all) bytes += sizes[one];
  std::map<TenantId, int64_t> of;
  int64_t unfinished_bytes = 0;
  for (const auto& [one, tenant] : unfinished) {
    of[state.spec_holder(*state.find_tenant(tenant))] += sizes[one];
    unfinished_bytes += sizes[one];
  }
  EXPECT_EQ(state.spec_bytes, bytes);
  EXPECT_EQ(state.unfinished_spec_bytes, unfinished_bytes);
  EXPECT_EQ(state.unfinished_spec_bytes_of, of);
}

/// Expects indexes that a snapshot rebuilds to be the same as those that the commands made.
void expect_same_indexes(const State& a, const State& b) {
  expect_exact_spec_bytes(a);
  expect_exact_spec_bytes(b);
  EXPECT_LE(b.spec_bytes, a.spec_bytes);  // Equal ones of one array are the same again.
  ASSERT_EQ(a.tenants.size(), b.tenants.size());
  for (const auto& [id, tenant] : a.tenants) {
    const Tenant& other = b.tenants.at(id);
    EXPECT_EQ(tenant.usage, other.usage);
    EXPECT_EQ(tenant.going, other.going);
    EXPECT_EQ(tenant.waiting, other.waiting);
    EXPECT_EQ(tenant.unfinished, other.unfinished);
    for (std::size_t i = 0; i < kJobStateCount; ++i) EXPECT_EQ(tenant.state_counts[i], other.state_counts[i]);
    EXPECT_EQ(a.find_tenant_named(tenant.name) == nullptr, b.find_tenant_named(tenant.name) == nullptr);
  }
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (std::size_t i = 0; i < a.nodes.size(); ++i) {
    EXPECT_EQ(a.nodes[i].cpu_milli_used, b.nodes[i].cpu_milli_used);
    EXPECT_EQ(a.nodes[i].memory_mb_used, b.nodes[i].memory_mb_used);
    EXPECT_EQ(a.nodes[i].free_mask, b.nodes[i].free_mask);
    EXPECT_EQ(a.nodes[i].attempts, b.nodes[i].attempts);
    EXPECT_EQ(a.find_node_named(a.nodes[i].name)->slot, i);
  }
  EXPECT_EQ(line_of(a.line), line_of(b.line));
  EXPECT_EQ(a.timers, b.timers);
  EXPECT_EQ(a.pending_backoff, b.pending_backoff);
  EXPECT_EQ(a.online.milli, b.online.milli);
  EXPECT_EQ(a.online.stopping_gpu_milli, b.online.stopping_gpu_milli);
  EXPECT_EQ(a.batch.milli, b.batch.milli);
  EXPECT_EQ(a.batch.stopping_gpu_milli, b.batch.stopping_gpu_milli);
  EXPECT_EQ(a.dependents, b.dependents);
  EXPECT_EQ(a.settling, b.settling);
  EXPECT_EQ(a.due_arrays, b.due_arrays);
  EXPECT_EQ(a.array_waiting, b.array_waiting);
  ASSERT_EQ(a.arrays.size(), b.arrays.size());
  for (const auto& [id, array] : a.arrays) {
    const JobArray& other = b.arrays.at(id);
    EXPECT_EQ(array.live, other.live);
    EXPECT_EQ(array.waiting, other.waiting);
    EXPECT_EQ(array.records, other.records);
    EXPECT_EQ(array.unexpanded(), other.unexpanded());
  }
  EXPECT_EQ(a.next_due(), b.next_due());
  for (std::size_t i = 0; i < kJobStateCount; ++i) EXPECT_EQ(a.state_counts[i], b.state_counts[i]);
  a.jobs.for_each([&](const Job& job) {
    const Job* other = b.jobs.find(job.id);
    EXPECT_NE(other, nullptr);
    if (other == nullptr) return false;
    EXPECT_EQ(
        std::tie(job.last_cause, job.exit_code, job.signal, job.scheduled_at, job.started_at, job.ended_at),
        std::tie(other->last_cause, other->exit_code, other->signal, other->scheduled_at, other->started_at,
                 other->ended_at));
    const JobClass& mine = a.classes[job.job_class];
    const JobClass& theirs = b.classes[other->job_class];
    EXPECT_EQ(mine.parts, theirs.parts);
    EXPECT_EQ(mine.references, theirs.references);
    EXPECT_EQ(mine.waiting.size(), theirs.waiting.size());
    return true;
  });
}

/// The canonical hash but for the number and time of the last command.
Digest content_digest(State& state) {
  const Stamp last = std::exchange(state.last, Stamp{});
  const Digest digest = snapshot_digest(state);
  state.last = last;
  return digest;
}

struct Step {
  Command command;
  Time at;
};

/// Runs random commands over a state, so that time never stands still behind what is due.
class World {
 public:
  explicit World(uint64_t seed) : random_(seed) {}

  Step next(const State& state) {
    now_ = now_ + random_.pause();
    if (state.next_due() <= now_ && random_.prng().chance(700)) return {AdvanceTime{}, now_};
    return {random_.prng().chance(200) ? random_.plan(state) : random_.next(state), now_};
  }
  Prng& prng() { return random_.prng(); }

 private:
  RandomCommands random_;
  Time now_ = Time{} + seconds(1'700'000'000);
};

Applied apply_step(State& state, const Step& step) {
  Events events;
  return apply(state, step.command, {.sequence = state.last.sequence + 1, .at = step.at}, events);
}

class RandomHistory : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomHistory, ARestoredSnapshotGoesOnExactlyLikeTheOriginal) {
  World world(GetParam());
  State original;
  State copy = restored(original);
  for (int i = 0; i < 500; ++i) {
    if (i % 19 == 0) {
      copy = restored(original);
      ASSERT_EQ(snapshot_digest(copy), snapshot_digest(original));
      expect_same_indexes(original, copy);
      if (HasFailure()) return;
    }
    const Step step = world.next(original);
    const Applied mine = apply_step(original, step);
    const Applied theirs = apply_step(copy, step);
    ASSERT_EQ(mine.rejection.has_value(), theirs.rejection.has_value()) << name_of(step.command);
    ASSERT_EQ(mine.first_id, theirs.first_id);
    ASSERT_EQ(original.digest, copy.digest) << name_of(step.command) << " at step " << i;
  }
  EXPECT_EQ(snapshot_digest(copy), snapshot_digest(original));
  expect_same_indexes(original, copy);
}

TEST_P(RandomHistory, ReplayOfEncodedGroupsGivesTheSameDigests) {
  World world(GetParam() + 1000);
  State original;
  State replayed;
  State followed;
  GroupEncoder encoder;
  for (int group = 0; group < 150; ++group) {
    Step step = world.next(original);
    const Time at = step.at;
    encoder.begin(at);
    const uint64_t count = 1 + world.prng().below(8);
    for (uint64_t i = 0; i < count; ++i) {
      encoder.add(step.command);
      Events events;
      apply(original, step.command, {.sequence = original.last.sequence + 1, .at = at}, events);
      follow(followed, events.data(), events.size(), original.last);
      step = world.next(original);
    }
    const Result<CommandGroup> decoded = decode_group(encoder.payload());
    ASSERT_TRUE(decoded.ok()) << decoded.error().message;
    for (const Command& command : decoded->commands) apply_step(replayed, {command, decoded->at});
    ASSERT_EQ(replayed.digest, original.digest);
    ASSERT_EQ(followed.digest, original.digest);
    ASSERT_EQ(replayed.last, original.last);
    // The next group's time was drawn behind this one's.
    ASSERT_LE(at, step.at);
  }
  EXPECT_EQ(snapshot_digest(replayed), snapshot_digest(original));
  EXPECT_EQ(snapshot_digest(followed), snapshot_digest(original));
}

TEST_P(RandomHistory, ARejectionLeavesTheWholeStateUntouched) {
  World world(GetParam() + 2000);
  State state;
  int rejections = 0;
  for (int i = 0; i < 300; ++i) {
    const Step step = world.next(state);
    Events events;
    const Stamp stamp{.sequence = state.last.sequence + 1, .at = step.at};
    const bool plan = std::holds_alternative<CommitPlan>(step.command);
    if (plan || !decide(state, step.command, stamp, events).rejection) {
      apply_step(state, step);
      continue;
    }
    ++rejections;
    const Digest content = content_digest(state);
    const Digest running = state.digest;
    const Applied applied = apply_step(state, step);
    ASSERT_TRUE(applied.rejection.has_value());
    ASSERT_EQ(content_digest(state), content) << name_of(step.command);
    ASSERT_EQ(state.digest, running);
    ASSERT_FALSE(describe(*applied.rejection).empty());
  }
  EXPECT_GT(rejections, 10);
}

TEST_P(RandomHistory, ACloneIsEqualAndItsOwn) {
  World world(GetParam() + 3000);
  State state;
  for (int i = 0; i < 300; ++i) apply_step(state, world.next(state));
  State clone = state.clone();
  EXPECT_EQ(snapshot_digest(clone), snapshot_digest(state));
  expect_same_indexes(state, clone);
  const Digest before = snapshot_digest(state);
  State twin = state.clone();
  for (int i = 0; i < 100; ++i) {
    const Step step = world.next(clone);
    apply_step(clone, step);
    apply_step(twin, step);
  }
  EXPECT_EQ(twin.digest, clone.digest);
  EXPECT_EQ(snapshot_digest(state), before);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomHistory, ::testing::Range<uint64_t>(0, 16));

/// Whether the event with this tag needs more bad luck, or more of everything, than chance has.
bool takes_more_than_chance(std::size_t event) {
  const auto tag_of = [](const Event& known) { return known.index(); };
  return event == tag_of(NodeSuspected{}) ||  // See black_hole_test.
         event ==
             tag_of(ElementUnparked{}) ||  // A touched element whose array has its turn: array_turn_test.
         event == tag_of(RequestForgotten{}) ||     // Takes a million keys: time_test.
         event == tag_of(KeyForgotten{}) ||         // Takes 90 days: key_test.
         event == tag_of(NodeTicketForgotten{}) ||  // Takes a day, and luck: node_identity_test.
         event == tag_of(TenantsForgotten{});       // Takes 100,000 tenants: removal_test.
}

TEST(RandomCommands, ReachEveryStateAndEvent) {
  std::vector<int> events_seen(std::variant_size_v<Event>);
  std::vector<int> states_seen(kJobStateCount);
  int abandoned = 0;
  int lost = 0;
  int quarantined = 0;
  for (uint64_t seed = 0; seed < 80; ++seed) {
    World world(seed);
    State state;
    for (int i = 0; i < 700; ++i) {
      const Step step = world.next(state);
      Events events;
      apply(state, step.command, {.sequence = state.last.sequence + 1, .at = step.at}, events);
      for (const Event& event : events) ++events_seen[event.index()];
      for (std::size_t s = 0; s < kJobStateCount; ++s) states_seen[s] += state.state_counts[s] > 0 ? 1 : 0;
      for (const auto& [key, attempt] : state.attempts) abandoned += attempt.abandoned ? 1 : 0;
      for (const Node& node : state.nodes) {
        lost += node.state == NodeState::kLost ? 1 : 0;
        for (const Device& device : node.devices)
          quarantined += device.state == DeviceState::kQuarantined ? 1 : 0;
      }
    }
  }
  for (uint64_t seed = 0; seed < 40; ++seed) {
    testing::WildCommands wild(seed);
    State state;
    Time now = Time{} + seconds(1'700'000'000);
    apply_step(state, {Configure{.config = {.feature_level = kFeatureLevel}}, now});
    for (int i = 0; i < 700; ++i) {
      now = now + wild.pause();
      Events events;
      const Command command = state.next_due() <= now ? Command(AdvanceTime{}) : wild.next(state, now);
      apply(state, command, {.sequence = state.last.sequence + 1, .at = now}, events);
      for (const Event& event : events) ++events_seen[event.index()];
    }
  }
  for (std::size_t i = 0; i < events_seen.size(); ++i) {
    if (takes_more_than_chance(i)) continue;
    EXPECT_GT(events_seen[i], 0) << "event " << i;
  }
  for (std::size_t i = 1; i < kJobStateCount; ++i) {
    if (i == static_cast<std::size_t>(JobState::kPreempted)) continue;
    EXPECT_GT(states_seen[i], 0) << "state " << i;
  }
  EXPECT_GT(abandoned, 0);
  EXPECT_GT(lost, 0);
  EXPECT_GT(quarantined, 0);
}

}  // namespace
}  // namespace gpusched

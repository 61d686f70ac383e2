#include "host/core/edit_set.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <tuple>
#include <vector>

#include "base/limits.h"
#include "base/prng.h"
#include "base/queue_limits.h"
#include "host/testing/test_core.h"

namespace gpusched {
namespace {

using namespace testing;  // NOLINT(google-build-using-namespace)

/// Edits of a few tenants, whose limits and guarantees often contradict each other.
EditSet random_edits(Prng& prng, const State& state) {
  EditSet set;
  std::vector<std::size_t> creates;
  std::vector<TenantId> known;
  for (const auto& [id, tenant] : state.tenants) known.push_back(id);
  const auto count = static_cast<std::size_t>(prng.between(1, 6));
  while (set.edits.size() < count) {
    Limits limits;
    if (prng.chance(500)) limits.set(Resource::kGpus, prng.between(0, 12));
    Amount guarantee{.gpus = prng.between(0, 6)};
    if (prng.chance(600)) {
      const TenantId changed = known[prng.below(known.size())];
      set.edits.push_back({.command = UpdateTenant{.tenant = changed,
                                                   .given = kTenantMaxGpus | kTenantGuaranteeGpus,
                                                   .limits = limits,
                                                   .guarantee = guarantee}});
      continue;
    }
    ClusterEdit edit{
        .command = CreateTenant{.name = "t" + std::to_string(prng.below(60)),
                                .parent = prng.chance(300) ? known[prng.below(known.size())] : TenantId{},
                                .limits = limits,
                                .guarantee = guarantee}};
    if (!creates.empty() && prng.chance(600)) edit.parent_from = creates[prng.below(creates.size())];
    creates.push_back(set.edits.size());
    set.edits.push_back(std::move(edit));
  }
  return set;
}

/// The facts of tenants that edits change.
std::vector<std::tuple<TenantId, std::string, TenantId, int64_t, int64_t>> tenants_of(const State& state) {
  std::vector<std::tuple<TenantId, std::string, TenantId, int64_t, int64_t>> out;
  for (const auto& [id, tenant] : state.tenants) {
    out.emplace_back(id, tenant.name, tenant.parent, tenant.limits.get(Resource::kGpus),
                     tenant.guarantee.gpus);
  }
  return out;
}

std::optional<EditsDecided> decided(Core& core, EditSet set) {
  std::optional<EditsDecided> answer;
  set.decided = [&answer](const Result<EditsDecided>& result) {
    ASSERT_TRUE(result.ok());
    answer = *result;
  };
  core.core.propose(std::move(set));
  core.commit();
  return answer;
}

TEST(RandomEdits, AreMadeTogetherOrNotAtAllAndADryRunSaysWhich) {
  Prng prng(11);
  int made = 0;
  int refused = 0;
  for (int world = 0; world < 20; ++world) {
    Core core;
    for (int round = 0; round < 40; ++round) {
      const EditSet set = random_edits(prng, core.core.state());
      EditSet dry = set;
      dry.dry_run = true;
      const auto before = tenants_of(core.core.state());
      const uint64_t sequence = core.core.state().last.sequence;
      const auto foretold = decided(core, dry);
      ASSERT_TRUE(foretold);
      EXPECT_EQ(tenants_of(core.core.state()), before);
      EXPECT_EQ(core.core.state().last.sequence, sequence);
      const auto done = decided(core, set);
      ASSERT_TRUE(done);
      ASSERT_EQ(done->refused.has_value(), foretold->refused.has_value());
      if (done->refused) {
        ++refused;
        EXPECT_EQ(done->refused->index, foretold->refused->index);
        EXPECT_EQ(done->refused->rejection.code, foretold->refused->rejection.code);
        EXPECT_EQ(tenants_of(core.core.state()), before);
        continue;
      }
      ++made;
      EXPECT_EQ(done->sequence, sequence + set.edits.size());
      const auto creates = std::ranges::count_if(set.edits, [](const ClusterEdit& edit) {
        return std::holds_alternative<CreateTenant>(edit.command);
      });
      EXPECT_EQ(core.core.state().tenants.size(), before.size() + static_cast<std::size_t>(creates));
      for (const ClusterEdit& edit : set.edits) {
        const auto* const create = std::get_if<CreateTenant>(&edit.command);
        if (create == nullptr) continue;
        const Tenant* const tenant = core.core.state().find_tenant_named(create->name);
        ASSERT_NE(tenant, nullptr);
        if (!edit.parent_from) continue;
        const auto& above = std::get<CreateTenant>(set.edits[*edit.parent_from].command);
        EXPECT_EQ(tenant->parent, core.core.state().find_tenant_named(above.name)->id);
      }
    }
    EXPECT_FALSE(core.fatal);
  }
  EXPECT_GT(made, 100);
  EXPECT_GT(refused, 100);
}

TEST(Edits, AreRefusedTogetherWhereTheDiskIsFull) {
  Core core;
  const auto ask = [&](bool dry_run) {
    std::optional<Result<EditsDecided>> answer;
    EditSet set{
        .edits = {{.command = UpdateTenant{.tenant = kDefaultTenant, .given = kTenantEmail, .email = "a@b"}},
                  {.command = CreateTenant{.name = "lab"}}},
        .dry_run = dry_run,
        .decided = [&answer](Result<EditsDecided> result) { answer = std::move(result); }};
    core.core.propose(std::move(set));
    core.core.turn();
    // Found out when it is written.
    if (core.core.in_flight())
      core.core.on_durable(Error{.code = ErrorCode::kStorageFull, .message = "full"});
    return answer;
  };
  const auto before = tenants_of(core.core.state());
  for (const JournalSpace room : {JournalSpace::kOpen, JournalSpace::kReserveOnly}) {
    core.writer.room = room;
    const auto answer = ask(false);
    ASSERT_TRUE(answer && !answer->ok());
    EXPECT_EQ(answer->error().code, ErrorCode::kStorageFull);
    EXPECT_EQ(tenants_of(core.core.state()), before);
    EXPECT_EQ(core.core.state().find_tenant(kDefaultTenant)->email, "");
  }
  core.clock.now = core.clock.now + seconds(1);  // After a failure the next group waits a little.
  const auto tried = ask(true);
  ASSERT_TRUE(tried && tried->ok());
  EXPECT_FALSE((**tried).refused);
}

TEST(Edits, AreBoundedInNumberAndInSets) {
  Core core;
  EditSet large;
  large.edits.resize(limits::kEditsMax + 1, ClusterEdit{.command = UpdateTenant{.tenant = kDefaultTenant}});
  std::optional<ErrorCode> code;
  large.decided = [&code](const Result<EditsDecided>& result) { code = result.error().code; };
  core.core.propose(large);
  EXPECT_EQ(code, ErrorCode::kTooLarge);
  core.core.propose(Core::batch_of(1), {});
  core.core.turn();
  ASSERT_TRUE(core.core.in_flight());
  std::size_t shed = 0;
  std::size_t answers = 0;
  for (std::size_t i = 0; i < 10 * limits::kEditSetsWaitingMax; ++i) {
    core.core.propose(
        EditSet{.edits = {{.command = UpdateTenant{.tenant = kDefaultTenant}}},
                .dry_run = i % 2 == 0,
                .decided = [&](const Result<EditsDecided>& result) { ++(result.ok() ? answers : shed); }});
  }
  EXPECT_EQ(shed, 9 * limits::kEditSetsWaitingMax);
  core.core.on_durable(Unit{});
  while (!core.core.idle()) core.commit();
  EXPECT_EQ(answers, limits::kEditSetsWaitingMax);
}

TEST(Edits, OfWhichOneHasAControlCharacterAreRefusedTogether) {
  const ClusterEdit good{.command = CreateTenant{.name = "lab"}};
  const ClusterEdit renamed{
      .command = UpdateTenant{.tenant = kDefaultTenant, .given = kTenantEmail, .email = "a@b\n"}};
  const ClusterEdit labelled{.command =
                                 LabelNode{.node = NodeId{1}, .set = {{.name = "rack", .value = "a\tb"}}}};
  const ClusterEdit created{.command = CreateTenant{.name = "lab\x1b[2J"}};
  for (const auto& [bad, field] :
       {std::pair{created, "name"}, std::pair{renamed, "email"}, std::pair{labelled, "value"}}) {
    for (const bool dry_run : {false, true}) {
      Core core;
      std::optional<Result<EditsDecided>> answer;
      core.core.propose(EditSet{.edits = {good, bad}, .dry_run = dry_run, .decided = [&answer](auto result) {
                                  answer = std::move(result);
                                }});
      core.commit();
      ASSERT_TRUE(answer && !answer->ok()) << field;
      EXPECT_EQ(answer->error().code, ErrorCode::kInvalidArgument);
      EXPECT_EQ(answer->error().field, field);
      EXPECT_EQ(core.core.state().find_tenant_named("lab"), nullptr);
    }
  }
}

}  // namespace
}  // namespace gpusched

#include "codec/snapshot.h"

#include <gtest/gtest.h>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/prng.h"
#include "codec/binary.h"
#include "engine/engine.h"
#include "engine/testing/random_commands.h"
#include "engine/testing/test_engine.h"

namespace gpusched {
namespace {

using testing::RandomCommands;
using testing::TestEngine;

std::string snapshot_of(const State& state) {
  std::string bytes;
  EXPECT_TRUE(encode_snapshot(state, [&](std::string_view piece) -> Result<Unit> {
                bytes += piece;
                return Unit{};
              }).ok());
  return bytes;
}

/// A state with something of everything in it.
State busy_state(uint64_t seed) {
  RandomCommands random(seed);
  State state;
  Time now = Time{} + seconds(1'700'000'000);
  for (int i = 0; i < 400; ++i) {
    now = now + random.pause();
    Events events;
    Command command = state.next_due() <= now     ? Command(AdvanceTime{})
                      : random.prng().chance(300) ? random.plan(state)
                                                  : random.next(state);
    apply(state, command, {.sequence = state.last.sequence + 1, .at = now}, events);
  }
  return state;
}

TEST(Snapshot, AnEmptyStateComesBack) {
  const State state;
  const Result<State> copy = decode_snapshot(snapshot_of(state));
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->last, state.last);
  EXPECT_EQ(copy->tenants.size(), 1u);
  EXPECT_EQ(snapshot_digest(*copy), snapshot_digest(state));
}

TEST(Snapshot, WhatWaitsBelowATenantIsCountedAndComesBack) {
  int below = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const State state = busy_state(seed);
    const State clone = state.clone();
    const Result<State> copy = decode_snapshot(snapshot_of(state));
    ASSERT_TRUE(copy.ok());
    for (const auto& [id, tenant] : state.tenants) {
      int64_t expected = 0;
      for (const auto& [other, one] : state.tenants) {
        for (const Tenant* at = &one; at != nullptr; at = state.find_tenant(at->parent))
          expected += at == &tenant ? one.waiting : 0;
      }
      ASSERT_EQ(state.waiting_count(tenant), expected) << seed;
      ASSERT_EQ(clone.waiting_count(*clone.find_tenant(id)), expected) << seed;
      ASSERT_EQ(copy->waiting_count(*copy->find_tenant(id)), expected) << seed;
      below += expected > tenant.waiting ? 1 : 0;
    }
  }
  EXPECT_GT(below, 0);
}

/// Jobs of persons p0, p1, ...; those of `gone` are forgotten.
State owned_state(int persons, const std::vector<int>& gone) {
  TestEngine engine;
  engine.apply(Configure{.config = {.finished_jobs_kept = seconds(1), .feature_level = kFeatureLevel}});
  std::vector<JobId> jobs;
  for (int i = 0; i < persons; ++i) {
    SubmitJobs command{.tenant = kDefaultTenant, .jobs = {{.parts = {Part{.cpu_milli = 1}}}}};
    command.request_key = i == 0 ? "key" : "";
    command.owner_kind = CallerKind::kPerson;
    command.owner = "p" + std::to_string(i);
    jobs.push_back(JobId{engine.apply(command).first_id});
  }
  for (const int i : gone) engine.apply(CancelJob{.job = jobs[static_cast<std::size_t>(i)]});
  engine.advance(seconds(2));
  return engine.state().clone();
}

TEST(Snapshot, OwnersKeepTheirNumbersAndAreForgottenLater) {
  State state = owned_state(4, {0, 1, 3});
  EXPECT_EQ(state.owners.size(), 2u) << "of a remembered request and of a job";
  Result<State> copy = decode_snapshot(snapshot_of(state));
  ASSERT_TRUE(copy.ok()) << copy.error().message;
  EXPECT_EQ(snapshot_digest(*copy), snapshot_digest(state));
  state.jobs.for_each([&](const Job& job) {
    EXPECT_EQ(copy->job_at(job.id).owner, job.owner);
    EXPECT_EQ(copy->owners.at(job.owner)->name, "p2");
    return true;
  });
  EXPECT_NE(copy->find_request(kDefaultTenant, copy->owners.find(CallerKind::kPerson, "p0"), "key"), nullptr);
  for (State* each : {&state, &*copy}) {
    each->forget_oldest_request();
    EXPECT_EQ(each->owners.size(), 1u);
    EXPECT_EQ(each->owners.acquire(CallerKind::kService, "ci"), 1u);
    EXPECT_EQ(each->owners.acquire(CallerKind::kService, "cd"), 2u);
    EXPECT_EQ(each->owners.acquire(CallerKind::kService, "ce"), 4u);
  }
}

TEST(Snapshot, AnOwnerThatNothingRefersToAndOneThatIsNotThereAreCorrupt) {
  State unused = owned_state(2, {});
  unused.owners.acquire(CallerKind::kService, "ci");
  EXPECT_FALSE(decode_snapshot(snapshot_of(unused)).ok());
  State missing = owned_state(2, {});
  missing.jobs.for_each([&](const Job& job) {
    missing.job_at(job.id).owner = 7;
    return true;
  });
  EXPECT_FALSE(decode_snapshot(snapshot_of(missing)).ok());
}

TEST(Snapshot, KeysComeBackWithWhatEndedThem) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  const TenantId lab = engine.add_tenant("lab");
  CreateKey command{.tenant = lab,
                    .name = "a",
                    .kind = CallerKind::kService,
                    .prefix = "prefix01",
                    .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
                    .bindings = {{.tenant = lab, .role = Role::kUser}},
                    .unix_users = {"ana"},
                    .expires_at = engine.now() + hours(1),
                    .by = "operator"};
  const KeyId revoked{engine.apply(command).first_id};
  command.name = "b";
  command.prefix = "prefix02";
  const KeyId living{engine.apply(command).first_id};
  engine.apply(RevokeKey{.key = revoked, .by = "operator"});
  Result<State> copy = decode_snapshot(snapshot_of(engine.state()));
  ASSERT_TRUE(copy.ok()) << copy.error().message;
  EXPECT_EQ(snapshot_digest(*copy), snapshot_digest(engine.state()));
  EXPECT_FALSE(copy->keys.find(revoked)->is_alive(engine.now()));
  EXPECT_TRUE(copy->keys.find(living)->is_alive(engine.now()));
  EXPECT_EQ(copy->keys.find_prefix("prefix02")->id, living);
  EXPECT_EQ(copy->keys.count_of(lab), 2u);
  EXPECT_EQ(copy->next_due(), engine.state().next_due());
  State homeless = engine.state().clone();
  homeless.keys.remove(living);
  AccessKey lost = *engine.state().keys.find(living);
  lost.tenant = TenantId{404};
  homeless.keys.add(lost);
  EXPECT_FALSE(decode_snapshot(snapshot_of(homeless)).ok());
}

TEST(Snapshot, PeopleComeBack) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  const TenantId lab = engine.add_tenant("lab");
  RecordPerson command{.given = kPersonFields,
                       .tenant = lab,
                       .email = "ana@x.org",
                       .role = Role::kTenantAdmin,
                       .password = Blob("$argon2id$"),
                       .active = true,
                       .by = "operator"};
  const PersonId ana{engine.apply(command).first_id};
  command.email = "bo@x.org";
  command.active = false;
  engine.apply(command);
  Result<State> copy = decode_snapshot(snapshot_of(engine.state()));
  ASSERT_TRUE(copy.ok()) << copy.error().message;
  EXPECT_EQ(snapshot_digest(*copy), snapshot_digest(engine.state()));
  EXPECT_EQ(copy->people.size(), 2u);
  EXPECT_EQ(copy->people.find_email("ANA@x.org")->id, ana);
  EXPECT_EQ(copy->people.find(ana)->password.view(), "$argon2id$");
  State homeless = engine.state().clone();
  Person lost = *engine.state().people.find(ana);
  lost.tenant = TenantId{404};
  homeless.people.put(lost);
  EXPECT_FALSE(decode_snapshot(snapshot_of(homeless)).ok());
}

TEST(Snapshot, NodesIdentitiesComeBackWithWhatEndedThem) {
  TestEngine engine;
  engine.apply(Configure{.config = {.feature_level = kFeatureLevel}});
  const auto ticket_for = [&](const std::string& node) {
    return NodeTicketId{engine
                            .apply(CreateNodeTicket{.node = node,
                                                    .prefix = "prefix" + node,
                                                    .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
                                                    .expires_at = engine.now() + hours(1),
                                                    .by = "operator"})
                            .first_id};
  };
  const auto admit = [&](const std::string& node) {
    engine.apply(AdmitNode{.ticket = ticket_for(node),
                           .identity = {},
                           .node = node,
                           .key = Blob(std::string(limits::kPublicKeyHashBytes, 'k')),
                           .expires_at = engine.now() + hours(24)});
  };
  admit("n1");
  admit("n2");
  const NodeTicketId unused = ticket_for("n3");
  engine.apply(RevokeNode{.node = "n1", .by = "operator"});
  Result<State> copy = decode_snapshot(snapshot_of(engine.state()));
  ASSERT_TRUE(copy.ok()) << copy.error().message;
  EXPECT_EQ(snapshot_digest(*copy), snapshot_digest(engine.state()));
  EXPECT_TRUE(copy->node_identities.find("n1")->is_revoked());
  EXPECT_FALSE(copy->node_identities.find("n2")->is_revoked());
  EXPECT_TRUE(copy->node_identities.find_ticket("prefixn2")->is_used());
  EXPECT_FALSE(copy->node_identities.find_ticket(unused)->is_used());
  State later = engine.state().clone();
  NodeIdentity stranger = *engine.state().node_identities.find("n2");
  stranger.id = NodeIdentityId{engine.state().last.sequence + 1};
  stranger.node = "n4";
  later.node_identities.put(stranger);
  EXPECT_FALSE(decode_snapshot(snapshot_of(later)).ok());
}

TEST(Snapshot, ALivingTenantKeepsANameThatADeletedOneHad) {
  TestEngine engine;
  const TenantId first = engine.add_tenant("a");
  const TenantId second = engine.add_tenant("b");
  engine.apply(DeleteTenant{.tenant = second});
  engine.apply(UpdateTenant{.tenant = first, .given = kTenantName, .name = "b"});
  const Result<State> copy = decode_snapshot(snapshot_of(engine.state()));
  ASSERT_TRUE(copy.ok());
  ASSERT_NE(copy->find_tenant_named("b"), nullptr);
  EXPECT_EQ(copy->find_tenant_named("b")->id, first);
}

TEST(Snapshot, TenantsOfOneNameStayTwo) {
  TestEngine engine;
  const TenantId first = engine.add_tenant("t");
  const TenantId second{engine.apply(CreateTenant{.name = "t", .name_may_repeat = true}).first_id};
  const Result<State> copy = decode_snapshot(snapshot_of(engine.state()));
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->find_tenant_named("t")->id, first);
  ASSERT_EQ(copy->tenants_named("t").size(), 2u);
  EXPECT_EQ(copy->tenants_named("t").back(), second);
}

TEST(Snapshot, TheDefaultTenantMayHaveAnotherName) {
  TestEngine engine;
  engine.apply(UpdateTenant{.tenant = kDefaultTenant, .given = kTenantName, .name = "everybody"});
  const TenantId other = engine.add_tenant("default");
  const Result<State> copy = decode_snapshot(snapshot_of(engine.state()));
  ASSERT_TRUE(copy.ok());
  EXPECT_EQ(copy->find_tenant_named("everybody")->id, kDefaultTenant);
  EXPECT_EQ(copy->find_tenant_named("default")->id, other);
}

TEST(Snapshot, IsWrittenInPiecesAndTheSinksErrorEndsIt) {
  TestEngine engine;
  for (int i = 0; i < 3000; ++i) engine.submit({});
  std::size_t pieces = 0;
  std::size_t largest = 0;
  ASSERT_TRUE(encode_snapshot(engine.state(), [&](std::string_view piece) -> Result<Unit> {
                ++pieces;
                largest = std::max(largest, piece.size());
                return Unit{};
              }).ok());
  EXPECT_GT(pieces, 1u);
  EXPECT_LT(largest, 80u * 1024);
  int calls = 0;
  const Result<Unit> failed = encode_snapshot(engine.state(), [&](std::string_view) -> Result<Unit> {
    ++calls;
    return Error{.code = ErrorCode::kStorageFull, .message = "full"};
  });
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kStorageFull);
  EXPECT_EQ(calls, 1);
}

TEST(Snapshot, AShortenedOneIsCorrupt) {
  const std::string bytes = snapshot_of(busy_state(1));
  for (std::size_t size = 0; size < bytes.size(); size += 1 + size / 50) {
    const Result<State> state = decode_snapshot(std::string_view(bytes).substr(0, size));
    ASSERT_FALSE(state.ok()) << size;
    EXPECT_EQ(state.error().code, ErrorCode::kCorrupt);
  }
}

TEST(Snapshot, BytesBehindItsEndAreCorrupt) {
  EXPECT_FALSE(decode_snapshot(snapshot_of(State()) + "x").ok());
}

TEST(Snapshot, ANewerFeatureLevelIsNamedAsSuch) {
  State state;
  state.config.feature_level = kFeatureLevel + 1;
  const Result<State> decoded = decode_snapshot(snapshot_of(state));
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().code, ErrorCode::kVersion);
}

TEST(Snapshot, ANewerSectionIsNamedAsSuch) {
  std::string bytes = snapshot_of(State());
  // Before the last section, which is empty: kind, prefix, length.
  bytes.insert(bytes.size() - 6, std::string("\x63\x00\x00\x00\x00\x00", 6));
  const Result<State> decoded = decode_snapshot(bytes);
  ASSERT_FALSE(decoded.ok());
  EXPECT_EQ(decoded.error().code, ErrorCode::kVersion) << decoded.error().message;
}

TEST(Snapshot, ANewerFormatIsNamedAsSuch) {
  std::string bytes;
  ByteWriter writer(bytes);
  writer.u8(1);
  writer.varint(0);
  writer.fixed32(2);
  writer.varint(1 << 3);
  writer.svarint(2);
  const Result<State> state = decode_snapshot(bytes);
  ASSERT_FALSE(state.ok());
  EXPECT_EQ(state.error().code, ErrorCode::kVersion);
}

TEST(Snapshot, AGarbledOneIsRefusedOrStillWorks) {
  Prng prng(5);
  int refused = 0;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const std::string bytes = snapshot_of(busy_state(seed));
    for (int i = 0; i < 400; ++i) {
      std::string garbled = bytes;
      const uint64_t changes = 1 + prng.below(3);
      for (uint64_t change = 0; change < changes; ++change) {
        garbled[prng.below(garbled.size())] = static_cast<char>(prng.next());
      }
      Result<State> state = decode_snapshot(garbled);
      if (!state.ok()) {
        ++refused;
        continue;
      }
      RandomCommands random(seed);
      Time now = state->last.at;
      for (int step = 0; step < 20; ++step) {
        now = now + random.pause();
        Events events;
        const Command command = step % 4 == 0   ? Command(AdvanceTime{})
                                : step % 4 == 1 ? random.plan(*state)
                                                : random.next(*state);
        if (state->last.sequence > UINT64_MAX / 2) break;
        apply(*state, command, {.sequence = state->last.sequence + 1, .at = now}, events);
      }
    }
  }
  EXPECT_GT(refused, 200);
}

}  // namespace
}  // namespace gpusched

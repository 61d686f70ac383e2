#include "codec/group.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/bytes.h"
#include "base/limits.h"
#include "base/prng.h"
#include "base/queue_limits.h"
#include "codec/binary.h"
#include "engine/engine.h"
#include "engine/testing/random_commands.h"
#include "engine/testing/some_identities.h"

namespace gpusched {
namespace {

std::string encoded(const std::vector<Command>& commands, Time at = Time{1'700'000'000'000'000'000}) {
  GroupEncoder encoder;
  encoder.begin(at);
  for (const Command& command : commands) encoder.add(command);
  EXPECT_EQ(encoder.command_count(), commands.size());
  return encoder.take();
}

/// As a scheduler writes it, with a digest.
std::string encoded_whole(const std::vector<Command>& commands) {
  GroupEncoder encoder;
  encoder.begin(Time{1});
  encoder.note_digest(1);
  for (const Command& command : commands) encoder.add(command);
  return encoder.take();
}

Digest digest_of(const Command& command) {
  Digest digest;
  digest.mix(command.index());
  std::visit([&](const auto& concrete) { mix_fields(digest, concrete); }, command);
  return digest;
}

Limits all_limits(int64_t first) {
  Limits limits;
  for (const Resource resource :
       {Resource::kGpus, Resource::kGpuMemory, Resource::kCpu, Resource::kMemory, Resource::kJobs}) {
    limits.set(resource, first++);
  }
  return limits;
}

JobRequest full_request() {
  return {.priority = -5,
          .parts = {Part{.member_count = 1,
                         .gpu_count = 2,
                         .gpu_memory_mb = 3,
                         .cpu_milli = 4,
                         .memory_mb = 5,
                         .gpu_model = "A100",
                         .features = kFeatureContainer,
                         .gpu_milli = 7,
                         .gpu_share_mb = 8}},
          .max_runtime = seconds(6),
          .retry = {.exit_code_retries = 7,
                    .system_retries = -1,
                    .overlap_allowed = true,
                    .kill_after_lost_contact = seconds(8)},
          .require_feasible = true,
          .spec = Blob(std::string("bytes\0and more", 14)),
          .held = true,
          .preemption_mode = PreemptionMode::kCancel,
          .preemption_exempt = true,
          .preempt_grace = seconds(9)};
}

/// One command of every kind with every field set to something that is not its default.
std::vector<Command> full_commands() {
  const MemberPlacement member{
      .node = NodeId{2}, .part = 1, .device_mask = ~uint64_t{0}, .generations = {0, 1, UINT32_MAX}};
  return {
      Configure{.config = {.aging_per_hour = 1,
                           .queue_size_max = 2,
                           .finished_jobs_max = 3,
                           .finished_jobs_kept = seconds(4),
                           .drain_limit = seconds(5),
                           .lost_after = seconds(6),
                           .auto_drain_percent = 7}},
      AdvanceTime{.unused = 9},
      CreateTenant{.name = "n",
                   .email = "e",
                   .organization = "o",
                   .parent = TenantId{7},
                   .limits = all_limits(0),
                   .priority_tier = -1,
                   .weight_milli = 5,
                   .allow_preemption = true,
                   .can_preempt_others = true,
                   .request_key = "k",
                   .guarantee = {.gpus = 1, .gpu_memory_mb = 2, .cpu_milli = 3, .memory_mb = 4, .jobs = 5},
                   .gpu_time_window = hours(6),
                   .gpu_time_max_ms = 7},
      UpdateTenant{.tenant = TenantId{7},
                   .given = (1u << 19) - 1,
                   .name = "n",
                   .email = "e",
                   .organization = "o",
                   .limits = all_limits(10),
                   .priority_tier = 3,
                   .weight_milli = 4,
                   .allow_preemption = true,
                   .can_preempt_others = true,
                   .guarantee = {.gpus = 1, .gpu_memory_mb = 2, .cpu_milli = 3, .memory_mb = 4, .jobs = 5},
                   .gpu_time_window = hours(6),
                   .gpu_time_max_ms = 7},
      DeleteTenant{.tenant = TenantId{7}, .by = "b"},
      RegisterNode{
          .name = "n",
          .instance = "i",
          .boot_id = "b",
          .version = "v",
          .cpu_milli = 1,
          .memory_mb = 2,
          .devices = {{.uuid = "u",
                       .model = "m",
                       .memory_mb = 3,
                       .condition = DeviceCondition::kMissing,
                       .detail = "d"}},
          .attempts = {{.job = JobId{4}, .attempt = 5, .member = 6, .ended = true, .device_mask = 7}},
          .validates = true,
          .features = {"container", "f"},
          .labels = {{.name = "l", .value = "v"}}},
      NodeLeaseLost{.node = NodeId{3}},
      NodeLeaseBack{.node = NodeId{3}},
      ConfirmNodeDead{.node = NodeId{3}, .boot_id = "boot", .by = "b"},
      SetDeviceCondition{.node = NodeId{3},
                         .device = 4,
                         .condition = DeviceCondition::kUnhealthy,
                         .detail = "d",
                         .by_operator = true},
      SubmitJobs{.tenant = TenantId{1}, .request_key = "k", .jobs = {full_request(), JobRequest{}}},
      CancelJob{.job = JobId{3}, .tenant = TenantId{4}, .by = "b"},
      CommitPlan{.based_on = 5,
                 .groups = {{.job = JobId{6},
                             .attempt = 7,
                             .members = {member, member},
                             .preemptions = {{.job = JobId{8}, .attempt = 9}},
                             .reclaims = true,
                             .asked_at = Time{9}},
                            {}}},
      AttemptStarted{.job = JobId{1}, .attempt = 2, .member = 3, .node = NodeId{4}},
      AttemptEnded{.job = JobId{1},
                   .attempt = 2,
                   .member = 3,
                   .node = NodeId{4},
                   .outcome = {.cause = EndCause::kSignaled, .exit_code = -5, .signal = 6, .detail = "d"}},
      DeviceReleased{.node = NodeId{1},
                     .device = 2,
                     .generation = 3,
                     .share_of = {.job = JobId{4}, .attempt = 5, .member = 6}},
      DeviceStillBusy{.node = NodeId{1},
                      .device = 2,
                      .generation = 3,
                      .evidence = "e",
                      .share_of = {.job = JobId{4}, .attempt = 5, .member = 6}},
      UpdateJob{.job = JobId{1},
                .tenant = TenantId{2},
                .given = 7,
                .priority = -3,
                .max_runtime = seconds(4),
                .spec = Blob("s"),
                .by = "b"},
      HoldJob{.job = JobId{1}, .tenant = TenantId{2}, .held = true, .by = "b"},
      RequeueJob{.job = JobId{1}, .tenant = TenantId{2}, .by = "b"},
      SetNodeAvailability{.node = NodeId{1}, .to = Availability::kDraining, .by = "b", .reason = "r"},
      NodeValidated{.node = NodeId{1}, .boot_id = "b", .passed = true, .detail = "d"},
      LabelNode{.node = NodeId{1}, .set = {{.name = "l", .value = "v"}}, .remove = {"m"}},
      NoteStart{.unused = 9},
      CheckpointSaved{
          .job = JobId{1}, .attempt = 2, .node = NodeId{3}, .age = seconds(4), .placed_at = Time{5}},
      MakeBooking{.name = "b",
                  .tenant = TenantId{1},
                  .users = {"u"},
                  .nodes = {NodeId{2}},
                  .begin_at = Time{3},
                  .begin_after = seconds(4),
                  .length = seconds(5),
                  .every = seconds(6),
                  .reason = "r"},
      CancelBooking{.booking = BookingId{1}},
      NoteDeviceHeat{.node = NodeId{1}, .device = 2, .hot = true, .detail = "82 C"},
      AttemptPrepared{.job = JobId{7}, .attempt = 2, .member = 3, .node = NodeId{1}, .placed_at = Time{5}},
      NoteDeviceFault{.node = NodeId{1},
                      .device = 2,
                      .fault = FaultClass::kReset,
                      .code = "xid 48",
                      .detail = "d",
                      .id = 3},
      ReportWatchdogFinding{.job = JobId{1},
                            .attempt = 2,
                            .kind = WatchdogFinding::kHung,
                            .detail = "d",
                            .age = seconds(3),
                            .action = WatchAction::kCancel},
  };
}

/// Every command, with all its fields.
std::vector<Command> all_commands() {
  std::vector<Command> commands = full_commands();
  commands.insert(
      commands.end(),
      {
          MoveJobs{
              .groups = {PlanGroup{.job = JobId{1},
                                   .attempt = 2,
                                   .members = {{.node = NodeId{3}, .device_mask = 3, .generations = {1, 2}}},
                                   .preemptions = {{.job = JobId{8}, .attempt = 9}}},
                         PlanGroup{.job = JobId{8},
                                   .attempt = 10,
                                   .members = {{.node = NodeId{4}, .device_mask = 1, .generations = {5}}},
                                   .preemptions = {}}},
              .by = "b",
              .why = "w"},
          RemoveNode{.node = NodeId{1}, .boot_id = "boot", .by = "b"},
          PauseStarts{.paused = false, .by = "b", .why = "w"},
          testing::some_key(),
          RevokeKey{.key = KeyId{1}, .by = "b"},
          BindRole{.key = KeyId{1}, .tenant = TenantId{2}, .role = Role::kViewer, .taken = true, .by = "b"},
          testing::some_ticket(),
          testing::some_admission(),
          RevokeNode{.node = "n", .by = "b"},
          SetPools{.online_milli = 700, .batch_milli = 300, .by = "b"},
          testing::some_person(),
      });
  return commands;
}

TEST(Group, WhoAskedComesBack) {
  SubmitJobs asked{.tenant = TenantId{1}, .jobs = {JobRequest{}}, .by = "b"};
  asked.owner_kind = CallerKind::kPerson;
  asked.owner = "o";
  const std::vector<Command> commands = {CreateTenant{.name = "n", .name_may_repeat = true, .by = "b"},
                                         UpdateTenant{.tenant = TenantId{7}, .by = "b"}, asked};
  const Result<CommandGroup> group = decode_group(encoded(commands));
  ASSERT_TRUE(group.ok()) << group.error().message;
  EXPECT_EQ(std::get<CreateTenant>(group->commands.at(0)).by, "b");
  EXPECT_TRUE(std::get<CreateTenant>(group->commands.at(0)).name_may_repeat);
  EXPECT_EQ(std::get<UpdateTenant>(group->commands.at(1)).by, "b");
  const auto& submit = std::get<SubmitJobs>(group->commands.at(2));
  EXPECT_EQ(submit.by, "b");
  EXPECT_EQ(submit.owner_kind, CallerKind::kPerson);
  EXPECT_EQ(submit.owner, "o");
}

TEST(Group, EveryCommandComesBackWithAllItsFields) {
  const std::vector<Command> commands = all_commands();
  ASSERT_EQ(commands.size(), std::variant_size_v<Command>);
  const Result<CommandGroup> group = decode_group(encoded(commands));
  ASSERT_TRUE(group.ok()) << group.error().message;
  EXPECT_EQ(group->at, Time{1'700'000'000'000'000'000});
  ASSERT_EQ(group->commands.size(), commands.size());
  for (std::size_t i = 0; i < commands.size(); ++i) {
    EXPECT_EQ(group->commands[i].index(), i);
    EXPECT_EQ(digest_of(group->commands[i]), digest_of(commands[i])) << name_of(commands[i]);
    EXPECT_EQ(encoded({group->commands[i]}), encoded({commands[i]})) << name_of(commands[i]);
  }
}

TEST(Group, TheSizeOfACommandIsKnownBeforeItIsEncoded) {
  for (const Command& command : all_commands())
    EXPECT_EQ(encoded_bytes(command) + kGroupHeaderBytes, encoded_whole({command}).size())
        << name_of(command);
  testing::RandomCommands random(7);
  State state;
  for (uint64_t i = 1; i <= 3'000; ++i) {
    const Command command = random.next(state);
    EXPECT_EQ(encoded_bytes(command) + kGroupHeaderBytes, encoded_whole({command}).size())
        << name_of(command);
    Events events;
    apply(state, command, Stamp{.sequence = state.last.sequence + 1, .at = state.last.at}, events);
  }
  // Lengths that need more than one byte, of all of them.
  SubmitJobs submit{.jobs = {full_request()}};
  for (const std::size_t size : {127u, 128u, 16'383u, 16'384u, 2'097'151u, 2'097'152u}) {
    submit.jobs.front().spec = Blob(std::string(size, 's'));
    EXPECT_EQ(encoded_bytes(submit) + kGroupHeaderBytes, encoded_whole({submit}).size()) << size;
  }
}

// The groups that the planner plans at once are always smaller than a record.
TEST(Group, TheLargestPlanFitsARecord) {
  const MemberPlacement largest{
      .node = NodeId{~uint64_t{0}},
      .part = ~uint32_t{0},
      .device_mask = ~uint64_t{0},
      .generations = std::vector<uint32_t>(limits::kDevicesPerNodeMax, ~uint32_t{0}),
      .mig_start = INT32_MIN};
  constexpr std::size_t kMembers = limits::kMembersPerSlice - 1 + limits::kMembersMax;
  const PlanGroup group{.job = JobId{~uint64_t{0}},
                        .attempt = ~uint32_t{0},
                        .members = {},
                        .preemptions = std::vector<Preemption>(
                            limits::kVictimsMax, {.job = JobId{~uint64_t{0}}, .attempt = ~uint32_t{0}}),
                        .reclaims = true,
                        .asked_at = Time{INT64_MAX}};
  CommitPlan plan{.based_on = ~uint64_t{0},
                  .groups = std::vector<PlanGroup>(limits::kPlacementsPerSlice, group)};
  plan.groups.front().members.assign(kMembers, largest);
  EXPECT_LE(encoded_bytes(plan) + kGroupHeaderBytes, limits::kGroupBytesMax);
}

TEST(Group, DefaultCommandsComeBack) {
  std::vector<Command> commands = {Configure{},
                                   AdvanceTime{},
                                   CreateTenant{},
                                   UpdateTenant{},
                                   DeleteTenant{},
                                   RegisterNode{},
                                   NodeLeaseLost{},
                                   NodeLeaseBack{},
                                   ConfirmNodeDead{},
                                   SetDeviceCondition{},
                                   SubmitJobs{},
                                   CancelJob{},
                                   CommitPlan{},
                                   AttemptStarted{},
                                   AttemptEnded{},
                                   DeviceReleased{},
                                   DeviceStillBusy{},
                                   UpdateJob{},
                                   HoldJob{},
                                   RequeueJob{},
                                   SetNodeAvailability{},
                                   NodeValidated{},
                                   LabelNode{},
                                   NoteStart{},
                                   CheckpointSaved{},
                                   MakeBooking{.name = "b", .length = seconds(1)},
                                   CancelBooking{},
                                   NoteDeviceHeat{},
                                   AttemptPrepared{},
                                   NoteDeviceFault{},
                                   ReportWatchdogFinding{},
                                   MoveJobs{},
                                   RemoveNode{},
                                   PauseStarts{},
                                   testing::some_key(),
                                   RevokeKey{},
                                   BindRole{.role = Role::kViewer},
                                   testing::some_ticket(),
                                   testing::some_admission(),
                                   RevokeNode{},
                                   SetPools{},
                                   testing::some_person()};
  ASSERT_EQ(commands.size(), std::variant_size_v<Command>);
  const Result<CommandGroup> group = decode_group(encoded(commands));
  ASSERT_TRUE(group.ok()) << group.error().message;
  for (std::size_t i = 0; i < commands.size(); ++i) {
    EXPECT_EQ(digest_of(group->commands[i]), digest_of(commands[i])) << name_of(commands[i]);
  }
}

TEST(Group, ZeroComesBackAsZeroWhereTheDefaultIsAnother) {
  CreateTenant tenant;
  tenant.priority_tier = 0;
  tenant.weight_milli = 0;
  JobRequest job;
  job.parts = {Part{.member_count = 0}};
  const EngineConfig none{.aging_per_hour = 0,
                          .queue_size_max = 0,
                          .finished_jobs_max = 0,
                          .finished_jobs_kept = {},
                          .drain_limit = {},
                          .lost_after = {}};
  const Result<CommandGroup> group =
      decode_group(encoded({tenant, SubmitJobs{.jobs = {job}}, Configure{.config = none}}));
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(std::get<CreateTenant>(group->commands[0]).priority_tier, 0);
  EXPECT_EQ(std::get<CreateTenant>(group->commands[0]).weight_milli, 0);
  EXPECT_EQ(std::get<SubmitJobs>(group->commands[1]).jobs[0].parts[0].member_count, 0);
  EXPECT_EQ(std::get<Configure>(group->commands[2]).config, none);
}

TEST(Group, AnEmptyGroupComesBack) {
  const Result<CommandGroup> group = decode_group(encoded({}));
  ASSERT_TRUE(group.ok());
  EXPECT_TRUE(group->commands.empty());
}

TEST(Group, ALongCommandComesBack) {
  RegisterNode node{.name = std::string(100'000, 'n')};
  for (int i = 0; i < 64; ++i) node.devices.push_back({.uuid = std::string(200, 'u')});
  const Result<CommandGroup> group = decode_group(encoded({node, AdvanceTime{}}));
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(digest_of(group->commands[0]), digest_of(node));
}

/// A command that a newer version would write: with fields that this one does not know.
struct NewerCancel {
  template <typename Self, typename Visit>
  static void fields(Self&, Visit&& visit) {
    visit(1, "job", JobId{3});
    visit(2, "tenant", TenantId{4});
    visit(3, "why", std::string("because"));
    visit(4, "how", Outcome{.exit_code = 3, .detail = "x"});
    visit(5, "numbers", std::vector<uint32_t>{1, 2, 300});
    visit(6, "mercy", int32_t{-7});
  }
};

std::string raw_command(uint64_t index, std::string_view bytes) {
  std::string payload;
  ByteWriter writer(payload);
  writer.fixed64(5);
  writer.varint(index);
  writer.fixed32(static_cast<uint32_t>(bytes.size()));
  return payload + std::string(bytes);
}

TEST(Group, FieldsOfANewerVersionAreNotDroppedInSilence) {
  std::string bytes;
  Encoder(bytes).encode(NewerCancel{});
  const Result<CommandGroup> group = decode_group(raw_command(11, bytes));
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.error().code, ErrorCode::kVersion);
  EXPECT_NE(group.error().message.find("cancel_job"), std::string::npos) << group.error().message;
}

/// A value with a newer field deep inside a struct in a vector.
struct NewerPart {
  int32_t known = 3;
  std::string added = "x";
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "known", self.known);
    visit(2, "added", self.added);
  }
};
struct OlderPart {
  int32_t known = 0;
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "known", self.known);
  }
};
template <typename Part>
struct Whole {
  std::vector<Part> parts = std::vector<Part>(2);
  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(3, "parts", self.parts);
  }
};

TEST(Group, ANewerFieldIsNoticedHoweverDeepItIs) {
  std::string bytes;
  Encoder(bytes).encode(Whole<NewerPart>{});
  Decoder decoder(bytes);
  Whole<OlderPart> whole;
  decoder.decode(whole);
  EXPECT_TRUE(decoder.ok());
  EXPECT_TRUE(decoder.is_newer());
  Whole<NewerPart> same;
  Decoder newer(bytes);
  newer.decode(same);
  EXPECT_FALSE(newer.is_newer());
}

TEST(Group, ADigestComesBackAndStandsBeforeTheCommands) {
  GroupEncoder encoder;
  encoder.begin(Time{5});
  encoder.note_digest(0x1234'5678'9ABC'DEF0);
  encoder.add(AdvanceTime{});
  const std::string payload(encoder.payload());
  const Result<CommandGroup> group = decode_group(payload);
  ASSERT_TRUE(group.ok()) << group.error().message;
  EXPECT_EQ(group->digest_before, 0x1234'5678'9ABC'DEF0);
  EXPECT_EQ(group->commands.size(), 1u);
  EXPECT_NE(dump_group(*group).find("\"digest_before\":\"123456789abcdef0\""), std::string::npos);
  // Twice, or behind a command, nobody wrote it.
  const std::string entry = payload.substr(8, 14);
  EXPECT_EQ(decode_group(payload + entry).error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(decode_group(payload.substr(0, 8) + entry + payload.substr(8)).error().code, ErrorCode::kCorrupt);
  const Result<CommandGroup> behind = decode_group(payload.substr(0, 8) + payload.substr(8 + 14) + entry);
  ASSERT_FALSE(behind.ok()) << "it would say of which state the commands were decided";
  EXPECT_EQ(behind.error().code, ErrorCode::kCorrupt);
}

TEST(Group, AnUnknownCommandIsOfANewerVersion) {
  const Result<CommandGroup> group = decode_group(raw_command(std::variant_size_v<Command>, "abc"));
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.error().code, ErrorCode::kVersion);
}

void expect_corrupt(std::string_view payload) {
  const Result<CommandGroup> group = decode_group(payload);
  ASSERT_FALSE(group.ok());
  EXPECT_EQ(group.error().code, ErrorCode::kCorrupt);
  EXPECT_FALSE(group.error().message.empty());
}

TEST(Group, AShortenedPayloadIsCorruptUnlessItEndsBetweenCommands) {
  const std::vector<Command> commands = all_commands();
  const std::string payload = encoded(commands);
  std::size_t whole = 0;
  for (std::size_t size = 0; size < payload.size(); ++size) {
    const Result<CommandGroup> group = decode_group(std::string_view(payload).substr(0, size));
    if (group.ok()) {
      EXPECT_EQ(group->commands.size(), whole);
      ++whole;
    } else {
      EXPECT_EQ(group.error().code, ErrorCode::kCorrupt);
    }
  }
  EXPECT_EQ(whole, commands.size());
}

TEST(Group, GarbledBytesNeverCrash) {
  Prng prng(11);
  const std::string payload = encoded(all_commands());
  int corrupt = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string garbled = payload;
    const uint64_t changes = 1 + prng.below(4);
    for (uint64_t change = 0; change < changes; ++change) {
      garbled[prng.below(garbled.size())] = static_cast<char>(prng.next());
    }
    const Result<CommandGroup> group = decode_group(garbled);
    if (!group.ok()) ++corrupt;
  }
  EXPECT_GT(corrupt, 10'000);
}

TEST(Group, ValuesThatNoDoorLetsPassAreCorrupt) {
  const auto refused = [](const Command& command) {
    std::string bytes;
    Encoder encoder(bytes);
    std::visit([&](const auto& concrete) { encoder.encode(concrete); }, command);
    expect_corrupt(raw_command(command.index(), bytes));
  };
  refused(AttemptEnded{.outcome = {.cause = static_cast<EndCause>(99), .detail = {}}});
  refused(SetDeviceCondition{.condition = static_cast<DeviceCondition>(9)});
  refused(SetDeviceCondition{.condition = static_cast<DeviceCondition>(0)});
  refused(RegisterNode{.cpu_milli = -1});
  refused(RegisterNode{.memory_mb = INT64_MAX});
  refused(RegisterNode{.devices = {{.memory_mb = -1}}});
  refused(RegisterNode{.devices = {{.condition = static_cast<DeviceCondition>(4)}}});
  refused(CreateTenant{.limits = {.resources = {.gpus = -2}}});
  refused(UpdateTenant{.limits = {.resources = {.jobs = -2}}});
  refused(SubmitJobs{.jobs = {{.priority = 2'000'000}}});
  refused(SubmitJobs{.jobs = {{.max_runtime = seconds(-1)}}});
  refused(SubmitJobs{.jobs = {{.max_runtime = Duration{INT64_MAX}}}});
  refused(SubmitJobs{.jobs = {{.retry = {.kill_after_lost_contact = seconds(-1)}}}});
  refused(SubmitJobs{.jobs = std::vector<JobRequest>(1001)});
  refused(Configure{.config = {.aging_per_hour = INT64_MAX}});
  refused(Configure{.config = {.lost_after = Duration{INT64_MAX}}});
  refused(Configure{.config = {.drain_limit = Duration{-1}}});
}

TEST(Group, ATimeBeforeTheEpochOrBeyondTheYear2116IsCorrupt) {
  const auto at = [](int64_t ns) {
    std::string payload = encoded({AdvanceTime{}});
    std::memcpy(payload.data(), &ns, sizeof ns);
    return payload;
  };
  expect_corrupt(at(-1));
  expect_corrupt(at(limits::kTimeMax.ns + 1));
  expect_corrupt(at(INT64_MAX));
  EXPECT_TRUE(decode_group(at(limits::kTimeMax.ns)).ok());
}

TEST(Group, FieldsOutOfOrderOrOfAnotherKindAreCorrupt) {
  const auto fields = [](std::initializer_list<std::pair<uint64_t, uint64_t>> tags) {
    std::string bytes;
    ByteWriter writer(bytes);
    for (const auto& [tag, value] : tags) {
      writer.varint(tag);
      writer.svarint(static_cast<int64_t>(value));
    }
    return raw_command(11, bytes);
  };
  EXPECT_TRUE(decode_group(fields({{1 << 3, 5}, {2 << 3, 6}})).ok());
  expect_corrupt(fields({{2 << 3, 5}, {1 << 3, 6}}));
  expect_corrupt(fields({{1 << 3, 5}, {1 << 3, 6}}));
  expect_corrupt(fields({{(1 << 3) | 1, 0}}));
  expect_corrupt(fields({{(1 << 3) | 7, 0}}));
}

TEST(Group, DumpIsOneLineWithEveryCommandsName) {
  const Result<CommandGroup> group = decode_group(encoded(all_commands()));
  ASSERT_TRUE(group.ok());
  const std::string dump = dump_group(*group);
  EXPECT_EQ(dump.find('\n'), std::string::npos);
  for (const Command& command : group->commands) {
    EXPECT_NE(dump.find("\"" + std::string(name_of(command)) + "\""), std::string::npos);
  }
}

}  // namespace
}  // namespace gpusched

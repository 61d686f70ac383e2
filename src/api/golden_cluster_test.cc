// Views of tenants, nodes, devices and reservations in all doors, and readings of requests about them, byte
// for byte. The files in tests/api/golden hold them; GPUSCHED_RECORD_GOLDEN=1 writes them again.
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "api/backend/tenant_commands.h"
#include "api/doors/jobs/jobs_json.h"
#include "api/doors/jobs/views_json.h"
#include "api/doors/native/native_rest_bodies.h"
#include "api/doors/native/native_rest_json.h"
#include "api/doors/native/native_views.h"
#include "api/testing/golden.h"
#include "api/views/state_views.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

/// A command's members that are not zero.
class Printer {
 public:
  template <typename T>
  void operator()(int, const char* name, const T& value) {
    if constexpr (std::is_same_v<T, std::string>) {
      if (!value.empty()) text_ += " " + prefix_ + name + "=\"" + value + "\"";
    } else if constexpr (std::is_integral_v<T>) {
      if (value != T{}) text_ += " " + prefix_ + name + "=" + std::to_string(value);
    } else if constexpr (kIsOptionalNumber<T>) {
      if (value.has_value()) text_ += " " + prefix_ + name + "=" + std::to_string(*value);
    } else if constexpr (std::is_same_v<T, TenantId>) {
      if (value.valid()) text_ += " " + prefix_ + name + "=" + std::to_string(value.value);
    } else if constexpr (std::is_same_v<T, Duration>) {
      if (value.ns != 0) text_ += " " + prefix_ + name + "=" + std::to_string(value.ns) + "ns";
    } else {
      Printer inner(prefix_ + name + ".");
      T::fields(value, inner);
      text_ += inner.text_;
    }
  }
  template <typename T>
  static std::string print(const T& command) {
    Printer printer("");
    T::fields(command, printer);
    return printer.text_;
  }

 private:
  explicit Printer(std::string prefix) : prefix_(std::move(prefix)) {}
  std::string prefix_, text_;
};

std::string refused(const ApiError& error) {
  return std::string(row_of(error.kind).code) + " [" + error.field + "] " + error.message;
}

std::string made(const Answer<TenantRequest>& request, bool creating) {
  if (!request) return refused(request.error());
  std::string text = creating ? "create" + Printer::print(create_command(*request, TenantId{}))
                              : "update" + Printer::print(update_command(*request, TenantId{3}));
  if (const std::string parent = request->parent.value_or(""); !parent.empty())
    text += " parent=\"" + parent + "\"";
  return text;
}

/// Every setting, every bound, and what contradicts itself.
std::vector<std::string> tenant_bodies() {
  const std::string long_name(254, 'x');
  std::vector<std::string> bodies = {
      R"({})",
      R"({"name":"lab"})",
      R"({"name":"","email":"","organization":""})",
      R"({"name":"lab","email":"a@b","organization":"university","max_gpus":8,"max_gpu_memory_mb":640000,)"
      R"("max_cpu_cores":64,"max_memory_mb":512000,"max_concurrent_jobs":9,"max_waiting_jobs":100,)"
      R"("soft_waiting_jobs":50,"priority_tier":700,"fair_share_weight":2.5,"allow_preemption":true,)"
      R"("can_preempt_others":true,"anonymous":true,"guaranteed_gpus":4,"guaranteed_gpu_memory_mb":5,)"
      R"("guaranteed_cpu_cores":6,"guaranteed_memory_mb":7,"guaranteed_jobs":8,"max_gpu_hours":1.5,)"
      R"("gpu_hours_window_seconds":86400,"parent_id":"tenant-2"})",
      R"({"name":"lab","max_gpus":0,"max_gpu_memory_mb":0,"max_cpu_cores":0,"max_memory_mb":0,)"
      R"("max_concurrent_jobs":0,"max_waiting_jobs":0,"soft_waiting_jobs":0,"priority_tier":0,)"
      R"("allow_preemption":false,"can_preempt_others":false,"anonymous":false,"guaranteed_gpus":0,)"
      R"("guaranteed_gpu_memory_mb":0,"guaranteed_cpu_cores":0,"guaranteed_memory_mb":0,"guaranteed_jobs":0,)"
      R"("max_gpu_hours":0,"parent_id":""})",
      R"({"name":"lab","max_gpus":null,"max_gpu_memory_mb":null,"max_cpu_cores":null,"max_memory_mb":null,)"
      R"("max_concurrent_jobs":null,"max_gpu_hours":null,"max_waiting_jobs":null,"soft_waiting_jobs":null})",
      R"({"name":null,"email":null,"organization":null,"priority_tier":null,"fair_share_weight":null,)"
      R"("allow_preemption":null,"guaranteed_gpus":null,"gpu_hours_window_seconds":null,"parent_id":null})",
      R"({"name":"default"})",
      R"({"name":"tenant-12"})",
      R"({"name":"tenant-x"})",
      R"({"name":"tenant-"})",
      R"({"name":")" + long_name + R"("})",
      R"({"name":"lab","email":")" + std::string(321, 'x') + R"("})",
      R"({"name":"lab","organization":")" + long_name + R"("})",
      R"({"name":"lab","parent_id":")" + long_name + R"("})",
      R"({"name":"lab","request_key":"k"})",
      R"({"name":"lab","nonsense":1})",
      R"({"name":"lab","gpu_hours_window_seconds":86400})",
      R"({"name":"lab","current_gpus":5,"tenant_id":"tenant-9","id":"tenant-9"})",
      R"({"name":"a\u0000b"})",
      R"([])",
      R"({"name":)"};
  for (const char* const number :
       {"max_gpus", "max_gpu_memory_mb", "max_cpu_cores", "max_memory_mb", "max_concurrent_jobs",
        "max_waiting_jobs", "soft_waiting_jobs", "guaranteed_gpus", "guaranteed_gpu_memory_mb",
        "guaranteed_cpu_cores", "guaranteed_memory_mb", "guaranteed_jobs", "gpu_hours_window_seconds",
        "max_gpu_hours", "priority_tier", "fair_share_weight"}) {
    for (const char* const value : {"-1", "1", "1.5", "1099511627776", "1099511627777", "9223372036854775807",
                                    "\"7\"", "\"high\"", "true", "1e300", "0.0004"})
      bodies.push_back(std::string(R"({"name":"lab",")") + number + "\":" + value + "}");
  }
  for (const char* const other : {"name", "email", "organization", "parent_id", "allow_preemption",
                                  "can_preempt_others", "anonymous"}) {
    for (const char* const value : {"1", "\"high\"", "true", "[]"})
      bodies.push_back(std::string("{\"") + other + "\":" + value + "}");
  }
  return bodies;
}

TEST(GoldenCluster, WhatTheJobsDoorReadsOfATenant) {
  std::string text;
  for (const std::string& body : tenant_bodies()) {
    text += "> " + body + "\n" + made(parse_tenant(body, true), true) + "\n";
    text += made(parse_tenant(body, false), false) + "\n";
  }
  expect_golden("tenant-jobs-door.txt", text);
}

TEST(GoldenCluster, WhatTheNativeApiReadsOfATenant) {
  std::string text;
  for (const std::string& body : tenant_bodies()) {
    text += "> " + body + "\n" + made(read_native_tenant(body, "", TenantUse::kCreate), true) + "\n";
    text += made(read_native_tenant(body, "", TenantUse::kUpdate), false) + "\n";
  }
  expect_golden("tenant-native.txt", text);
}

/// As far as a body is one, its message.
TEST(GoldenCluster, WhatGrpcReadsOfATenant) {
  std::string text;
  for (const std::string& body : tenant_bodies()) {
    v1::Tenant message;
    google::protobuf::Message* const roots[] = {&message};
    NativeBody given;
    if (read_native_json(body, roots, given)) continue;
    text += "> " + message.ShortDebugString() + "\n" + made(read_tenant(message, true), true) + "\n";
    text += made(read_tenant(message, false), false) + "\n";
  }
  expect_golden("tenant-grpc.txt", text);
}

Tenant full_tenant() {
  Tenant tenant{.id = TenantId{3},
                .parent = TenantId{2},
                .name = "lab",
                .email = "a@b",
                .organization = "university",
                .priority_tier = 700,
                .weight_milli = 2'500,
                .allow_preemption = true,
                .can_preempt_others = true,
                .anonymous = true,
                .created_at = kMorning,
                .updated_at = kMorning + seconds(1),
                .gpu_ms = 5'400'000,
                .jobs_total = 7,
                .jobs_successful = 4,
                .jobs_failed = 2,
                .reclaims = 2,
                .reclaim_ms = 2'500,
                .reclaim_ms_max = 1'750};
  tenant.limits.set(Resource::kGpus, 8);
  tenant.limits.set(Resource::kGpuMemory, 640'000);
  tenant.limits.set(Resource::kCpu, 64'000);
  tenant.limits.set(Resource::kMemory, 512'000);
  tenant.limits.set(Resource::kJobs, 9);
  tenant.limits.waiting_max = 100;
  tenant.limits.soft_waiting_max = 50;
  tenant.guarantee = {.gpus = 4, .gpu_memory_mb = 5, .cpu_milli = 6'000, .memory_mb = 7, .jobs = 8};
  tenant.gpu_time.length = hours(24);
  tenant.gpu_time.max_ms = 5'400'000;
  tenant.gpu_time.used_ms = 1'800'000;
  tenant.gpu_time.at = kMorning;
  tenant.usage = {
      .gpus = 3, .gpu_memory_mb = 4, .cpu_milli = 1'500, .memory_mb = 6, .jobs = 2, .gpu_milli = 250};
  tenant.waiting = 5;
  return tenant;
}

TEST(GoldenCluster, WhatIsShownOfATenant) {
  std::string text;
  Tenant zero = full_tenant();
  zero.limits = {};
  zero.limits.set(Resource::kGpus, 0);
  zero.limits.waiting_max = 0;
  zero.guarantee.cpu_milli = 500;
  zero.reclaims = 0;
  zero.usage.cpu_milli = 2'000;
  const Tenant tenants[] = {full_tenant(), zero, Tenant{.id = kDefaultTenant}};
  for (const Tenant& tenant : tenants) {
    const TenantView view = view_of(tenant, kMorning + seconds(1));
    text += "# " + tenant.name + "\n" + tenant_json(view) + "\n";
    v1::Tenant message;
    write_tenant(view, message);
    std::string shown;
    google::protobuf::TextFormat::PrintToString(message, &shown);
    text += native_json(message) + "\n" + shown;
  }
  expect_golden("view-tenant.txt", text);
}

NodeView full_node() {
  NodeView node{.id = NodeId{4},
                .name = "n1",
                .contact = NodeState::kReady,
                .state = "draining",
                .state_by = "ana",
                .state_reason = "repair",
                .state_since = kMorning,
                .suspect = "3 jobs failed soon",
                .suspect_since = kMorning + seconds(1),
                .boot_id = "boot",
                .features = {"cgroups", "containers"},
                .labels = {{.name = "rack", .value = "r1"}},
                .cpu_milli = 64'000,
                .cpu_milli_free = 62'500,
                .memory_mb = 512'000,
                .memory_mb_free = 500'000,
                .attempts = 2,
                .cpu_utilization = 0.25,
                .memory_utilization = 0.5,
                .version = "1.2.3"};
  node.devices = {
      {.index = 0,
       .uuid = "GPU-0",
       .model = "A100",
       .memory_mb = 80'000,
       .state = "held",
       .condition = "faulty",
       .detail = "xid 79",
       .held_by = JobId{7},
       .utilization_percent = 90,
       .memory_used_mb = 70'000,
       .temperature_celsius = 65,
       .quarantined_by = "scheduler",
       .quarantine_reason = "xid 79 (drain)",
       .fault = FaultClass::kDrain,
       .fault_code = "xid 79",
       .fault_detail = "fell off the bus",
       .fault_at = kMorning,
       .numa_node = 0,
       .pci_bus_id = "0000:01:00.0",
       .island = 0},
      {.index = 1,
       .uuid = "GPU-1",
       .model = "A100",
       .memory_mb = 80'000,
       .state = "shared",
       .condition = "ok",
       .milli_used = 750,
       .memory_mb_given = 60'000,
       .shared_by = {JobId{8}, JobId{9}},
       .holders = {{.job = JobId{8},
                    .tenant = TenantId{2},
                    .owner = "person ana",
                    .since = Time{} + seconds(1'738'314'000),
                    .milli = 250},
                   {.job = JobId{9}, .tenant = TenantId{2}}},
       .island = 1,
       .mig = true,
       .mig_room = "1x 3g.40gb",
       .slices = {{.job = JobId{8}, .profile = "1g.10gb", .start = 2, .draining = true}}},
      {.index = 2, .uuid = "GPU-2", .model = "A100", .state = "free", .condition = "ok", .mig = true}};
  node.links = {{.from = 0, .to = 1, .kind = "NVLink", .bandwidth_gbs = 300},
                {.from = 0, .to = 2, .kind = "PIX"}};
  node.topology_note = "from nvidia-smi";
  return node;
}

TEST(GoldenCluster, WhatIsShownOfANode) {
  std::string text;
  const NodeView nodes[] = {full_node(),
                            NodeView{.id = NodeId{5}, .name = "n2", .contact = NodeState::kDead}};
  for (const NodeView& node : nodes) {
    v1::Node message;
    write_node(node, message);
    std::string shown;
    google::protobuf::TextFormat::PrintToString(message, &shown);
    text += "# " + node.name + "\n" + node_json(node) + "\n" + native_json(message) + "\n" + shown;
  }
  expect_golden("view-node.txt", text);
}

std::string made(const Answer<ReservationRequest>& request) {
  if (!request) return refused(request.error());
  std::string text = "reserve " + request->name + " tenant=\"" + request->tenant + "\" users=";
  for (const std::string& user : request->users) text += user + ",";
  text += " nodes=";
  for (const std::string& node : request->nodes) text += node + ",";
  for (const int64_t ns :
       {request->begin_at.ns, request->begin_after.ns, request->length.ns, request->every.ns})
    text += " " + std::to_string(ns);
  return text + " " + request->reason;
}

std::vector<std::string> reservation_bodies() {
  const std::string good = R"({"name":"night","node_names":["n1"],"duration_ms":3600000)";
  const std::string long_name(254, 'x');
  std::string many;
  for (int i = 0; i < 65; ++i) many += std::string(i == 0 ? "" : ",") + "\"u" + std::to_string(i) + "\"";
  return {
      "{}",
      good + "}",
      good +
          R"(,"tenant_id":"lab","users":["ana","bob"],"begin_at":"2031-01-31T09:00:00.25Z","every_ms":86400000,)"
          R"("reason":"maintenance","active":true,"reservation_id":"reservation-9"})",
      good + R"(,"begin_after_ms":5000})",
      good + R"(,"begin_at":"2031-01-31T09:00:00Z","begin_after_ms":5000})",
      good + R"(,"begin_after_ms":-1})",
      good + R"(,"begin_after_ms":31622400001})",
      good + R"(,"every_ms":-1})",
      good + R"(,"every_ms":31622400000})",
      good + R"(,"every_ms":99999999999})",
      good + R"(,"tenant_id":")" + long_name + R"("})",
      good + R"(,"users":["ana"]})",
      good + R"(,"tenant_id":"lab","users":[""]})",
      good + R"(,"tenant_id":"lab","users":[)" + many + "]}",
      good + R"(,"reason":")" + std::string(1'025, 'x') + R"("})",
      good + R"(,"nonsense":1})",
      R"({"name":"","node_names":["n1"],"duration_ms":1})",
      R"({"name":")" + long_name + R"(","node_names":["n1"],"duration_ms":1})",
      R"({"name":"night","node_names":[],"duration_ms":1})",
      R"({"name":"night","node_names":[""],"duration_ms":1})",
      R"({"name":"night","node_names":["n1"],"duration_ms":0})",
      R"({"name":"night","node_names":["n1"],"duration_ms":-5})",
      R"({"name":"night","node_names":["n1"],"duration_ms":99999999999})",
      R"({"name":"night","node_names":["n1"],"duration_ms":"x"})",
  };
}

TEST(GoldenCluster, WhatTheNativeApiReadsOfAReservation) {
  std::string text;
  for (const std::string& body : reservation_bodies())
    text += "> " + body + "\n" + made(read_native_reservation(body)) + "\n";
  expect_golden("reservation-native.txt", text);
}

TEST(GoldenCluster, WhatIsShownOfAReservation) {
  std::string text;
  const ReservationView views[] = {{.id = "reservation-3",
                                    .name = "night",
                                    .tenant = "lab",
                                    .users = {"ana", "bob"},
                                    .nodes = {"n1", "n2"},
                                    .begin = kMorning,
                                    .end = kMorning + milliseconds(90'250),
                                    .every = hours(24),
                                    .reason = "maintenance",
                                    .active = true},
                                   {.id = "reservation-4", .begin = kMorning, .end = kMorning + seconds(1)}};
  for (const ReservationView& view : views) {
    v1::Reservation message;
    write_reservation(view, message);
    std::string shown;
    google::protobuf::TextFormat::PrintToString(message, &shown);
    text += native_json(message) + "\n" + shown;
  }
  expect_golden("view-reservation.txt", text);
}

}  // namespace
}  // namespace gpusched::api

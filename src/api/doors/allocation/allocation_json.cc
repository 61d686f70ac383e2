#include "api/doors/allocation/allocation_json.h"

#include <sodium.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <cmath>

#include "api/contract/json_writer.h"
#include "api/contract/names.h"
#include "api/contract/token.h"
#include "api/doors/allocation/allocation_ids.h"
#include "api/doors/json_fields.h"
#include "api/fields/checks.h"
#include "api/fields/job_rules.h"
#include "base/check.h"
#include "base/digest.h"
#include "base/job_labels.h"
#include "base/limits.h"

namespace gpusched::api {
namespace {

constexpr int64_t kLeaseMinutes = 60;  ///< When nothing is asked for.
constexpr int64_t kLeaseMinutesMax = limits::kRuntimeMax.ns / minutes(1).ns;
constexpr int64_t kActiveGpusMax = 5;
constexpr int64_t kKeyDays = 30;
constexpr int64_t kKeyDaysMax = 36'500;
/// Sizes of GPUs are said in gigabytes of 10^9 bytes, and are told by drivers in mebibytes.
constexpr double kMebibytesOfGigabyte = 1e9 / (1 << 20);
constexpr double kMemoryGbMax = 1e6;

constexpr std::string_view kProvisioning = "PROVISIONING", kAvailable = "AVAILABLE", kBusy = "BUSY",
                           kDeprovisioning = "DEPROVISIONING", kDeprovisioned = "DEPROVISIONED",
                           kError = "ERROR";
/// From the best to the worst.
constexpr std::array<std::string_view, 4> kHealths = {"HEALTHY", "DEGRADED", "UNKNOWN", "UNHEALTHY"};

/// `min_memory_gb` of the `requirements`. The body has been read as an object already.
Answer<std::optional<double>> required_memory(std::string_view body) {
  boost::system::error_code error;
  const boost::json::value whole = boost::json::parse(body, error);
  const boost::json::value* const asked =
      error || !whole.is_object() ? nullptr : whole.get_object().if_contains("requirements");
  if (asked == nullptr || asked->is_null()) return std::optional<double>();
  if (!asked->is_object()) return invalid("requirements", "requirements must be an object");
  const boost::json::value* const memory = asked->get_object().if_contains("min_memory_gb");
  if (memory == nullptr || memory->is_null()) return std::optional<double>();
  if (!memory->is_number()) return invalid("requirements", "min_memory_gb must be a number");
  return std::optional(memory->to_number<double>());
}

std::optional<ApiError> check_minutes(const std::optional<int64_t>& minutes) {
  return check_range("lease_minutes", minutes, 1, kLeaseMinutesMax);
}

/// Replaces a job's name of a field by the one that this door has for it.
ApiError named_as_here(ApiError error) {
  if (error.field == "gpu_count") error.field = "count";
  if (error.field == "gpu_memory_each_mb") error.field = "min_memory_gb";
  if (error.field == "labels") error.field = "job_type";
  return error;
}

Time updated_at(const JobView& job) {
  return std::max({job.submitted_at, job.scheduled_at, job.started_at, job.completed_at, job.watch_since});
}

/// When it ends, or ended. While it waits, when it would end if it began now: it moves until it begins.
Time ends_at(const JobView& job, Time now) {
  if (is_final(job.state)) return job.completed_at;
  return (job.started_at.valid() ? job.started_at : now) + job.max_runtime;
}

std::string_view health_of(const NodeView& node, const DeviceView& device) {
  if (node.contact == NodeState::kReady) {
    if (device.condition == "ok") return device.state == "quarantined" ? "UNHEALTHY" : "HEALTHY";
    return device.condition == "hot" ? "DEGRADED" : "UNHEALTHY";
  }
  return contact_name(node.contact) == "unreachable" ? "UNKNOWN" : "UNHEALTHY";
}

/// How the holder uses it.
void write_use(JsonWriter& json, const JobView& job, const std::vector<std::string_view>& uuids) {
  json.key("gpus").begin_array();
  for (const std::string& gpu : job.gpus) json.value(std::string_view(gpu));
  json.end_array().key("gpu_uuids").begin_array();
  std::string visible;
  for (const std::string_view uuid : uuids) {
    json.value(uuid);
    visible += (visible.empty() ? "" : ",") + std::string(uuid);
  }
  json.end_array().key("environment").begin_object();
  if (!uuids.empty()) json.field("CUDA_VISIBLE_DEVICES", std::string_view(visible));
  json.end_object().key("how_to_use").begin_array();
  if (job.state == JobState::kRunning) {
    json.value(std::string_view("gpu-cli run --in-lease " + job_name(job.id) + " -- COMMAND"));
    json.value(std::string_view("gpu-cli shell " + job_name(job.id)));
  }
  json.end_array();
}

}  // namespace

std::string short_hash(std::string_view text, std::size_t bytes) {
  std::string hash(crypto_generichash_BYTES_MIN, '\0');
  CHECK(crypto_generichash(reinterpret_cast<unsigned char*>(hash.data()), hash.size(),
                           reinterpret_cast<const unsigned char*>(text.data()), text.size(), nullptr,
                           0) == 0);
  return hash.substr(0, bytes);
}

std::string request_label(std::string_view request_key) {
  Digest digest;
  digest.mix(request_key);
  return std::to_string(digest.value());
}

Answer<SubmitRequest> parse_allocation(std::string_view body, std::string_view request_key,
                                       std::string_view cluster) {
  std::optional<std::string> organization, region, user_region, job_type;
  std::optional<int64_t> lease_minutes, cpu_cores;
  std::optional<double> memory_gb;
  JobFields job;
  const std::vector<JsonField> fields = {{"gpu_model", &job.gpu_model},      {"count", &job.gpu_count},
                                         {"min_memory_gb", &memory_gb},      {"region", &region},
                                         {"user_region", &user_region},      {"job_type", &job_type},
                                         {"lease_minutes", &lease_minutes},  {"cpu_cores", &cpu_cores},
                                         {"memory_mb", &job.memory_mb},      {"user", &job.user},
                                         {"organization_id", &organization}, {"name", &job.name}};
  if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  const Answer<std::optional<double>> required = required_memory(body);
  if (!required) return required.error();
  if (!memory_gb) memory_gb = *required;
  if (memory_gb && !(*memory_gb >= 0 && *memory_gb <= kMemoryGbMax))
    return invalid("min_memory_gb", "min_memory_gb must be a number of gigabytes, such as 40");
  if (!job.gpu_count) job.gpu_count = 1;
  if (auto problem =
          first_of([&] { return check_range("count", job.gpu_count, 1, limits::kDevicesPerNodeMax); },
                   [&] { return check_minutes(lease_minutes); },
                   [&] { return check_range("cpu_cores", cpu_cores, 1, 100'000); }))
    return std::move(*problem);
  if (memory_gb && *memory_gb > 0)
    job.gpu_memory_each_mb = static_cast<int64_t>(std::ceil(*memory_gb * kMebibytesOfGigabyte));
  job.cpu_milli = cpu_cores.value_or(0) * 1'000;  // Waiting for its holder takes no core.
  if (!job.name) job.name = "gpu-lease";
  job.command = StringList{"sleep", "infinity"};  // Its sessions are what its holder runs.
  job.labels = StringMap{{std::string(kLeaseLabel), "1"}};
  if (job_type && !job_type->empty()) job.labels->emplace_back("gpusched.job-type", *job_type);
  if (!region) region = user_region;
  if (region && !region->empty()) job.labels->emplace_back("gpusched.region", *region);
  if (!request_key.empty()) job.labels->emplace_back(kLeaseRequestLabel, request_label(request_key));
  job.max_runtime_ms = minutes(lease_minutes.value_or(kLeaseMinutes)).ms();
  // The holder's data on the GPUs would be lost: a lease that is over is not begun again elsewhere.
  job.preemption_mode = "cancel";
  job.system_retries = -1;
  Answer<JobRequest> checked = check_job(std::move(job), false);
  if (!checked) return named_as_here(checked.error());
  SubmitRequest request{
      .tenant = {}, .jobs = {}, .request_key = std::string(request_key), .sets_reserved_labels = true};
  if (organization && !organization->empty()) {
    const auto number = number_of_allocation_id(cluster, AllocationIdKind::kOrganization, *organization);
    request.tenant = number ? tenant_name(TenantId{*number}) : *organization;
  }
  request.jobs.push_back(std::move(*checked));
  return request;
}

Answer<Duration> parse_renewal(std::string_view body) {
  std::optional<int64_t> lease_minutes;
  const std::vector<JsonField> fields = {{"lease_minutes", &lease_minutes}};
  if (!body.empty()) {
    if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  }
  if (auto problem = check_minutes(lease_minutes)) return std::move(*problem);
  return minutes(lease_minutes.value_or(kLeaseMinutes));
}

std::optional<ApiError> check_heartbeat(std::string_view body) {
  return body.empty() ? std::nullopt : read_json_object(body, {});
}

Answer<TenantRequest> parse_organization(std::string_view body) {
  std::optional<std::string> name;
  std::optional<int64_t> max_active_gpus;
  const std::vector<JsonField> fields = {{"name", &name}, {"max_active_gpus", &max_active_gpus}};
  if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  if (!name || name->empty()) return invalid("name", "name is missing: the organization's");
  if (auto problem = first_of([&] { return check_length("name", *name, limits::kNameBytesMax); },
                              [&] { return check_range("max_active_gpus", max_active_gpus, 0, INT32_MAX); }))
    return std::move(*problem);
  TenantRequest request;
  request.name = std::move(name);
  request.max_gpus = max_active_gpus.value_or(kActiveGpusMax);
  return request;
}

Answer<KeyRequest> parse_allocation_key(std::string_view body, std::string_view cluster,
                                        std::string_view repeats) {
  std::optional<std::string> user;
  std::optional<int64_t> days;
  bool never = false;
  const std::vector<JsonField> fields = {{"expires_in_days", &days, "", &never}, {"user_id", &user}};
  if (!body.empty()) {
    if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  }
  if (auto problem = check_range("expires_in_days", days, 1, kKeyDaysMax)) return std::move(*problem);
  KeyRequest request;
  constexpr std::string_view kLetters = "abcdefghijkmnpqrstuvwxyz23456789";
  const std::string seed = repeats.empty() ? random_bytes(10) : short_hash(repeats, 10);
  for (const char drawn : seed) request.name += kLetters[static_cast<unsigned char>(drawn) % kLetters.size()];
  request.name = "allocation-" + request.name;
  request.roles = {{.role = Role::kUser, .tenant = {}}};
  if (user) {
    const auto number = number_of_allocation_id(cluster, AllocationIdKind::kPerson, *user);
    if (!number || *number == 0) return ApiError{ErrorKind::kUserNotFound, "User not found."};
    request.person = PersonId{*number};
  }
  if (!never) request.expires_after = hours(24 * days.value_or(kKeyDays));
  return request;
}

DeviceTable devices_of(const std::vector<NodeView>& nodes) {
  DeviceTable devices;
  for (const NodeView& node : nodes) {
    for (const DeviceView& device : node.devices) {
      devices.emplace(gpu_name(node.name, device.index),
                      DeviceFacts{.uuid = device.uuid,
                                  .health = health_of(node, device),
                                  .is_busy = device.utilization_percent > 0});
    }
  }
  return devices;
}

std::string_view lease_status(const JobView& job, const DeviceTable& devices) {
  switch (job.state) {
    case JobState::kPending:
    case JobState::kScheduled:
      return job.is_being_cancelled ? kDeprovisioning : kProvisioning;
    case JobState::kRunning:
      if (job.is_being_cancelled) return kDeprovisioning;
      return std::ranges::any_of(job.gpus,
                                 [&](const std::string& gpu) {
                                   const auto found = devices.find(gpu);
                                   return found != devices.end() && found->second.is_busy;
                                 })
                 ? kBusy
                 : kAvailable;
    case JobState::kPreempted:
      return kDeprovisioning;
    case JobState::kCompleted:
    case JobState::kCancelled:
      return kDeprovisioned;
    case JobState::kFailed:
      return job.reason == JobReason::kTimeout ? kDeprovisioned : kError;
  }
  UNREACHABLE();
}

std::string_view lease_health(const JobView& job, const DeviceTable& devices) {
  if (is_final(job.state) || job.gpus.empty()) return "UNKNOWN";
  std::size_t worst = 0;
  for (const std::string& gpu : job.gpus) {
    const auto found = devices.find(gpu);
    const std::string_view health = found == devices.end() ? "UNKNOWN" : found->second.health;
    worst = std::max(worst, static_cast<std::size_t>(std::ranges::find(kHealths, health) - kHealths.begin()));
  }
  return kHealths.at(worst);
}

bool is_lease_status(std::string_view word) {
  constexpr std::array kAll = {kProvisioning, kAvailable, kBusy, kDeprovisioning, kDeprovisioned, kError};
  return std::ranges::find(kAll, word) != kAll.end();
}
bool is_lease_health(std::string_view word) { return std::ranges::find(kHealths, word) != kHealths.end(); }

std::string allocated_json(const std::string& cluster, JobId job) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("task_id", std::string_view(job_name(job)));
  json.field("gpu_id", std::string_view(allocation_id(cluster, AllocationIdKind::kGpu, job.value)));
  json.field("message", "GPU allocation started").end_object();
  return out;
}

std::string lease_json(const JobView& job, const LeaseScene& scene) {
  static const DeviceTable kNone;
  const DeviceTable& devices = scene.devices == nullptr ? kNone : *scene.devices;
  std::vector<std::string_view> uuids;
  for (const std::string& gpu : job.gpus) {
    const auto found = is_final(job.state) ? devices.end() : devices.find(gpu);
    if (found != devices.end()) uuids.push_back(found->second.uuid);
  }
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("id", allocation_id(scene.cluster, AllocationIdKind::kGpu, job.id.value));
  json.field("organization_id",
             allocation_id(scene.cluster, AllocationIdKind::kOrganization, job.tenant.value));
  json.field("user_id", allocation_user_id(scene.cluster, job.owner));
  json.key("instance_id");
  if (job.node_name.empty()) {
    json.null().key("instance_public_ip").null().key("hostname").null();
  } else {
    json.value(std::string_view(job.node_name)).key("instance_public_ip").null();
    json.field("hostname", std::string_view(job.node_name));
  }
  json.field("status", lease_status(job, devices)).field("health_state", lease_health(job, devices));
  json.field("cost_per_hour", 0.0).field("lease_expires_at", ends_at(job, scene.now));
  json.field("last_seen", scene.last_seen).field("created_at", job.submitted_at);
  json.field("updated_at", updated_at(job)).field("job_id", job_name(job.id));
  json.field("gpu_count", job.gpu_count).field("gpu_model", std::string_view(job.gpu_model));
  json.field("message", std::string_view(job.message));
  write_use(json, job, uuids);
  json.end_object();
  return out;
}

std::string list_json(const std::vector<std::string>& records) {
  std::string out = "[";
  for (const std::string& record : records) {
    if (out.size() > 1) out += ",";
    out += record;
  }
  return out + "]";
}

std::string organization_json(const std::string& cluster, const TenantView& tenant) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("id", allocation_id(cluster, AllocationIdKind::kOrganization, tenant.id.value));
  json.field("name", std::string_view(tenant.settings.name.value_or("")));
  json.field("max_active_gpus", tenant.settings.max_gpus.value_or(0));
  json.field("created_at", tenant.created_at).field("updated_at", tenant.updated_at).end_object();
  return out;
}

std::string key_json(const std::string& cluster, const KeyView& key) {
  constexpr std::size_t kPrefixShown = 8;
  constexpr std::string_view kKeyMark = "gsk_";  // Begins every key (sign/api_key.h), and so its prefix here.
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("id", allocation_id(cluster, AllocationIdKind::kKey, key.id.value));
  if (!key.secret.empty()) json.field("key", std::string_view(key.secret));
  json.field("key_prefix", (std::string(kKeyMark) + key.prefix).substr(0, kPrefixShown));
  json.field("user_id", allocation_user_id(cluster, std::string(to_string(key.kind)) + " " + key.holder));
  json.field("organization_id", allocation_id(cluster, AllocationIdKind::kOrganization, key.tenant.value));
  json.field("expires_at", key.expires_at).field("last_used_at", key.last_used_at);
  json.field("created_at", key.created_at).end_object();
  return out;
}

}  // namespace gpusched::api

#include "api/doors/jobs/jobs_json.h"

#include <array>
#include <cmath>

#include "api/doors/json_fields.h"
#include "api/fields/checks.h"
#include "api/fields/job_rows.h"
#include "base/limits.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kEmailBytesMax = 320;
constexpr double kWeightMax = 1'000'000.0;
constexpr std::size_t kDetailBytesMax = 1'024;
constexpr std::size_t kDoorFieldsMax = 96;  // Of a job at the jobs door.

/// Where a value of JSON goes.
struct Placed {
  JobFields& job;
  DoorUnit unit;
  JsonField::Place operator()(std::monostate) const { UNREACHABLE(); }  // The jobs door has no such field.
  JsonField::Place operator()(std::optional<MountList> JobFields::*) const { UNREACHABLE(); }
  JsonField::Place operator()(std::optional<int64_t> JobFields::* place) const {
    if (unit == DoorUnit::kSame) return &(job.*place);
    return ScaledNumber{&(job.*place), scale_of(unit)};
  }
  JsonField::Place operator()(auto place) const { return &(job.*place); }
};

/// Where the jobs door's JSON puts a field of a job.
JsonField::Place place_in(const JobRow& row, JobFields& job) {
  const bool elsewhere = !std::holds_alternative<std::monostate>(row.door_place);
  return std::visit(Placed{job, row.unit}, elsewhere ? row.door_place : row.place);
}

}  // namespace

Answer<SubmitRequest> parse_submit(std::string_view body, bool containers_possible) {
  JobFields job;
  std::optional<std::string> tenant;
  std::array<JsonField, kDoorFieldsMax> fields;
  fields[0] = {"tenant_id", &tenant};
  std::size_t count = 1;
  for (const JobRow& row : job_rows()) {
    if (!row.door.empty()) fields[count++] = {row.door, place_in(row, job), row.hint};
  }
  if (auto problem = read_json_object(body, std::span(fields).first(count))) return std::move(*problem);
  if (tenant) {
    if (auto problem = check_length("tenant_id", *tenant, limits::kNameBytesMax)) return std::move(*problem);
  }
  Answer<JobRequest> checked = check_job(std::move(job), containers_possible);
  if (!checked) return checked.error();
  SubmitRequest request{.tenant = std::move(tenant).value_or("")};
  request.jobs.push_back(std::move(*checked));
  return request;
}

namespace {

std::optional<ApiError> read_tier(const std::optional<NumberOrWord>& given, TenantRequest& request) {
  if (!given) return std::nullopt;
  const std::optional<int64_t> number = tier_of(*given);
  if (!number)
    return invalid("priority_tier", "priority_tier must be low, medium, high, critical or a number");
  const int64_t tier = *number;
  if (auto problem = check_range("priority_tier", tier, 0, limits::kPriorityMax)) return problem;
  request.priority_tier = static_cast<int32_t>(tier);
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> read_gpu_hours(std::optional<double> gpu_hours, std::optional<int64_t> window_seconds,
                                       TenantRequest& request) {
  constexpr double kHoursMax = static_cast<double>(limits::kGpuTimeMaxMs / 3'600'000);
  if (gpu_hours && !(*gpu_hours >= 0 && *gpu_hours <= kHoursMax))
    return invalid("max_gpu_hours",
                   "max_gpu_hours must be from 0 to " + std::to_string(limits::kGpuTimeMaxMs / 3'600'000));
  if (gpu_hours) request.gpu_ms_max = std::llround(*gpu_hours * 3'600'000.0);
  if (!window_seconds) return std::nullopt;
  if (auto problem =
          check_range("gpu_hours_window_seconds", *window_seconds, limits::kGpuTimeWindowMin.ms() / 1'000,
                      limits::kGpuTimeWindowMax.ms() / 1'000))
    return problem;
  request.gpu_window = seconds(*window_seconds);
  return std::nullopt;
}

Answer<TenantRequest> parse_tenant(std::string_view body, bool creating) {
  TenantRequest request;
  std::optional<NumberOrWord> tier;
  std::optional<double> weight;
  std::optional<std::string> parent;
  std::optional<double> gpu_hours;
  std::optional<int64_t> window_seconds;
  std::array<bool, 8> lifted{};
  TenantLimits& kept = request.guarantee;
  TenantLimits& limit = request.limits;
  const std::array fields = {
      JsonField{"name", &request.name},
      JsonField{"email", &request.email},
      JsonField{"organization", &request.organization},
      JsonField{"max_gpus", &limit.gpus, "", &lifted[0]},
      JsonField{"max_gpu_memory_mb", &limit.gpu_memory_mb, "", &lifted[1]},
      JsonField{"max_cpu_cores", &limit.cpu_cores, "", &lifted[2]},
      JsonField{"max_memory_mb", &limit.memory_mb, "", &lifted[3]},
      JsonField{"max_concurrent_jobs", &limit.concurrent_jobs, "", &lifted[4]},
      JsonField{"max_gpu_hours", &gpu_hours, "", &lifted[5]},
      JsonField{"max_waiting_jobs", &limit.waiting_jobs, "", &lifted[6]},
      JsonField{"soft_waiting_jobs", &limit.soft_waiting_jobs, "", &lifted[7]},
      JsonField{"gpu_hours_window_seconds", &window_seconds},
      JsonField{"guaranteed_gpus", &kept.gpus},
      JsonField{"guaranteed_gpu_memory_mb", &kept.gpu_memory_mb},
      JsonField{"guaranteed_cpu_cores", &kept.cpu_cores},
      JsonField{"guaranteed_memory_mb", &kept.memory_mb},
      JsonField{"guaranteed_jobs", &kept.concurrent_jobs},
      JsonField{"priority_tier", &tier},
      JsonField{"fair_share_weight", &weight},
      JsonField{"allow_preemption", &request.allow_preemption},
      JsonField{"can_preempt_others", &request.can_preempt_others},
      JsonField{"parent_id", &parent},
      JsonField{"anonymous", &request.anonymous},
  };
  if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  if (auto problem = read_tier(tier, request)) return std::move(*problem);
  if (weight) {
    if (!(*weight >= 0.001 && *weight <= kWeightMax)) {
      return invalid("fair_share_weight", "fair_share_weight must be from 0.001 to 1000000");
    }
    request.weight_milli = std::llround(*weight * 1'000.0);
  }
  if (auto problem = read_gpu_hours(gpu_hours, window_seconds, request)) return std::move(*problem);
  request.parent = std::move(parent).value_or("");
  if (creating && !request.name) return invalid("name", "name is missing; a tenant needs one");
  for (std::size_t i = 0; i < lifted.size() && !creating; ++i) {
    if (lifted[i]) request.unlimited.emplace_back(fields[3 + i].name);
  }
  if (auto problem = check_tenant(request)) return std::move(*problem);
  return request;
}

std::optional<ApiError> check_tenant(const TenantRequest& request) {
  const TenantLimits& limit = request.limits;
  constexpr int64_t kCountMax = int64_t{1} << 40;
  if (request.name && request.name->empty()) return invalid("name", "name is empty; a tenant needs one");
  // A name like an id would be ambiguous wherever either is accepted.
  if (request.name && (request.name->starts_with("tenant-") || *request.name == "default")) {
    const std::string_view digits = std::string_view(*request.name).substr(7);
    if (*request.name == "default" || (!digits.empty() && parse_count(digits, INT64_MAX))) {
      return invalid("name", "name looks like a tenant's id; choose another one");
    }
  }
  const TenantLimits& kept = request.guarantee;
  if (auto problem = first_of(
          [&] { return check_range("guaranteed_gpus", kept.gpus, 0, kCountMax); },
          [&] { return check_range("guaranteed_gpu_memory_mb", kept.gpu_memory_mb, 0, kCountMax); },
          [&] { return check_range("guaranteed_cpu_cores", kept.cpu_cores, 0, limits::kCpuCoresMax); },
          [&] { return check_range("guaranteed_memory_mb", kept.memory_mb, 0, kCountMax); },
          [&] { return check_range("guaranteed_jobs", kept.concurrent_jobs, 0, kCountMax); }))
    return problem;
  return first_of(
      [&] {
        return check_length("name", request.name ? std::string_view(*request.name) : "",
                            limits::kNameBytesMax);
      },
      [&] {
        return check_length("email", request.email ? std::string_view(*request.email) : "", kEmailBytesMax);
      },
      [&] {
        return check_length("organization",
                            request.organization ? std::string_view(*request.organization) : "",
                            limits::kNameBytesMax);
      },
      [&] { return check_length("parent_id", request.parent, limits::kNameBytesMax); },
      [&] { return check_range("max_gpus", limit.gpus, 0, kCountMax); },
      [&] { return check_range("max_gpu_memory_mb", limit.gpu_memory_mb, 0, kCountMax); },
      [&] { return check_range("max_cpu_cores", limit.cpu_cores, 0, kCountMax); },
      [&] { return check_range("max_memory_mb", limit.memory_mb, 0, kCountMax); },
      [&] { return check_range("max_concurrent_jobs", limit.concurrent_jobs, 0, kCountMax); },
      [&] { return check_range("max_waiting_jobs", limit.waiting_jobs, 0, limits::kWaitingJobsMax); },
      [&] { return check_range("soft_waiting_jobs", limit.soft_waiting_jobs, 0, limits::kWaitingJobsMax); });
}

Answer<ConditionRequest> parse_condition(std::string_view body, std::string_view caller) {
  std::optional<std::string> condition, detail, by;
  const std::array fields = {JsonField{"condition", &condition}, JsonField{"detail", &detail},
                             JsonField{"by", &by}};
  if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  ConditionRequest request{.detail = std::move(detail).value_or(""), .by = std::move(by).value_or("")};
  if (auto problem = check_length("by", request.by, limits::kNameBytesMax)) return std::move(*problem);
  if (request.by.empty()) request.by = caller.empty() ? "operator" : caller;
  if (auto problem = check_length("detail", request.detail, kDetailBytesMax)) return std::move(*problem);
  if (condition == "ok") {
    request.condition = DeviceCondition::kOk;
  } else if (condition == "unhealthy") {
    request.condition = DeviceCondition::kUnhealthy;
  } else {
    return invalid("condition", "condition must be ok or unhealthy");
  }
  return request;
}

std::optional<ApiError> check_request_key(std::string_view key, std::string_view field) {
  if (key.size() > limits::kRequestKeyBytesMax) {
    return invalid(field, std::string(field) + " is longer than " +
                              std::to_string(limits::kRequestKeyBytesMax) + " bytes; shorten it");
  }
  for (const char c : key) {
    if (c < 0x21 || c > 0x7E) {
      return invalid(field,
                     std::string(field) + " must be printable ASCII without spaces; a UUID is a good one");
    }
  }
  return std::nullopt;
}

}  // namespace gpusched::api

#include <algorithm>

#include "api/doors/native/native_views.h"
#include "api/fields/checks.h"
#include "api/fields/job_rows.h"
#include "api/fields/tenants/tenant_name.h"
#include "api/fields/tenants/tenant_rows.h"
#include "base/limits.h"
#include "base/text.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kBatchBytesMax = 3u << 20;  // So that a batch fits into one record of the journal.

constexpr std::size_t kReasonBytesMax = 1'024;

bool has_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

}  // namespace

Answer<SubmitRequest> read_submit(const v1::SubmitJobsRequest& message, bool containers_possible) {
  if (message.jobs_size() == 0) return invalid("jobs", "jobs is empty; send at least one job");
  if (message.jobs_size() > static_cast<int>(limits::kBatchJobsMax)) {
    return invalid("jobs", "jobs has more than " + std::to_string(limits::kBatchJobsMax) +
                               " entries; send several batches");
  }
  if (message.tenant_id().size() > limits::kNameBytesMax)
    return invalid("tenant_id", "tenant_id is too long");
  if (auto problem = check_request_key(message.request_key(), "request_key")) return std::move(*problem);
  SubmitRequest request{.tenant = message.tenant_id(), .request_key = message.request_key()};
  request.jobs.reserve(static_cast<std::size_t>(message.jobs_size()));
  std::size_t bytes = 0;
  int64_t elements = 0;
  for (int i = 0; i < message.jobs_size(); ++i) {
    Answer<JobRequest> job = read_job(message.jobs(i), containers_possible);
    if (!job) {
      ApiError error = job.error();
      const std::string place = "jobs[" + std::to_string(i) + "]";
      error.message = place + ": " + error.message;
      error.field = error.field.empty() ? place : place + "." + error.field;
      return error;
    }
    bytes += job->spec.size();
    if (bytes > kBatchBytesMax) {
      return ApiError{ErrorKind::kTooLarge,
                      "the specifications of the batch are larger than " + std::to_string(kBatchBytesMax) +
                          " bytes; send several batches",
                      "jobs"};
    }
    elements += job->flow.empty() ? 0 : count_of(job->flow.front().array);
    if (elements > limits::kArrayElementsMax) {
      return unprocessable("jobs", "the arrays of one submission have more than " +
                                       std::to_string(limits::kArrayElementsMax) +
                                       " elements together; send several batches");
    }
    request.jobs.push_back(std::move(*job));
  }
  return request;
}

namespace {

/// The value of a field of a tenant, zero too.
std::optional<ApiError> read_setting(const v1::Tenant& message, const TenantRow& row,
                                     TenantSettings& settings) {
  using google::protobuf::FieldDescriptor;
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByNumber(row.number);
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return set_text(row, reflection.GetString(message, field), settings);
    case FieldDescriptor::CPPTYPE_INT64:
      return set_whole(row, reflection.GetInt64(message, field), settings);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return set_fraction(row, reflection.GetDouble(message, field), settings);
    case FieldDescriptor::CPPTYPE_BOOL:
      settings.*std::get<std::optional<bool> TenantSettings::*>(row.place) =
          reflection.GetBool(message, field);
      return std::nullopt;
    case FieldDescriptor::CPPTYPE_INT32: {
      const int64_t number = reflection.GetInt32(message, field);
      if (number >= row.least && number <= row.most) return set_whole(row, number, settings);
      return invalid(row.name, std::string(row.name) + " must be from " + std::to_string(row.least) + " to " +
                                   std::to_string(row.most));
    }
    default:
      UNREACHABLE();
  }
}

}  // namespace

Answer<TenantRequest> read_tenant(const v1::Tenant& message, bool creating,
                                  std::span<const std::string> also_given) {
  TenantRequest request;
  request.request_key = message.request_key();
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  const auto is_given = [&](const TenantRow& row) {
    return reflection.HasField(message, message.GetDescriptor()->FindFieldByNumber(row.number)) ||
           std::find(also_given.begin(), also_given.end(), row.name) != also_given.end();
  };
  if (creating && !is_given(*find_tenant_row("name")))
    return invalid("name", "name is missing; a tenant needs one");
  if (auto problem = check_request_key(message.request_key(), "request_key")) return std::move(*problem);
  for (const TenantRow& row : tenant_rows()) {
    if (!is_given(row)) continue;
    if (auto problem = read_setting(message, row, request)) return std::move(*problem);
  }
  if (auto problem = check_tenant_name(request)) return std::move(*problem);
  return request;
}

namespace {

/// Texts of the specification.
std::optional<ApiError> read_texts(const v1::UpdateJobRequest& message, JobUpdate& update) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  for (const JobRow& row : job_rows()) {
    if (!row.changeable) continue;
    const auto* const field = message.GetDescriptor()->FindFieldByName(std::string(row.name));
    CHECK(field != nullptr);
    if (!reflection.HasField(message, field)) continue;
    std::string text = reflection.GetString(message, field);
    if (auto problem = check_length(row.name, text, static_cast<std::size_t>(row.most))) return problem;
    if (has_nul(text)) return invalid(row.name, std::string(row.name) + " must not contain a NUL character");
    update.texts.push_back({.number = row.number, .text = std::move(text)});
  }
  return std::nullopt;
}

/// When it may run, and what it needs.
std::optional<ApiError> read_flow_update(const v1::UpdateJobRequest& message, JobUpdate& update) {
  if (auto problem =
          check_time("begin_at", message.has_begin_at(), message.begin_at(), message.begin_after_ms()))
    return problem;
  if (auto problem =
          check_time("deadline", message.has_deadline(), message.deadline(), message.deadline_after_ms()))
    return problem;
  update.moves_begin = message.has_begin_at() || message.has_begin_after_ms();
  update.moves_deadline = message.has_deadline() || message.has_deadline_after_ms();
  if (message.has_begin_at()) update.begin_at = read_time(message.begin_at());
  if (message.has_deadline()) update.deadline = read_time(message.deadline());
  update.begin_after = milliseconds(message.begin_after_ms());
  update.deadline_after = milliseconds(message.deadline_after_ms());
  const auto check = [](std::string_view field, int64_t number, int64_t most) -> std::optional<ApiError> {
    if (number >= 0 && number <= most) return std::nullopt;
    return invalid(field, std::string(field) + " must be from 0 to " + std::to_string(most));
  };
  if (auto problem = check("gpu_count", message.gpu_count(), limits::kGpusPerJobMax)) return problem;
  if (auto problem = check("gpu_memory_mb", message.gpu_memory_mb(), limits::kMegabytesMax)) return problem;
  if (auto problem = check("cpu_milli", message.cpu_milli(), int64_t{limits::kCpuCoresMax} * 1'000))
    return problem;
  if (auto problem = check("memory_mb", message.memory_mb(), limits::kMegabytesMax)) return problem;
  if (message.gpu_model().size() > limits::kNameBytesMax || has_nul(message.gpu_model()))
    return invalid("gpu_model", "gpu_model is too long or has a NUL character");
  if (message.has_gpu_count()) update.gpu_count = message.gpu_count();
  if (message.has_gpu_memory_mb()) update.gpu_memory_mb = message.gpu_memory_mb();
  if (message.has_gpu_model()) update.gpu_model = message.gpu_model();
  if (message.has_cpu_milli()) update.cpu_milli = message.cpu_milli();
  if (message.has_memory_mb()) update.memory_mb = message.memory_mb();
  return std::nullopt;
}

}  // namespace

Answer<JobUpdate> read_update(const v1::UpdateJobRequest& message) {
  JobUpdate update;
  if (message.has_priority()) {
    if (message.priority() < -limits::kPriorityMax || message.priority() > limits::kPriorityMax) {
      return invalid("priority", "priority must be from " + std::to_string(-limits::kPriorityMax) + " to " +
                                     std::to_string(limits::kPriorityMax));
    }
    update.priority = message.priority();
  }
  if (message.has_max_runtime_ms()) {
    if (message.max_runtime_ms() < 0 || message.max_runtime_ms() > limits::kRuntimeMax.ms()) {
      return invalid("max_runtime_ms",
                     "max_runtime_ms must be from 0 to " + std::to_string(limits::kRuntimeMax.ms()));
    }
    update.max_runtime = milliseconds(message.max_runtime_ms());
  }
  if (auto problem = read_texts(message, update)) return std::move(*problem);
  if (auto problem = read_flow_update(message, update)) return std::move(*problem);
  if (!update.priority && !update.max_runtime && update.texts.empty() && !update.moves_begin &&
      !update.moves_deadline && !update.changes_parts()) {
    return ApiError{
        ErrorKind::kUnprocessable,
        "the request changes nothing; give priority, max_runtime_ms, name, begin_at, deadline or resources"};
  }
  return update;
}

namespace {

/// An operator's words, of whichever message.
template <typename Message>
std::optional<ApiError> check_words(const Message& message) {
  if (message.reason().size() > kReasonBytesMax)
    return invalid("reason",
                   "reason is longer than " + std::to_string(kReasonBytesMax) + " bytes; shorten it");
  if (message.by().size() > limits::kNameBytesMax)
    return invalid("by", "by is longer than " + std::to_string(limits::kNameBytesMax) + " bytes; shorten it");
  if (has_control_character(message.reason()))
    return invalid("reason", "reason has a control character, such as a line break; remove it");
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> check_drain(const v1::DrainNodeRequest& message) { return check_words(message); }

std::optional<ApiError> check_pause(const v1::PauseStartsRequest& message) { return check_words(message); }

Answer<LabelChange> read_labels(const v1::LabelNodeRequest& message) {
  LabelChange change{.remove = {message.remove().begin(), message.remove().end()}};
  for (const auto& [name, value] : message.set()) change.set.push_back({.name = name, .value = value});
  std::sort(change.set.begin(), change.set.end(),
            [](const Label& a, const Label& b) { return a.name < b.name; });
  if (change.set.size() > limits::kNodeLabelsMax || change.remove.size() > limits::kNodeLabelsMax) {
    return invalid("set", "a node has at most " + std::to_string(limits::kNodeLabelsMax) + " labels");
  }
  if (change.set.empty() && change.remove.empty()) {
    return ApiError{ErrorKind::kUnprocessable, "the request changes nothing; give set or remove"};
  }
  const auto bad = [](const std::string& text) {
    return text.size() > limits::kLabelBytesMax || has_nul(text);
  };
  for (const Label& label : change.set) {
    if (label.name.empty()) return invalid("set", "a label has an empty name; give it a name");
    if (bad(label.name) || bad(label.value) || has_control_character(label.name) ||
        has_control_character(label.value)) {
      return invalid("set", "a label's name or value is longer than 253 bytes or has a control character");
    }
  }
  for (const std::string& name : change.remove) {
    if (name.empty() || bad(name))
      return invalid("remove", "remove has a name that is not a valid label name");
  }
  return change;
}

}  // namespace gpusched::api

#include "api/doors/native/native_rest_views.h"

#include <vector>

#include "api/contract/names.h"
#include "api/doors/native/native_rest_json.h"
#include "api/doors/nearest_name.h"
#include "api/fields/flow_fields.h"
#include "api/fields/place_words.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

namespace pb = google::protobuf;

constexpr uint64_t kAll = ~uint64_t{0};

constexpr uint64_t bit(int number) { return uint64_t{1} << number; }
static_assert(v1::Job::kMovedAtFieldNumber < 64,
              "a mask of fields has 64 bits: no field of a job beyond them");

/// Field numbers of the messages, by their generated names.
using Fields = v1::Job;
using SpecFieldNumbers = v1::JobSpec;
using ResourceFields = v1::Resources;
using RetryFields = v1::RetryPolicy;

/// Writes fields of one message that are wanted.
class Masked {
 public:
  Masked(JsonWriter& json, uint64_t mask) : json_(json), mask_(mask) {}
  bool wants(int number) const { return (mask_ & bit(number)) != 0; }
  template <typename T>
  void field(int number, std::string_view name, const T& value) {
    if (wants(number)) json_.field(name, value);
  }
  void time(int number, std::string_view name, Time value) {
    if (value.valid()) field(number, name, value);
  }

 private:
  JsonWriter& json_;
  const uint64_t mask_;
};

void write_spec(const JobView& job, uint64_t mask, JsonWriter& json) {
  json.key("spec");
  if (mask == bit(SpecFieldNumbers::kNameFieldNumber)) {  // Of lists: the whole is not unpacked for it.
    json.begin_object();
    if (!job.name.empty()) json.field("name", job.name);
    json.end_object();
    return;
  }
  v1::JobSpec spec;
  if (!spec.ParseFromArray(job.spec.view().data(), static_cast<int>(job.spec.view().size()))) spec.Clear();
  if (mask != kAll) {
    const pb::Descriptor& type = *v1::JobSpec::descriptor();
    for (int i = 0; i < type.field_count(); ++i) {
      if ((mask & bit(type.field(i)->number())) == 0) spec.GetReflection()->ClearField(&spec, type.field(i));
    }
  }
  write_native_json(spec, json);
}

void write_words(std::string_view name, const std::vector<std::string>& words, JsonWriter& json) {
  json.key(name).begin_array();
  for (const std::string& word : words) json.value(std::string_view(word));
  json.end_array();
}

void write_place(const PlacementFields& words, Masked& out, JsonWriter& json) {
  if (out.wants(ResourceFields::kNodeLabelsFieldNumber)) write_words("node_labels", words.node_labels, json);
  if (out.wants(ResourceFields::kWithoutLabelsFieldNumber))
    write_words("without_labels", words.without_labels, json);
  out.field(ResourceFields::kExclusiveFieldNumber, "exclusive", words.exclusive);
  out.field(ResourceFields::kGpuLayoutFieldNumber, "gpu_layout", std::string_view(words.gpu_layout));
  if (out.wants(ResourceFields::kGpuIdsFieldNumber)) write_words("gpu_ids", words.gpu_ids, json);
  out.field(ResourceFields::kGpuBandwidthGbsFieldNumber, "gpu_bandwidth_gbs", words.gpu_bandwidth_gbs);
  out.field(ResourceFields::kGpuMemoryEachMbFieldNumber, "gpu_memory_each_mb", 0);  // Only asked.
}

void write_resources(const JobView& job, uint64_t mask, JsonWriter& json) {
  json.key("resources").begin_object();
  Masked out(json, mask);
  out.field(ResourceFields::kGpuCountFieldNumber, "gpu_count", job.gpu_count);
  out.field(ResourceFields::kGpuMemoryMbFieldNumber, "gpu_memory_mb", job.gpu_memory_mb);
  out.field(ResourceFields::kGpuModelFieldNumber, "gpu_model", std::string_view(job.gpu_model));
  out.field(ResourceFields::kCpuMilliFieldNumber, "cpu_milli", job.cpu_milli);
  out.field(ResourceFields::kMemoryMbFieldNumber, "memory_mb", job.memory_mb);
  out.field(ResourceFields::kGpuMilliFieldNumber, "gpu_milli", job.gpu_milli);
  out.field(ResourceFields::kMigProfileFieldNumber, "mig_profile", std::string_view(job.mig_profile));
  write_place(job.place.empty() ? PlacementFields{} : words_of(job.place.front()), out, json);
  const bool by_nodes = job.parts.size() == 1 && job.one_member_per_node;
  out.field(ResourceFields::kNodesFieldNumber, "nodes", by_nodes ? job.parts.front().members : 0);
  out.field(ResourceFields::kNodesMaxFieldNumber, "nodes_max", by_nodes ? job.parts.front().members_max : 0);
  const bool named = job.domain != DomainLevel::kAny;
  out.field(ResourceFields::kDomainFieldNumber, "domain", named ? to_string(job.domain) : std::string_view());
  out.field(ResourceFields::kDomainRequiredFieldNumber, "domain_required", job.domain_required);
  json.end_object();
}

void write_warnings(const JobView& job, JsonWriter& json) {
  json.key("warnings").begin_array();
  if (job.watch != WatchdogFinding::kNone) {
    json.begin_object().field("kind", to_string(job.watch)).field("message", job.watch_detail);
    if (job.watch_since.valid()) json.field("since", job.watch_since);
    json.end_object();
  }
  json.end_array();
}

void write_gang(const JobView& job, const Masked& out, JsonWriter& json) {
  if (out.wants(Fields::kPartsFieldNumber)) {
    json.key("parts").begin_array();
    for (const JobPart& part : job.parts) {
      json.begin_object().key("resources").begin_object();
      json.field("gpu_count", part.gpu_count).field("gpu_memory_mb", part.gpu_memory_mb);
      json.field("gpu_model", std::string_view(part.gpu_model)).field("cpu_milli", part.cpu_milli);
      json.field("memory_mb", part.memory_mb).field("gpu_milli", part.gpu_milli);
      json.field("mig_profile", std::string_view());
      Masked all(json, kAll);
      write_place({}, all, json);
      json.field("nodes", 0).field("nodes_max", 0).field("domain", std::string_view());
      json.field("domain_required", false).end_object();
      json.field("members", part.members).field("members_max", part.members_max).end_object();
    }
    json.end_array();
  }
  if (!out.wants(Fields::kMembersFieldNumber)) return;
  json.key("members").begin_array();
  for (const JobMember& member : job.members) {
    json.begin_object().field("part", member.part).field("node_name", std::string_view(member.node_name));
    json.key("allocated_gpus").begin_array();
    for (const std::string& gpu : member.gpus) json.value(std::string_view(gpu));
    json.end_array();
    json.field("state", std::string_view(member.state)).end_object();
  }
  json.end_array();
}

void write_flow(const JobView& job, Masked& out, JsonWriter& json) {
  out.time(Fields::kBeginAtFieldNumber, "begin_at", job.begin_at);
  out.time(Fields::kDeadlineFieldNumber, "deadline", job.deadline);
  std::vector<std::string> all;
  std::vector<std::string> unmet;
  for (const JobDependency& one : job.dependencies) {
    all.push_back(dependency_text(one));
    if (one.verdict != JobDependency::Verdict::kMet) unmet.push_back(dependency_text(one));
  }
  if (out.wants(Fields::kDependenciesFieldNumber)) write_words("dependencies", all, json);
  if (out.wants(Fields::kUnmetDependenciesFieldNumber)) write_words("unmet_dependencies", unmet, json);
  out.field(Fields::kArrayIdFieldNumber, "array_id",
            std::string_view(job.array.valid() ? job_name(job.array) : std::string()));
  if (job.array_index) out.field(Fields::kArrayIndexFieldNumber, "array_index", *job.array_index);
  if (!job.array_view || !out.wants(Fields::kArrayFieldNumber)) return;
  const ArrayView& array = *job.array_view;
  json.key("array").begin_object();
  json.field("indexes", std::string_view(array.indexes));
  json.field("unexpanded", std::string_view(array.unexpanded));
  json.field("count", array.count).field("waiting", array.waiting).field("running", array.running);
  json.field("completed", array.completed).field("failed", array.failed);
  json.field("cancelled", array.cancelled).end_object();
}

void write_retry(const JobView& job, uint64_t mask, JsonWriter& json) {
  json.key("retry").begin_object();
  Masked out(json, mask);
  out.field(RetryFields::kExitCodeRetriesFieldNumber, "exit_code_retries", job.exit_code_retries);
  out.field(RetryFields::kSystemRetriesFieldNumber, "system_retries", job.system_retries);
  out.field(RetryFields::kOverlapAllowedFieldNumber, "overlap_allowed", job.overlap_allowed);
  out.field(RetryFields::kKillAfterLostContactMsFieldNumber, "kill_after_lost_contact_ms",
            job.kill_after_lost_contact.ms());
  if (out.wants(RetryFields::kOnFieldNumber))
    write_words("on", retry_on_words(job.retry_causes, job.retry_exit_codes), json);
  out.field(RetryFields::kOnNodeLossFieldNumber, "on_node_loss",
            job.tolerates_node_loss ? "continue" : "end");
  json.end_object();
}

/// The bit of a field's name; nothing when the message has none of that name.
const pb::FieldDescriptor* find_field(const pb::Descriptor& type, std::string_view name) {
  return type.FindFieldByName(std::string(name));
}

ApiError unknown_field(std::string_view path, const pb::Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  const std::size_t dot = path.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? path : path.substr(dot + 1);
  const std::string nearest = nearest_name(last, names);
  std::string message = "fields names no field of a job: " + std::string(path.substr(0, 64));
  if (!nearest.empty()) message += "; did you mean " + nearest + "?";
  return {ErrorKind::kInvalidArgument, std::move(message), "fields"};
}

uint64_t* part_of(JobMask& mask, int number) {
  switch (number) {
    case Fields::kSpecFieldNumber:
      return &mask.spec;
    case Fields::kResourcesFieldNumber:
      return &mask.resources;
    case Fields::kRetryFieldNumber:
      return &mask.retry;
    default:
      return nullptr;
  }
}

}  // namespace

bool JobMask::all() const { return job == kAll && spec == kAll && resources == kAll && retry == kAll; }

JobDetails JobMask::details() const {
  static_assert(Fields::kMigStartFieldNumber < 64);  // They are bits.
  return {.name = (job & bit(Fields::kSpecFieldNumber)) != 0,
          .message = (job & bit(Fields::kMessageFieldNumber)) != 0,
          .place = (job & bit(Fields::kQueuePositionFieldNumber)) != 0,
          .gpus = (job & (bit(Fields::kAllocatedGpusFieldNumber) | bit(Fields::kMembersFieldNumber) |
                          bit(Fields::kMigStartFieldNumber))) != 0};
}

Answer<JobMask> parse_job_mask(std::string_view fields) {
  if (fields.empty()) return JobMask{};
  JobMask mask{.job = 0, .spec = 0, .resources = 0, .retry = 0};
  while (!fields.empty()) {
    const std::size_t end = std::min(fields.find(','), fields.size());
    const std::string_view path = fields.substr(0, end);
    fields.remove_prefix(std::min(end + 1, fields.size()));
    const std::size_t dot = path.find('.');
    const pb::FieldDescriptor* field = find_field(*v1::Job::descriptor(), path.substr(0, dot));
    if (field == nullptr) return unknown_field(path, *v1::Job::descriptor());
    mask.job |= bit(field->number());
    uint64_t* const part = part_of(mask, field->number());
    if (dot == std::string_view::npos) {
      if (part != nullptr) *part = kAll;
      continue;
    }
    if (part == nullptr) return unknown_field(path, *v1::Job::descriptor());
    const pb::FieldDescriptor* inner = find_field(*field->message_type(), path.substr(dot + 1));
    if (inner == nullptr) return unknown_field(path, *field->message_type());
    *part |= bit(inner->number());
  }
  return mask;
}

void write_native_job(const JobView& job, const JobMask& mask, JsonWriter& json) {
  json.begin_object();
  Masked out(json, mask.job);
  if (out.wants(Fields::kJobIdFieldNumber)) json.field("job_id", job_name(job.id));
  if (out.wants(Fields::kTenantIdFieldNumber)) json.field("tenant_id", tenant_name(job.tenant));
  if (out.wants(Fields::kSpecFieldNumber)) write_spec(job, mask.spec, json);
  if (out.wants(Fields::kResourcesFieldNumber)) write_resources(job, mask.resources, json);
  out.field(Fields::kStateFieldNumber, "state", to_string(job.state));
  out.field(Fields::kReasonFieldNumber, "reason",
            job.wait_code.empty() ? to_string(job.reason) : std::string_view(job.wait_code));
  out.field(Fields::kMessageFieldNumber, "message", std::string_view(job.message));
  out.field(Fields::kPriorityFieldNumber, "priority", job.priority);
  out.field(Fields::kMaxRuntimeMsFieldNumber, "max_runtime_ms", job.max_runtime.ms());
  if (out.wants(Fields::kRetryFieldNumber)) write_retry(job, mask.retry, json);
  out.time(Fields::kSubmittedAtFieldNumber, "submitted_at", job.submitted_at);
  out.time(Fields::kScheduledAtFieldNumber, "scheduled_at", job.scheduled_at);
  out.time(Fields::kStartedAtFieldNumber, "started_at", job.started_at);
  out.time(Fields::kCompletedAtFieldNumber, "completed_at", job.completed_at);
  if (job.exit_code) out.field(Fields::kExitCodeFieldNumber, "exit_code", *job.exit_code);
  out.field(Fields::kSignalFieldNumber, "signal", job.signal);
  out.field(Fields::kAttemptsFieldNumber, "attempts", job.attempts);
  out.field(Fields::kNodeNameFieldNumber, "node_name", std::string_view(job.node_name));
  if (out.wants(Fields::kAllocatedGpusFieldNumber)) {
    json.key("allocated_gpus").begin_array();
    for (const std::string& gpu : job.gpus) json.value(std::string_view(gpu));
    json.end_array();
  }
  if (job.mig_start) out.field(Fields::kMigStartFieldNumber, "mig_start", *job.mig_start);
  out.field(Fields::kQueuePositionFieldNumber, "queue_position", job.queue_position);
  out.field(Fields::kHeldFieldNumber, "held", job.held);
  write_flow(job, out, json);
  out.field(Fields::kPreemptCountFieldNumber, "preempt_count", job.preempted_count);
  out.time(Fields::kCheckpointedAtFieldNumber, "checkpointed_at", job.checkpointed_at);
  out.field(Fields::kPreemptionModeFieldNumber, "preemption_mode", to_string(job.preemption_mode));
  out.field(Fields::kWorkClassFieldNumber, "work_class", to_string(job.work));
  out.field(Fields::kReservationFieldNumber, "reservation", job.reservation);
  if (out.wants(Fields::kWarningsFieldNumber)) write_warnings(job, json);
  write_gang(job, out, json);
  out.field(Fields::kMovedFieldNumber, "moved", std::string_view(job.move_detail));
  out.time(Fields::kMovedAtFieldNumber, "moved_at", job.moved_at);
  json.end_object();
}

std::string native_job_json(const JobView& job, const JobMask& mask) {
  std::string out;
  JsonWriter json(out);
  write_native_job(job, mask, json);
  return out;
}

std::string native_job_page_json(const JobPage& page, const JobMask& mask) {
  std::string out;
  out.reserve(64 + page.jobs.size() * (mask.all() ? 700 : 160));
  JsonWriter json(out);
  json.begin_object().key("jobs").begin_array();
  for (const JobView& job : page.jobs) write_native_job(job, mask, json);
  json.end_array();
  if (page.total) json.field("total", *page.total);
  if (page.next.valid()) json.field("next_page_token", job_name(page.next));
  json.end_object();
  return out;
}

}  // namespace gpusched::api

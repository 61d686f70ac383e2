// The native API's view of a job: a row a field, written as JSON or into a message.
#include "api/doors/native/native_rest_views.h"

#include <array>
#include <iterator>
#include <vector>

#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "api/doors/native/native_rest_json.h"
#include "api/doors/native/native_views.h"
#include "api/doors/nearest_name.h"
#include "api/fields/flow_fields.h"
#include "api/fields/job_rows.h"
#include "api/fields/place_words.h"
#include "api/fields/shown_row.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

namespace pb = google::protobuf;

/// The message that a field stands in.
enum class Within : uint8_t { kJob, kResources, kRetry };

/// Details that the backend finds out only for those who ask for them.
enum Detail : uint8_t { kNoDetail = 0, kMessage = 1, kPlaceInLine = 2, kGpus = 4 };

/// Values that several rows read of one job, made once.
class JobWords {
 public:
  explicit JobWords(const JobView& view) : view_(view) {}

  const PlacementFields& place() const {
    if (!place_) place_ = view_.place.empty() ? PlacementFields{} : words_of(view_.place.front());
    return *place_;
  }

 private:
  const JobView& view_;
  mutable std::optional<PlacementFields> place_;
};

/// One field of a job as it is shown.
struct ViewRow {
  Within within;
  int number;  ///< In its message.
  std::string_view name;
  Detail detail;
  void (*to_json)(const JobView& view, const JobWords& words, JsonFields& out);
  void (*to_message)(const JobView& view, const JobWords& words, MessageFields& out);
};

template <auto Write>
constexpr ViewRow row(Within within, int number, std::string_view name, Detail detail = kNoDetail) {
  return {within,
          number,
          name,
          detail,
          [](const JobView& view, const JobWords& words, JsonFields& out) { Write(view, words, out); },
          [](const JobView& view, const JobWords& words, MessageFields& out) { Write(view, words, out); }};
}
template <auto Write>
constexpr ViewRow job(int number, std::string_view name, Detail detail = kNoDetail) {
  return row<Write>(Within::kJob, number, name, detail);
}
template <auto Write>
constexpr ViewRow resource(int number, std::string_view name) {
  return row<Write>(Within::kResources, number, name);
}
template <auto Write>
constexpr ViewRow retry(int number, std::string_view name) {
  return row<Write>(Within::kRetry, number, name);
}

/// Its one part, when it was asked for by nodes.
const JobPart* by_nodes(const JobView& view) {
  return view.parts.size() == 1 && view.one_member_per_node ? &view.parts.front() : nullptr;
}

std::vector<std::string> dependencies_of(const JobView& view, bool only_unmet) {
  std::vector<std::string> texts;
  for (const JobDependency& one : view.dependencies) {
    if (!only_unmet || one.verdict != JobDependency::Verdict::kMet) texts.push_back(dependency_text(one));
  }
  return texts;
}

/// Writes the needs of each member of a part, which never is one that shares or slices are asked for with.
void write_needs(const JobPart& part, auto& out) {
  using R = v1::Resources;
  out.at(R::kGpuCountFieldNumber, "gpu_count").number(part.gpu_count);
  out.at(R::kGpuMemoryMbFieldNumber, "gpu_memory_mb").number(part.gpu_memory_mb);
  out.at(R::kGpuModelFieldNumber, "gpu_model").text(part.gpu_model);
  out.at(R::kCpuMilliFieldNumber, "cpu_milli").number(part.cpu_milli);
  out.at(R::kMemoryMbFieldNumber, "memory_mb").number(part.memory_mb);
  out.at(R::kGpuMilliFieldNumber, "gpu_milli").number(part.gpu_milli);
  out.at(R::kMigProfileFieldNumber, "mig_profile").text("");
  out.at(R::kNodeLabelsFieldNumber, "node_labels").words({});
  out.at(R::kWithoutLabelsFieldNumber, "without_labels").words({});
  out.at(R::kExclusiveFieldNumber, "exclusive").flag(false);
  out.at(R::kGpuLayoutFieldNumber, "gpu_layout").text("");
  out.at(R::kGpuIdsFieldNumber, "gpu_ids").words({});
  out.at(R::kGpuBandwidthGbsFieldNumber, "gpu_bandwidth_gbs").number(0);
  out.at(R::kGpuMemoryEachMbFieldNumber, "gpu_memory_each_mb").number(0);
  out.at(R::kNodesFieldNumber, "nodes").number(0);
  out.at(R::kNodesMaxFieldNumber, "nodes_max").number(0);
  out.at(R::kDomainFieldNumber, "domain").text("");
  out.at(R::kDomainRequiredFieldNumber, "domain_required").flag(false);
}

void write_parts(const JobView& view, auto& out) {
  out.list(view.parts, [](const JobPart& part, auto& shown) {
    shown.at(v1::Part::kResourcesFieldNumber, "resources").object([&](auto& needs) {
      write_needs(part, needs);
    });
    shown.at(v1::Part::kMembersFieldNumber, "members").number(part.members);
    shown.at(v1::Part::kMembersMaxFieldNumber, "members_max").number(part.members_max);
  });
}

void write_members(const JobView& view, auto& out) {
  out.list(view.members, [](const JobMember& member, auto& shown) {
    shown.at(v1::JobMember::kPartFieldNumber, "part").number(member.part);
    shown.at(v1::JobMember::kNodeNameFieldNumber, "node_name").text(member.node_name);
    shown.at(v1::JobMember::kAllocatedGpusFieldNumber, "allocated_gpus").words(member.gpus);
    shown.at(v1::JobMember::kStateFieldNumber, "state").text(member.state);
  });
}

void write_warnings(const JobView& view, auto& out) {
  const std::vector<WatchdogFinding> findings(view.watch == WatchdogFinding::kNone ? 0 : 1, view.watch);
  out.list(findings, [&](WatchdogFinding finding, auto& shown) {
    shown.at(v1::Warning::kKindFieldNumber, "kind").text(to_string(finding));
    shown.at(v1::Warning::kMessageFieldNumber, "message").text(view.watch_detail);
    shown.at(v1::Warning::kSinceFieldNumber, "since").time(view.watch_since);
  });
}

void write_array(const ArrayView& array, auto& out) {
  out.object([&](auto& shown) {
    shown.at(v1::Array::kIndexesFieldNumber, "indexes").text(array.indexes);
    shown.at(v1::Array::kUnexpandedFieldNumber, "unexpanded").text(array.unexpanded);
    shown.at(v1::Array::kCountFieldNumber, "count").number(array.count);
    shown.at(v1::Array::kWaitingFieldNumber, "waiting").number(array.waiting);
    shown.at(v1::Array::kRunningFieldNumber, "running").number(array.running);
    shown.at(v1::Array::kCompletedFieldNumber, "completed").number(array.completed);
    shown.at(v1::Array::kFailedFieldNumber, "failed").number(array.failed);
    shown.at(v1::Array::kCancelledFieldNumber, "cancelled").number(array.cancelled);
  });
}

void write_usage(const UsageView& usage, auto& out) {
  out.object([&](auto& shown) {
    if (usage.peak_memory_bytes)
      shown.at(v1::Usage::kPeakMemoryBytesFieldNumber, "peak_memory_bytes").number(*usage.peak_memory_bytes);
    shown.at(v1::Usage::kPeakMemoryOfFieldNumber, "peak_memory_of").text(usage.peak_memory_of);
    if (usage.cpu_ms) shown.at(v1::Usage::kCpuMsFieldNumber, "cpu_ms").number(*usage.cpu_ms);
    if (usage.gpu_use_permille)
      shown.at(v1::Usage::kGpuUsePermilleFieldNumber, "gpu_use_permille").number(*usage.gpu_use_permille);
    shown.at(v1::Usage::kMembersUnknownFieldNumber, "members_unknown").number(usage.members_unknown);
    if (usage.peak_gpu_memory_mb)
      shown.at(v1::Usage::kPeakGpuMemoryMbFieldNumber, "peak_gpu_memory_mb")
          .number(*usage.peak_gpu_memory_mb);
  });
}

#define SHOWS(...) \
  []([[maybe_unused]] const JobView& view, [[maybe_unused]] const JobWords& words, auto& out) { __VA_ARGS__; }

constexpr int kSpecNumber = v1::Job::kSpecFieldNumber;

// In the order in which JSON has them. The specification is written by itself, field by field as it was asked
// for.
constexpr ViewRow kRows[] = {
    job<SHOWS(out.text(job_name(view.id)))>(1, "job_id"),
    job<SHOWS(out.text(tenant_name(view.tenant)))>(2, "tenant_id"),
    job<SHOWS(static_cast<void>(view), static_cast<void>(out))>(kSpecNumber, "spec"),
    resource<SHOWS(out.number(view.gpu_count))>(1, "gpu_count"),
    resource<SHOWS(out.number(view.gpu_memory_mb))>(2, "gpu_memory_mb"),
    resource<SHOWS(out.text(view.gpu_model))>(3, "gpu_model"),
    resource<SHOWS(out.number(view.cpu_milli))>(4, "cpu_milli"),
    resource<SHOWS(out.number(view.memory_mb))>(5, "memory_mb"),
    resource<SHOWS(out.number(view.gpu_milli))>(6, "gpu_milli"),
    resource<SHOWS(out.text(view.mig_profile))>(30, "mig_profile"),
    resource<SHOWS(out.words(words.place().node_labels))>(50, "node_labels"),
    resource<SHOWS(out.words(words.place().without_labels))>(51, "without_labels"),
    resource<SHOWS(out.flag(words.place().exclusive))>(52, "exclusive"),
    resource<SHOWS(out.text(words.place().gpu_layout))>(53, "gpu_layout"),
    resource<SHOWS(out.words(words.place().gpu_ids))>(54, "gpu_ids"),
    resource<SHOWS(out.number(words.place().gpu_bandwidth_gbs))>(55, "gpu_bandwidth_gbs"),
    resource<SHOWS(static_cast<void>(view), out.number(0))>(56, "gpu_memory_each_mb"),  // Only asked.
    resource<SHOWS(out.number(by_nodes(view) != nullptr ? by_nodes(view)->members : 0))>(40, "nodes"),
    resource<SHOWS(out.number(by_nodes(view) != nullptr ? by_nodes(view)->members_max : 0))>(41, "nodes_max"),
    resource<SHOWS(out.text(view.domain == DomainLevel::kAny ? "" : to_string(view.domain)))>(42, "domain"),
    resource<SHOWS(out.flag(view.domain_required))>(43, "domain_required"),
    job<SHOWS(out.choice(static_cast<int>(view.state), to_string(view.state)))>(5, "state"),
    job<SHOWS(out.text(view.wait_code.empty() ? to_string(view.reason) : std::string_view(view.wait_code)))>(
        6, "reason"),
    job<SHOWS(out.text(view.message))>(7, "message", kMessage),
    job<SHOWS(out.number(view.priority))>(8, "priority"),
    job<SHOWS(out.number(view.max_runtime.ms()))>(9, "max_runtime_ms"),
    retry<SHOWS(out.number(view.exit_code_retries))>(1, "exit_code_retries"),
    retry<SHOWS(out.number(view.system_retries))>(2, "system_retries"),
    retry<SHOWS(out.flag(view.overlap_allowed))>(3, "overlap_allowed"),
    retry<SHOWS(out.number(view.kill_after_lost_contact.ms()))>(4, "kill_after_lost_contact_ms"),
    retry<SHOWS(out.words(retry_on_words(view.retry_causes, view.retry_exit_codes)))>(5, "on"),
    retry<SHOWS(out.text(view.tolerates_node_loss ? "continue" : "end"))>(40, "on_node_loss"),
    job<SHOWS(out.time(view.submitted_at))>(11, "submitted_at"),
    job<SHOWS(out.time(view.scheduled_at))>(12, "scheduled_at"),
    job<SHOWS(out.time(view.started_at))>(13, "started_at"),
    job<SHOWS(out.time(view.completed_at))>(14, "completed_at"),
    job<SHOWS(if (view.exit_code) out.number(*view.exit_code))>(15, "exit_code"),
    job<SHOWS(out.number(view.signal))>(16, "signal"),
    job<SHOWS(out.number(view.attempts))>(17, "attempts"),
    job<SHOWS(out.text(view.node_name))>(18, "node_name"),
    job<SHOWS(out.words(view.gpus))>(19, "allocated_gpus", kGpus),
    job<SHOWS(if (view.mig_start) out.number(*view.mig_start))>(30, "mig_start", kGpus),
    job<SHOWS(out.number(view.queue_position))>(20, "queue_position", kPlaceInLine),
    job<SHOWS(out.flag(view.held))>(21, "held"),
    job<SHOWS(out.time(view.begin_at))>(22, "begin_at"),
    job<SHOWS(out.time(view.deadline))>(23, "deadline"),
    job<SHOWS(out.words(dependencies_of(view, false)))>(24, "dependencies"),
    job<SHOWS(out.words(dependencies_of(view, true)))>(25, "unmet_dependencies"),
    job<SHOWS(out.text(view.array.valid() ? job_name(view.array) : std::string()))>(26, "array_id"),
    job<SHOWS(if (view.array_index) out.number(*view.array_index))>(27, "array_index"),
    job<SHOWS(if (view.array_view) write_array(*view.array_view, out))>(28, "array"),
    job<SHOWS(out.number(view.preempted_count))>(40, "preempt_count"),
    job<SHOWS(out.time(view.checkpointed_at))>(42, "checkpointed_at"),
    job<SHOWS(out.text(to_string(view.preemption_mode)))>(41, "preemption_mode"),
    job<SHOWS(out.text(to_string(view.work)))>(60, "work_class"),
    job<SHOWS(out.text(view.reservation))>(45, "reservation"),
    job<SHOWS(write_warnings(view, out))>(61, "warnings"),
    job<SHOWS(write_parts(view, out))>(46, "parts"),
    job<SHOWS(write_members(view, out))>(47, "members", kGpus),
    job<SHOWS(out.text(view.move_detail))>(62, "moved"),
    job<SHOWS(out.time(view.moved_at))>(63, "moved_at"),
    job<SHOWS(if (view.usage.is_known()) write_usage(view.usage, out))>(64, "usage"),
    job<SHOWS(out.text(view.submitted_by))>(65, "submitted_by"),
    job<SHOWS(out.text(view.owner))>(66, "owner"),
};
#undef SHOWS

static_assert(std::size(kRows) <= kJobRowsMax);

constexpr std::string_view kSpecPath = "spec";

/// The name of the field that holds the message; empty for the job itself.
std::string_view name_of(Within within) {
  switch (within) {
    case Within::kJob:
      return "";
    case Within::kResources:
      return "resources";
    case Within::kRetry:
      return "retry";
  }
  UNREACHABLE();
}

std::size_t spec_row(int number) {
  const JobRow* const row = find_job_row(JobMessage::kSpec, number);
  CHECK(row != nullptr);
  return static_cast<std::size_t>(row - job_rows().data());
}

struct SpecField {
  const pb::FieldDescriptor* field;
  std::size_t row;
};

/// In the order of their declaration.
const std::vector<SpecField>& spec_fields() {
  static const std::vector<SpecField> all = [] {
    std::vector<SpecField> found;
    const pb::Descriptor& type = *v1::JobSpec::descriptor();
    for (int i = 0; i < type.field_count(); ++i)
      found.push_back({type.field(i), spec_row(type.field(i)->number())});
    return found;
  }();
  return all;
}

void write_spec(const JobView& view, const std::bitset<kJobRowsMax>& wanted, JsonWriter& json) {
  static const std::bitset<kJobRowsMax> only_name =
      std::bitset<kJobRowsMax>().set(spec_row(v1::JobSpec::kNameFieldNumber));
  json.key(kSpecPath);
  if (wanted == only_name) {  // For lists: the whole is not unpacked for it.
    json.begin_object();
    if (!view.name.empty()) json.field("name", view.name);
    json.end_object();
    return;
  }
  v1::JobSpec spec;
  if (!spec.ParseFromArray(view.spec.view().data(), static_cast<int>(view.spec.view().size()))) spec.Clear();
  // Only the given fields: to ask for each field is dear in a list.
  const SpecNumbers given = spec_numbers(view.spec.view());
  std::vector<const pb::FieldDescriptor*> fields;
  for (const SpecField& one : spec_fields()) {
    if (given[static_cast<std::size_t>(one.field->number())] && wanted[one.row]) fields.push_back(one.field);
  }
  write_native_fields(spec, fields, json);
}

ApiError unknown_field(std::string_view path, const pb::Descriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.field_count(); ++i) names.push_back(type.field(i)->name());
  const std::size_t dot = path.rfind('.');
  const std::string_view last = dot == std::string_view::npos ? path : path.substr(dot + 1);
  const std::string nearest = nearest_name(last, names);
  std::string message =
      "fields has an entry that is not a field of a job: " + std::string(path.substr(0, 64));
  if (!nearest.empty()) message += "; did you mean " + nearest + "?";
  return {ErrorKind::kInvalidArgument, std::move(message), "fields"};
}

/// Adds the fields that a path names: "state", "resources", "spec.name".
std::optional<ApiError> add_path(std::string_view path, JobMask& mask) {
  const pb::Descriptor& type = *v1::Job::descriptor();
  const std::size_t dot = path.find('.');
  const std::string_view outer = path.substr(0, dot);
  const std::string_view inner = dot == std::string_view::npos ? "" : path.substr(dot + 1);
  const pb::FieldDescriptor* const field = type.FindFieldByName(std::string(outer));
  if (field == nullptr) return unknown_field(path, type);
  const bool has_rows =
      outer == kSpecPath || outer == name_of(Within::kResources) || outer == name_of(Within::kRetry);
  if (dot != std::string_view::npos && !has_rows) return unknown_field(path, type);
  const pb::FieldDescriptor* const within = inner.empty() && dot == std::string_view::npos
                                                ? nullptr
                                                : field->message_type()->FindFieldByName(std::string(inner));
  if (dot != std::string_view::npos && within == nullptr) return unknown_field(path, *field->message_type());
  if (outer == kSpecPath && within == nullptr) mask.spec.set();
  if (outer == kSpecPath && within != nullptr) mask.spec.set(spec_row(within->number()));
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    const ViewRow& row = kRows[i];
    const bool named = row.within == Within::kJob
                           ? row.name == outer
                           : name_of(row.within) == outer && (within == nullptr || row.name == inner);
    if (named) mask.rows.set(i);
  }
  return std::nullopt;
}

}  // namespace

JobDetails JobMask::details() const {
  int wanted = 0;
  bool name = false;
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    if (!rows[i]) continue;
    wanted |= kRows[i].detail;
    name = name || kRows[i].name == kSpecPath;
  }
  return {.name = name,
          .message = (wanted & kMessage) != 0,
          .place = (wanted & kPlaceInLine) != 0,
          .gpus = (wanted & kGpus) != 0};
}

Answer<JobMask> parse_job_mask(std::string_view fields) {
  JobMask mask;
  if (fields.empty()) return mask;
  mask.rows.reset();
  mask.spec.reset();
  while (!fields.empty()) {
    const std::size_t end = std::min(fields.find(','), fields.size());
    if (auto unknown = add_path(fields.substr(0, end), mask)) return std::move(*unknown);
    fields.remove_prefix(std::min(end + 1, fields.size()));
  }
  return mask;
}

void write_job(const JobView& view, v1::Job& out) {
  if (!out.mutable_spec()->ParseFromArray(view.spec.view().data(),
                                          static_cast<int>(view.spec.view().size()))) {
    out.clear_spec();
  }
  const JobWords words(view);
  MessageFields job(out);
  MessageFields resources(*out.mutable_resources());
  MessageFields retry(*out.mutable_retry());
  for (const ViewRow& row : kRows) {
    MessageFields& into = row.within == Within::kJob ? job : row.within == Within::kRetry ? retry : resources;
    row.to_message(view, words, into.at(row.number, row.name));
  }
}

void write_native_job(const JobView& view, const JobMask& mask, JsonWriter& json) {
  json.begin_object();
  const JobWords words(view);
  JsonFields fields(json, JsonFields::Unset::kLeftOut);
  Within open = Within::kJob;
  for (std::size_t i = 0; i < std::size(kRows); ++i) {
    const ViewRow& row = kRows[i];
    if (!mask.rows[i]) continue;
    if (row.within != open) {
      if (open != Within::kJob) json.end_object();
      if (row.within != Within::kJob) json.key(name_of(row.within)).begin_object();
      open = row.within;
    }
    if (row.within == Within::kJob && row.number == kSpecNumber) {
      write_spec(view, mask.spec, json);
    } else {
      row.to_json(view, words, fields.at(row.number, row.name));
    }
  }
  if (open != Within::kJob) json.end_object();
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

#include "api/fields/job_message.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/timestamp.pb.h>

#include <algorithm>
#include <cstdlib>

#include "api/fields/checks.h"
#include "api/fields/job_rows.h"
#include "api/fields/job_rules.h"
#include "api/fields/pack_spec.h"
#include "base/bytes.h"
#include "base/limits.h"
#include "base/text.h"
#include "base/text/task_worker.h"

namespace gpusched::api {
namespace {

namespace pb = google::protobuf;

bool has_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

bool has_nul(const pb::RepeatedPtrField<std::string>& words) {
  return std::any_of(words.begin(), words.end(), [](const std::string& word) { return has_nul(word); });
}

/// "always" for PULL_POLICY_ALWAYS: without the words that the enumerator of 0, "unspecified", begins with.
std::string word_of(const pb::EnumValueDescriptor& value) {
  const std::string& none = value.type()->FindValueByNumber(0)->name();
  std::string word = value.name().substr(none.size() - std::string_view("UNSPECIFIED").size());
  for (char& c : word) c = c == '_' ? c : static_cast<char>(c - 'A' + 'a');
  return word;
}

/// Puts one field of a message into its place.
class FieldReader {
 public:
  FieldReader(const pb::Message& message, const pb::FieldDescriptor& field, JobFields& fields)
      : message_(message), reflection_(*message.GetReflection()), field_(field), fields_(fields) {}

  bool has_nul() const { return has_nul_; }
  bool is_unknown_word() const { return unknown_word_; }

  void operator()(std::monostate) {}
  void operator()(std::optional<std::string> JobFields::* place) {
    if (field_.cpp_type() == pb::FieldDescriptor::CPPTYPE_ENUM) {
      const pb::EnumValueDescriptor* const value =
          field_.enum_type()->FindValueByNumber(reflection_.GetEnumValue(message_, &field_));
      if (value == nullptr) {
        unknown_word_ = true;
      } else if (value->number() != 0) {
        fields_.*place = word_of(*value);
      }
      return;
    }
    fields_.*place = noted(reflection_.GetStringReference(message_, &field_, &scratch_));
  }
  void operator()(std::optional<int64_t> JobFields::* place) { fields_.*place = number(); }
  void operator()(std::optional<NumberOrWord> JobFields::* place) { fields_.*place = number(); }
  void operator()(std::optional<bool> JobFields::* place) {
    fields_.*place = reflection_.GetBool(message_, &field_);
  }
  void operator()(std::optional<StringList> JobFields::* place) {
    StringList& list = (fields_.*place).emplace();
    for (int i = 0; i < size(); ++i)
      list.push_back(noted(reflection_.GetRepeatedStringReference(message_, &field_, i, &scratch_)));
  }
  void operator()(std::optional<StringMap> JobFields::* place) {
    StringMap& map = (fields_.*place).emplace();
    for (int i = 0; i < size(); ++i) {
      const pb::Message& entry = reflection_.GetRepeatedMessage(message_, &field_, i);
      std::string value = entry.GetReflection()->GetString(entry, field_.message_type()->map_value());
      map.emplace_back(key_of(entry), noted(std::move(value)));
    }
  }
  void operator()(std::optional<IntegerMap> JobFields::* place) {
    IntegerMap& map = (fields_.*place).emplace();
    for (int i = 0; i < size(); ++i) {
      const pb::Message& entry = reflection_.GetRepeatedMessage(message_, &field_, i);
      map.emplace_back(key_of(entry),
                       entry.GetReflection()->GetInt64(entry, field_.message_type()->map_value()));
    }
  }
  void operator()(std::optional<Time> JobFields::* place) {
    fields_.*place = read_time(static_cast<const pb::Timestamp&>(reflection_.GetMessage(message_, &field_)));
  }
  void operator()(std::optional<MountList> JobFields::* place) {
    MountList& mounts = (fields_.*place).emplace();
    for (int i = 0; i < size(); ++i) {
      const auto& mount = static_cast<const v1::Mount&>(reflection_.GetRepeatedMessage(message_, &field_, i));
      mounts.push_back({.source = mount.source(), .target = mount.target(), .read_only = mount.read_only()});
    }
  }

 private:
  int size() const { return reflection_.FieldSize(message_, &field_); }
  std::string key_of(const pb::Message& entry) {
    return noted(entry.GetReflection()->GetString(entry, field_.message_type()->map_key()));
  }
  std::string noted(std::string text) {
    has_nul_ = has_nul_ || text.find('\0') != std::string::npos;
    return text;
  }
  int64_t number() const {
    switch (field_.cpp_type()) {
      case pb::FieldDescriptor::CPPTYPE_INT32:
        return reflection_.GetInt32(message_, &field_);
      case pb::FieldDescriptor::CPPTYPE_UINT32:
        return reflection_.GetUInt32(message_, &field_);
      default:
        return reflection_.GetInt64(message_, &field_);
    }
  }

  const pb::Message& message_;
  const pb::Reflection& reflection_;
  const pb::FieldDescriptor& field_;
  JobFields& fields_;
  std::string scratch_;
  bool has_nul_ = false;
  bool unknown_word_ = false;
};

/// Puts all fields that a message has into their places.
std::optional<ApiError> read_fields(const pb::Message& message, JobMessage kind, JobFields& fields) {
  std::vector<const pb::FieldDescriptor*> given;
  message.GetReflection()->ListFields(message, &given);
  for (const pb::FieldDescriptor* const field : given) {
    const JobRow* const row = find_job_row(kind, field->number());
    if (row == nullptr) continue;  // One of the messages in it.
    FieldReader reader(message, *field, fields);
    std::visit(reader, row->place);
    // Protocol Buffers carry NUL characters where a process cannot.
    if (kind == JobMessage::kSpec && reader.has_nul())
      return invalid(row->name, std::string(row->name) + " must not contain a NUL character");
    if (reader.is_unknown_word()) return invalid(row->name, std::string(row->name) + " has an unknown value");
  }
  return std::nullopt;
}

/// Whether the map is one that packs as pack_spec would, and that no rule could be against.
bool is_plain_map(const pb::Map<std::string, std::string>& map, std::size_t count_max,
                  std::size_t bytes_max) {
  if (map.size() > count_max) return false;
  return std::all_of(map.begin(), map.end(), [bytes_max](const auto& entry) {
    const auto& [name, value] = entry;
    if (name.empty() || value.empty() || name.size() > bytes_max || value.size() > bytes_max) return false;
    for (const char c : name) {
      if (c == '=' || static_cast<unsigned char>(c) <= 0x20 || c == 0x7F) return false;
    }
    return !has_nul(value);
  });
}

/// The numbers of a message's plain fields, as bits.
uint64_t plain_fields(JobMessage message) {
  uint64_t bits = 0;
  for (const JobRow& row : job_rows()) {
    if (row.plain && row.message == message && row.number < 64) bits |= uint64_t{1} << row.number;
  }
  return bits;
}

/// Whether a packed message has no field but plain ones, and those that `visit(number, bytes)` says are.
template <typename Visit>
bool has_plain_fields(std::string_view packed, uint64_t plain, Visit&& visit) {
  ByteReader reader(packed);
  while (!reader.at_end()) {
    const uint64_t tag = reader.varint();
    const uint64_t number = tag >> 3;
    std::string_view bytes;
    if ((tag & 7) == 0) {
      reader.varint();
    } else if ((tag & 7) == 2) {
      bytes = reader.bytes();
    } else {
      return false;
    }
    if (!reader.ok()) return false;
    if ((number >= 64 || (plain >> number & 1) == 0) && !visit(number, bytes)) return false;
  }
  return true;
}

/// A larger one may have a word that no program starts with.
constexpr std::size_t kPlainSpecBytesMax = 128 * 1024;

/// The packed specification when neither it nor the job around it has a field that has to be looked at
/// closely. A field is plain because its row says so: a new one is not.
std::optional<std::string> pack_plain(const v1::JobRequest& message) {
  static const uint64_t of_request = plain_fields(JobMessage::kRequest);
  static const uint64_t of_resources = plain_fields(JobMessage::kResources);
  static const uint64_t of_spec = plain_fields(JobMessage::kSpec);
  const v1::JobSpec& spec = message.spec();
  std::string packed;
  if (spec.labels().size() < 2 && spec.environment().size() < 2) {
    message.SerializeToString(&packed);
  } else {
    pb::io::StringOutputStream out(&packed);
    pb::io::CodedOutputStream coded(&out);
    coded.SetSerializationDeterministic(true);  // Maps by their keys.
    message.SerializeToCodedStream(&coded);
  }
  const auto nothing_else = [](uint64_t, std::string_view) { return false; };
  std::string_view packed_spec;
  const bool plain = has_plain_fields(packed, of_request, [&](uint64_t number, std::string_view bytes) {
    if (number == v1::JobRequest::kResourcesFieldNumber)
      return has_plain_fields(bytes, of_resources, nothing_else);
    if (number != v1::JobRequest::kSpecFieldNumber) return false;
    packed_spec = bytes;
    return has_plain_fields(bytes, of_spec, nothing_else);
  });
  if (!plain || packed_spec.size() > kPlainSpecBytesMax) return std::nullopt;
  return std::string(packed_spec);
}

/// Whether no rule could be against the values of a specification's plain fields.
bool is_plain(const v1::JobSpec& spec) {
  const int words = spec.command_size() + spec.args_size();
  if (words > static_cast<int>(limits::kCommandWordsMax)) return false;
  const bool has_command = spec.command_size() > 0 && !spec.command(0).empty();
  if (has_command != spec.script().empty() || (spec.command_size() > 0) != has_command) return false;
  if (spec.name().size() > limits::kNameBytesMax || has_nul(spec.name()) || has_nul(spec.script()))
    return false;
  if (spec.script().find('\r') != std::string::npos) return false;
  if (has_nul(spec.command()) || has_nul(spec.args())) return false;
  if (!is_plain_map(spec.labels(), limits::kLabelCountMax, limits::kLabelBytesMax)) return false;
  if (std::any_of(spec.labels().begin(), spec.labels().end(),
                  [](const auto& label) { return has_control_character(label.second); }))
    return false;
  if (std::any_of(spec.environment().begin(), spec.environment().end(),
                  [](const auto& variable) { return is_worker_variable(variable.first); }))
    return false;
  return is_plain_map(spec.environment(), limits::kEnvironmentCountMax, limits::kSpecBytesMax);
}

/// No memory named is a limit by the job's share of its node; a zero that was sent is none at all.
bool asks_no_limit(const v1::Resources& resources) {
  return resources.has_memory_mb() && resources.memory_mb() == 0;
}

/// A job in which there is nothing to find fault with; nothing when it has to be looked at closely. Most are
/// such, and this costs a third of looking at each field.
std::optional<JobRequest> read_plain(const v1::JobRequest& message) {
  const v1::Resources& resources = message.resources();
  const auto in = [](int64_t number, int64_t least, int64_t most) {
    return number >= least && number <= most;
  };
  const bool plain =
      in(message.priority(), -limits::kPriorityMax, limits::kPriorityMax) &&
      in(message.max_runtime_ms(), 0, limits::kRuntimeMax.ms()) &&
      in(resources.gpu_count(), 0, limits::kGpusPerJobMax) &&
      in(resources.gpu_memory_mb(), 0, resources.gpu_count() > 0 ? limits::kMegabytesMax : 0) &&
      in(resources.memory_mb(), 0, limits::kMegabytesMax) && !asks_no_limit(resources) &&
      in(resources.cpu_milli(), 0, int64_t{limits::kCpuCoresMax} * 1'000) && is_plain(message.spec());
  if (!plain) return std::nullopt;
  std::optional<std::string> packed = pack_plain(message);
  if (!packed) return std::nullopt;
  JobRequest job{.spec = std::move(*packed),
                 .name = message.spec().name(),
                 .gpu_count = resources.gpu_count(),
                 .gpu_memory_mb = resources.gpu_memory_mb(),
                 .cpu_milli = resources.has_cpu_milli() ? resources.cpu_milli() : 1'000,
                 .memory_mb = resources.memory_mb(),
                 .max_runtime = milliseconds(message.max_runtime_ms()),
                 .require_feasible = message.require_feasible(),
                 .held = message.held()};
  if (message.has_priority()) job.priority = message.priority();
  return job;
}

/// One part, as if it were a job by itself.
Answer<JobPart> read_part(const v1::Part& message, int index) {
  const std::string field = "parts[" + std::to_string(index) + "]";
  const v1::Resources& resources = message.resources();
  const auto wrong = [&](const char* name, const std::string& what) {
    return invalid(field + "." + name, field + "." + name + " " + what);
  };
  const auto within = [](int64_t number, int64_t most) { return number >= 0 && number <= most; };
  if (resources.nodes() != 0 || resources.nodes_max() != 0)
    return wrong("resources.nodes", "is given; a part has members");
  if (!within(message.members(), limits::kMembersMax) || !within(message.members_max(), limits::kMembersMax))
    return wrong("members", "must be from 0 to " + std::to_string(limits::kMembersMax));
  if (!within(resources.gpu_count(), int64_t{limits::kDevicesPerNodeMax}))
    return wrong("resources.gpu_count", "must be from 0 to " + std::to_string(limits::kDevicesPerNodeMax));
  if (!within(resources.gpu_memory_mb(), resources.gpu_count() > 0 ? limits::kMegabytesMax : 0))
    return wrong("resources.gpu_memory_mb", "is out of its range, or given without GPUs");
  if (!within(resources.memory_mb(), limits::kMegabytesMax))
    return wrong("resources.memory_mb", "is out of its range");
  if (!within(resources.cpu_milli(), int64_t{limits::kCpuCoresMax} * 1'000))
    return wrong("resources.cpu_milli", "is out of its range");
  if (resources.gpu_model().size() > limits::kNameBytesMax)
    return wrong("resources.gpu_model", "is too long");
  if (resources.gpu_milli() != 0)
    return wrong("resources.gpu_milli", "is given; of several parts each has whole GPUs");
  if (!resources.mig_profile().empty())
    return wrong("resources.mig_profile", "is given; of several parts each has whole GPUs");
  return JobPart{.members = std::max(message.members(), 1),
                 .members_max = message.members_max(),
                 .gpu_count = resources.gpu_count(),
                 .gpu_milli = 0,
                 .gpu_memory_mb = resources.gpu_memory_mb(),
                 .gpu_model = resources.gpu_model(),
                 .cpu_milli = resources.has_cpu_milli() ? resources.cpu_milli() : 1'000,
                 .memory_mb = resources.memory_mb()};
}

/// GPUs and their memory are of each node in the native API, and of all together in the rules.
void read_nodes(JobFields& fields) {
  const int64_t nodes = fields.nodes.value_or(0);
  if (nodes <= 0) return;
  fields.gpus_per_node = fields.gpu_count.value_or(0);
  fields.gpu_count.reset();
  if (fields.gpu_milli.value_or(0) > 0) fields.gpus_per_node.reset();
  const bool bounded =
      nodes <= limits::kMembersMax && std::abs(fields.gpu_memory_mb.value_or(0)) <= limits::kMegabytesMax;
  if (fields.gpu_memory_mb && bounded) *fields.gpu_memory_mb *= nodes;
}

/// Reads the message, field by field, and the parts of it that only the native API has.
std::optional<ApiError> read_message(const v1::JobRequest& message, JobFields& fields) {
  const v1::RetryPolicy& retry = message.retry();
  const auto check_times = [&] {
    auto problem =
        check_time("begin_at", message.has_begin_at(), message.begin_at(), message.begin_after_ms());
    if (problem) return problem;
    return check_time("deadline", message.has_deadline(), message.deadline(), message.deadline_after_ms());
  };
  auto problem = first_of(
      check_times, [&] { return read_fields(message.spec(), JobMessage::kSpec, fields); },
      [&] { return read_fields(message.resources(), JobMessage::kResources, fields); },
      [&] { return read_fields(retry, JobMessage::kRetry, fields); },
      [&] { return read_fields(message, JobMessage::kRequest, fields); },
      [&] { return check_native_rows(fields); });
  if (problem) return problem;
  if (retry.kill_after_lost_contact_ms() < 0 ||
      retry.kill_after_lost_contact_ms() > limits::kRuntimeMax.ms()) {
    return invalid("retry.kill_after_lost_contact_ms",
                   "retry.kill_after_lost_contact_ms must be from 0 to one year");
  }
  if (fields.nodes.value_or(0) > 0 && fields.gpu_count.value_or(0) > int64_t{limits::kDevicesPerNodeMax}) {
    return unprocessable("gpu_count", "a node has at most " + std::to_string(limits::kDevicesPerNodeMax) +
                                          " GPUs; ask for more nodes");
  }
  fields.on_node_loss.reset();  // It is for the parts to say whether there are several members.
  read_nodes(fields);
  for (const v1::Part& part : message.parts()) {
    if (asks_no_limit(part.resources())) fields.memory_unlimited = true;
  }
  return std::nullopt;
}

}  // namespace

std::string with_texts(std::string_view spec, const std::vector<TextChange>& texts) {
  v1::JobSpec parsed;
  CHECK(parsed.ParseFromArray(spec.data(), static_cast<int>(spec.size())));
  for (const TextChange& change : texts) {
    const auto* const field = v1::JobSpec::descriptor()->FindFieldByNumber(change.number);
    CHECK(field != nullptr);
    parsed.GetReflection()->SetString(&parsed, field, change.text);
  }
  return parsed.SerializeAsString();
}

Time read_time(const google::protobuf::Timestamp& time) {
  return Time{time.seconds() * 1'000'000'000 + time.nanos()};
}

std::optional<ApiError> check_time(std::string_view field, bool is_given,
                                   const google::protobuf::Timestamp& time, int64_t after_ms) {
  const bool good = time.seconds() >= 0 && time.seconds() < limits::kTimeMax.ns / 1'000'000'000 &&
                    time.nanos() >= 0 && time.nanos() < 1'000'000'000;
  if (is_given && (!good || !read_time(time).valid()))
    return invalid(field, std::string(field) + " must be a time after 1970");
  if (after_ms < 0 || after_ms > limits::kBeginMax.ms())
    return invalid(field, std::string(field) + " must be neither in the past nor more than a year ahead");
  return std::nullopt;
}

Answer<JobRequest> read_job(const v1::JobRequest& message, bool containers_possible) {
  if (std::optional<JobRequest> plain = read_plain(message)) return std::move(*plain);
  JobFields fields;
  if (auto problem = read_message(message, fields)) return std::move(*problem);
  Answer<JobRequest> job = check_job(std::move(fields), containers_possible);
  if (!job) return job;
  for (int i = 0; i < message.parts_size(); ++i) {
    Answer<JobPart> part = read_part(message.parts(i), i);
    if (!part) return part.error();
    job->parts.push_back(std::move(*part));
  }
  job->one_member_per_node = message.own_nodes();
  const bool twice = job->gpu_count > 0 || job->nodes > 0 || job->memory_mb > 0;
  if (!job->parts.empty() && twice) {
    return invalid("parts",
                   "the resources are given in both parts and resources; keep only domain and "
                   "domain_required in resources");
  }
  if (auto problem = read_node_loss(message.retry().on_node_loss(), "retry.on_node_loss", *job))
    return std::move(*problem);
  return job;
}

}  // namespace gpusched::api

#include "api/backend/services/service_labels.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "api/contract/spec_peek.h"
#include "base/check.h"
#include "base/job_labels.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched::api {
namespace {

constexpr std::string_view kOurs = "gpusched.";
constexpr std::size_t kServiceNameBytesMax = 64;

std::optional<int64_t> parse_whole(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  return failure == std::errc{} && stop == end && value >= 0 ? std::optional(value) : std::nullopt;
}

/// The labels of a record, and by what names they are refused.
struct RecordLabels {
  std::string_view spec;
  SettingNames names;

  std::optional<std::string_view> text(std::string_view label) const { return spec_label(spec, label); }
  bool has(std::string_view label) const { return text(label).has_value(); }

  std::string name_of(std::string_view label) const {
    const auto* const row = std::ranges::find(kServiceSettingNames, label, &ServiceSettingName::label);
    const bool has_field = row != std::end(kServiceSettingNames);
    return std::string(names == SettingNames::kFields && has_field ? row->field : label);
  }
  ApiError refuse(std::string_view label, const std::string& what) const {
    const std::string name = name_of(label);
    if (names == SettingNames::kFields) return {ErrorKind::kUnprocessable, name + " must be " + what, name};
    return {ErrorKind::kUnprocessable, "the label " + name + " must be " + what, "labels"};
  }
  ApiError wants(std::string_view missing, std::string_view given) const {
    return refuse(missing, "given with " + name_of(given));
  }

  /// A number that a label has, within bounds; `otherwise` without the label.
  Answer<int64_t> number(std::string_view label, int64_t least, int64_t most, int64_t otherwise) const {
    const std::optional<std::string_view> given = text(label);
    if (!given) return otherwise;
    const std::optional<int64_t> value = parse_whole(*given);
    if (value && *value >= least && *value <= most) return *value;
    const std::string kind = label.ends_with("-ms") ? "a whole number of milliseconds" : "a whole number";
    return refuse(label, kind + " from " + std::to_string(least) + " to " + std::to_string(most));
  }
};

int64_t whole_label(std::string_view spec, std::string_view label) {
  const std::optional<std::string_view> text = spec_label(spec, label);
  return text ? parse_whole(*text).value_or(0) : 0;
}

}  // namespace

std::string_view to_string(RestartPolicy policy) {
  switch (policy) {
    case RestartPolicy::kAlways:
      return "always";
    case RestartPolicy::kOnFailure:
      return "on_failure";
    case RestartPolicy::kNever:
      return "never";
  }
  UNREACHABLE();
}

std::optional<RestartPolicy> restart_policy_named(std::string_view name) {
  for (const RestartPolicy policy :
       {RestartPolicy::kAlways, RestartPolicy::kOnFailure, RestartPolicy::kNever}) {
    if (name == to_string(policy)) return policy;
  }
  return std::nullopt;
}

bool has_our_label(std::string_view spec) { return spec.find(kOurs) != std::string_view::npos; }

bool mentions_service(std::string_view spec) {
  if (!has_our_label(spec)) return false;
  return spec_label(spec, kServiceLabel).has_value() || spec_label(spec, kReplicaLabel).has_value();
}

namespace {

std::optional<ApiError> read_probe(const RecordLabels& labels, std::optional<ReadyProbe>& out) {
  if (const auto text = labels.text(kServiceProbeLabel)) {
    std::optional<ReadyProbe> probe = parse_ready_probe(*text);
    if (!probe && *text != kServiceNoProbe)
      return labels.refuse(kServiceProbeLabel, "http:/PATH with at most 200 visible characters, tcp or none");
    if (probe && out) probe = ReadyProbe{probe->path, out->period, out->timeout, out->failures};
    out = std::move(probe);
  }
  for (const std::string_view label :
       {kServiceProbePeriodLabel, kServiceProbeTimeoutLabel, kServiceProbeFailuresLabel}) {
    if (!out && labels.has(label)) return labels.wants(kServiceProbeLabel, label);
  }
  if (!out) return std::nullopt;
  const Answer<int64_t> period = labels.number(kServiceProbePeriodLabel, kServiceProbePeriodMinMs,
                                               kServiceProbePeriodMaxMs, out->period.ms());
  if (!period) return period.error();
  const Answer<int64_t> timeout = labels.number(kServiceProbeTimeoutLabel, kServiceProbeTimeoutMinMs,
                                                kServiceProbeTimeoutMaxMs, out->timeout.ms());
  if (!timeout) return timeout.error();
  const Answer<int64_t> failures =
      labels.number(kServiceProbeFailuresLabel, 1, kServiceProbeFailuresMax, out->failures);
  if (!failures) return failures.error();
  out->period = milliseconds(*period);
  out->timeout = milliseconds(*timeout);
  out->failures = *failures;
  return std::nullopt;
}

/// Reads the labels of ports, and of what depends on them.
std::optional<ApiError> read_port(const RecordLabels& labels, ServiceSettings& out) {
  if (std::optional<ApiError> problem = read_probe(labels, out.probe)) return problem;
  const std::optional<std::string_view> port = labels.text(kServicePortLabel);
  if (port && *port != kServiceHasPort && *port != kServiceHasNoPort)
    return labels.refuse(kServicePortLabel, "1 or 0");
  if (port) out.has_port = *port == kServiceHasPort;
  if (out.probe && port && !out.has_port)
    return labels.refuse(kServicePortLabel, "set where there is a probe; or give none for " +
                                                labels.name_of(kServiceProbeLabel) + " as well");
  if (out.probe) out.has_port = true;
  const Answer<int64_t> deadline =
      labels.number(kServiceDeadlineLabel, 0, kServiceDeadlineMaxMs, out.rollout_deadline.ms());
  if (!deadline) return deadline.error();
  out.rollout_deadline = milliseconds(*deadline);
  return std::nullopt;
}

/// Reads the labels of the queue that the replicas follow.
std::optional<ApiError> read_scaling(const RecordLabels& labels, std::optional<ServiceScaling>& out) {
  if (const auto queue = labels.text(kServiceQueueLabel)) {
    if (queue->empty() || queue->front() == '=')
      return labels.refuse(kServiceQueueLabel, "KEY=VALUE or KEY, a label of jobs, or none");
    if (*queue == kServiceNoQueue) {
      out.reset();
    } else {
      if (!out) out.emplace();
      out->queue = *queue;
    }
  }
  for (const std::string_view label :
       {kServiceScaleMinLabel, kServiceScaleMaxLabel, kServiceScaleJobsLabel, kServiceScaleDownLabel}) {
    if (!out && labels.has(label)) return labels.wants(kServiceQueueLabel, label);
  }
  if (!out) return std::nullopt;
  const Answer<int64_t> min = labels.number(kServiceScaleMinLabel, 0, kServiceReplicasMax, out->min);
  if (!min) return min.error();
  const Answer<int64_t> max = labels.number(kServiceScaleMaxLabel, 1, kServiceReplicasMax, out->max);
  if (!max) return max.error();
  if (*max < 1) return labels.wants(kServiceScaleMaxLabel, kServiceQueueLabel);
  if (*max < *min) {
    return labels.refuse(kServiceScaleMaxLabel, "at least " + labels.name_of(kServiceScaleMinLabel) +
                                                    ", which is " + std::to_string(*min));
  }
  const Answer<int64_t> jobs =
      labels.number(kServiceScaleJobsLabel, 1, kServiceScaleJobsMax, out->per_replica);
  if (!jobs) return jobs.error();
  const Answer<int64_t> down =
      labels.number(kServiceScaleDownLabel, 0, kServiceScaleDownAfterMaxMs, out->down_after.ms());
  if (!down) return down.error();
  out->min = *min;
  out->max = *max;
  out->per_replica = *jobs;
  out->down_after = milliseconds(*down);
  return std::nullopt;
}

}  // namespace

Answer<ServiceSettings> read_settings(std::string_view spec, const ServiceSettings& before,
                                      SettingNames names) {
  const RecordLabels labels{.spec = spec, .names = names};
  ServiceSettings out = before;
  const bool is_next = labels.text(kServiceGenerationLabel) == kNextGeneration;
  const Answer<int64_t> generation =
      is_next ? before.generation + 1 : labels.number(kServiceGenerationLabel, 1, INT64_MAX, 1);
  if (!generation) return generation.error();
  const Answer<int64_t> replicas =
      labels.number(kServiceReplicasLabel, 0, kServiceReplicasMax, before.replicas);
  if (!replicas) return replicas.error();
  const Answer<int64_t> ready =
      labels.number(kServiceReadyLabel, 0, kServiceReadyAfterMaxMs, before.ready_after.ms());
  if (!ready) return ready.error();
  if (const auto word = labels.text(kServiceRestartLabel)) {
    const std::optional<RestartPolicy> policy = restart_policy_named(*word);
    if (!policy) return labels.refuse(kServiceRestartLabel, "always, on_failure or never");
    out.restart = *policy;
  }
  out.generation = *generation;
  out.replicas = *replicas;
  out.ready_after = milliseconds(*ready);
  if (std::optional<ApiError> problem = read_port(labels, out)) return std::move(*problem);
  if (std::optional<ApiError> problem = read_scaling(labels, out.scaling)) return std::move(*problem);
  if (out.scaling) out.replicas = std::clamp(out.replicas, out.scaling->min, out.scaling->max);
  return out;
}

std::optional<ReplicaMark> replica_mark(std::string_view spec) {
  if (!has_our_label(spec)) return std::nullopt;
  const std::optional<std::string_view> text = spec_label(spec, kReplicaLabel);
  const std::optional<int64_t> index = text ? parse_whole(*text) : std::nullopt;
  if (!index) return std::nullopt;
  return ReplicaMark{.index = *index,
                     .generation = whole_label(spec, kServiceGenerationLabel),
                     .restarts = whole_label(spec, kReplicaRestartsLabel),
                     .failures = whole_label(spec, kReplicaFailuresLabel),
                     .since = Time{} + milliseconds(whole_label(spec, kReplicaSinceLabel))};
}

namespace {

std::string changed(std::string_view spec, const std::map<std::string, std::string>& labels,
                    const std::string& name) {
  v1::JobSpec parsed;
  CHECK(parsed.ParseFromArray(spec.data(), static_cast<int>(spec.size())));
  if (!name.empty()) parsed.set_name(name);
  for (const auto& [label, value] : labels) {
    if (value.empty()) {
      parsed.mutable_labels()->erase(label);
    } else {
      (*parsed.mutable_labels())[label] = value;
    }
  }
  std::string out;
  {
    google::protobuf::io::StringOutputStream stream(&out);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    CHECK(parsed.SerializeToCodedStream(&coded));
  }
  return out;
}

}  // namespace

std::string with_labels(std::string_view spec, const std::map<std::string, std::string>& labels) {
  return changed(spec, labels, "");
}

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

void read_bits(std::string_view spec, std::string_view label, JobState state, DoneIndexes& out) {
  const std::string_view text = spec_label(spec, label).value_or("");
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t digit = kDigits.find(text[at]);
    if (digit == std::string_view::npos) return;
    for (std::size_t bit = 0; bit < 4; ++bit) {
      if ((digit >> bit & 1) != 0) out.emplace(static_cast<int64_t>(at * 4 + bit), state);
    }
  }
}

std::string bits_of(const DoneIndexes& done, JobState state) {
  std::vector<std::size_t> digits;
  for (const auto& [index, end] : done) {
    if (end != state) continue;
    const auto at = static_cast<std::size_t>(index);
    if (digits.size() <= at / 4) digits.resize(at / 4 + 1);
    digits[at / 4] |= std::size_t{1} << (at % 4);
  }
  std::string out;
  for (const std::size_t digit : digits) out.push_back(kDigits[digit]);
  return out;
}

}  // namespace

DoneIndexes read_done(std::string_view spec) {
  DoneIndexes out;
  read_bits(spec, kServiceCompletedLabel, JobState::kCompleted, out);
  read_bits(spec, kServiceFailedLabel, JobState::kFailed, out);
  return out;
}

std::string with_done(std::string_view spec, const DoneIndexes& done) {
  DoneIndexes all = read_done(spec);
  for (const auto& one : done) all.insert(one);
  return with_labels(spec, {{std::string(kServiceCompletedLabel), bits_of(all, JobState::kCompleted)},
                            {std::string(kServiceFailedLabel), bits_of(all, JobState::kFailed)}});
}

std::map<std::string, std::string> scale_labels(const ServiceSettings& settings) {
  const std::optional<ServiceScaling>& scaling = settings.scaling;
  const auto number = [&scaling](int64_t value) { return scaling ? std::to_string(value) : std::string(); };
  const ServiceScaling& what = scaling ? *scaling : ServiceScaling{};
  return {{std::string(kServiceReplicasLabel), std::to_string(settings.replicas)},
          {std::string(kServiceQueueLabel), what.queue},
          {std::string(kServiceScaleMinLabel), number(what.min)},
          {std::string(kServiceScaleMaxLabel), number(what.max)},
          {std::string(kServiceScaleJobsLabel), number(what.per_replica)},
          {std::string(kServiceScaleDownLabel), number(what.down_after.ms())}};
}

std::string record_spec(std::string_view spec, const ServiceSettings& settings) {
  std::map<std::string, std::string> labels = {
      {std::string(kServiceCompletedLabel), ""},
      {std::string(kServiceFailedLabel), ""},
      {std::string(kServiceGenerationLabel), std::to_string(settings.generation)},
      {std::string(kServiceRestartLabel), std::string(to_string(settings.restart))},
      {std::string(kServiceReadyLabel), std::to_string(settings.ready_after.ms())},
      {std::string(kServicePortLabel), settings.has_port ? std::string(kServiceHasPort) : ""},
      {std::string(kServiceDeadlineLabel), std::to_string(settings.rollout_deadline.ms())}};
  const std::optional<ReadyProbe>& probe = settings.probe;
  labels.emplace(kServiceProbeLabel, probe ? to_string(*probe) : "");
  labels.emplace(kServiceProbePeriodLabel, probe ? std::to_string(probe->period.ms()) : "");
  labels.emplace(kServiceProbeTimeoutLabel, probe ? std::to_string(probe->timeout.ms()) : "");
  labels.emplace(kServiceProbeFailuresLabel, probe ? std::to_string(probe->failures) : "");
  labels.merge(scale_labels(settings));
  return with_labels(spec, labels);
}

std::string replica_spec(std::string_view record, const std::string& name, const ReplicaMark& mark) {
  const std::map<std::string, std::string> labels = {
      {std::string(kServiceGenerationLabel), std::to_string(mark.generation)},
      {std::string(kServiceReplicasLabel), ""},
      {std::string(kServiceRestartLabel), ""},
      {std::string(kServiceReadyLabel), ""},
      {std::string(kServiceDeadlineLabel), ""},
      {std::string(kServiceQueueLabel), ""},
      {std::string(kServiceScaleMinLabel), ""},
      {std::string(kServiceScaleMaxLabel), ""},
      {std::string(kServiceScaleJobsLabel), ""},
      {std::string(kServiceScaleDownLabel), ""},
      {std::string(kServiceCompletedLabel), ""},
      {std::string(kServiceFailedLabel), ""},
      {std::string(kReplicaSinceLabel), mark.since.valid() ? std::to_string(mark.since.ms()) : ""},
      {std::string(kReplicaLabel), std::to_string(mark.index)},
      {std::string(kReplicaRestartsLabel), std::to_string(mark.restarts)},
      {std::string(kReplicaFailuresLabel), std::to_string(mark.failures)}};
  return changed(record, labels, name);
}

bool is_service_name(std::string_view name) {
  return !name.empty() && name.size() <= kServiceNameBytesMax && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

}  // namespace gpusched::api

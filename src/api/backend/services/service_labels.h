#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "api/contract/services.h"

/// Services as labels of jobs: see base/job_labels.h. Pure functions.
namespace gpusched::api {

/// Whether the packed JobSpec may have a label that is about services: what has none is told quickly.
bool mentions_service(std::string_view spec);
/// Returns whether a packed specification may have a label of the scheduler's own; walks over no fields.
bool has_our_label(std::string_view spec);

/// By what names a refusal calls settings: those that its reader gave them by.
enum class SettingNames : uint8_t {
  kLabels,  ///< Labels of the record, a job.
  kFields   ///< Fields of the services API.
};
/// Reads the settings from a record's labels; `before`: settings that hold where they are silent.
/// kUnprocessable with the setting.
Answer<ServiceSettings> read_settings(std::string_view spec, const ServiceSettings& before,
                                      SettingNames names = SettingNames::kLabels);

/// Indexes whose work is done for good: kCompleted or kFailed.
using DoneIndexes = std::map<int64_t, JobState>;
/// Reads the record's word on them.
DoneIndexes read_done(std::string_view spec);
/// The specification of a record that says this of them, too.
std::string with_done(std::string_view spec, const DoneIndexes& done);

/// The replica that a job is.
struct ReplicaMark {
  int64_t index = 0;
  int64_t generation = 1;
  int64_t restarts = 0;  ///< Starts after an end.
  int64_t failures = 0;  ///< The newest of them, one behind the other, that came soon.
  Time since = {};       ///< When the first job of its index and generation came; not valid: it is that.
};
/// Nothing: it is none.
std::optional<ReplicaMark> replica_mark(std::string_view spec);

/// The packed JobSpec with these labels; an empty text takes a label away. Equal specifications have equal
/// bytes.
std::string with_labels(std::string_view spec, const std::map<std::string, std::string>& labels);
/// The labels of a record that say how many replicas there are, and which queue they follow; empty texts for
/// what it does not say.
std::map<std::string, std::string> scale_labels(const ServiceSettings& settings);
/// The specification of a record, with all that is set in its labels.
std::string record_spec(std::string_view spec, const ServiceSettings& settings);
/// The specification of a replica of that name, made of that of its record.
std::string replica_spec(std::string_view record, const std::string& name, const ReplicaMark& mark);

/// Whether it may be a service's name: letters, digits, '.', '_' and '-', at most 64.
bool is_service_name(std::string_view name);

}  // namespace gpusched::api

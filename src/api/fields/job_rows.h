#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "api/contract/errors.h"
#include "api/fields/job_fields.h"

/// A job's request, a row a field: what each is called, numbered, measured in, between which bounds, and what
/// it means.
///
/// Rows of all fields, for all code that handles fields alike: the jobs door's reader of JSON, the native
/// API's reader of messages, its OpenAPI document, the writer of the packed specification, the checks of
/// ranges, the reference page. Rules about several fields at once stand in job_rules.h.
/// docs/recipes/add-a-field.md shows how to add one.
namespace gpusched::api {

/// The message of proto/gpusched/v1 that a field stands in.
enum class JobMessage : uint8_t {
  kSpec,       ///< JobRequest.spec, a JobSpec
  kResources,  ///< JobRequest.resources, a Resources
  kRetry,      ///< JobRequest.retry, a RetryPolicy
  kRequest,    ///< JobRequest itself
  kNone,       ///< Only the jobs door has it.
};

/// The jobs door's unit of a field. The native API has the unit of JobFields.
enum class DoorUnit : uint8_t {
  kSame,
  kSeconds,  ///< For milliseconds.
  kMinutes,  ///< For milliseconds.
  kCores,    ///< For thousandths of a core.
};
/// How much of the field's own unit is one of the jobs door's.
int64_t scale_of(DoorUnit unit);

/// The member that holds a field's value.
using JobPlace =
    std::variant<std::monostate, std::optional<std::string> JobFields::*, std::optional<int64_t> JobFields::*,
                 std::optional<bool> JobFields::*, std::optional<StringList> JobFields::*,
                 std::optional<StringMap> JobFields::*, std::optional<IntegerMap> JobFields::*,
                 std::optional<NumberOrWord> JobFields::*, std::optional<Time> JobFields::*,
                 std::optional<MountList> JobFields::*>;

inline constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();

struct JobRow {
  JobMessage message = JobMessage::kNone;
  int number = 0;         ///< Its number in the message.
  std::string_view name;  ///< Its name there; of the jobs door alone: there.
  std::string_view door;  ///< Its name at the jobs door; empty: that has none.
  JobPlace place;         ///< Empty: read by a function of its own, or not taken from clients.
  std::string_view meaning;
  int64_t least = 0, most = kNoBound;  ///< Bounds of a number; a text has at most so many bytes.
  DoorUnit unit = DoorUnit::kSame;
  std::string_view hint = {};  ///< Follows the jobs door's sentence about a wrong type.
  JobPlace door_place = {};    ///< Where the jobs door puts it, when that is elsewhere.
  /// The native API says for itself that the value is out of range, by its own name.
  bool native_range = false;
  /// Within its range nothing can be wrong with it by itself: a request that has no other fields needs no
  /// close look.
  bool plain = false;
  /// The jobs door shows it of a job that gave it. For fields of a specification only.
  bool shown = false;
  /// An update may give another text; UpdateJobRequest has a field of this name. Likewise only for those.
  bool changeable = false;
};

/// In the order of the messages, and in each by number.
std::span<const JobRow> job_rows();
/// Null when there is none.
const JobRow* find_job_row(JobMessage message, int number);
/// "spec.name", "priority"; of the jobs door alone: empty.
std::string path_of(const JobRow& row);
/// "text", "whole number", "list of texts" ... as the jobs door takes it when `at_door`, else as the native
/// API does.
std::string_view type_of(const JobRow& row, bool at_door);

/// Whether a field's value is within its row's bounds; the error is in the jobs door's words and units.
std::optional<ApiError> check_row(const JobRow& row, const JobFields& fields);
/// The same for the field of that name at the jobs door.
std::optional<ApiError> check_row(std::string_view door, const JobFields& fields);
/// Returns the row of a name at the jobs door, which there must be. It looks at all rows.
const JobRow& row_of_door(std::string_view door);
/// All of them; the first that is out of its bounds.
std::optional<ApiError> check_rows(const JobFields& fields);
/// Checks those whose range the native API says for itself, in its words.
std::optional<ApiError> check_native_rows(const JobFields& fields);

/// The table of docs/reference/job-fields.md, with its page around it.
std::string job_fields_markdown();

}  // namespace gpusched::api

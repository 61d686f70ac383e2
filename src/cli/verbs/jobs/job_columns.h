#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/time.h"
#include "cli/terminal/table.h"
#include "client/json.h"

namespace gpusched::cli {

/// A field of a job as either door names it: at the outermost level, or in `spec` or `resources`.
Json job_field(const Json& job, std::string_view name);
/// "job-12", from a list or a single record.
std::string job_id_of(const Json& job);
/// Returns the user that the job runs as, or its submitter.
std::string job_user(const Json& job);
/// The number in "job-12"; -1 when there is none.
int64_t job_number(std::string_view id);
/// Returns the job's run time in seconds so far or in total, or -1 if it has not started.
int64_t run_seconds(const Json& job, Time now);
/// Returns the CPUs that it requested; 0: none.
double cpu_count(const Json& job);
/// Highest memory use of its last attempt, such as "1.2G"; empty when no node measured it. Likewise the CPU
/// time, such as "3m12s", and how busy its GPUs were, such as "83 %".
std::string peak_memory_text(const Json& job);
std::string cpu_time_text(const Json& job);
std::string gpu_use_text(const Json& job);
/// A word list as one would type it; a script's first line.
std::string job_command_text(const Json& job);
/// An integer in digits; empty when the value is no number.
std::string number_text(const Json& value);
/// An amount of memory in MB, such as "2G"; empty when it is 0 or no number.
std::string size_text(const Json& value);
/// The state; "held" for a pending job that somebody holds, "pending (never)" for one that no registered node
/// could ever run, "stopping" for one that was cancelled and has not ended yet.
std::string shown_state(const Json& job);

/// Name of the field that only lines which stand for several elements have: their id, such as "job-12[0-99]".
inline constexpr std::string_view kFoldedId = "folded_id";

/// One thing that can be shown and sorted by in a list of jobs.
struct JobColumn {
  std::string_view key;  ///< Name for --columns and --sort.
  Column column;
  std::function<Cell(const Json& job, Time now)> cell;
  /// Sort key: a number, or 0 for the text of the cell.
  std::function<int64_t(const Json& job, Time now)> order;
  /// Fields of the native API's record that it uses: names for the parameter `fields`.
  std::string_view fields;
  /// Newest, largest, longest first unless the key is told otherwise.
  bool descends = false;
};

const std::vector<JobColumn>& job_columns();
const JobColumn* find_job_column(std::string_view key);
std::vector<std::string> job_column_keys();

/// Returns the columns of -o wide.
const std::vector<std::string>& wide_job_columns();

/// Returns the fields that these columns need: a list for the native API's parameter `fields`.
std::string fields_of(const std::vector<std::string>& keys);

/// Orders jobs by a comma list of keys; "-" before a key turns its order round. The keys are known to exist.
void sort_jobs(std::vector<Json>& jobs, const std::string& keys, Time now);

/// What becomes of columns that a terminal has no room for: they are left out, as on a live screen, or the
/// lines are wrapped.
enum class Narrow { kDrops, kWraps };

/// A table of the jobs with these columns.
Table job_table(const std::vector<Json>& jobs, const std::vector<std::string>& keys, Time now,
                Narrow narrow = Narrow::kWraps);

}  // namespace gpusched::cli

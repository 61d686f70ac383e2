#include "replay/trace/formats.h"

#include <algorithm>
#include <boost/unordered/unordered_flat_map.hpp>
#include <charconv>
#include <limits>

#include "base/limits.h"
#include "base/text/civil_time.h"
#include "replay/trace/csv.h"
#include "replay/trace/swf.h"

namespace gpusched::replay {
namespace {

constexpr int64_t kSizeMax = limits::kGpusPerJobMax;

/// Words as numbers from 1 on, in the order in which they first come.
class Words {
 public:
  uint64_t number_of(std::string_view word) {
    const auto [at, added] = numbers_.try_emplace(std::string(word), names_.size());
    if (added) names_.emplace_back(word);
    return at->second;
  }
  std::vector<std::string> take_names() { return std::move(names_); }

 private:
  boost::unordered_flat_map<std::string, uint64_t> numbers_;
  std::vector<std::string> names_ = {""};
};

/// In the order of submission, from zero on.
Trace sorted(Trace trace) {
  std::stable_sort(trace.jobs.begin(), trace.jobs.end(),
                   [](const TraceJob& a, const TraceJob& b) { return a.submitted < b.submitted; });
  if (trace.jobs.empty()) return trace;
  const Duration first = trace.jobs.front().submitted;
  for (TraceJob& job : trace.jobs) job.submitted = job.submitted - first;
  return trace;
}

/// Where a format has the columns that every job needs, and in which unit.
struct Columns {
  std::size_t submitted = 0;
  std::size_t run = 0;
  std::size_t size = 0;
  Duration submitted_unit = seconds(1);
  Duration run_unit = seconds(1);
};

/// The job of the present line; false: it ran for no time or on no GPU.
Result<bool> read_job(const CsvFile& file, const Columns& columns, TraceJob& job) {
  const Result<Duration> submitted = file.time(columns.submitted, columns.submitted_unit);
  if (!submitted) return submitted.error();
  const Result<Duration> run = file.time(columns.run, columns.run_unit);
  if (!run) return run.error();
  const Result<int64_t> size = file.count(columns.size, kSizeMax);
  if (!size) return size.error();
  job.id = file.line_number();
  job.submitted = *submitted;
  job.run = *run;
  job.size = *size;
  return run->ns > 0 && *size > 0;
}

template <typename Rest>
Result<Trace> read_csv(const std::string& path, const std::vector<std::string_view>& names,
                       const Columns& columns, Trace trace, Rest&& rest) {
  Result<CsvFile> file = CsvFile::open(path, names);
  if (!file) return file.error();
  while (true) {
    const Result<bool> more = file->next();
    if (!more) return more.error();
    if (!*more) return sorted(std::move(trace));
    TraceJob job;
    const Result<bool> ran = read_job(*file, columns, job);
    if (!ran) return ran.error();
    if (!*ran) {
      ++trace.skipped;
      continue;
    }
    const Result<Unit> more_read = rest(*file, job);
    if (!more_read) return more_read.error();
    trace.jobs.push_back(job);
  }
}

Result<Trace> read_muri(const std::string& path) {
  constexpr int64_t kGpus = 64;  // The published cluster: 8 nodes of 8.
  Words models;
  return read_csv(
      path, {"job_id", "num_gpu", "submit_time", "model_name", "duration"},
      {.submitted = 2, .run = 4, .size = 1, .submitted_unit = milliseconds(1), .run_unit = milliseconds(1)},
      {.jobs = {}, .queue_names = {}, .capacity = kGpus},
      [&](const CsvFile& file, TraceJob& job) -> Result<Unit> {
        const Result<int64_t> id = file.count(0, std::numeric_limits<int64_t>::max() / 2);
        if (!id) return id.error();
        job.id = static_cast<uint64_t>(*id);
        job.executable = models.number_of(file.field(3));
        return Unit{};
      });
}

Result<Trace> read_itp(const std::string& path) {
  return read_csv(path, {"job_id", "submission_time", "duration", "num_gpu"},
                  {.submitted = 1, .run = 2, .size = 3}, {},
                  [](const CsvFile&, TraceJob&) -> Result<Unit> { return Unit{}; });
}

Result<Trace> read_pai(const std::string& path) {
  return read_csv(path, {"job_id", "arrival_s", "service_sec", "gpu_count"},
                  {.submitted = 1, .run = 2, .size = 3}, {},
                  [](const CsvFile&, TraceJob&) -> Result<Unit> { return Unit{}; });
}

/// The number at the begin of `text`, which it is taken from with the separator behind it; -1: there is none.
int64_t take_number(std::string_view& text, char separator) {
  int64_t value = -1;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || value < 0) return -1;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  if (separator == '\0') return value;
  if (text.empty() || text.front() != separator) return -1;
  text.remove_prefix(1);
  return value;
}

/// "2017-10-09 07:01:55" as seconds since 1970; -1: it is none.
int64_t parse_date(std::string_view text) {
  const int64_t year = take_number(text, '-');
  const int64_t month = take_number(text, '-');
  const int64_t day = take_number(text, ' ');
  const int64_t hour = take_number(text, ':');
  const int64_t minute = take_number(text, ':');
  const int64_t second = take_number(text, '\0');
  const bool good = year >= 1970 && year <= 2100 && month >= 1 && month <= 12 && day >= 1 && day <= 31 &&
                    hour >= 0 && hour <= 23 && minute >= 0 && minute <= 59 && second >= 0 && second <= 60 &&
                    text.empty();
  if (!good) return -1;
  const auto field = [](int64_t number) { return static_cast<int32_t>(number); };
  return unix_second_of({field(year), field(month), field(day), field(hour), field(minute), field(second)});
}

Result<Trace> read_philly(const std::string& path) {
  Result<CsvFile> file = CsvFile::open(path, {"timestamp", "duration", "num_gpus", "cluster"});
  if (!file) return file.error();
  Trace trace;
  Words clusters;
  while (true) {
    const Result<bool> more = file->next();
    if (!more) return more.error();
    if (!*more) break;
    const int64_t at_s = parse_date(file->field(0));
    if (at_s < 0)
      return file->broken("column timestamp is not 'YYYY-MM-DD hh:mm:ss': " + std::string(file->field(0)));
    const Result<Duration> run = file->time(1, seconds(1));
    if (!run) return run.error();
    const Result<int64_t> size = file->count(2, kSizeMax);
    if (!size) return size.error();
    if (run->ns == 0 || *size == 0) {
      ++trace.skipped;
      continue;
    }
    TraceJob job{.id = file->line_number(), .submitted = {}, .run = *run, .requested = {}, .size = *size};
    job.submitted = seconds(at_s);
    job.queue = clusters.number_of(file->field(3));
    trace.jobs.push_back(job);
  }
  trace = sorted(std::move(trace));
  trace.queue_names = clusters.take_names();
  return trace;
}

Result<Trace> read_helios(const std::string& path) {
  Words users;
  Words tenants;
  Result<Trace> trace = read_csv(path, {"job_id", "user", "tenant", "submit_time", "num_chips", "duration_s"},
                                 {.submitted = 3, .run = 5, .size = 4, .submitted_unit = microseconds(1)}, {},
                                 [&](const CsvFile& file, TraceJob& job) -> Result<Unit> {
                                   const Result<int64_t> id =
                                       file.count(0, std::numeric_limits<int64_t>::max() / 2);
                                   if (!id) return id.error();
                                   job.id = static_cast<uint64_t>(*id);
                                   job.user = users.number_of(file.field(1));
                                   job.queue = tenants.number_of(file.field(2));
                                   return Unit{};
                                 });
  if (trace) trace->queue_names = tenants.take_names();
  return trace;
}

Result<Trace> read_openb(const std::string& path) {
  Result<CsvFile> file = CsvFile::open(path, {"name", "num_gpu", "qos", "creation_time", "deletion_time"});
  if (!file) return file.error();
  Trace trace;
  Words classes;
  while (true) {
    const Result<bool> more = file->next();
    if (!more) return more.error();
    if (!*more) break;
    const Result<Duration> from = file->time(3, seconds(1));
    if (!from) return from.error();
    const Result<Duration> to = file->time(4, seconds(1));
    if (!to) return to.error();
    if (*to < *from) return file->broken("was deleted before it was created");
    const Result<int64_t> size = file->count(1, kSizeMax);
    if (!size) return size.error();
    if (*size == 0 || *to == *from) {
      ++trace.skipped;
      continue;
    }
    TraceJob job{
        .id = file->line_number(), .submitted = *from, .run = *to - *from, .requested = {}, .size = *size};
    job.queue = classes.number_of(file->field(2));
    trace.jobs.push_back(job);
  }
  trace = sorted(std::move(trace));
  trace.queue_names = classes.take_names();
  return trace;
}

constexpr Format kFormats[] = {
    {"swf", "; comments, then 18 numbers per line (Standard Workload Format 2.2)",
     "submit, wait, run and requested times in s, -1 for unknown; the header's MaxProcs is the capacity",
     read_swf},
    {"muri",
     "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,...",
     "submit_time and duration in ms; 64 GPUs", read_muri},
    {"itp", "job_id,submission_time,duration,num_gpu",
     "times in s; the capacity is not given: use --pool or --nodes", read_itp},
    {"philly", "timestamp,duration,num_gpus,gpu_time,cluster",
     "timestamp YYYY-MM-DD hh:mm:ss, duration in s; cluster is the virtual cluster", read_philly},
    {"helios",
     "job_id,user,tenant,class,submit_time,num_chips,chip_type,num_nodes,duration_s,walltime_limit_s,final_"
     "status",
     "submit_time in us, duration_s in s; walltime_limit_s is the duration itself and never read",
     read_helios},
    {"openb",
     "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
     "scheduled_time",
     "times in s; a pod runs from its creation to its deletion; a share of a GPU counts as one, pods without "
     "are "
     "skipped",
     read_openb},
    {"pai", "job_id,arrival_s,service_sec,gpu_count", "times in s", read_pai},
};

}  // namespace

std::span<const Format> formats() { return kFormats; }

Result<Trace> read_trace(std::string_view format, const std::string& path) {
  std::string known;
  for (const Format& each : kFormats) {
    if (each.name == format) return each.read(path);
    known += (known.empty() ? "" : ", ") + std::string(each.name);
  }
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = "there is no format '" + std::string(format) + "'; there are " + known};
}

}  // namespace gpusched::replay

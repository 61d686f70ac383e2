#include "cli/verbs/jobs/job_columns.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "cli/commands.h"
#include "cli/terminal/output.h"
#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

Time time_of(const Json& job, std::string_view name) { return parse_rfc3339(job[name].text()); }

std::string relative(const Json& job, std::string_view name, Time now) {
  const Time time = time_of(job, name);
  return time.valid() ? format_relative(time, now) : "";
}

std::string cpus_text(const Json& job) {
  const double cores = cpu_count(job);
  return cores > 0 ? format_cores(cores) : "";
}

/// In thousandths.
int64_t gpus_order(const Json& job) {
  const int64_t milli = job_field(job, "gpu_milli").integer();
  return milli > 0 ? milli : job_field(job, "gpu_count").integer() * 1000;
}

int64_t cpus_order(const Json& job) {
  const Json milli = job_field(job, "cpu_milli");
  return milli.is_number() ? milli.integer() : std::llround(job["cpu_cores"].number() * 1000);
}

int64_t limit_seconds(const Json& job) {
  const Json milli = job["max_runtime_ms"];
  return milli.is_number() ? milli.integer() / 1000 : job["max_runtime_seconds"].integer();
}

std::string labels_text(const Json& job) {
  std::string out;
  for (const auto& [name, value] : job_field(job, "labels").members()) {
    if (!out.empty()) out += ",";
    out += name + "=" + value.text();
  }
  return out;
}

/// Sorts as text does.
int64_t by_text(const Json&, Time) { return 0; }

JobColumn text_column(std::string_view key, Column column, std::string_view field, std::string_view path) {
  return {.key = key,
          .column = std::move(column),
          .cell = [field](const Json& job, Time) { return Cell(job_field(job, field).text()); },
          .order = by_text,
          .fields = path};
}

JobColumn number_column(std::string_view key, Column column, std::string_view field, std::string_view path) {
  return {.key = key,
          .column = std::move(column),
          .cell = [field](const Json& job, Time) { return Cell(number_text(job_field(job, field))); },
          .order = [field](const Json& job, Time) { return job_field(job, field).integer(); },
          .fields = path,
          .descends = true};
}

JobColumn time_column(std::string_view key, Column column, std::string_view field) {
  return {.key = key,
          .column = std::move(column),
          .cell = [field](const Json& job, Time now) { return Cell(relative(job, field, now)); },
          .order = [field](const Json& job, Time) { return time_of(job, field).ns; },
          .fields = field,
          .descends = true};
}

/// "job-12[3]" of an element; "job-12[51-999]" of an array: what of it is no job of its own yet; of a line
/// that stands for several elements theirs.
std::string shown_id(const Json& job) {
  const std::string folded = job[kFoldedId].text();
  if (!folded.empty()) return folded;
  const std::string array = job["array_id"].text();
  if (!array.empty()) return array + "[" + std::to_string(job["array_index"].integer()) + "]";
  const std::string rest = job["array"]["unexpanded"].text();
  return job_id_of(job) + (rest.empty() ? "" : "[" + rest + "]");
}

JobColumn id_column() {
  return {.key = "id",
          .column = {.title = "ID"},
          .cell = [](const Json& job, Time) { return Cell(shown_id(job)); },
          .order = [](const Json& job, Time) { return job_number(job_id_of(job)); },
          .fields = "array_id,array_index,array",
          .descends = true};
}

JobColumn state_column() {
  return {.key = "state",
          .column = {.title = "STATE"},
          .cell =
              [](const Json& job, Time) {
                std::string state = shown_state(job);
                const Style style = never_starts(job) ? Style::kBad : style_of_state(job["state"].text());
                return Cell(std::move(state), style);
              },
          .order = by_text,
          .fields = "state,held,reason,message"};
}

/// Where it runs or ran; of what waits or went wrong, why.
std::string where_text(const Json& job) {
  const std::string state = job["state"].text();
  const std::string message = with_local_times(job["message"].text());
  if (!job[kFoldedId].text().empty() || state == "failed" || shown_state(job) == "held") return message;
  // The word first: a narrow terminal cuts the sentence.
  if (state == "pending") return job["reason"].text() + (message.empty() ? "" : ": ") + message;
  if (state == "cancelled" && message != "was cancelled") return message;
  std::string node = job["node_name"].text();
  const std::size_t members = job["members"].items().size();
  if (members > 1) node += " and " + std::to_string(members - 1) + " more";
  return node;
}

JobColumn where_column() {
  return {.key = "where",
          .column = {.title = "NODE/REASON", .may_shrink = true},
          .cell = [](const Json& job, Time) { return Cell(where_text(job)); },
          .order = by_text,
          .fields = "node_name,members,reason,message,held"};
}

/// By its name where that is known.
JobColumn tenant_column() {
  return {.key = "tenant",
          .column = {.title = "TENANT", .may_shrink = true, .drop_order = 3},
          .cell =
              [](const Json& job, Time) {
                std::string name = job["tenant_name"].text();
                return Cell(name.empty() ? job["tenant_id"].text() : std::move(name));
              },
          .order = by_text,
          .fields = "tenant_id"};
}

JobColumn gpus_column() {
  return {.key = "gpus",
          .column = {.title = "GPUS", .right = true},
          .cell =
              [](const Json& job, Time) {
                const int64_t milli = job_field(job, "gpu_milli").integer();
                const std::string profile = job_field(job, "mig_profile").text();
                if (!profile.empty()) return Cell(profile);
                return Cell(milli > 0 ? format_share(milli) : number_text(job_field(job, "gpu_count")));
              },
          .order = [](const Json& job, Time) { return gpus_order(job); },
          .fields = "resources.gpu_count,resources.gpu_milli,resources.mig_profile",
          .descends = true};
}

JobColumn cpus_column() {
  return {.key = "cpus",
          .column = {.title = "CPUS", .right = true, .drop_order = 8},
          .cell = [](const Json& job, Time) { return Cell(cpus_text(job)); },
          .order = [](const Json& job, Time) { return cpus_order(job); },
          .fields = "resources.cpu_milli",
          .descends = true};
}

JobColumn mem_column() {
  return {.key = "mem",
          .column = {.title = "MEM", .right = true, .drop_order = 8},
          .cell = [](const Json& job, Time) { return Cell(size_text(job_field(job, "memory_mb"))); },
          .order = [](const Json& job, Time) { return job_field(job, "memory_mb").integer(); },
          .fields = "resources.memory_mb",
          .descends = true};
}

JobColumn user_column() {
  return {.key = "user",
          .column = {.title = "USER", .may_shrink = true, .drop_order = 5},
          .cell = [](const Json& job, Time) { return Cell(job_user(job)); },
          .order = by_text,
          .fields = "spec.user,spec.submitter,owner,submitted_by"};
}

JobColumn limit_column() {
  return {.key = "limit",
          .column = {.title = "LIMIT", .right = true, .drop_order = 7},
          .cell =
              [](const Json& job, Time) {
                const int64_t limit = limit_seconds(job);
                return Cell(limit > 0 ? format_duration(limit) : "");
              },
          .order = [](const Json& job, Time) { return limit_seconds(job); },
          .fields = "max_runtime_ms",
          .descends = true};
}

JobColumn ran_column() {
  return {.key = "ran",
          .column = {.title = "RAN", .right = true, .drop_order = 4},
          .cell =
              [](const Json& job, Time now) {
                const int64_t ran = run_seconds(job, now);
                return Cell(ran < 0 ? "" : format_duration(ran));
              },
          .order = run_seconds,
          .fields = "started_at,completed_at",
          .descends = true};
}

/// A number of the job's `usage`, and how it is written; empty where it is not known.
JobColumn usage_column(std::string_view key, Column column, std::string_view field,
                       std::string (*text)(const Json& job)) {
  return {.key = key,
          .column = std::move(column),
          .cell = [text](const Json& job, Time) { return Cell(text(job)); },
          .order = [field](const Json& job, Time) { return job["usage"][field].integer(); },
          .fields = "usage",
          .descends = true};
}

JobColumn place_column() {
  return {.key = "place",
          .column = {.title = "PLACE", .right = true, .drop_order = 6},
          .cell =
              [](const Json& job, Time) {
                const int64_t place = job["queue_position"].integer();
                return Cell(place > 0 ? std::to_string(place) : "");
              },
          .order =
              [](const Json& job, Time) {
                const int64_t place = job["queue_position"].integer();
                return place > 0 ? place : INT64_MAX;
              },
          .fields = "queue_position"};
}

JobColumn labels_column() {
  return {.key = "labels",
          .column = {.title = "LABELS", .may_shrink = true, .drop_order = 9},
          .cell = [](const Json& job, Time) { return Cell(labels_text(job)); },
          .order = by_text,
          .fields = "spec.labels"};
}

JobColumn command_column() {
  return {.key = "command",
          .column = {.title = "COMMAND", .may_shrink = true, .drop_order = 10},
          .cell =
              [](const Json& job, Time) {
                const bool external = job_field(job, "executor").text() == "external";
                return Cell(external ? "(external)" : job_command_text(job));
              },
          .order = by_text,
          .fields = "spec.command,spec.args,spec.script,spec.executor"};
}

std::vector<JobColumn> make_columns() {
  return {
      id_column(),
      text_column("name", {.title = "NAME", .may_shrink = true}, "name", "spec.name"),
      state_column(),
      text_column("reason", {.title = "REASON", .may_shrink = true, .drop_order = 6}, "reason", "reason"),
      gpus_column(),
      text_column("model", {.title = "MODEL", .may_shrink = true, .drop_order = 9}, "gpu_model",
                  "resources.gpu_model"),
      cpus_column(),
      mem_column(),
      number_column("priority", {.title = "PRIORITY", .right = true, .drop_order = 2}, "priority",
                    "priority"),
      tenant_column(),
      user_column(),
      text_column("node", {.title = "NODE", .may_shrink = true, .drop_order = 5}, "node_name", "node_name"),
      limit_column(),
      time_column("submitted", {.title = "SUBMITTED", .right = true, .drop_order = 1}, "submitted_at"),
      time_column("started", {.title = "STARTED", .right = true, .drop_order = 7}, "started_at"),
      time_column("ended", {.title = "ENDED", .right = true, .drop_order = 7}, "completed_at"),
      ran_column(),
      usage_column("peak_memory", {.title = "PEAK-MEM", .right = true, .drop_order = 8}, "peak_memory_bytes",
                   peak_memory_text),
      usage_column("cpu_time", {.title = "CPU-TIME", .right = true, .drop_order = 8}, "cpu_ms",
                   cpu_time_text),
      usage_column("gpu_use", {.title = "GPU-USE", .right = true, .drop_order = 8}, "gpu_use_permille",
                   gpu_use_text),
      where_column(),
      place_column(),
      number_column("attempts", {.title = "TRIES", .right = true, .drop_order = 8}, "attempts", "attempts"),
      number_column("exit", {.title = "EXIT", .right = true, .drop_order = 8}, "exit_code", "exit_code"),
      labels_column(),
      command_column(),
      text_column("message", {.title = "MESSAGE", .may_shrink = true, .drop_order = 10}, "message",
                  "message")};
}

}  // namespace

std::string number_text(const Json& value) {
  return value.is_number() ? std::to_string(value.integer()) : std::string();
}

std::string size_text(const Json& value) {
  return value.integer() > 0 ? format_size_mb(value.integer()) : std::string();
}

Json job_field(const Json& job, std::string_view name) {
  Json value = job[name];
  if (value.is_null()) value = job["spec"][name];
  if (value.is_null()) value = job["resources"][name];
  return value;
}

std::string job_user(const Json& job) {
  constexpr std::string_view kPerson = "person ";
  std::string user = job_field(job, "user").text();
  if (user.empty()) user = job_field(job, "submitter").text();
  if (!user.empty()) return user;
  const std::string owner = job["owner"].text();
  if (owner.starts_with(kPerson)) return owner.substr(kPerson.size());
  const std::string by = job["submitted_by"].text();
  return by.substr(0, by.find('@'));
}

std::string job_id_of(const Json& job) {
  std::string id = job["id"].text();
  return id.empty() ? job["job_id"].text() : id;
}

int64_t job_number(std::string_view id) {
  const size_t dash = id.rfind('-');
  int64_t number = -1;
  const char* const begin = id.data() + (dash == std::string_view::npos ? 0 : dash + 1);
  const auto [stop, failure] = std::from_chars(begin, id.data() + id.size(), number);
  return failure == std::errc{} && stop == id.data() + id.size() ? number : -1;
}

int64_t run_seconds(const Json& job, Time now) {
  const Time started = time_of(job, "started_at");
  if (!started.valid()) return -1;
  const Time ended = time_of(job, "completed_at");
  return std::max<int64_t>(0, ((ended.valid() ? ended : now) - started).ns / kSecond);
}

double cpu_count(const Json& job) {
  const Json milli = job_field(job, "cpu_milli");
  return milli.is_number() ? milli.number() / 1000 : job["cpu_cores"].number();
}

std::string peak_memory_text(const Json& job) {
  const Json bytes = job["usage"]["peak_memory_bytes"];
  return bytes.is_number() ? format_size_mb(std::max<int64_t>(bytes.integer() >> 20, 1)) : std::string();
}

std::string cpu_time_text(const Json& job) {
  const Json ms = job["usage"]["cpu_ms"];
  if (!ms.is_number()) return {};
  const int64_t seconds = ms.integer() / 1'000;
  if (seconds >= 60) return format_duration(seconds);
  const std::string hundredths = std::to_string(ms.integer() % 1'000 / 10 + 100).substr(1);
  return std::to_string(seconds) + "." + hundredths + "s";
}

std::string gpu_use_text(const Json& job) {
  const Json permille = job["usage"]["gpu_use_permille"];
  return permille.is_number() ? std::to_string((permille.integer() + 5) / 10) + " %" : std::string();
}

std::string job_command_text(const Json& job) {
  std::string script = job_field(job, "script").text();
  std::string out;
  for (const Json& words : {job_field(job, "command"), job_field(job, "args")}) {
    for (const Json& word : words.items()) {
      const std::string text = word.text();
      const bool plain = !text.empty() && text.find_first_of(" \t\n\"'\\$*?;|&<>()") == std::string::npos;
      if (!out.empty()) out += ' ';
      out += plain ? text : "'" + text + "'";
    }
  }
  if (out.empty()) out = std::move(script);
  while (out.ends_with('\n')) out.pop_back();
  const size_t line_end = out.find('\n');
  return line_end == std::string::npos ? out : out.substr(0, line_end) + " …";
}

bool never_starts(const Json& job) {
  // The codes of waiting that only a new node or new labels lift: src/engine/planner/wait_reason.h.
  constexpr std::string_view kNever[] = {"no_matching_gpu", "too_large", "no_feature",    "no_labels",
                                         "no_such_layout",  "no_domain", "gang_too_large"};
  return job["state"].text() == "pending" && !job["held"].boolean() &&
         std::ranges::find(kNever, job["reason"].text()) != std::end(kNever);
}

std::string shown_state(const Json& job) {
  std::string state = job["state"].text();
  if (state == "pending" && job["held"].boolean()) return "held";
  if (never_starts(job)) return "pending (never)";
  const std::string message = job["message"].text();
  const bool stopping = (state == "running" && message.starts_with("is being stopped")) ||
                        (state == "scheduled" && message.starts_with("is being cancelled"));
  return stopping ? "stopping" : state;
}

const std::vector<JobColumn>& job_columns() {
  static const std::vector<JobColumn> kColumns = make_columns();
  return kColumns;
}

const JobColumn* find_job_column(std::string_view key) {
  const auto found = std::ranges::find(job_columns(), key, &JobColumn::key);
  return found == job_columns().end() ? nullptr : &*found;
}

std::vector<std::string> job_column_keys() {
  std::vector<std::string> keys;
  for (const JobColumn& column : job_columns()) keys.emplace_back(column.key);
  return keys;
}

const std::vector<std::string>& wide_job_columns() {
  static const std::vector<std::string> kKeys = {
      "id",     "name", "state", "reason",    "gpus", "model", "cpus",     "mem",  "priority",
      "tenant", "user", "node",  "submitted", "ran",  "limit", "attempts", "exit", "labels"};
  return kKeys;
}

std::string fields_of(const std::vector<std::string>& keys) {
  std::vector<std::string> fields = {"job_id", "state"};
  for (const std::string& key : keys) {
    const JobColumn* const column = find_job_column(key);
    CHECK(column != nullptr);
    for (std::string& field : comma_list(std::string(column->fields))) {
      if (std::ranges::find(fields, field) == fields.end()) fields.push_back(std::move(field));
    }
  }
  std::string out;
  for (const std::string& field : fields) out += (out.empty() ? "" : ",") + field;
  return out;
}

void sort_jobs(std::vector<Json>& jobs, const std::string& keys, Time now) {
  struct Keyed {
    std::vector<std::pair<int64_t, std::string>> values;
    size_t at = 0;
  };
  struct Key {
    const JobColumn* column = nullptr;
    bool descends = false;
  };
  std::vector<Key> order;
  for (size_t begin = 0; begin <= keys.size();) {
    const size_t end = std::min(keys.find(',', begin), keys.size());
    std::string_view key = std::string_view(keys).substr(begin, end - begin);
    const bool turned = key.starts_with('-');
    if (turned || key.starts_with('+')) key.remove_prefix(1);
    const JobColumn* const column = find_job_column(key);
    CHECK(column != nullptr);
    order.push_back({column, column->descends != turned});
    begin = end + 1;
  }
  std::vector<Keyed> keyed(jobs.size());
  for (size_t i = 0; i < jobs.size(); ++i) {
    keyed[i].at = i;
    for (const Key& key : order) {
      const int64_t number = key.column->order(jobs[i], now);
      keyed[i].values.emplace_back(number, number == 0 ? key.column->cell(jobs[i], now).text : std::string());
    }
  }
  std::ranges::stable_sort(keyed, [&](const Keyed& a, const Keyed& b) {
    for (size_t i = 0; i < order.size(); ++i) {
      if (a.values[i] == b.values[i]) continue;
      return order[i].descends ? b.values[i] < a.values[i] : a.values[i] < b.values[i];
    }
    return false;
  });
  std::vector<Json> sorted;
  sorted.reserve(jobs.size());
  for (const Keyed& one : keyed) sorted.push_back(std::move(jobs[one.at]));
  jobs = std::move(sorted);
}

Table job_table(const std::vector<Json>& jobs, const std::vector<std::string>& keys, Time now,
                Narrow narrow) {
  std::vector<const JobColumn*> columns;
  std::vector<Column> heads;
  for (const std::string& key : keys) {
    columns.push_back(find_job_column(key));
    CHECK(columns.back() != nullptr);
    heads.push_back(columns.back()->column);
    if (narrow == Narrow::kWraps) heads.back().drop_order = 0;
  }
  Table table(std::move(heads));
  if (narrow == Narrow::kDrops) table.hide_dropped();
  for (const Json& job : jobs) {
    std::vector<Cell> cells;
    cells.reserve(columns.size());
    for (const JobColumn* const column : columns) cells.push_back(column->cell(job, now));
    table.add(std::move(cells));
  }
  return table;
}

}  // namespace gpusched::cli

#include "api/fields/job_rows.h"

#include <algorithm>
#include <array>

#include "api/fields/checks.h"
#include "api/fields/door_rows.h"
#include "base/check.h"
#include "base/limits.h"
#include "model/types.h"

namespace gpusched::api {
namespace {

using F = JobFields;

constexpr std::size_t kImageBytesMax = 1'024;
constexpr std::size_t kCommentBytesMax = 1'024;

/// A row in the making: each call says one thing more.
struct Row : JobRow {
  constexpr Row from(int64_t lowest) const {
    Row row = *this;
    row.least = lowest;
    return row;
  }
  constexpr Row up_to(int64_t highest) const {
    Row row = *this;
    row.most = highest;
    return row;
  }
  constexpr Row in(DoorUnit of_door) const {
    Row row = *this;
    row.unit = of_door;
    return row;
  }
  constexpr Row hinted(std::string_view text) const {
    Row row = *this;
    row.hint = text;
    return row;
  }
  constexpr Row at_door(JobPlace elsewhere) const {
    Row row = *this;
    row.door_place = elsewhere;
    return row;
  }
  constexpr Row said_natively() const {
    Row row = *this;
    row.native_range = true;
    return row;
  }
  constexpr Row is_plain() const {
    Row row = *this;
    row.plain = true;
    return row;
  }
  constexpr Row is_shown() const {
    Row row = *this;
    row.shown = true;
    return row;
  }
  constexpr Row can_change() const {
    Row row = *this;
    row.changeable = true;
    return row;
  }
};

constexpr std::string_view kSameName = "=";  ///< At the jobs door.
constexpr std::string_view kNoDoor = "";
constexpr std::monostate kNoPlace;

constexpr Row row_of(JobMessage message, int number, std::string_view name, std::string_view door,
                     JobPlace place, std::string_view meaning) {
  return {{.message = message,
           .number = number,
           .name = name,
           .door = door == kSameName ? name : door,
           .place = place,
           .meaning = meaning}};
}
constexpr Row spec(int number, std::string_view name, std::string_view door, JobPlace place,
                   std::string_view meaning) {
  return row_of(JobMessage::kSpec, number, name, door, place, meaning);
}
constexpr Row resources(int number, std::string_view name, std::string_view door, JobPlace place,
                        std::string_view meaning) {
  return row_of(JobMessage::kResources, number, name, door, place, meaning);
}
constexpr Row retry(int number, std::string_view name, std::string_view door, JobPlace place,
                    std::string_view meaning) {
  return row_of(JobMessage::kRetry, number, name, door, place, meaning);
}
constexpr Row request(int number, std::string_view name, std::string_view door, JobPlace place,
                      std::string_view meaning) {
  return row_of(JobMessage::kRequest, number, name, door, place, meaning);
}
constexpr Row door_only(std::string_view name, JobPlace place, std::string_view meaning) {
  return row_of(JobMessage::kNone, 0, name, kSameName, place, meaning);
}

// Message, number, name, name at the jobs door, place, meaning.
constexpr JobRow kRows[] = {
    spec(1, "name", kSameName, &F::name, "name for people and in lists")
        .up_to(limits::kNameBytesMax)
        .is_plain()
        .can_change(),
    spec(2, "command", kSameName, &F::command,
         "the program and its arguments, run without a shell; together with `args` at most 4,096 entries")
        .hinted(R"(, such as ["python","train.py"]; to run a line in a shell, use script)")
        .is_plain(),
    spec(3, "args", kSameName, &F::args, "appended to `command`, or given to `script` as its arguments")
        .hinted(R"(, such as ["--epochs","3"])")
        .is_plain(),
    spec(4, "script", kSameName, &F::script,
         "run by the interpreter of its `#!` line as a file of the node, else by `/bin/sh -c`; instead of "
         "`command`")
        .is_plain(),
    spec(5, "image", kSameName, &F::image,
         "the container image; the job waits while no node can run containers ([containers](containers.md))")
        .up_to(kImageBytesMax),
    spec(6, "environment", kSameName, &F::environment,
         "environment variables, at most 1,024; the variables that name its devices always take precedence")
        .hinted(R"(, such as {"NAME":"value"})")
        .is_plain(),
    spec(7, "labels", kSameName, &F::labels, "labels, at most 64, with names and values of at most 253 bytes")
        .hinted(R"(, such as {"team":"a"})")
        .is_plain(),
    spec(8, "working_directory", kSameName, &F::working_directory,
         "absolute path of the working directory; if it cannot be entered, the job does not start; if "
         "omitted: the attempt's own folder")
        .up_to(kPathBytesMax),
    spec(9, "gang_scheduling", kSameName, &F::gang_scheduling,
         "if no node has enough GPUs, they may be on several nodes, and the command runs once on each"),
    spec(10, "checkpoint_enabled", kSameName, &F::checkpoint_enabled, "stored and shown only").is_plain(),
    spec(11, "submitter", kNoDoor, &F::submitter,
         "the submitter, as known to a gateway in front of this API"),
    spec(12, "user", kSameName, &F::user,
         "user on the node that it runs as, by name or number; if omitted: the agent's default "
         "([box](box.md))"),
    spec(13, "stdout_path", kSameName, &F::stdout_path,
         "absolute path on the node for standard output, opened as the user and appended to; if omitted: the "
         "agent keeps the output"),
    spec(14, "stderr_path", kSameName, &F::stderr_path, "the same for standard error"),
    spec(15, "stdin_path", kSameName, &F::stdin_path, "absolute path on the node for standard input"),
    spec(16, "umask", kSameName, &F::umask, "0 to 511").hinted(", such as 18 for 0022"),
    spec(17, "limits", kSameName, &F::limits,
         "resource limits by name (`nofile memlock core nproc stack` ...); -1 is unlimited; at most 32")
        .hinted(R"(, such as {"nofile":65536})"),
    spec(18, "mounts", kSameName, &F::mounts,
         "mounts of a container, from the node's allow-list; at the jobs door `[\"/data:/data:ro\"]`")
        .hinted(R"(, such as ["/data:/data:ro"])")
        .at_door(&F::mount_texts),
    spec(19, "container_workdir_mount", kSameName, &F::container_workdir_mount,
         "path of `working_directory` in the container; if omitted: the same path"),
    spec(20, "pull", kSameName, &F::pull,
         "when the image is pulled: `if_missing` (the default), `always` or `never`"),
    spec(21, "registry_credential", kSameName, &F::registry_credential,
         "name of the tenant's registry credential on the node, never the secret itself; at most 253 bytes"),
    spec(22, "container_arguments", kSameName, &F::container_arguments,
         "further options of the container runtime, from the node's allow-list; at most 64"),
    spec(23, "image_digest", kSameName, &F::image_digest,
         "`sha256:` and 64 hexadecimal digits: runs exactly this content"),
    spec(24, "working_directory_optional", kSameName, &F::working_directory_optional,
         "if `working_directory` cannot be entered, the job runs in the attempt's own folder, and its "
         "standard error says so"),
    spec(25, "preempt_signal", kSameName, &F::preempt_signal,
         "signal sent on preemption instead of SIGTERM, such as `USR1`: [the "
         "handshake](../policies.md#ending-others-schedulerenable_preemption)")
        .hinted(", such as USR1")
        .is_shown(),
    spec(26, "preempt_grace_ms", "preempt_grace_seconds", &F::preempt_grace_ms,
         "grace period after that signal, which ends earlier once the job reports that its work is saved; at "
         "most `scheduler.preempt_grace_max_seconds`")
        .up_to(limits::kPreemptGraceSecondsMax * 1'000)
        .in(DoorUnit::kSeconds)
        .said_natively()
        .is_shown(),
    spec(27, "preempt_webhook", kSameName, &F::preempt_webhook,
         "`http://` URL that is notified of the preemption; its host must be one of "
         "`scheduler.preempt_webhook_hosts`")
        .up_to(limits::kPreemptUrlBytesMax)
        .is_shown(),
    spec(50, "anonymous", kNoDoor, kNoPlace,
         "set by the scheduler if the caller may not run jobs as root, such as one without a credential "
         "([who calls](rest.md#who-calls)): its node does not run it as root"),
    spec(60, "idle_after_ms", "idle_after_seconds", &F::idle_after_ms,
         "idle time of its GPUs after which it gets a warning, within the operator's limits "
         "([watchdogs](gpu-health.md#watchdogs))")
        .up_to(limits::kRuntimeMax.ms())
        .in(DoorUnit::kSeconds)
        .is_shown(),
    spec(61, "idle_action", kSameName, &F::idle_action,
         "action at that time: `warn` only, `requeue` or `cancel`")
        .hinted(", warn, requeue or cancel")
        .is_shown(),
    spec(62, "hung_after_ms", "hung_after_seconds", &F::hung_after_ms,
         "time of fully busy GPUs without output after which it gets a warning")
        .up_to(limits::kRuntimeMax.ms())
        .in(DoorUnit::kSeconds)
        .is_shown(),
    spec(63, "hung_action", kSameName, &F::hung_action,
         "action at that time: `warn` only, `requeue` or `cancel`")
        .hinted(", warn, requeue or cancel")
        .is_shown(),
    spec(64, "memory_unlimited", kNoDoor, &F::memory_unlimited, "no memory limit, as with `memory_mb` 0")
        .is_shown(),
    spec(65, "comment", kSameName, &F::comment,
         "free text for people, stored and shown; an update may change it")
        .up_to(kCommentBytesMax)
        .is_shown()
        .can_change(),
    spec(66, "secret_variables", kSameName, &F::secret_variables,
         "names of variables in `environment` whose values nobody is shown, the submitter included; the job "
         "has "
         "them ([secrets](rest.md#secrets-of-a-job))")
        .hinted(R"(, such as ["HUB_TOKEN"])"),
    spec(69, "executor", kNoDoor, &F::executor,
         "who starts it: `process` (also if empty) the agent of its node, `external` another program, on "
         "nodes "
         "that it registered: [external jobs](external-jobs.md)")
        .hinted(", process or external")
        .is_shown(),
    resources(1, "gpu_count", kSameName, &F::gpu_count,
              "number of GPUs; with `nodes`: at the jobs door the total of all nodes, in the native API "
              "those of each node")
        .up_to(limits::kGpusPerJobMax)
        .is_plain(),
    resources(2, "gpu_memory_mb", kSameName, &F::gpu_memory_mb,
              "total memory of all GPUs of the job: each must have its part, rounded up; for a share of a "
              "GPU: the memory of the share")
        .up_to(limits::kMegabytesMax)
        .is_plain(),
    resources(3, "gpu_model", kSameName, &F::gpu_model,
              "GPU model, such as `A100`, or `H100,A100`: any of these, preferably the first; if omitted: "
              "any model, but the same for all GPUs")
        .up_to(limits::kNameBytesMax),
    resources(4, "cpu_milli", "cpu_cores", &F::cpu_milli,
              "CPU cores; if omitted: one; with `nodes`: on each node")
        .up_to(int64_t{limits::kCpuCoresMax} * 1'000)
        .in(DoorUnit::kCores)
        .said_natively()
        .is_plain(),
    resources(5, "memory_mb", kSameName, &F::memory_mb,
              "memory; if omitted: [in proportion to its share of the node](box.md#memory); 0: no limit; "
              "with `nodes`: on each node")
        .up_to(limits::kMegabytesMax)
        .is_plain(),
    resources(6, "gpu_milli", kSameName, &F::gpu_milli,
              "a share of one GPU, in thousandths, instead of `gpu_count` ([gpus](gpus.md))")
        .up_to(kMilliPerGpu - 1),
    resources(30, "mig_profile", kSameName, &F::mig_profile,
              "a MIG slice, such as `1g.10gb`, instead of `gpu_count`, `gpu_milli` and `gpu_memory_mb` "
              "([mig](mig.md))")
        .hinted(R"(, such as "1g.10gb")"),
    resources(40, "nodes", kSameName, &F::nodes,
              "number of nodes, allocated all at once; the command runs once on each: [gangs](gangs.md)")
        .up_to(limits::kMembersMax),
    resources(41, "nodes_max", kSameName, &F::nodes_max,
              "maximum number of nodes: as many as fit when the job starts")
        .up_to(limits::kMembersMax),
    resources(42, "domain", kSameName, &F::domain,
              "`node`, `rack`, `block` or `zone`: keep all its nodes within one, if they fit; if omitted: "
              "the smallest that holds them")
        .hinted(", node, rack, block or zone"),
    resources(43, "domain_required", kSameName, &F::domain_required,
              "wait until the nodes fit within one `domain`"),
    resources(50, "node_labels", kSameName, &F::node_labels,
              "only nodes with all of these labels, `name=value` or `name`: [requests](requests.md)")
        .hinted(R"(, such as ["zone=eu"])"),
    resources(51, "without_labels", kSameName, &F::without_labels, "only nodes with none of these labels")
        .hinted(R"(, such as ["spot"])"),
    resources(52, "exclusive", kSameName, &F::exclusive,
              "exclusive node: no other job runs there at the same time"),
    resources(53, "gpu_layout", kSameName, &F::gpu_layout,
              "arrangement of the GPUs: `pack` (fastest links, the default), `spread` or `contiguous`")
        .hinted(", pack, spread or contiguous"),
    resources(54, "gpu_ids", kSameName, &F::gpu_ids,
              "exactly these GPUs: all by index on the node, or all by UUID")
        .hinted(R"(, such as ["0","1"])"),
    resources(55, "gpu_bandwidth_gbs", kSameName, &F::gpu_bandwidth_gbs,
              "minimum GB/s between any two of its GPUs; at most 1,000,000"),
    resources(56, "gpu_memory_each_mb", kSameName, &F::gpu_memory_each_mb,
              "minimum memory of each GPU; shown in `gpu_memory_mb`")
        .up_to(limits::kMegabytesMax),
    retry(1, "exit_code_retries", "retries", &F::retries, "retries after a failing exit; if omitted: none")
        .up_to(limits::kRetriesMax)
        .said_natively(),
    retry(2, "system_retries", kNoDoor, &F::system_retries,
          "retries after failures of the system, such as a lost node; 0: 16; -1: none")
        .from(-1)
        .up_to(limits::kRetriesMax)
        .said_natively(),
    retry(3, "overlap_allowed", kNoDoor, &F::overlap_allowed,
          "a retry may start while the lost attempt may still run"),
    retry(4, "kill_after_lost_contact_ms", kNoDoor, &F::kill_after_lost_contact_ms,
          "time without contact with the scheduler after which its node stops it; 0: never"),
    retry(5, "on", "retry_on", &F::retry_on,
          "causes that are retried: `exit_code`, or `exit_code:75` for that code alone, `signal`, "
          "`out_of_memory`, `over_limit`, `timeout`; if omitted: all but the last ([workflow](workflow.md))")
        .hinted(R"(, such as ["exit_code:75","signal"])"),
    retry(40, "on_node_loss", kSameName, &F::on_node_loss,
          "for jobs on several nodes, when one is lost: `end` the attempt (the default), or `continue` [on "
          "the remaining nodes](gangs.md#going-on-without-a-lost-node)")
        .hinted(", end or continue"),
    request(3, "priority", kSameName, &F::priority,
            "if omitted: `scheduler.default_priority` (100); the tenant's tier is added; the jobs door also "
            "accepts `low` (100), `medium` (500), `high` (1000) and `critical` (5000)")
        .from(-limits::kPriorityMax)
        .up_to(limits::kPriorityMax)
        .is_plain(),
    request(4, "max_runtime_ms", "max_runtime_seconds", &F::max_runtime_ms,
            "time limit, after which it is stopped and fails with `timeout`; 0 or omitted: no limit")
        .up_to(limits::kRuntimeMax.ms())
        .in(DoorUnit::kSeconds)
        .said_natively()
        .is_plain(),
    request(
        6, "require_feasible", kSameName, &F::require_feasible,
        "refuse the job if no registered node can ever run it; otherwise it waits, with that as its reason")
        .is_plain(),
    request(7, "held", kSameName, &F::held, "held: it waits until it is released").is_plain(),
    request(8, "begin_at", kSameName, &F::begin_at, "earliest start ([workflow](workflow.md))")
        .hinted(", such as 2025-01-31T09:00:00Z"),
    request(9, "begin_after_ms", "begin_after_seconds", &F::begin_after_ms, "the same from now on")
        .up_to(limits::kBeginMax.ms())
        .in(DoorUnit::kSeconds),
    request(10, "deadline", kSameName, &F::deadline, "the job fails if it has not started by then")
        .hinted(", such as 2025-01-31T09:00:00Z"),
    request(11, "deadline_after_ms", "deadline_after_seconds", &F::deadline_after_ms, "the same from now on")
        .up_to(limits::kBeginMax.ms())
        .in(DoorUnit::kSeconds),
    request(12, "dependencies", kSameName, &F::dependencies,
            "`after_ok:job-12`, `after_any:job-12` or `after_start:job-12`, at most 64: all must hold; in "
            "the native API `after_ok:#0` names an earlier job of the same request")
        .hinted(R"(, such as ["after_ok:job-12"])"),
    request(13, "on_parent_failure", kSameName, &F::on_parent_failure,
            "when a dependency can no longer be met: `cancel` the job (the default), or let it `wait`")
        .hinted(", cancel or wait"),
    request(14, "array", kSameName, &F::array,
            "an array, with one element per index: `0-999%50`, at most fifty at a time")
        .hinted(", such as 0-999%50"),
    request(40, "preemption_mode", kSameName, &F::preemption_mode,
            "when it is preempted: `requeue` (the default) or `cancel`"),
    request(45, "reservation", kSameName, &F::reservation,
            "name of a reservation: the job runs only on its nodes, while it is active")
        .up_to(limits::kNameBytesMax),
    request(46, "parts", kNoDoor, kNoPlace,
            "several parts instead of `resources`, each with `resources`, `members` and `members_max`: "
            "[gangs](gangs.md)"),
    request(47, "own_nodes", kNoDoor, kNoPlace, "with `parts`: each member on a node of its own"),
    request(60, "work_class", kSameName, &F::work_class,
            "`online` or `batch`, for pools; if omitted: by its priority"),
    request(80, "interactive", kSameName, &F::interactive,
            "the job starts within `scheduler.interactive_wait_seconds` or fails with the reason "
            "`not_at_once`; for small, short jobs only"),
    door_only("max_runtime_minutes", &F::runtime_by_minutes_ms, "instead of `max_runtime_seconds`")
        .up_to(limits::kRuntimeMax.ms())
        .in(DoorUnit::kMinutes),
    door_only("gpus_per_node", &F::gpus_per_node, "with `nodes`, instead of `gpu_count`")
        .up_to(limits::kDevicesPerNodeMax),
};

std::string_view prefix_of(JobMessage message) {
  switch (message) {
    case JobMessage::kSpec:
      return "spec.";
    case JobMessage::kResources:
      return "resources.";
    case JobMessage::kRetry:
      return "retry.";
    case JobMessage::kRequest:
    case JobMessage::kNone:
      return "";
  }
  UNREACHABLE();
}

/// A number in its own unit; of a text the length is bounded. Nothing when it is not given.
struct Measure {
  const JobFields& fields;
  std::optional<int64_t> operator()(std::monostate) const { return std::nullopt; }
  std::optional<int64_t> operator()(std::optional<std::string> JobFields::*) const { return std::nullopt; }
  std::optional<int64_t> operator()(std::optional<int64_t> JobFields::* place) const { return fields.*place; }
  std::optional<int64_t> operator()(std::optional<NumberOrWord> JobFields::* place) const {
    const std::optional<NumberOrWord>& given = fields.*place;
    const int64_t* const number = given ? std::get_if<int64_t>(&*given) : nullptr;
    return number == nullptr ? std::nullopt : std::optional(*number);
  }
  template <typename Other>
  std::optional<int64_t> operator()(Other) const {
    return std::nullopt;
  }
};

/// An order of names in which most are told apart without looking at their letters.
constexpr bool is_before(std::string_view name, std::string_view other) {
  return name.size() != other.size() ? name.size() < other.size() : name < other;
}

/// Rows that the jobs door has, by its names.
constexpr std::size_t kDoorCount = static_cast<std::size_t>(
    std::ranges::count_if(kRows, [](const JobRow& row) { return !row.door.empty(); }));
constexpr std::array<const JobRow*, kDoorCount> kByDoor = [] {
  std::array<const JobRow*, kDoorCount> rows{};
  std::size_t count = 0;
  for (const JobRow& row : kRows) {
    if (!row.door.empty()) rows[count++] = &row;
  }
  std::ranges::sort(rows, is_before, &JobRow::door);
  return rows;
}();

/// A row with bounds, and its place as those that are most have it.
struct BoundedRow {
  const JobRow* row = nullptr;
  std::optional<std::string> JobFields::* text = nullptr;
  std::optional<int64_t> JobFields::* number = nullptr;

  /// Whether the value is within its bounds, or not given. False too when only check_row can say it.
  constexpr bool is_within(const JobFields& fields) const {
    if (text != nullptr)
      return !(fields.*text) || (fields.*text)->size() <= static_cast<std::size_t>(row->most);
    if (number == nullptr) return false;
    return !(fields.*number) || (*(fields.*number) >= row->least && *(fields.*number) <= row->most);
  }
};
constexpr std::size_t kBoundedCount = static_cast<std::size_t>(
    std::ranges::count_if(kRows, [](const JobRow& row) { return row.most != kNoBound; }));
constexpr std::array<BoundedRow, kBoundedCount> kBounded = [] {
  std::array<BoundedRow, kBoundedCount> rows{};
  std::size_t count = 0;
  for (const JobRow& row : kRows) {
    if (row.most == kNoBound) continue;
    BoundedRow& bounded = rows[count++];
    bounded.row = &row;
    if (const auto* text = std::get_if<std::optional<std::string> JobFields::*>(&row.place))
      bounded.text = *text;
    if (const auto* number = std::get_if<std::optional<int64_t> JobFields::*>(&row.place))
      bounded.number = *number;
  }
  return rows;
}();

/// The name that the native API's own sentences use.
std::string native_name(const JobRow& row) {
  return row.message == JobMessage::kRetry ? path_of(row) : std::string(row.name);
}

}  // namespace

int64_t scale_of(DoorUnit unit) {
  switch (unit) {
    case DoorUnit::kSame:
      return 1;
    case DoorUnit::kSeconds:
    case DoorUnit::kCores:
      return 1'000;
    case DoorUnit::kMinutes:
      return 60'000;
  }
  UNREACHABLE();
}

std::span<const JobRow> job_rows() { return kRows; }

const JobRow* find_job_row(JobMessage message, int number) {
  for (const JobRow& row : kRows) {
    if (row.message == message && row.number == number && number != 0) return &row;
  }
  return nullptr;
}

std::string path_of(const JobRow& row) {
  if (row.message == JobMessage::kNone) return "";
  return std::string(prefix_of(row.message)) + std::string(row.name);
}

std::optional<ApiError> check_row(const JobRow& row, const JobFields& fields) {
  if (row.most == kNoBound) return std::nullopt;
  const std::string_view name = row.door.empty() ? row.name : row.door;
  if (const auto* const text = std::get_if<std::optional<std::string> JobFields::*>(&row.place)) {
    const std::optional<std::string>& given = fields.**text;
    return given ? check_length(name, *given, static_cast<std::size_t>(row.most)) : std::nullopt;
  }
  const std::optional<int64_t> number = std::visit(Measure{fields}, row.place);
  if (!number || (*number >= row.least && *number <= row.most)) return std::nullopt;
  if (row.unit == DoorUnit::kSame) return check_range(name, number, row.least, row.most);
  if (*number < 0) return invalid(name, std::string(name) + " must not be negative");
  return invalid(name,
                 std::string(name) + " must be at most " + std::to_string(row.most / scale_of(row.unit)));
}

const JobRow* find_door_row(std::string_view door) {
  const auto found = std::ranges::lower_bound(kByDoor, door, is_before, &JobRow::door);
  return found != kByDoor.end() && (*found)->door == door ? *found : nullptr;
}

const JobRow& row_of_door(std::string_view door) {
  const JobRow* const row = find_door_row(door);
  CHECK(row != nullptr);
  return *row;
}

std::optional<ApiError> check_row(std::string_view door, const JobFields& fields) {
  return check_row(row_of_door(door), fields);
}

std::optional<ApiError> check_rows(const JobFields& fields) {
  for (const BoundedRow& bounded : kBounded) {
    if (bounded.is_within(fields)) continue;
    if (auto problem = check_row(*bounded.row, fields)) return problem;
  }
  return std::nullopt;
}

std::optional<ApiError> check_native_rows(const JobFields& fields) {
  for (const JobRow& row : kRows) {
    if (!row.native_range) continue;
    const std::optional<int64_t> number = std::visit(Measure{fields}, row.place);
    if (!number || (*number >= row.least && *number <= row.most)) continue;
    const std::string name = native_name(row);
    return invalid(name,
                   name + " must be from " + std::to_string(row.least) + " to " + std::to_string(row.most));
  }
  return std::nullopt;
}

std::string_view type_of(const JobRow& row, bool at_door) {
  struct Word {
    bool scaled;
    std::string_view operator()(std::monostate) const { return "object"; }
    std::string_view operator()(std::optional<std::string> JobFields::*) const { return "text"; }
    std::string_view operator()(std::optional<int64_t> JobFields::*) const {
      return scaled ? "number" : "whole number";
    }
    std::string_view operator()(std::optional<bool> JobFields::*) const { return "true or false"; }
    std::string_view operator()(std::optional<StringList> JobFields::*) const { return "list of texts"; }
    std::string_view operator()(std::optional<StringMap> JobFields::*) const { return "object of texts"; }
    std::string_view operator()(std::optional<IntegerMap> JobFields::*) const {
      return "object of whole numbers";
    }
    std::string_view operator()(std::optional<NumberOrWord> JobFields::*) const { return "whole number"; }
    std::string_view operator()(std::optional<Time> JobFields::*) const { return "time"; }
    std::string_view operator()(std::optional<MountList> JobFields::*) const { return "list of objects"; }
  };
  const bool elsewhere = at_door && !std::holds_alternative<std::monostate>(row.door_place);
  return std::visit(Word{at_door && row.unit != DoorUnit::kSame}, elsewhere ? row.door_place : row.place);
}

namespace {

std::string bounds_of(const JobRow& row, int64_t scale) {
  if (row.most == kNoBound) return "";
  const bool text = std::holds_alternative<std::optional<std::string> JobFields::*>(row.place);
  if (text) return "at most " + std::to_string(row.most) + " bytes";
  return std::to_string(row.least / scale) + " to " + std::to_string(row.most / scale);
}

}  // namespace

std::string job_fields_markdown() {
  std::string out =
      "# Fields of a job's request\n\nWhat a job can request: the field's path in the native API's "
      "`JobRequest` ([native REST](native-rest.md), and the same over\ngRPC), its name in the body of the "
      "jobs door's `POST /jobs` ([REST](rest.md)), which has `tenant_id` beside them, and its\ntype and "
      "bounds there. Names that end in `_ms` are milliseconds, `cpu_milli` and `gpu_milli` thousandths; the "
      "jobs door's\n`_seconds`, `_minutes` and `cpu_cores` may have fractions, which are rounded to "
      "milliseconds and thousandths and never to\nnothing. A bound is that of the native API where there is "
      "one.\n\nThis page is generated from `src/api/fields/job_rows.cc`; a test compares the two.\n\n| "
      "native API | jobs door | type | bounds | meaning |\n|---|---|---|---|---|\n";
  for (const JobRow& row : kRows) {
    const std::string path = path_of(row);
    const bool only_door = path.empty();
    out.append("| ").append(only_door ? "" : "`" + path + "`");
    out.append(" | ").append(row.door.empty() ? "" : "`" + std::string(row.door) + "`");
    out.append(" | ").append(type_of(row, only_door));
    out.append(" | ").append(bounds_of(row, only_door ? scale_of(row.unit) : 1));
    out.append(" | ").append(row.meaning).append(" |\n");
  }
  return out;
}

}  // namespace gpusched::api

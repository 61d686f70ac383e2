#include "pilot/records.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <optional>
#include <utility>

#include "base/errors.h"
#include "base/text/civil_time.h"
#include "client/json.h"
#include "ops/machine.h"

namespace gpusched::pilot {
namespace {

using anticipate::Lease;
using anticipate::Memory;

constexpr std::size_t kStateBytesMax = 4 << 20;

Result<Unit> make_folders(const std::string& path) {
  for (std::size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0700) != 0 && errno != EEXIST)
      return io_error("cannot make the folder " + part);
    if (slash == std::string::npos) return Unit{};
  }
}

std::string lease_json(const Lease& lease, const LeaseRecord* record) {
  JsonObjectWriter json;
  json.add("number", static_cast<int64_t>(lease.number));
  json.add("gpus", int64_t{lease.request.gpus});
  json.add("gpu_model", lease.request.gpu_model);
  json.add("memory_gb", lease.request.memory_gb);
  json.add("length_ns", lease.request.length.ns);
  json.add("rules", lease.rules);
  json.add("asked_at", lease.asked_at.ns);
  json.add("ready_at", lease.ready_at.ns);
  json.add("expires_at", lease.expires_at.ns);
  json.add("used_at", lease.used_at.ns);
  json.add("needed_at", lease.needed_at.ns);
  json.add("counted_to", lease.counted_to.ns);
  json.add("is_released", lease.is_released);
  if (record != nullptr) {
    json.add("key", record->key);
    json.add("id", record->remote.id);
    json.add("job", record->remote.job);
    json.add("extensions", record->extensions);
  }
  return json.text();
}

void take_lease(const Json& json, PilotState& state) {
  Lease lease{.number = static_cast<uint64_t>(json["number"].integer())};
  lease.request = {.gpus = static_cast<int32_t>(json["gpus"].integer()),
                   .gpu_model = json["gpu_model"].text(),
                   .memory_gb = json["memory_gb"].integer(),
                   .length = Duration{json["length_ns"].integer()}};
  for (const Json& rule : json["rules"].items()) lease.rules.push_back(rule.text());
  lease.asked_at = Time{json["asked_at"].integer()};
  lease.ready_at = Time{json["ready_at"].integer()};
  lease.expires_at = Time{json["expires_at"].integer()};
  lease.used_at = Time{json["used_at"].integer()};
  lease.needed_at = Time{json["needed_at"].integer()};
  lease.counted_to = Time{json["counted_to"].integer()};
  lease.is_released = json["is_released"].boolean();
  state.leases[lease.number] = {.key = json["key"].text(),
                                .remote = {.id = json["id"].text(), .job = json["job"].text()},
                                .extensions = json["extensions"].integer()};
  state.memory.leases.push_back(std::move(lease));
}

std::string joined(const std::vector<std::string>& values) {
  std::string out = "[";
  for (const std::string& value : values) out += (out.size() > 1 ? "," : "") + value;
  return out + "]";
}

}  // namespace

std::string state_json(const PilotState& state) {
  std::vector<std::string> leases, spent;
  for (const Lease& lease : state.memory.leases) {
    const auto record = state.leases.find(lease.number);
    leases.push_back(lease_json(lease, record == state.leases.end() ? nullptr : &record->second));
  }
  for (const int64_t gpu_seconds : state.memory.spent_gpu_seconds)
    spent.push_back(std::to_string(gpu_seconds));
  JsonObjectWriter learned;
  for (const auto& [rule, record] : state.memory.learning.records()) {
    JsonObjectWriter counts;
    counts.add("hits", record.hits);
    counts.add("misses", record.misses);
    learned.add_json(rule, counts.text());
  }
  JsonObjectWriter json;
  json.add("version", int64_t{1});
  json.add("last_number", static_cast<int64_t>(state.memory.last_number));
  json.add_json("leases", joined(leases));
  json.add_json("learned", learned.text());
  json.add("spent_hour", state.memory.spent_hour);
  json.add_json("spent_gpu_seconds", joined(spent));
  return json.text();
}

Result<PilotState> parse_state(const std::string& text) {
  const Result<Json> json = Json::parse(text);
  if (!json || (*json)["version"].integer() != 1)
    return Error{.code = ErrorCode::kCorrupt, .message = "it is no state of gpu-pilot"};
  PilotState state;
  state.memory.last_number = static_cast<uint64_t>((*json)["last_number"].integer());
  for (const Json& lease : (*json)["leases"].items()) take_lease(lease, state);
  std::map<std::string, anticipate::Record> learned;
  for (const auto& [rule, counts] : (*json)["learned"].members())
    learned[rule] = {.hits = counts["hits"].integer(), .misses = counts["misses"].integer()};
  state.memory.learning = anticipate::Learning(std::move(learned));
  state.memory.spent_hour = (*json)["spent_hour"].integer();
  const std::vector<Json> spent = (*json)["spent_gpu_seconds"].items();
  for (std::size_t hour = 0; hour < std::min(spent.size(), Memory::kHours); ++hour)
    state.memory.spent_gpu_seconds.at(hour) = spent[hour].integer();
  return state;
}

Result<PilotState> read_state(const std::string& folder) {
  const std::string path = folder + "/state.json";
  if (!ops::exists(path)) return PilotState{};
  const std::optional<std::string> text = ops::read_text(path, kStateBytesMax);
  if (!text) return Error{.code = ErrorCode::kIo, .message = "cannot read " + path};
  Result<PilotState> state = parse_state(*text);
  if (!state) return Error{.code = state.error().code, .message = path + ": " + state.error().message};
  return state;
}

Result<StateFolder> StateFolder::open(const std::string& path) {
  if (const Result<Unit> made = make_folders(path); !made) return made.error();
  struct stat facts{};
  if (::stat(path.c_str(), &facts) != 0) return io_error("cannot look at " + path);
  if (facts.st_uid != ::geteuid() || (facts.st_mode & 0077) != 0) {
    return Error{.code = ErrorCode::kPermissionDenied,
                 .message = "other users may look into " + path + "; chmod 700 " + path};
  }
  const int lock = ::open((path + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (lock < 0) return io_error("cannot open " + path + "/lock");
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0) {
    ::close(lock);
    return Error{.code = ErrorCode::kLocked, .message = "another gpu-pilot uses " + path};
  }
  return StateFolder(path, lock);
}

StateFolder::StateFolder(StateFolder&& other) noexcept
    : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

StateFolder::~StateFolder() {
  if (lock_ >= 0) ::close(lock_);
}

Result<PilotState> StateFolder::load() const { return read_state(path_); }

Result<Unit> StateFolder::save(const PilotState& state) const {
  const std::string text = state_json(state) + "\n", path = path_ + "/state.json", draft = path + ".new";
  const int open = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (open < 0) return io_error("cannot open " + draft);
  const bool is_written =
      ::write(open, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(open) == 0;
  if (::close(open) != 0 || !is_written) return io_error("cannot write " + draft);
  if (::rename(draft.c_str(), path.c_str()) != 0) return io_error("cannot replace " + path);
  return Unit{};
}

void StateFolder::note(const std::string& line) const {
  const std::string path = path_ + "/decisions.jsonl";
  const int open = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (open < 0) return;
  const std::string whole = line + "\n";
  struct stat facts{};
  const bool is_large = ::write(open, whole.data(), whole.size()) > 0 && ::fstat(open, &facts) == 0 &&
                        facts.st_size > kDecisionBytesMax;
  ::close(open);
  if (is_large) ::rename(path.c_str(), (path + ".1").c_str());
}

std::string decision_json(const anticipate::Decision& decision, const std::string& job, bool is_dry_run,
                          Time wall) {
  JsonObjectWriter json;
  json.add("at", utc_text(wall));
  json.add("decision", to_string(decision.kind));
  json.add("why", decision.why);
  json.add("score", int64_t{decision.score});
  if (decision.lease != 0) json.add("lease", static_cast<int64_t>(decision.lease));
  if (!job.empty()) json.add("job", job);
  if (decision.kind != anticipate::Decision::Kind::kWait) json.add("gpus", int64_t{decision.request.gpus});
  if (is_dry_run) json.add("dry_run", true);
  std::vector<std::string> reasons;
  for (const anticipate::Reason& reason : decision.reasons) {
    JsonObjectWriter one;
    one.add("rule", reason.rule);
    one.add("weight", int64_t{reason.weight});
    one.add("source", to_string(reason.source));
    one.add("monitor", reason.monitor);
    one.add("origin", reason.origin);
    one.add("text", reason.text);
    reasons.push_back(one.text());
  }
  if (!reasons.empty()) json.add_json("reasons", joined(reasons));
  return json.text();
}

}  // namespace gpusched::pilot

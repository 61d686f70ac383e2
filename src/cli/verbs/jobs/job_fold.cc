#include "cli/verbs/jobs/job_fold.h"

#include <algorithm>
#include <map>
#include <string>

#include "base/check.h"
#include "cli/commands.h"
#include "cli/verbs/jobs/job_columns.h"

namespace gpusched::cli {
namespace {

/// The records of one array in a list.
struct Group {
  const Json* array = nullptr;  ///< Its own record; null: only elements were found.
  std::vector<const Json*> elements;

  bool is_line() const { return array != nullptr || elements.size() > 1; }
};

/// Elements by what has become of them.
struct Counts {
  int64_t running = 0, waiting = 0, completed = 0, failed = 0, cancelled = 0;
};

Counts counts_of(const Group& group) {
  if (group.array != nullptr) {
    const Json array = (*group.array)["array"];
    return {.running = array["running"].integer(),
            .waiting = array["waiting"].integer(),
            .completed = array["completed"].integer(),
            .failed = array["failed"].integer(),
            .cancelled = array["cancelled"].integer()};
  }
  Counts counts;
  for (const Json* const element : group.elements) {
    const std::string state = (*element)["state"].text();
    if (state == "pending") ++counts.waiting;
    if (state == "scheduled" || state == "running" || state == "preempted") ++counts.running;
    if (state == "completed") ++counts.completed;
    if (state == "failed") ++counts.failed;
    if (state == "cancelled") ++counts.cancelled;
  }
  return counts;
}

std::string state_of(const Counts& counts) {
  if (counts.running > 0) return "running";
  if (counts.waiting > 0) return "pending";
  if (counts.failed > 0) return "failed";
  return counts.cancelled > 0 ? "cancelled" : "completed";
}

/// "3 run, 90 wait, 5 completed, 2 failed"
std::string text_of(const Counts& counts) {
  std::string out;
  for (const auto& [count, word] :
       {std::pair(counts.running, "run"), std::pair(counts.waiting, "wait"),
        std::pair(counts.completed, "completed"), std::pair(counts.failed, "failed"),
        std::pair(counts.cancelled, "cancelled")}) {
    if (count > 0) out += (out.empty() ? "" : ", ") + std::to_string(count) + " " + word;
  }
  return out;
}

std::string indexes_of(const Group& group) {
  if (group.array != nullptr) {
    const std::string indexes = (*group.array)["array"]["indexes"].text();
    return indexes.substr(0, indexes.find('%'));
  }
  std::vector<int64_t> indexes;
  for (const Json* const element : group.elements) indexes.push_back((*element)["array_index"].integer());
  return ranges_of(std::move(indexes));
}

/// The name without the index that an element's ends in.
std::string name_of(const Group& group) {
  if (group.array != nullptr) return job_field(*group.array, "name").text();
  std::string name = job_field(*group.elements.front(), "name").text();
  const std::string suffix = "-" + std::to_string((*group.elements.front())["array_index"].integer());
  if (name.ends_with(suffix)) name.resize(name.size() - suffix.size());
  return name;
}

/// From the first start to the last end, if all have ended. RFC 3339 in UTC sorts as text.
void add_times(const Group& group, const std::string& state, JsonObjectWriter& out) {
  std::string started, ended;
  std::vector<const Json*> parts = group.elements;
  if (group.array != nullptr) parts.push_back(group.array);
  for (const Json* const part : parts) {
    const std::string start = (*part)["started_at"].text();
    if (!start.empty() && (started.empty() || start < started)) started = start;
    ended = std::max(ended, (*part)["completed_at"].text());
  }
  if (!started.empty()) out.add("started_at", started);
  if (!ended.empty() && state != "running" && state != "pending") out.add("completed_at", ended);
}

/// Why an array waits of which nothing runs: an element's reason, if that says that none will ever run.
std::string reason_of(const Group& group, const Json& like) {
  const auto never = std::ranges::find_if(group.elements, [](const Json* one) { return never_starts(*one); });
  return (never == group.elements.end() ? like : **never)["reason"].text();
}

Json line_of(const std::string& id, const Group& group) {
  const Json& like = group.array != nullptr ? *group.array : *group.elements.front();
  const Counts counts = counts_of(group);
  const std::string state = state_of(counts);
  JsonObjectWriter out;
  for (const auto& [member, value] : like.members()) {
    const bool own = member == "job_id" || member == "id" || member == "state" || member == "message" ||
                     member == "name" || member == "started_at" || member == "completed_at" ||
                     member == "array_id" || member == "array" || member == "node_name" ||
                     member == "reason" || member == "usage";
    if (!own) out.add_json(member, value.serialize());
  }
  out.add("job_id", id);
  out.add(kFoldedId, id + "[" + indexes_of(group) + "]");
  out.add("name", name_of(group));
  out.add("state", state);
  out.add("reason", reason_of(group, like));
  out.add("message", text_of(counts));
  add_times(group, state, out);
  const Result<Json> line = Json::parse(out.text());
  CHECK(line.ok());
  return *line;
}

/// The array that a record belongs to or is; empty: none.
std::string array_of(const Json& job) {
  return job["array"].is_object() ? job_id_of(job) : job["array_id"].text();
}

}  // namespace

std::string ranges_of(std::vector<int64_t> numbers) {
  std::ranges::sort(numbers);
  std::string out;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    out += (out.empty() ? "" : ",") + std::to_string(numbers[i]);
    if (last > i) out += "-" + std::to_string(numbers[last]);
    i = last + 1;
  }
  return out;
}

std::vector<Json> fold_arrays(const std::vector<Json>& jobs) {
  std::map<std::string, Group> groups;
  for (const Json& job : jobs) {
    const std::string id = array_of(job);
    if (id.empty()) continue;
    if (job["array"].is_object()) {
      groups[id].array = &job;
    } else {
      groups[id].elements.push_back(&job);
    }
  }
  std::vector<Json> lines;
  for (const Json& job : jobs) {
    const std::string id = array_of(job);
    const auto found = groups.find(id);
    if (id.empty()) {
      lines.push_back(job);
    } else if (found != groups.end()) {
      lines.push_back(found->second.is_line() ? line_of(id, found->second) : job);
      groups.erase(found);
    }
  }
  return lines;
}

}  // namespace gpusched::cli

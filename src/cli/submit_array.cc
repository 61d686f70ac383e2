// Arrays of jobs: one submission, which the native API takes whole in batches.
#include <algorithm>
#include <cmath>

#include "cli/progress.h"
#include "cli/submit.h"

namespace gpusched::cli {
namespace {

constexpr size_t kBatchMax = 1'000;  // What the scheduler takes in one request.
constexpr size_t kArrayMax = 100'000;
// A request is at most 4 MiB.
constexpr size_t kBatchBytesMax = 3 << 20;

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::ranges::find(words, word) != words.end();
}

/// ["/a:/b:ro"] as the native API has it.
std::string native_mounts(const Json& mounts) {
  std::string out;
  for (const Json& mount : mounts.items()) {
    const std::string text = mount.text();
    const size_t target = text.find(':');
    const size_t mode = text.find(':', target + 1);
    JsonObjectWriter one;
    one.add("source", text.substr(0, target));
    one.add("target", text.substr(target + 1, mode == std::string::npos ? mode : mode - target - 1));
    if (mode != std::string::npos && text.substr(mode) == ":ro") one.add("read_only", true);
    out += (out.empty() ? "" : ",") + one.text();
  }
  return "[" + out + "]";
}

std::map<std::string, std::string> pairs_of(const Json& object) {
  std::map<std::string, std::string> out;
  for (const auto& [name, value] : object.members()) out[name] = value.text();
  return out;
}

/// The jobs door's body as a native JobRequest, for one index of the array.
std::string native_request(const Json& door, const std::string& array, const std::string& index,
                           size_t count) {
  JsonObjectWriter spec;
  JsonObjectWriter resources;
  JsonObjectWriter job;
  for (const auto& [name, value] : door.members()) {
    if (is_one_of(name, {"tenant_id", "environment", "labels"})) continue;
    if (name == "name") {
      spec.add(name, value.text() + "-" + index);
    } else if (is_one_of(name, {"gpu_count", "gpu_memory_mb", "gpu_model", "memory_mb"})) {
      resources.add_json(name, value.serialize());
    } else if (name == "cpu_cores") {
      resources.add("cpu_milli", static_cast<int64_t>(std::llround(value.number() * 1000)));
    } else if (is_one_of(name, {"priority", "require_feasible", "held"})) {
      job.add_json(name, value.serialize());
    } else if (name == "max_runtime_seconds") {
      job.add("max_runtime_ms", value.integer() * 1'000);
    } else if (name == "retries") {
      job.add_json("retry", "{\"exit_code_retries\":" + std::to_string(value.integer()) + "}");
    } else {
      spec.add_json(name, name == "mounts" ? native_mounts(value) : value.serialize());
    }
  }
  std::map<std::string, std::string> environment = pairs_of(door["environment"]);
  environment["GPU_SCHEDULER_ARRAY_INDEX"] = index;
  environment["GPU_SCHEDULER_ARRAY_COUNT"] = std::to_string(count);
  spec.add("environment", environment);
  std::map<std::string, std::string> labels = pairs_of(door["labels"]);
  labels["array"] = array;
  labels["array_index"] = index;
  spec.add("labels", labels);
  job.add_json("spec", spec.text());
  if (!resources.empty()) job.add_json("resources", resources.text());
  return job.text();
}

}  // namespace

Reply submit_array(Session& session, const std::string& body, const std::string& indexes,
                   std::vector<std::string>& jobs) {
  const auto refused = [](const std::string& sentence) {
    return Reply{.trouble = Trouble{.exit_code = kExitUsage, .sentence = sentence, .code = "usage"}};
  };
  const Result<std::vector<int64_t>> wanted = parse_array(indexes, kArrayMax);
  if (!wanted) return refused(wanted.error().message);
  const Result<Json> door = Json::parse(body);
  CHECK(door.ok());
  const std::string array = random_key().substr(0, 8);
  Progress progress(session.io());
  for (size_t at = 0; at < wanted->size();) {
    std::string batch;
    size_t taken = 0;
    for (; at < wanted->size() && taken < kBatchMax && batch.size() < kBatchBytesMax; ++at, ++taken) {
      batch += (taken > 0 ? "," : "") +
               native_request(*door, array, std::to_string((*wanted)[at]), wanted->size());
    }
    JsonObjectWriter request;
    if (const std::string tenant = (*door)["tenant_id"].text(); !tenant.empty())
      request.add("tenant_id", tenant);
    request.add_json("jobs", "[" + batch + "]");
    Reply reply = session.post_once("/v1/jobs", request.text(), random_key());
    if (!reply) {
      if (!jobs.empty()) {
        reply.trouble->sentence += "; " + std::to_string(jobs.size()) + " of " +
                                   std::to_string(wanted->size()) +
                                   " jobs were accepted before, with the label array=" + array;
      }
      return reply;
    }
    for (const Json& id : reply.json["job_ids"].items()) jobs.push_back(id.text());
    progress.show(std::to_string(jobs.size()) + " of " + std::to_string(wanted->size()) + " jobs submitted");
  }
  return {};
}

}  // namespace gpusched::cli

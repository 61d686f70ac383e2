#include "node/tasks/worker_plan.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/net/base64.h"
#include "base/net/endpoint.h"
#include "base/text/task_payload.h"
#include "base/text/task_worker.h"
#include "shim/endpoint/endpoint_worker.h"
#include "shim/protocol.h"
#include "shim/worker/task_wire.h"

namespace gpusched {
namespace {

constexpr int64_t kIdleMsDefault = 30'000;
constexpr int64_t kHealthMsDefault = 10'000;
constexpr int64_t kHealthMsMax = 600'000;
/// The worker of an endpoint is the shim's own program, by a name that is right in every box.
constexpr const char* kOwnProgram = "/proc/self/exe";
constexpr std::string_view kJobVariable = "GPU_SCHEDULER_JOB_ID=";

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      std::array<char, 8> code{};
      std::snprintf(code.data(), code.size(), "\\u%04x", byte);
      out += code.data();
    } else {
      out += c;
    }
  }
  return out + '"';
}

bool is_of_workers(std::string_view name) {
  return is_worker_variable(name) || name == kTaskPayloadVariable || name == kTaskPayloadBytesVariable;
}

/// Never none, which a worker's shim takes for no end.
int64_t idle_ms_of(const std::string& text) {
  int64_t idle = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, idle);
  if (problem == std::errc::result_out_of_range && text[0] != '-') return kWorkerIdleMsMax;
  if (problem != std::errc() || rest != end || idle < 1) return kIdleMsDefault;
  return std::min(idle, kWorkerIdleMsMax);
}

/// From 1 to `most`; what is no number is `otherwise`.
int64_t number_of(const std::string& text, int64_t otherwise, int64_t most) {
  int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc() || rest != end || number < 1) return otherwise;
  return std::min(number, most);
}

/// One line of JSON, then the payload as it is.
std::string frame_of(const v1::StartAttempt& order, const v1::JobSpec& spec, const std::string& payload) {
  std::string line = "{\"id\":" + json_text(to_string(from_wire(order.key()))) +
                     ",\"job\":" + json_text(order.job_name()) + ",\"environment\":{";
  const std::map<std::string, std::string> variables(spec.environment().begin(), spec.environment().end());
  bool first = true;
  for (const auto& [name, value] : variables) {
    if (is_of_workers(name)) continue;
    line += (std::exchange(first, false) ? "" : ",") + json_text(name) + ':' + json_text(value);
  }
  return line + "}}\n" + payload;
}

/// Equal messages are equal texts, whatever the order of their maps in memory.
std::string canonical_text(const v1::JobSpec& spec) {
  std::string text;
  google::protobuf::io::StringOutputStream stream(&text);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.SetSerializationDeterministic(true);
  spec.SerializeToCodedStream(&out);
  out.Trim();
  return text;
}

/// Makes the text that all tasks of a worker have alike: whose they are, what runs them, and what they were
/// granted. The rest is taken out of `spec`.
std::string match_of(const v1::StartAttempt& order, v1::JobSpec& spec, const std::string& user,
                     const std::vector<std::string>& environment) {
  spec.clear_environment();
  spec.clear_secret_variables();
  spec.clear_labels();
  spec.clear_name();
  spec.clear_comment();
  spec.clear_script();
  std::string match = order.tenant() + '\0' + user + '\0' + canonical_text(spec) + '\0' +
                      std::to_string(order.cpu_milli()) + ' ' + std::to_string(order.memory_mb()) + ' ' +
                      std::to_string(order.grace_ms()) + ' ' +
                      std::to_string(order.kill_after_lost_contact_ms());
  const std::string key = to_string(from_wire(order.key()));
  for (const std::string& entry : environment) match += '\0' + with_key(entry, key, "-");
  return match;
}

}  // namespace

std::string with_key(const std::string& entry, const std::string& key, const std::string& other) {
  std::string out = entry;
  const std::string marked = std::string(shim::kMarkerVariable) + '=' + key + '@';
  if (out.starts_with(marked))
    return std::string(shim::kMarkerVariable) + '=' + other + '@' + out.substr(marked.size());
  const std::string folder = std::string("/") + shim::kAttemptsFolder + '/';
  const std::string old = folder + key + '/';
  for (std::size_t at = out.find(old); at != std::string::npos; at = out.find(old, at + folder.size()))
    out.replace(at, old.size(), folder + other + '/');
  return out;
}

bool is_for_worker(const v1::StartAttempt& order, const v1::JobSpec& spec) {
  if (!worker_of(order.spec())) return false;
  const bool sliced =
      std::any_of(order.devices().begin(), order.devices().end(),
                  [](const v1::GrantedDevice& device) { return !device.mig_profile().empty(); });
  return spec.image().empty() && !order.has_gang() && order.key().member() == 0 && !sliced &&
         spec.stdin_path().empty() && spec.stdout_path().empty() && spec.stderr_path().empty();
}

std::shared_ptr<const WorkerPlan> plan_worker(const v1::StartAttempt& order, v1::JobSpec& spec,
                                              const std::string& user, std::vector<std::string> environment) {
  const std::optional<WorkerRequest> worker = worker_of(order.spec());
  const auto packed = spec.environment().find(std::string(kTaskPayloadVariable));
  const bool is_beside = !order.payload().empty() || packed == spec.environment().end();
  const std::optional<std::string> payload = is_beside ? std::string() : base64_decoded(packed->second);
  if (!worker || !payload) return nullptr;
  const std::optional<Endpoint> endpoint = parse_endpoint(worker->endpoint);
  if (!worker->endpoint.empty() && !endpoint)
    return nullptr;  // A later scheduler's: the script does as well.
  auto plan = std::make_shared<WorkerPlan>();
  plan->frame = frame_of(order, spec, *payload);
  if (plan->frame.size() > shim::kTaskFrameBytesMax) return nullptr;
  plan->arguments = {"/bin/sh", "-c", worker->command};
  if (endpoint) {
    plan->arguments = {kOwnProgram, shim::kEndpointFlag, worker->endpoint};
    plan->endpoint = endpoint->url;
  }
  plan->environment = std::move(environment);
  const std::string of_payload = std::string(kTaskPayloadBytesVariable) + '=';
  std::erase_if(plan->environment, [&of_payload](const std::string& entry) {
    return entry.starts_with(kJobVariable) || entry.starts_with(of_payload);
  });
  plan->environment.push_back(std::string(kWorkerIdleVariable) + '=' +
                              std::to_string(idle_ms_of(worker->idle_ms)));
  plan->tasks_max = static_cast<uint32_t>(number_of(worker->tasks, 1, kWorkerTasksMax));
  plan->environment.push_back(std::string(kWorkerHealthVariable) + '=' +
                              std::to_string(number_of(worker->health_ms, kHealthMsDefault, kHealthMsMax)));
  plan->environment.push_back(std::string(kWorkerTasksVariable) + '=' + std::to_string(plan->tasks_max));
  plan->environment.push_back(std::string(shim::kFrameVariable) + '=' +
                              std::to_string(shim::kFrameDescriptor));
  plan->match = worker->command + '\0' + worker->endpoint + '\0' + worker->owner + '\0' +
                match_of(order, spec, user, plan->environment);
  return plan;
}

}  // namespace gpusched

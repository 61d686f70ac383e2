#include "node/kubernetes/status_agent.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "client/http_client.h"
#include "client/json.h"
#include "log/log.h"
#include "node/gpu/gpu_driver.h"
#include "node/kubernetes/node_status.h"
#include "node/ports/system_clock.h"
#include "shim/processes.h"

namespace gpusched::kubernetes {
namespace {

/// Pause between two looks at the devices.
constexpr Duration kLookEvery = seconds(5);
/// How long a look waits for the driver.
constexpr Duration kLookPatience = seconds(4);
/// From then on the health of a device is not known whose driver does not answer.
constexpr Duration kSilentMax = seconds(30);
/// Longest time between two applies, and between two looks at the pods and for a driver.
constexpr Duration kWriteEvery = seconds(30);
constexpr Duration kCallPatience = seconds(10);
constexpr std::size_t kTokenBytesMax = 64 * 1024;
constexpr std::size_t kAnswerBytesMax = std::size_t{16} << 20;
constexpr std::size_t kMessageBytesMax = 512;

std::string variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::string> url_of(const ApiOptions& options) {
  if (!options.url.empty()) return options.url;
  const std::string host = variable("KUBERNETES_SERVICE_HOST");
  const std::string port = variable("KUBERNETES_SERVICE_PORT");
  if (host.empty() || port.empty()) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message =
                     "--kubernetes: this is no pod of a Kubernetes cluster (KUBERNETES_SERVICE_HOST is not "
                     "set); name its API server with --kubernetes-api"};
  }
  return "https://" + (host.find(':') == std::string::npos ? host : "[" + host + "]") + ":" + port;
}

/// Calls of the API server as the pod's account.
class ApiServer {
 public:
  ApiServer(std::string url, const ApiOptions& options) : url_(std::move(url)), account_(options.account) {}

  /// The body of an answer with 2xx; otherwise an error with the server's own sentence.
  Result<std::string> call(const HttpRequest& request) const {
    const std::string token_file = account_ + "/token";
    std::string token = shim::read_small_file(token_file.c_str(), kTokenBytesMax);
    token.erase(token.find_last_not_of(" \r\n\t") + 1);
    if (token.empty())
      return Error{.code = ErrorCode::kUnauthenticated,
                   .message = token_file + " cannot be read, or is empty"};
    Result<HttpClient> client = HttpClient::create({.url = url_,
                                                    .token = std::move(token),
                                                    .ca_file = account_ + "/ca.crt",
                                                    .answer_bytes_max = kAnswerBytesMax,
                                                    .user_agent = "gpu-agent"});
    if (!client) return client.error();
    Result<HttpAnswer> answer = client->request(request);
    if (!answer) return Error{.code = answer.error().code, .message = url_ + ": " + answer.error().message};
    if (answer->status / 100 == 2) return std::move(answer->body);
    const Result<Json> status = Json::parse(answer->body);
    std::string why = status ? (*status)["message"].text() : "";
    if (why.empty()) why = request.method + " " + request.target;
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "the API server answers " + std::to_string(answer->status) + ": " +
                            why.substr(0, kMessageBytesMax)};
  }

  /// Applies the object as this field manager: fields that it wrote before and that are left out go away.
  Result<Unit> apply(const std::string& node, const char* part, const char* manager, std::string body) const {
    const Result<std::string> done =
        call({.method = "PATCH",
              .target = "/apis/gpu.scheduling/v1/gpunodestatuses/" + url_encoded(node) + part +
                        "?fieldManager=" + manager + "&force=true",
              .body = std::move(body),
              .headers = {{"Content-Type", "application/apply-patch+yaml"}},
              .timeout = kCallPatience,
              .repeatable = true});
    if (!done) return done.error();
    return Unit{};
  }

  Result<std::vector<std::vector<std::string>>> users(const std::string& node, std::size_t devices) const {
    const std::string living = "spec.nodeName=" + node + ",status.phase!=Succeeded,status.phase!=Failed";
    const Result<std::string> list =
        call({.method = "GET",
              .target = "/api/v1/pods?resourceVersion=0&fieldSelector=" + url_encoded(living),
              .headers = {{"Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}},
              .timeout = kCallPatience,
              .repeatable = true});
    if (!list) return list.error();
    return users_of(*list, node, devices);
  }

 private:
  const std::string url_;
  const std::string account_;
};

/// The node's devices, looked at again and again. A driver that hangs does not stop the agent.
class Devices {
 public:
  explicit Devices(const StatusOptions& options) : options_(options) {}

  /// Opens the driver, if there is none yet: its container may come later. kInvalidArgument: it never will.
  Result<Unit> open(Time now) {
    if (driver_ != nullptr || now < next_open_) return Unit{};
    next_open_ = now + kWriteEvery;
    Result<std::unique_ptr<GpuDriver>> opened =
        options_.sim_gpus.empty()
            ? open_real_driver(options_.nvml_library, options_.nvidia_smi)
            : open_sim_driver(options_.sim_gpus, options_.node, options_.sim_control, options_.sim_links);
    if (!opened) {
      if (opened.error().code == ErrorCode::kInvalidArgument) return opened.error();
      trouble_ = opened.error().message;
      return Unit{};
    }
    trouble_.clear();
    driver_ = std::move(*opened);
    monitor_ = make_device_monitor(driver_, options_.gpu_daemons);
    slots_.resize(driver_->inventory().size());
    for (Slot& slot : slots_) slot.answered = now;
    return Unit{};
  }

  /// Asks for a reading of each device that has answered the last time.
  void look(Time now) {
    for (uint32_t index = 0; index < slots_.size(); ++index) {
      if (slots_[index].asked) continue;
      slots_[index].asked = true;
      if (std::optional<DeviceReading> reading = monitor_->read(index); reading.has_value())
        take(index, std::move(*reading), now);
    }
  }
  void take_finished(Time now) {
    if (monitor_ == nullptr) return;
    for (DeviceMonitor::Finished& one : monitor_->take_finished()) {
      if (one.kind == DeviceMonitor::Finished::Kind::kReading) take(one.index, std::move(one.reading), now);
    }
  }
  bool all_answered() const {
    return std::ranges::none_of(slots_, [](const Slot& slot) { return slot.asked; });
  }
  int finished_event() const { return monitor_ == nullptr ? -1 : monitor_->finished_event(); }
  std::size_t count() const { return slots_.size(); }

  NodeStatus status(Time now) const {
    NodeStatus status{.node = options_.node, .devices = {}, .machine = {}, .message = trouble_};
    if (driver_ == nullptr) return status;
    const std::vector<DeviceFacts>& facts = driver_->inventory();
    const std::vector<DeviceIsland> islands = islands_of(driver_->topology(), facts.size());
    for (std::size_t i = 0; i < facts.size(); ++i) {
      status.devices.push_back({.facts = facts[i], .island = islands[i]});
      judge(slots_[i], now, status.devices.back());
    }
    return status;
  }

 private:
  struct Slot {
    std::optional<DeviceReading> reading;
    bool asked = false;  ///< And not answered yet.
    Time answered;       ///< Time of its last reading.
  };

  void take(uint32_t index, DeviceReading reading, Time now) {
    slots_[index] = {.reading = std::move(reading), .asked = false, .answered = now};
  }

  static void judge(const Slot& slot, Time now, DeviceStatus& device) {
    using enum DeviceStatus::Health;
    if (now - slot.answered > kSilentMax || !slot.reading.has_value()) {
      device.message = "the GPU driver does not answer";
    } else if (slot.reading->condition != v1::DEVICE_CONDITION_OK) {
      device.health = kUnhealthy;
      device.message = slot.reading->detail.substr(0, kMessageBytesMax);
    } else if (device.facts.mig) {
      device.health = kUnhealthy;
      device.message = "it is in MIG mode, and pods get whole devices only";
    } else {
      device.health = kHealthy;
    }
  }

  const StatusOptions& options_;
  std::shared_ptr<GpuDriver> driver_;
  std::unique_ptr<DeviceMonitor> monitor_;
  std::vector<Slot> slots_;
  std::string trouble_;
  Time next_open_;
};

/// Writes the status, and says what keeps it from doing so once for each other reason.
class StatusWriter {
 public:
  explicit StatusWriter(ApiServer server) : server_(std::move(server)) {}

  void write(NodeStatus status, Time now) {
    if (now >= next_look_at_pods_) look_at_pods(status, now);
    for (std::size_t i = 0; i < status.devices.size() && i < users_.size(); ++i)
      status.devices[i].in_use_by = users_[i];
    status.machine = read_machine_facts();
    const std::string text = object_with_status_json(status);
    if (text == written_ && now < next_write_) return;
    Result<Unit> done = server_.apply(status.node, "", "gpu-agent", object_json(status));
    if (done.ok()) done = server_.apply(status.node, "/status", "gpu-agent-status", text);
    say("node_status_not_written", done.ok() ? "" : done.error().message, write_trouble_);
    if (!done.ok()) return;  // It is tried again at the next look.
    if (text != written_) {
      log_event(LogLevel::kInfo, "agent", "node_status_written", {},
                {{"node", status.node}, {"gpus", status.devices.size()}});
    }
    written_ = text;
    next_write_ = now + kWriteEvery;
  }

 private:
  void look_at_pods(const NodeStatus& status, Time now) {
    next_look_at_pods_ = now + kWriteEvery;
    Result<std::vector<std::vector<std::string>>> users = server_.users(status.node, status.devices.size());
    say("pods_not_read", users.ok() ? "" : users.error().message, pods_trouble_);
    if (users.ok()) users_ = std::move(*users);
  }

  static void say(const char* event, const std::string& trouble, std::string& before) {
    if (trouble == before) return;
    before = trouble;
    if (!trouble.empty()) log_event(LogLevel::kWarning, "agent", event, {}, {{"why", trouble}});
  }

  const ApiServer server_;
  std::vector<std::vector<std::string>> users_;
  std::string written_;
  std::string write_trouble_, pods_trouble_;
  Time next_write_, next_look_at_pods_;
};

/// Waits until one is readable or the time has come. True: it is to stop.
bool rest(int stop_descriptor, int event, Duration wait) {
  pollfd wanted[] = {{.fd = stop_descriptor, .events = POLLIN, .revents = 0},
                     {.fd = event, .events = POLLIN, .revents = 0}};
  const int ready = poll(wanted, 2, static_cast<int>(std::max<int64_t>(wait.ms(), 0) + 1));
  return ready > 0 && wanted[0].revents != 0;
}

}  // namespace

Result<Unit> serve_node_status(const StatusOptions& options, int stop_descriptor) {
  const Result<std::string> url = url_of(options.api);
  if (!url) return url.error();
  const SystemClock clock;
  Devices devices(options);
  StatusWriter writer(ApiServer(*url, options.api));
  while (true) {
    const Time begin = clock.monotonic();
    if (const Result<Unit> opened = devices.open(begin); !opened) return opened.error();
    devices.look(begin);
    while (!devices.all_answered() && clock.monotonic() - begin < kLookPatience) {
      if (rest(stop_descriptor, devices.finished_event(), kLookPatience - (clock.monotonic() - begin)))
        return Unit{};
      devices.take_finished(clock.monotonic());
    }
    writer.write(devices.status(clock.monotonic()), clock.monotonic());
    if (rest(stop_descriptor, -1, kLookEvery - (clock.monotonic() - begin))) return Unit{};
  }
}

}  // namespace gpusched::kubernetes

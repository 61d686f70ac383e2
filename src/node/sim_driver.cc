#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>

#include <charconv>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "base/limits.h"
#include "log/log.h"
#include "node/gpu_driver.h"

namespace gpusched {
namespace {

constexpr int32_t kIdleTemperature = 30;
constexpr int32_t kSlowdownTemperature = 90;

Error bad_shape(const std::string& part, const std::string& why) {
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = "--sim-gpus: '" + part + "' " + why + "; such as 4xA100-SXM4-80GB,2xH100-SXM5-80GB",
               .field = "sim-gpus"};
}

template <typename Number>
bool parse_number(std::string_view text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

/// "80GB" at the end of "A100-SXM4-80GB" in megabytes; 0 when it is not there.
int64_t memory_of_model(const std::string& model) {
  if (!model.ends_with("GB")) return 0;
  const std::size_t from = model.find_last_not_of("0123456789", model.size() - 3) + 1;
  int64_t gigabytes = 0;
  if (!parse_number(std::string_view(model).substr(from, model.size() - 2 - from), gigabytes)) return 0;
  return gigabytes <= 0 || gigabytes > limits::kMegabytesMax / 1024 ? 0 : gigabytes * 1024;
}

/// "0000:10:00" for the first one.
std::string sim_slot(std::size_t index) {
  constexpr const char* kDigits = "0123456789abcdef";
  const std::size_t bus = 0x10 + index;
  return std::string("0000:") + kDigits[bus >> 4 & 15] + kDigits[bus & 15] + ":00";
}

Result<std::vector<DeviceFacts>> parse_shape(const std::string& shape, const std::string& node_name) {
  std::vector<DeviceFacts> devices;
  std::size_t from = 0;
  while (from <= shape.size()) {
    const std::size_t end = std::min(shape.find(',', from), shape.size());
    const std::string part = shape.substr(from, end - from);
    from = end + 1;
    const std::size_t times = part.find('x');
    uint32_t count = 0;
    if (times == std::string::npos || !parse_number(std::string_view(part).substr(0, times), count) ||
        count == 0) {
      return bad_shape(part, "does not begin with a count and 'x'");
    }
    const std::string model = part.substr(times + 1);
    const int64_t memory_mb = memory_of_model(model);
    if (memory_mb == 0) return bad_shape(part, "does not end with the memory, as in 80GB");
    if (devices.size() + count > limits::kDevicesPerNodeMax) {
      return bad_shape(part, "makes more than " + std::to_string(limits::kDevicesPerNodeMax) + " devices");
    }
    for (uint32_t i = 0; i < count; ++i) {
      devices.push_back({.uuid = "GPU-sim-" + node_name + "-" + std::to_string(devices.size()),
                         .model = "NVIDIA " + model,
                         .memory_mb = memory_mb,
                         .slowdown_celsius = kSlowdownTemperature,
                         .pci_slot = sim_slot(devices.size())});
    }
  }
  return devices;
}

class SimDriver final : public GpuDriver {
 public:
  SimDriver(std::vector<DeviceFacts> facts, DeviceTopology topology, std::string control_file)
      : facts_(std::move(facts)), topology_(std::move(topology)), control_file_(std::move(control_file)) {
    for (std::size_t i = 0; i < topology_.numa_plus_one.size(); ++i)
      facts_[i].numa_plus_one = topology_.numa_plus_one[i];
  }

  std::string_view name() const override { return "sim"; }
  const std::vector<DeviceFacts>& inventory() const override { return facts_; }
  const DeviceTopology& topology() const override { return topology_; }
  bool may_block() const override { return false; }

  DeviceReading read(uint32_t index) override {
    reread_control_file();
    const auto found = changed_.find(index);
    if (found != changed_.end()) {
      DeviceReading reading = found->second;
      reading.xids = std::exchange(fresh_xids_[index], {});
      return reading;
    }
    DeviceReading reading;
    reading.temperature_celsius = kIdleTemperature;
    return reading;
  }

 private:
  void reread_control_file() {
    struct stat facts{};
    if (stat(control_file_.c_str(), &facts) != 0) {
      changed_.clear();
      seen_ = {};
      return;
    }
    const Stamp now{.seconds = facts.st_mtim.tv_sec,
                    .nanoseconds = facts.st_mtim.tv_nsec,
                    .size = facts.st_size,
                    .inode = facts.st_ino};
    if (now == seen_) return;
    seen_ = now;
    std::ifstream in(control_file_);
    const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    google::protobuf::Struct parsed;
    const auto status = google::protobuf::util::JsonStringToMessage(text, &parsed);
    if (!status.ok()) {  // Half written, perhaps: what was said before stays until it parses.
      log_event(LogLevel::kWarning, "agent", "sim_control_unreadable", {},
                {{"file", control_file_}, {"why", status.ToString()}});
      return;
    }
    const std::map<uint32_t, DeviceReading> before = std::exchange(changed_, {});
    const auto devices = parsed.fields().find("devices");
    if (devices == parsed.fields().end()) return;
    for (const auto& [name, value] : devices->second.struct_value().fields()) {
      uint32_t index = 0;
      if (parse_number(std::string_view(name), index) && index < facts_.size())
        changed_[index] = parse(value.struct_value());
    }
    note_xids(before);
  }

  /// The file lists all that came up; new is what stands behind what it had before.
  void note_xids(const std::map<uint32_t, DeviceReading>& before) {
    for (const auto& [index, reading] : changed_) {
      const auto known = before.find(index);
      const std::size_t told = known == before.end() ? 0 : known->second.xids.size();
      for (std::size_t i = told; i < reading.xids.size(); ++i) fresh_xids_[index].push_back(reading.xids[i]);
    }
  }

  static DeviceReading parse(const google::protobuf::Struct& from) {
    const auto number = [&from](const char* name, double fallback) {
      const auto found = from.fields().find(name);
      return found == from.fields().end() ? fallback : found->second.number_value();
    };
    const auto text = [&from](const char* name) {
      const auto found = from.fields().find(name);
      return found == from.fields().end() ? std::string() : found->second.string_value();
    };
    DeviceReading reading;
    reading.temperature_celsius = static_cast<int32_t>(number("temperature_celsius", kIdleTemperature));
    reading.memory_used_mb = static_cast<int64_t>(number("memory_used_mb", 0));
    reading.utilization_percent = static_cast<int32_t>(number("utilization_percent", 0));
    reading.power_watts = static_cast<int32_t>(number("power_watts", 0));
    const std::string condition = text("condition");
    if (condition == "unhealthy") reading.condition = v1::DEVICE_CONDITION_UNHEALTHY;
    if (condition == "missing") reading.condition = v1::DEVICE_CONDITION_MISSING;
    reading.detail = text("detail");
    if (reading.condition != v1::DEVICE_CONDITION_OK && reading.detail.empty())
      reading.detail = "set by the control file";
    reading.ecc_uncorrected = static_cast<int64_t>(number("ecc_uncorrected", 0));
    reading.remap_pending = number("row_remap_pending", 0) != 0;
    reading.remap_failed = number("row_remap_failed", 0) != 0;
    const auto list = [&from](const char* name) {
      const auto found = from.fields().find(name);
      return found == from.fields().end() ? google::protobuf::ListValue() : found->second.list_value();
    };
    const google::protobuf::ListValue xids = list("xids");
    for (const google::protobuf::Value& xid : xids.values())
      reading.xids.push_back(static_cast<uint32_t>(xid.number_value()));
    const google::protobuf::ListValue throttles = list("throttles");
    for (const google::protobuf::Value& code : throttles.values())
      reading.throttles.push_back(code.string_value());
    const google::protobuf::ListValue processes = list("processes");
    for (const google::protobuf::Value& process : processes.values()) {
      // A pid, or [pid, megabytes].
      const auto& pair = process.list_value().values();
      const bool with_memory = process.has_list_value() && pair.size() == 2;
      reading.processes.push_back(
          static_cast<int64_t>(with_memory ? pair[0].number_value() : process.number_value()));
      reading.process_memory_mb.push_back(with_memory ? static_cast<int64_t>(pair[1].number_value()) : -1);
    }
    return reading;
  }

  struct Stamp {
    int64_t seconds = 0;
    int64_t nanoseconds = 0;
    int64_t size = 0;
    uint64_t inode = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };

  std::vector<DeviceFacts> facts_;
  const DeviceTopology topology_;
  std::string control_file_;
  Stamp seen_;
  std::map<uint32_t, DeviceReading> changed_;
  std::map<uint32_t, std::vector<uint32_t>> fresh_xids_;  ///< Not told yet.
};

}  // namespace

Result<std::unique_ptr<GpuDriver>> open_sim_driver(const std::string& shape, const std::string& node_name,
                                                   const std::string& control_file,
                                                   const std::string& links) {
  Result<std::vector<DeviceFacts>> facts = parse_shape(shape, node_name);
  if (!facts) return facts.error();
  DeviceTopology topology;
  if (!links.empty()) {
    Result<DeviceTopology> parsed = parse_sim_links(links, facts->size());
    if (!parsed) return parsed.error();
    topology = std::move(*parsed);
  }
  return std::unique_ptr<GpuDriver>(
      std::make_unique<SimDriver>(std::move(*facts), std::move(topology), control_file));
}

}  // namespace gpusched

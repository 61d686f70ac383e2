#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "log/log.h"
#include "model/mig.h"
#include "model/topology.h"
#include "node/gpu/gpu_driver.h"

namespace gpusched {
namespace {

constexpr int32_t kIdleTemperature = 30;
constexpr int32_t kSlowdownTemperature = 90;
constexpr std::string_view kMigMark = ":mig";
constexpr int64_t kMakeMsMax = 600'000;
constexpr int64_t kHangLookMs = 20;

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
    const bool mig = part.ends_with(kMigMark);
    const std::string model = part.substr(times + 1, part.size() - times - 1 - (mig ? kMigMark.size() : 0));
    const int64_t memory_mb = memory_of_model(model);
    if (memory_mb == 0) return bad_shape(part, "does not end with the memory, as in 80GB");
    if (mig && mig::table_of(model, memory_mb) == nullptr)
      return bad_shape(part, "cannot be in MIG mode: no such model has MIG profiles");
    if (devices.size() + count > limits::kDevicesPerNodeMax) {
      return bad_shape(part, "makes more than " + std::to_string(limits::kDevicesPerNodeMax) + " devices");
    }
    for (uint32_t i = 0; i < count; ++i) {
      devices.push_back({.uuid = "GPU-sim-" + node_name + "-" + std::to_string(devices.size()),
                         .model = "NVIDIA " + model,
                         .memory_mb = memory_mb,
                         .slowdown_celsius = kSlowdownTemperature,
                         .pci_slot = sim_slot(devices.size()),
                         .mig = mig});
    }
  }
  return devices;
}

class SimDriver final : public GpuDriver {
 public:
  SimDriver(std::vector<DeviceFacts> facts, DeviceTopology topology, std::string control_file)
      : facts_(std::move(facts)),
        topology_(std::move(topology)),
        control_file_(std::move(control_file)),
        slices_file_(std::filesystem::path(control_file_).parent_path() / "sim-mig"),
        blocks_(std::filesystem::exists(control_file_)) {
    for (std::size_t i = 0; i < topology_.numa_nodes.size(); ++i)
      facts_[i].numa_node = topology_.numa_nodes[i];
    reread_control_file();
    show_devices();
  }

  /// Why the driver does not even open, if it does not.
  const std::string& fault() const { return fault_; }

  std::string_view name() const override { return "sim"; }
  const std::vector<DeviceFacts>& inventory() const override { return shown_; }
  const DeviceTopology& topology() const override { return shown_topology_; }
  /// Making a slice, and with a control file each call, may take as long as that says.
  bool may_block() const override { return blocks_ || has_mig(); }

  std::optional<ProgramFacts> program_of(int64_t pid) const override {
    const auto found = programs_.find(pid);
    if (found == programs_.end()) return std::nullopt;
    return ProgramFacts{.name = found->second, .trusted = true};
  }

  DeviceReading read(uint32_t shown) override {
    const uint32_t index = numbers_.at(shown);
    reread_control_file();
    wait_while_it_hangs();
    DeviceReading reading;
    if (!fault_.empty()) {
      reading.condition = v1::DEVICE_CONDITION_UNHEALTHY;
      reading.detail = fault_;
      return reading;
    }
    reading.utilization_percent = 0;
    reading.temperature_celsius = kIdleTemperature;
    if (const auto found = changed_.find(index); found != changed_.end()) {
      reading = found->second.reading;
      reading.xids = std::exchange(fresh_xids_[index], {});
    }
    reading.slices = slices_of(index);
    return reading;
  }

  Result<std::vector<SliceReading>> slices(uint32_t shown) override {
    reread_control_file();
    return slices_of(numbers_.at(shown));
  }

  Result<MadeSlice> make_slice(uint32_t shown, const std::string& profile, int32_t start) override {
    const uint32_t index = numbers_.at(shown);
    reread_control_file();
    wait_while_it_hangs();
    const DeviceFacts& facts = facts_.at(index);
    const Change change = change_of(index);
    const mig::Table* const table = facts.mig ? mig::table_of(facts.model, facts.memory_mb) : nullptr;
    const mig::Profile* const wanted = table == nullptr ? nullptr : table->profile(profile);
    if (wanted == nullptr) return refuse("Invalid Argument");
    std::this_thread::sleep_for(std::chrono::milliseconds(change.make_ms));
    if (!change.make_error.empty()) return refuse(change.make_error);
    std::vector<SimSlice> all = load_slices();
    std::vector<mig::Instance> present;
    for (const SimSlice& one : all) {
      if (one.index != index) continue;
      if (const mig::Profile* const known = table->profile(one.profile); known != nullptr)
        present.push_back({.profile = known, .start = one.start});
    }
    if (!mig::fits(*table, present, *wanted, start)) return refuse("Insufficient Resources");
    all.push_back({.index = index, .profile = profile, .start = start});
    if (const Result<Unit> saved = save_slices(all); !saved) return saved.error();
    std::this_thread::sleep_for(std::chrono::milliseconds(change.made_ms));
    return made_of(all.back());
  }

  Result<Unit> destroy_slice(uint32_t shown, const std::string& profile, int32_t start) override {
    const uint32_t index = numbers_.at(shown);
    reread_control_file();
    wait_while_it_hangs();
    if (const Change change = change_of(index); !change.destroy_error.empty())
      return refuse(change.destroy_error);
    for (const SliceReading& slice : slices_of(index)) {
      if (slice.start == start && slice.profile == profile && !slice.processes.empty())
        return refuse("In use by another client");
    }
    std::vector<SimSlice> all = load_slices();
    std::erase_if(all, [&](const SimSlice& one) {
      return one.index == index && one.start == start && one.profile == profile;
    });
    return save_slices(all);
  }

 private:
  struct SimSlice {
    uint32_t index = 0;
    std::string profile;
    int32_t start = 0;
  };
  /// State of a device by the control file.
  struct Change {
    DeviceReading reading;
    std::vector<int32_t> process_slices;  ///< First slot of each of its processes; -1: none.
    int64_t make_ms = 0;                  ///< Time until a slice is there.
    int64_t made_ms = 0;                  ///< Further time until that is told.
    std::string make_error, destroy_error;
    bool absent = false;  ///< The driver no longer shows it.
  };

  bool has_mig() const {
    return std::any_of(facts_.begin(), facts_.end(), [](const DeviceFacts& device) { return device.mig; });
  }

  /// As it is when the driver opens: what is absent is not among the others, whose order may be another one.
  void show_devices() {
    for (const uint32_t number : order_) {
      if (number < facts_.size() && !change_of(number).absent) numbers_.push_back(number);
    }
    for (uint32_t number = 0; number < facts_.size(); ++number) {
      const bool known = std::find(order_.begin(), order_.end(), number) != order_.end();
      if (!known && !change_of(number).absent) numbers_.push_back(number);
    }
    for (const uint32_t number : numbers_) shown_.push_back(facts_[number]);
    shown_topology_.note = topology_.note;
    if (topology_.links.empty()) return;
    shown_topology_.links.resize(pair_count(numbers_.size()));
    for (std::size_t a = 0; a < numbers_.size(); ++a) {
      for (std::size_t b = a + 1; b < numbers_.size(); ++b) {
        const auto [low, high] = std::minmax(numbers_[a], numbers_[b]);
        shown_topology_.links[pair_index(a, b, numbers_.size())] =
            topology_.links[pair_index(low, high, facts_.size())];
      }
    }
  }

  void wait_while_it_hangs() {
    for (int64_t waited = 0; hangs_ && waited < kMakeMsMax; waited += kHangLookMs) {
      std::this_thread::sleep_for(std::chrono::milliseconds(kHangLookMs));
      reread_control_file();
    }
  }

  Change change_of(uint32_t index) const {
    const auto found = changed_.find(index);
    return found == changed_.end() ? Change{} : found->second;
  }

  static Error refuse(const std::string& why) {
    return Error{.code = ErrorCode::kUnavailable, .message = why};
  }

  MadeSlice made_of(const SimSlice& slice) const {
    std::string uuid = facts_[slice.index].uuid;
    uuid.replace(0, kSimUuidMark.size(), "MIG-sim-");
    return {.uuid = uuid + '-' + slice.profile + '-' + std::to_string(slice.start)};
  }

  std::vector<SliceReading> slices_of(uint32_t index) {
    std::vector<SliceReading> found;
    for (const SimSlice& one : load_slices()) {
      if (one.index != index) continue;
      SliceReading& slice =
          found.emplace_back(SliceReading{.profile = one.profile, .start = one.start, .made = made_of(one)});
      const auto change = changed_.find(index);
      for (std::size_t i = 0; change != changed_.end() && i < change->second.process_slices.size(); ++i) {
        if (change->second.process_slices[i] != one.start) continue;
        const DeviceReading& reading = change->second.reading;
        slice.processes.push_back(reading.processes[i]);
        slice.memory_used_mb += std::max<int64_t>(reading.process_memory_mb[i], 0);
      }
    }
    return found;
  }

  /// One line each: index, profile, first slot.
  std::vector<SimSlice> load_slices() const {
    std::vector<SimSlice> all;
    if (!has_mig()) return all;
    std::ifstream in(slices_file_);
    for (SimSlice one; in >> one.index >> one.profile >> one.start;) {
      if (one.index < facts_.size()) all.push_back(one);
    }
    return all;
  }

  Result<Unit> save_slices(const std::vector<SimSlice>& all) const {
    const std::string fresh = slices_file_ + ".new";
    {
      std::ofstream out(fresh, std::ios::trunc);
      for (const SimSlice& one : all) out << one.index << ' ' << one.profile << ' ' << one.start << '\n';
      out.close();
      if (!out) return refuse("cannot write " + fresh + ": " + std::strerror(errno));
    }
    if (std::rename(fresh.c_str(), slices_file_.c_str()) != 0)
      return refuse("cannot write " + slices_file_ + ": " + std::strerror(errno));
    return Unit{};
  }

  void reread_control_file() {
    struct stat facts{};
    if (stat(control_file_.c_str(), &facts) != 0) {
      changed_.clear();
      forget_driver();
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
    take_driver(parsed);
    const std::map<uint32_t, Change> before = std::exchange(changed_, {});
    const auto devices = parsed.fields().find("devices");
    if (devices == parsed.fields().end()) return;
    for (const auto& [name, value] : devices->second.struct_value().fields()) {
      uint32_t index = 0;
      if (parse_number(std::string_view(name), index) && index < facts_.size())
        changed_[index] = parse(value.struct_value());
    }
    note_xids(before);
  }

  void forget_driver() {
    fault_.clear();
    hangs_ = false;
    programs_.clear();
  }

  /// Takes the part of the file about the driver itself.
  void take_driver(const google::protobuf::Struct& parsed) {
    forget_driver();
    for (const auto& [name, value] : parsed.fields()) {
      if (name == "fault") fault_ = value.string_value();
      if (name == "hang") hangs_ = value.bool_value();
      if (name == "order") {
        order_.clear();
        for (const google::protobuf::Value& number : value.list_value().values())
          order_.push_back(static_cast<uint32_t>(number.number_value()));
      }
      if (name != "programs") continue;
      for (const auto& [pid, program] : value.struct_value().fields()) {
        int64_t number = 0;
        if (parse_number(std::string_view(pid), number)) programs_[number] = program.string_value();
      }
    }
  }

  /// The file lists all that came up; new is what stands behind what it had before.
  void note_xids(const std::map<uint32_t, Change>& before) {
    for (const auto& [index, change] : changed_) {
      const DeviceReading& reading = change.reading;
      const auto known = before.find(index);
      const std::size_t told = known == before.end() ? 0 : known->second.reading.xids.size();
      for (std::size_t i = told; i < reading.xids.size(); ++i) fresh_xids_[index].push_back(reading.xids[i]);
    }
  }

  static Change parse(const google::protobuf::Struct& from) {
    const auto number = [&from](const char* name, double fallback) {
      const auto found = from.fields().find(name);
      return found == from.fields().end() ? fallback : found->second.number_value();
    };
    const auto text = [&from](const char* name) {
      const auto found = from.fields().find(name);
      return found == from.fields().end() ? std::string() : found->second.string_value();
    };
    Change change;
    DeviceReading& reading = change.reading;
    reading.temperature_celsius = static_cast<int32_t>(number("temperature_celsius", kIdleTemperature));
    reading.memory_used_mb = static_cast<int64_t>(number("memory_used_mb", 0));
    if (from.fields().find("untold") == from.fields().end())
      reading.utilization_percent = static_cast<int32_t>(number("utilization_percent", 0));
    reading.power_watts = static_cast<int32_t>(number("power_watts", 0));
    const std::string condition = text("condition");
    if (condition == "unhealthy") reading.condition = v1::DEVICE_CONDITION_UNHEALTHY;
    if (condition == "missing") reading.condition = v1::DEVICE_CONDITION_MISSING;
    if (condition == "absent") {
      change.absent = true;
      reading.condition = v1::DEVICE_CONDITION_MISSING;
    }
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
      // A pid, or [pid, megabytes], or [pid, megabytes, first slot of its slice].
      const auto& words = process.list_value().values();
      const bool with_memory = process.has_list_value() && words.size() >= 2;
      reading.processes.push_back(
          static_cast<int64_t>(with_memory ? words[0].number_value() : process.number_value()));
      reading.process_memory_mb.push_back(with_memory ? static_cast<int64_t>(words[1].number_value()) : -1);
      const bool in_slice = with_memory && words.size() == 3;
      change.process_slices.push_back(in_slice ? static_cast<int32_t>(words[2].number_value()) : -1);
    }
    change.make_ms = std::clamp<int64_t>(static_cast<int64_t>(number("mig_make_ms", 0)), 0, kMakeMsMax);
    change.made_ms = std::clamp<int64_t>(static_cast<int64_t>(number("mig_made_ms", 0)), 0, kMakeMsMax);
    change.make_error = text("mig_make_error");
    change.destroy_error = text("mig_destroy_error");
    return change;
  }

  struct Stamp {
    int64_t seconds = 0;
    int64_t nanoseconds = 0;
    int64_t size = 0;
    uint64_t inode = 0;
    friend bool operator==(const Stamp&, const Stamp&) = default;
  };

  std::vector<DeviceFacts> facts_;  ///< By their numbers in the shape, which the control file uses.
  const DeviceTopology topology_;
  std::vector<uint32_t> numbers_;  ///< Numbers of the shown devices, in their order.
  std::vector<DeviceFacts> shown_;
  DeviceTopology shown_topology_;
  std::string control_file_;
  const std::string slices_file_;
  const bool blocks_;
  std::string fault_;
  bool hangs_ = false;
  std::vector<uint32_t> order_;
  std::map<int64_t, std::string> programs_;  ///< By pid.
  Stamp seen_;
  std::map<uint32_t, Change> changed_;
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
  auto driver = std::make_unique<SimDriver>(std::move(*facts), std::move(topology), control_file);
  if (!driver->fault().empty())
    return Error{.code = ErrorCode::kUnavailable, .message = driver->fault(), .field = {}};
  return std::unique_ptr<GpuDriver>(std::move(driver));
}

}  // namespace gpusched

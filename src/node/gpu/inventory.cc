#include "node/gpu/inventory.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/limits.h"
#include "model/topology.h"

namespace gpusched {
namespace {

constexpr const char* kMissingMark = "missing";

Error write_error(const std::string& path) {
  const int error = errno;
  return Error{.code = error == ENOSPC || error == EDQUOT ? ErrorCode::kStorageFull : ErrorCode::kIo,
               .message = "cannot write " + path + ": " + std::strerror(error)};
}

const DeviceFacts* find(const std::vector<DeviceFacts>& devices, const std::string& uuid) {
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [&](const DeviceFacts& device) { return device.uuid == uuid; });
  return found == devices.end() ? nullptr : &*found;
}

/// A driver whose devices have other numbers here, and beside which some are missing.
class SlotDriver final : public GpuDriver {
 public:
  SlotDriver(std::shared_ptr<GpuDriver> driver, const std::vector<KnownDevice>& slots, std::string reason)
      : driver_(std::move(driver)), reason_(std::move(reason)) {
    for (const KnownDevice& slot : slots) {
      std::optional<uint32_t> inner;
      facts_.push_back(slot.facts);
      for (uint32_t i = 0; driver_ != nullptr && i < driver_->inventory().size(); ++i) {
        if (driver_->inventory()[i].uuid == slot.facts.uuid) inner = i;
      }
      if (inner) facts_.back() = driver_->inventory()[*inner];
      inner_.push_back(inner);
    }
    if (driver_ != nullptr) take_topology(driver_->topology());
  }

  std::string_view name() const override { return driver_ == nullptr ? "lost" : driver_->name(); }
  const std::vector<DeviceFacts>& inventory() const override { return facts_; }
  const DeviceTopology& topology() const override { return topology_; }
  bool may_block() const override { return driver_ != nullptr && driver_->may_block(); }
  bool tells_xids() const override { return driver_ != nullptr && driver_->tells_xids(); }
  std::optional<ProgramFacts> program_of(int64_t pid) const override {
    return driver_ == nullptr ? std::nullopt : driver_->program_of(pid);
  }
  DeviceReading read(uint32_t index) override {
    if (inner_.at(index)) return driver_->read(*inner_[index]);
    // A driver that does not answer says nothing of its devices; one that does not list a device, that it is
    // gone.
    return {.condition = driver_ == nullptr ? v1::DEVICE_CONDITION_UNHEALTHY : v1::DEVICE_CONDITION_MISSING,
            .detail = reason_};
  }
  Result<std::vector<SliceReading>> slices(uint32_t index) override {
    if (!inner_.at(index)) return lost();
    return driver_->slices(*inner_[index]);
  }
  Result<MadeSlice> make_slice(uint32_t index, const std::string& profile, int32_t start) override {
    if (!inner_.at(index)) return lost();
    return driver_->make_slice(*inner_[index], profile, start);
  }
  Result<Unit> destroy_slice(uint32_t index, const std::string& profile, int32_t start) override {
    if (!inner_.at(index)) return lost();
    return driver_->destroy_slice(*inner_[index], profile, start);
  }

 private:
  Error lost() const { return Error{.code = ErrorCode::kUnavailable, .message = reason_}; }

  void take_topology(const DeviceTopology& theirs) {
    topology_.note = theirs.note;
    if (theirs.links.empty()) return;
    topology_.links.resize(pair_count(inner_.size()));
    for (std::size_t a = 0; a < inner_.size(); ++a) {
      for (std::size_t b = a + 1; b < inner_.size(); ++b) {
        if (!inner_[a] || !inner_[b]) continue;
        const auto [low, high] = std::minmax(*inner_[a], *inner_[b]);
        topology_.links[pair_index(a, b, inner_.size())] =
            theirs.links[pair_index(low, high, driver_->inventory().size())];
      }
    }
  }

  const std::shared_ptr<GpuDriver> driver_;
  const std::string reason_;
  std::vector<DeviceFacts> facts_;
  std::vector<std::optional<uint32_t>> inner_;  ///< The driver's number of each.
  DeviceTopology topology_;
};

}  // namespace

Result<Unit> keep_inventory(const std::string& data_folder, const std::vector<KnownDevice>& devices) {
  const std::string path = data_folder + "/inventory";
  const std::string fresh = path + ".new";
  {
    std::ofstream file(fresh, std::ios::trunc);
    for (const KnownDevice& device : devices) {
      if (!device.missing_since.empty()) file << kMissingMark << ' ' << device.missing_since << ' ';
      file << device.facts.uuid << ' ' << device.facts.memory_mb << ' ' << device.facts.model << '\n';
    }
    file.close();
    if (!file) return write_error(fresh);
  }
  if (std::rename(fresh.c_str(), path.c_str()) != 0) return write_error(path);
  return Unit{};
}

Result<std::vector<KnownDevice>> load_inventory(const std::string& data_folder) {
  std::vector<KnownDevice> devices;
  std::ifstream file(data_folder + "/inventory");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    KnownDevice device;
    if (!(words >> device.facts.uuid)) continue;
    if (device.facts.uuid == kMissingMark && !(words >> device.missing_since >> device.facts.uuid)) continue;
    if (!(words >> device.facts.memory_mb) || words.get() != ' ') continue;
    if (!std::getline(words, device.facts.model)) continue;
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<KnownDevice> settle_inventory(const std::vector<KnownDevice>& before,
                                          const std::vector<DeviceFacts>& shown,
                                          const std::set<std::string>& held, const std::string& boot_id) {
  std::vector<KnownDevice> now;
  for (const KnownDevice& known : before) {
    if (const DeviceFacts* facts = find(shown, known.facts.uuid); facts != nullptr) {
      now.push_back({.facts = *facts, .missing_since = {}});
      continue;
    }
    KnownDevice missing = known;
    if (missing.missing_since.empty()) missing.missing_since = boot_id;
    if (missing.missing_since == boot_id || held.contains(missing.facts.uuid))
      now.push_back(std::move(missing));
  }
  for (const DeviceFacts& facts : shown) {
    const bool known = std::any_of(
        now.begin(), now.end(), [&](const KnownDevice& device) { return device.facts.uuid == facts.uuid; });
    if (!known) now.push_back({.facts = facts, .missing_since = {}});
  }
  // There are no more slots: those that nobody has go first.
  while (now.size() > limits::kDevicesPerNodeMax) {
    auto surplus = std::find_if(now.begin(), now.end(), [&](const KnownDevice& device) {
      return !device.missing_since.empty() && !held.contains(device.facts.uuid);
    });
    if (surplus == now.end()) break;
    now.erase(surplus);
  }
  return now;
}

std::shared_ptr<GpuDriver> make_slot_driver(std::shared_ptr<GpuDriver> driver,
                                            const std::vector<KnownDevice>& slots, std::string reason) {
  const bool same = driver != nullptr && slots.size() == driver->inventory().size() &&
                    std::equal(slots.begin(), slots.end(), driver->inventory().begin(),
                               [](const KnownDevice& slot, const DeviceFacts& device) {
                                 return slot.facts.uuid == device.uuid;
                               });
  if (same) return driver;
  return std::make_shared<SlotDriver>(std::move(driver), slots, std::move(reason));
}

}  // namespace gpusched

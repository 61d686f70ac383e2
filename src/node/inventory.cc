#include "node/inventory.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

namespace gpusched {
namespace {

Error io_error(const std::string& path) {
  return Error{.code = ErrorCode::kIo, .message = "cannot write " + path + ": " + std::strerror(errno)};
}

class LostDriver final : public GpuDriver {
 public:
  LostDriver(std::vector<DeviceFacts> devices, std::string reason)
      : devices_(std::move(devices)), reason_(std::move(reason)) {}

  std::string_view name() const override { return "lost"; }
  const std::vector<DeviceFacts>& inventory() const override { return devices_; }
  DeviceReading read(uint32_t) override {
    return {.condition = v1::DEVICE_CONDITION_MISSING, .detail = "the driver does not answer: " + reason_};
  }
  bool may_block() const override { return false; }

 private:
  const std::vector<DeviceFacts> devices_;
  const std::string reason_;
};

}  // namespace

Result<Unit> keep_inventory(const std::string& data_folder, const std::vector<DeviceFacts>& devices) {
  const std::string path = data_folder + "/inventory";
  const std::string fresh = path + ".new";
  {
    std::ofstream file(fresh, std::ios::trunc);
    for (const DeviceFacts& device : devices)
      file << device.uuid << ' ' << device.memory_mb << ' ' << device.model << '\n';
    file.close();
    if (!file) return io_error(fresh);
  }
  if (std::rename(fresh.c_str(), path.c_str()) != 0) return io_error(path);
  return Unit{};
}

Result<std::vector<DeviceFacts>> load_inventory(const std::string& data_folder) {
  std::vector<DeviceFacts> devices;
  std::ifstream file(data_folder + "/inventory");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    DeviceFacts device;
    if (!(words >> device.uuid >> device.memory_mb) || words.get() != ' ') continue;
    if (!std::getline(words, device.model)) continue;
    devices.push_back(std::move(device));
  }
  return devices;
}

std::shared_ptr<GpuDriver> make_lost_driver(std::vector<DeviceFacts> devices, std::string reason) {
  return std::make_shared<LostDriver>(std::move(devices), std::move(reason));
}

}  // namespace gpusched

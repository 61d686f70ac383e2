#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "node/gpu/gpu_driver.h"

namespace gpusched {

/// A driver that knows which MIG slices are this agent's: it makes and destroys no others, and a GPU with
/// slices of somebody else is told to be unfit. Each slice is noted in `mig-slices` in the data folder before
/// it is made, so that a killed agent's successor knows its own. Slices do not outlive a boot, and notes of
/// an earlier boot count for nothing. Not thread-safe: one thread at a time calls it.
class SliceKeeper final : public GpuDriver {
 public:
  SliceKeeper(std::shared_ptr<GpuDriver> driver, const std::string& data_folder, std::string boot_id);

  /// A slice that an earlier agent's attempt has, though it is not noted.
  void claim(uint32_t index, const std::string& profile, int32_t start);

  std::string_view name() const override { return driver_->name(); }
  const std::vector<DeviceFacts>& inventory() const override { return driver_->inventory(); }
  const DeviceTopology& topology() const override { return driver_->topology(); }
  bool may_block() const override { return driver_->may_block(); }
  std::optional<ProgramFacts> program_of(int64_t pid) const override { return driver_->program_of(pid); }
  bool tells_xids() const override { return driver_->tells_xids(); }
  DeviceReading read(uint32_t index) override;
  Result<std::vector<SliceReading>> slices(uint32_t index) override;
  Result<MadeSlice> make_slice(uint32_t index, const std::string& profile, int32_t start) override;
  Result<Unit> destroy_slice(uint32_t index, const std::string& profile, int32_t start) override;

 private:
  /// GPU, first slot and profile.
  struct Place {
    std::string gpu;
    int32_t start = 0;
    std::string profile;
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  Place place_of(uint32_t index, const std::string& profile, int32_t start) const;
  /// Marks what is ours, notes what became of it, and says what stands against the device.
  std::string review(uint32_t index, std::vector<SliceReading>& slices);
  void load();
  Result<Unit> save() const;

  const std::shared_ptr<GpuDriver> driver_;
  const std::string path_;
  const std::string boot_id_;
  const std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::map<Place, int> missed_;        ///< How many listings in a row lacked one of ours.
  std::map<Place, std::string> ours_;  ///< With their uuids; empty: it may not have been made.
};

}  // namespace gpusched

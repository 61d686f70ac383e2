#include "node/gpu/gpu_driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "node/testing/testing.h"

namespace gpusched {
namespace {

TEST(SimDriver, ShapeBecomesDevices) {
  const auto driver = open_sim_driver("2xA100-SXM4-80GB,1xH100-SXM5-96GB", "n1", "/no/such/file");
  ASSERT_TRUE(driver.ok());
  const std::vector<DeviceFacts>& devices = (*driver)->inventory();
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_EQ(devices[1].uuid, "GPU-sim-n1-1");
  EXPECT_EQ(devices[1].model, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(devices[1].memory_mb, 81'920);
  EXPECT_EQ(devices[2].uuid, "GPU-sim-n1-2");
  EXPECT_EQ(devices[2].memory_mb, 98'304);
}

TEST(SimDriver, ABadShapeIsRefusedNamingThePart) {
  for (const char* shape :
       {"", "A100-80GB", "0xA100-80GB", "4xA100", "4xA100-GB", "65xA100-80GB", "1xT4-16GB:mig",
        "2xA100-80GB,", "-1xA100-80GB", "4xA100-99999999999999999999GB"}) {
    const auto driver = open_sim_driver(shape, "n1", "");
    ASSERT_FALSE(driver.ok()) << shape;
    EXPECT_EQ(driver.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(SimDriver, ControlFileChangesDevicesWhileTheyAreInUse) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/sim-gpus.json";
  const auto driver = open_sim_driver("2xA100-SXM4-80GB", "n1", file);
  ASSERT_TRUE(driver.ok());
  EXPECT_EQ((*driver)->read(1).memory_used_mb, 0);

  std::ofstream(file) << R"({"devices": {"1": {"memory_used_mb": 512, "temperature_celsius": 81,
      "condition": "unhealthy", "detail": "XID 79", "processes": [17, 18]}}})";
  const DeviceReading changed = (*driver)->read(1);
  EXPECT_EQ(changed.memory_used_mb, 512);
  EXPECT_EQ(changed.temperature_celsius, 81);
  EXPECT_EQ(changed.condition, v1::DEVICE_CONDITION_UNHEALTHY);
  EXPECT_EQ(changed.detail, "XID 79");
  EXPECT_EQ(changed.processes, (std::vector<int64_t>{17, 18}));
  EXPECT_EQ((*driver)->read(0).condition, v1::DEVICE_CONDITION_OK);

  std::ofstream(file) << "{\"devices\": {";  // Half written.
  EXPECT_EQ((*driver)->read(1).memory_used_mb, 512);
  std::filesystem::remove(file);
  EXPECT_EQ((*driver)->read(1).condition, v1::DEVICE_CONDITION_OK);
}

TEST(SimDriver, DoesWhatAMachineRoomDoes) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/sim-gpus.json";
  const auto say = [&file](const std::string& text) {
    std::ofstream(file + ".new") << text;
    std::filesystem::rename(file + ".new", file);
  };
  const auto open = [&file] { return open_sim_driver("3xA100-SXM4-80GB", "n1", file); };
  // One is gone, and the others come in another order; then it is back.
  say(R"({"devices": {"0": {"condition": "absent"}}, "order": [2, 1]})");
  auto driver = open();
  ASSERT_EQ((*driver)->inventory().size(), 2u);
  EXPECT_EQ((*driver)->inventory()[0].uuid, "GPU-sim-n1-2");
  std::filesystem::remove(file);
  driver = open();
  ASSERT_EQ((*driver)->inventory().size(), 3u);
  EXPECT_EQ((*driver)->inventory()[0].uuid, "GPU-sim-n1-0");
  // Gone while it runs, and back.
  say(R"({"devices": {"0": {"condition": "missing"}}})");
  EXPECT_EQ((*driver)->read(0).condition, v1::DEVICE_CONDITION_MISSING);
  say(R"({"devices": {"0": {"memory_used_mb": 79000}}})");
  EXPECT_EQ((*driver)->read(0).condition, v1::DEVICE_CONDITION_OK);
  EXPECT_EQ((*driver)->read(0).memory_used_mb, 79'000);  // Nobody is seen to have it.
  EXPECT_TRUE((*driver)->read(0).processes.empty());
  // Zeros of a device that does not answer, and a driver that answers for none.
  say(R"({"devices": {"0": {"condition": "unhealthy", "detail": "Unknown Error"}}})");
  EXPECT_EQ((*driver)->read(0).utilization_percent, 0);
  EXPECT_EQ((*driver)->read(0).memory_used_mb, 0);
  say(R"({"fault": "Driver/library version mismatch"})");
  EXPECT_EQ((*driver)->read(1).detail, "Driver/library version mismatch");
  EXPECT_FALSE(open().ok());
  // It hangs until it is let go.
  say(R"({"hang": true})");
  std::atomic<bool> answered = false;
  std::thread reader([&] {
    EXPECT_EQ((*driver)->read(1).condition, v1::DEVICE_CONDITION_OK);
    answered = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(150));
  EXPECT_FALSE(answered);
  say("{}");
  reader.join();
}

TEST(SimDriver, SlicesAreKeptBesideTheControlFile) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/sim-gpus.json";
  const auto open = [&] { return std::move(*open_sim_driver("1xA100-SXM4-80GB:mig,1xT4-16GB", "n1", file)); };
  {
    const auto driver = open();
    EXPECT_TRUE(driver->may_block());
    EXPECT_TRUE(driver->inventory()[0].mig);
    EXPECT_EQ(driver->inventory()[0].model, "NVIDIA A100-SXM4-80GB");
    EXPECT_FALSE(driver->inventory()[1].mig);
    EXPECT_EQ(driver->make_slice(0, "1g.10gb", 6)->uuid, "MIG-sim-n1-0-1g.10gb-6");
    EXPECT_TRUE(driver->make_slice(0, "3g.40gb", 0).ok());
    EXPECT_EQ(driver->make_slice(0, "1g.10gb", 3).error().message, "Insufficient Resources");
    EXPECT_FALSE(driver->make_slice(0, "1g.5gb", 4).ok());
    EXPECT_FALSE(driver->make_slice(1, "1g.10gb", 0).ok());
  }
  const auto driver = open();
  ASSERT_EQ(driver->read(0).slices.size(), 2u);
  std::ofstream(file) << R"({"devices": {"0": {"processes": [[17, 300, 0], 18], "mig_make_error": "No"}}})";
  const DeviceReading reading = driver->read(0);
  EXPECT_EQ(reading.processes, (std::vector<int64_t>{17, 18}));
  EXPECT_TRUE(reading.slices[0].processes.empty());
  EXPECT_EQ(reading.slices[1].processes, std::vector<int64_t>{17});
  EXPECT_EQ(reading.slices[1].memory_used_mb, 300);
  EXPECT_EQ(driver->destroy_slice(0, "3g.40gb", 0).error().message, "In use by another client");
  EXPECT_TRUE(driver->destroy_slice(0, "1g.10gb", 6).ok());
  EXPECT_EQ(driver->make_slice(0, "1g.10gb", 6).error().message, "No");
  EXPECT_EQ(driver->read(0).slices.size(), 1u);
}

class NvmlDriverTest : public ::testing::Test {
 protected:
  NvmlDriverTest() {
    library_ = dlopen(GPUSCHED_FAKE_NVML_PATH, RTLD_NOW);
    void* const symbol = dlsym(library_, "fake_nvml_set");
    std::memcpy(&set_, &symbol, sizeof set_);
    set_(0, 0, 0, 0, 0);
    set_(1, 0, 0, 0, 0);
    find("fake_nvml_graphics", graphics_);
    find("fake_nvml_trouble", trouble_);
    find("fake_nvml_event", event_);
    find("fake_nvml_mig", mig_);
    find("fake_nvml_mig_errors", mig_errors_);
    find("fake_nvml_mig_use", mig_use_);
    for (const unsigned index : {0u, 1u}) {
      trouble_(index, 0, 0, 0);
      graphics_(index, 0);
      mig_(index, 0, 0);
    }
    auto opened = open_nvml_driver(GPUSCHED_FAKE_NVML_PATH);
    EXPECT_TRUE(opened.ok());
    driver_ = std::move(*opened);
  }
  ~NvmlDriverTest() override { dlclose(library_); }
  template <typename Function>
  void find(const char* name, Function& function) {
    void* const symbol = dlsym(library_, name);
    std::memcpy(&function, &symbol, sizeof function);
  }

  void* library_ = nullptr;
  void (*set_)(unsigned, unsigned, unsigned long long, unsigned long long, int) = nullptr;
  void (*graphics_)(unsigned, unsigned) = nullptr;
  void (*trouble_)(unsigned, unsigned, unsigned, unsigned long long) = nullptr;
  void (*event_)(unsigned, unsigned long long, unsigned long long) = nullptr;
  void (*mig_)(unsigned, unsigned, unsigned) = nullptr;
  void (*mig_errors_)(unsigned, int, int, int, int) = nullptr;
  void (*mig_use_)(unsigned, unsigned, unsigned, unsigned long long) = nullptr;
  /// A driver that was opened when GPU 1 was in MIG mode.
  std::unique_ptr<GpuDriver> with_mig() {
    mig_(1, 1, 1);
    auto opened = open_nvml_driver(GPUSCHED_FAKE_NVML_PATH);
    EXPECT_TRUE(opened.ok());
    return std::move(*opened);
  }
  std::shared_ptr<GpuDriver> driver_;
};

TEST_F(NvmlDriverTest, InventoryIsTheLibrarys) {
  ASSERT_EQ(driver_->inventory().size(), 2u);
  EXPECT_EQ(driver_->inventory()[1].uuid, "GPU-fake-1");
  EXPECT_EQ(driver_->inventory()[1].model, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(driver_->inventory()[1].memory_mb, 81'920);
  EXPECT_EQ(driver_->inventory()[1].slowdown_celsius, 87);
}

TEST_F(NvmlDriverTest, TopologyIsTheLibrarys) {
  void (*link)(unsigned, int, int) = nullptr;
  void* const symbol = dlsym(library_, "fake_nvml_link");
  std::memcpy(&link, &symbol, sizeof link);
  const auto between = [&](unsigned nvlinks, int to_switches, int level) {
    link(nvlinks, to_switches, level);
    auto opened = open_nvml_driver(GPUSCHED_FAKE_NVML_PATH);
    EXPECT_TRUE(opened.ok());
    EXPECT_EQ((*opened)->topology().links.size(), 1u);
    EXPECT_EQ((*opened)->topology().note, "NVML");
    EXPECT_EQ((*opened)->inventory()[1].numa_node, 1);
    EXPECT_EQ((*opened)->inventory()[1].pci_bus_id, "00000000:3B:00.0");
    return Link::of((*opened)->topology().links.at(0));
  };
  EXPECT_EQ(between(12, 1, 50), (Link{.kind = LinkKind::kNvlink, .gbs = 300}));
  EXPECT_EQ(between(4, 0, 50), (Link{.kind = LinkKind::kNvlink, .gbs = 100}));
  EXPECT_EQ(between(0, 0, 10).kind, LinkKind::kSwitch);
  EXPECT_EQ(between(0, 0, 20).kind, LinkKind::kBridges);
  EXPECT_EQ(between(0, 0, 30).kind, LinkKind::kHostBridge);
  EXPECT_EQ(between(0, 0, 40).kind, LinkKind::kNuma);
  EXPECT_EQ(between(0, 0, 50), (Link{.kind = LinkKind::kSystem, .gbs = 10}));
}

TEST_F(NvmlDriverTest, ReadingHasMemoryTemperaturePowerAndEveryProcess) {
  set_(1, 40, 300, 0, 0);  // More processes than the first guess holds.
  const DeviceReading reading = driver_->read(1);
  EXPECT_EQ(reading.condition, v1::DEVICE_CONDITION_OK);
  EXPECT_EQ(reading.memory_used_mb, 300);
  EXPECT_EQ(reading.temperature_celsius, 55);
  EXPECT_EQ(reading.power_watts, 123);
  ASSERT_EQ(reading.processes.size(), 40u);
  EXPECT_EQ(reading.processes[39], 1039);
  ASSERT_EQ(reading.process_memory_mb.size(), 40u);
  EXPECT_EQ(reading.process_memory_mb[0], -1);  // The driver does not tell.
  EXPECT_EQ(reading.process_memory_mb[2], 2048);
}

TEST_F(NvmlDriverTest, ALostDeviceIsMissingAndMemoryErrorsAreCounted) {
  set_(0, 0, 0, 0, 15);
  EXPECT_EQ(driver_->read(0).condition, v1::DEVICE_CONDITION_MISSING);
  EXPECT_EQ(driver_->read(0).detail, "the driver cannot read its memory: GPU is lost");
  set_(1, 0, 0, 3, 0);
  EXPECT_EQ(driver_->read(1).condition, v1::DEVICE_CONDITION_OK);
  EXPECT_EQ(driver_->read(1).ecc_uncorrected, 3);
}

TEST_F(NvmlDriverTest, ADeviceThatIsLostAtTheStartTakesNoOtherWithIt) {
  set_(0, 0, 0, 0, 15);
  set_(1, 0, 300, 0, 0);
  const auto opened = open_nvml_driver(GPUSCHED_FAKE_NVML_PATH);
  ASSERT_TRUE(opened.ok());
  ASSERT_EQ((*opened)->inventory().size(), 1u);
  EXPECT_EQ((*opened)->inventory()[0].uuid, "GPU-fake-1");
  EXPECT_EQ((*opened)->read(0).memory_used_mb, 300);
  set_(1, 0, 0, 0, 15);
  const auto none = open_nvml_driver(GPUSCHED_FAKE_NVML_PATH);
  ASSERT_FALSE(none.ok()) << "no device that answers is no inventory";
  EXPECT_EQ(none.error().message, "NVML cannot access any device: GPU is lost");
}

TEST_F(NvmlDriverTest, WhatDrawsOnADeviceUsesIt) {
  set_(1, 2, 300, 0, 0);
  graphics_(1, 3);  // One of them computes, too.
  const DeviceReading reading = driver_->read(1);
  EXPECT_EQ(reading.processes, (std::vector<int64_t>{1000, 1001, 5001, 5002}));
  EXPECT_EQ(reading.process_memory_mb, (std::vector<int64_t>{-1, 1'024, 64, 64}));
}

TEST_F(NvmlDriverTest, XidsAreToldOnceByTheDeviceThatHadThem) {
  ASSERT_TRUE(driver_->tells_xids());
  EXPECT_EQ(driver_->inventory()[1].pci_slot, "0000:3b:00");
  event_(1, 0x8, 79);
  event_(0, 0x8, 13);
  event_(1, 0x1, 5);  // Another kind of event.
  event_(1, 0x8, 48);
  EXPECT_EQ(driver_->read(0).xids, std::vector<uint32_t>{13});
  EXPECT_EQ(driver_->read(1).xids, (std::vector<uint32_t>{79, 48}));
  EXPECT_TRUE(driver_->read(1).xids.empty());
}

TEST_F(NvmlDriverTest, RowsOfMemoryAndWhatSlowsItDownAreTold) {
  trouble_(0, 1, 0, 0x40 | 0x4);
  trouble_(1, 0, 1, 0x88);
  EXPECT_TRUE(driver_->read(0).remap_pending);
  EXPECT_FALSE(driver_->read(0).remap_failed);
  EXPECT_EQ(driver_->read(0).throttles, std::vector<std::string>{"throttle_hw_thermal"});
  EXPECT_TRUE(driver_->read(1).remap_failed);
  EXPECT_EQ(driver_->read(1).throttles,
            (std::vector<std::string>{"throttle_hw_slowdown", "throttle_power_brake"}));
}

TEST_F(NvmlDriverTest, MigModeIsTold) {
  const auto driver = with_mig();
  EXPECT_FALSE(driver->inventory()[0].mig);
  EXPECT_TRUE(driver->inventory()[1].mig);
  EXPECT_FALSE(driver->inventory()[1].mig_pending);
  mig_(0, 0, 1);
  EXPECT_TRUE((*open_nvml_driver(GPUSCHED_FAKE_NVML_PATH))->inventory()[0].mig_pending);
}

TEST_F(NvmlDriverTest, AModeThatIsSwitchedMakesTheDeviceUnhealthy) {
  const auto driver = with_mig();
  EXPECT_EQ(driver->read(1).condition, v1::DEVICE_CONDITION_OK);
  mig_(1, 0, 0);
  EXPECT_EQ(driver->read(1).condition, v1::DEVICE_CONDITION_UNHEALTHY);
  EXPECT_EQ(driver->read(1).detail,
            "its MIG mode was switched off since gpu-agent started: restart gpu-agent");
  EXPECT_EQ(driver->read(0).condition, v1::DEVICE_CONDITION_OK);
}

TEST_F(NvmlDriverTest, ASliceIsMadeWithAllItsComputeAndDestroyed) {
  const auto driver = with_mig();
  const Result<MadeSlice> made = driver->make_slice(1, "3g.40gb", 4);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->uuid, "MIG-fake-1-9-4");
  EXPECT_GT(made->gpu_instance, 0);
  EXPECT_EQ(made->compute_instance, 0);
  ASSERT_TRUE(driver->make_slice(1, "1g.10gb", 0).ok());
  const DeviceReading reading = driver->read(1);
  ASSERT_EQ(reading.slices.size(), 2u);
  EXPECT_EQ(reading.slices[0].profile, "1g.10gb");
  EXPECT_EQ(reading.slices[1].profile, "3g.40gb");
  EXPECT_EQ(reading.slices[1].start, 4);
  EXPECT_EQ(reading.slices[1].made.uuid, "MIG-fake-1-9-4");
  ASSERT_TRUE(driver->destroy_slice(1, "3g.40gb", 4).ok());
  EXPECT_TRUE(driver->destroy_slice(1, "3g.40gb", 4).ok());  // Again there is nothing to do.
  EXPECT_EQ(driver->read(1).slices.size(), 1u);
}

TEST_F(NvmlDriverTest, WhatIsInASliceIsToldAndKeepsIt) {
  const auto driver = with_mig();
  ASSERT_TRUE(driver->make_slice(1, "2g.20gb", 2).ok());
  mig_use_(1, 2, 20, 512);
  const DeviceReading reading = driver->read(1);
  ASSERT_EQ(reading.slices.size(), 1u);
  EXPECT_EQ(reading.slices[0].processes.size(), 20u);
  EXPECT_EQ(reading.slices[0].memory_used_mb, 512);
  const Result<Unit> kept = driver->destroy_slice(1, "2g.20gb", 2);
  ASSERT_FALSE(kept.ok());
  EXPECT_EQ(kept.error().message, "NVML cannot destroy the compute instance: In use by another client");
  EXPECT_EQ(driver->read(1).slices.size(), 1u);
}

TEST_F(NvmlDriverTest, WhatCannotBeMadeIsSaidAndLeavesNothing) {
  const auto driver = with_mig();
  ASSERT_TRUE(driver->make_slice(1, "4g.40gb", 0).ok());
  EXPECT_EQ(driver->make_slice(1, "1g.10gb", 2).error().message,
            "NVML cannot create MIG instances: Insufficient Resources");
  EXPECT_EQ(driver->make_slice(1, "1g.5gb", 5).error().message,
            "a NVIDIA A100-SXM4-80GB has no such profile");
  mig_errors_(1, 0, 4, 0, 0);
  EXPECT_EQ(driver->make_slice(1, "1g.10gb", 5).error().message,
            "the driver allows only root to create compute instances: run gpu-agent as root");
  mig_errors_(1, 0, 0, 0, 0);
  EXPECT_EQ(driver->read(1).slices.size(), 1u);
  mig_errors_(1, 4, 0, 0, 4);
  EXPECT_EQ(driver->make_slice(1, "1g.10gb", 5).error().message,
            "the driver allows only root to create MIG instances: run gpu-agent as root");
  EXPECT_EQ(driver->read(1).condition, v1::DEVICE_CONDITION_UNHEALTHY);
  EXPECT_EQ(driver->read(1).detail,
            "the driver allows only root to list the GPU's MIG instances: run gpu-agent as root");
}

TEST_F(NvmlDriverTest, MonitorReadsOnItsOwnThread) {
  set_(1, 0, 77, 0, 0);
  const auto monitor = make_device_monitor(driver_);
  EXPECT_FALSE(monitor->read(1).has_value());
  pollfd source{.fd = monitor->finished_event(), .events = POLLIN, .revents = 0};
  ASSERT_EQ(poll(&source, 1, 30'000), 1);
  const auto finished = monitor->take_finished();
  ASSERT_EQ(finished.size(), 1u);
  EXPECT_EQ(finished[0].index, 1u);
  EXPECT_EQ(finished[0].reading.memory_used_mb, 77);
}

TEST_F(NvmlDriverTest, MonitorMakesAndDestroysSlicesInOrder) {
  const auto monitor = make_device_monitor(with_mig());
  monitor->make_slice(1, "1g.10gb", 3);
  monitor->make_slice(1, "2g.20gb", 2);  // There is no room any more.
  EXPECT_FALSE(monitor->read(1).has_value());
  monitor->destroy_slice(1, "1g.10gb", 3);
  EXPECT_FALSE(monitor->read(1).has_value());
  std::vector<DeviceMonitor::Finished> all;
  while (all.size() < 5) {
    pollfd source{.fd = monitor->finished_event(), .events = POLLIN, .revents = 0};
    ASSERT_EQ(poll(&source, 1, 30'000), 1);
    for (DeviceMonitor::Finished& one : monitor->take_finished()) all.push_back(std::move(one));
  }
  using Kind = DeviceMonitor::Finished::Kind;
  EXPECT_EQ(all[0].kind, Kind::kMade);
  EXPECT_EQ(all[0].made.uuid, "MIG-fake-1-19-3");
  EXPECT_EQ(all[0].problem, "");
  EXPECT_EQ(all[1].problem, "NVML cannot create MIG instances: Insufficient Resources");
  EXPECT_EQ(all[1].profile, "2g.20gb");
  EXPECT_EQ(all[2].reading.slices.size(), 1u);
  EXPECT_EQ(all[3].kind, Kind::kDestroyed);
  EXPECT_EQ(all[4].reading.slices.size(), 0u);
}

TEST(NvmlDriver, AMissingLibraryIsNotFound) {
  const auto driver = open_nvml_driver("/no/such/library.so");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace gpusched

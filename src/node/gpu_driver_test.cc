#include "node/gpu_driver.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "node/testing.h"

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
  for (const char* shape : {"", "A100-80GB", "0xA100-80GB", "4xA100", "4xA100-GB", "65xA100-80GB",
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

class NvmlDriverTest : public ::testing::Test {
 protected:
  NvmlDriverTest() {
    library_ = dlopen(GPUSCHED_FAKE_NVML_PATH, RTLD_NOW);
    void* const symbol = dlsym(library_, "fake_nvml_set");
    std::memcpy(&set_, &symbol, sizeof set_);
    set_(0, 0, 0, 0, 0);
    set_(1, 0, 0, 0, 0);
    find("fake_nvml_trouble", trouble_);
    find("fake_nvml_event", event_);
    for (const unsigned index : {0u, 1u}) trouble_(index, 0, 0, 0);
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
  void (*trouble_)(unsigned, unsigned, unsigned, unsigned long long) = nullptr;
  void (*event_)(unsigned, unsigned long long, unsigned long long) = nullptr;
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
    EXPECT_EQ((*opened)->inventory()[1].numa_plus_one, 2);
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

TEST(NvmlDriver, AMissingLibraryIsNotFound) {
  const auto driver = open_nvml_driver("/no/such/library.so");
  ASSERT_FALSE(driver.ok());
  EXPECT_EQ(driver.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace gpusched

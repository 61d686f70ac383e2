#include "node/gpu/inventory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "node/testing/testing.h"

namespace gpusched {
namespace {

DeviceFacts gpu(const std::string& uuid) { return {.uuid = uuid, .model = "Tesla T4", .memory_mb = 15'360}; }

std::vector<std::string> uuids_of(const std::vector<KnownDevice>& devices) {
  std::vector<std::string> uuids;
  for (const KnownDevice& device : devices)
    uuids.push_back((device.missing_since.empty() ? "" : "missing ") + device.facts.uuid);
  return uuids;
}

TEST(Inventory, ComesBackAndAnUnknownFolderHasNone) {
  TemporaryFolder folder;
  EXPECT_TRUE(load_inventory(folder.path())->empty());
  const DeviceFacts first{.uuid = "GPU-1", .model = "NVIDIA H100 80GB HBM3", .memory_mb = 81'559};
  ASSERT_TRUE(
      keep_inventory(folder.path(), {{.facts = first}, {.facts = gpu("GPU-2"), .missing_since = "b7"}}).ok());
  const Result<std::vector<KnownDevice>> devices = load_inventory(folder.path());
  ASSERT_EQ(devices->size(), 2u);
  EXPECT_EQ((*devices)[0].facts.model, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ((*devices)[1].facts.uuid, "GPU-2");
  EXPECT_EQ((*devices)[1].facts.memory_mb, 15'360);
  EXPECT_EQ((*devices)[1].missing_since, "b7");
}

TEST(Inventory, ALostDeviceKeepsItsPlaceAndOthersTheirs) {
  const std::vector<KnownDevice> before = {{.facts = gpu("a")}, {.facts = gpu("b")}, {.facts = gpu("c")}};
  const std::vector<KnownDevice> now = settle_inventory(before, {gpu("c"), gpu("d"), gpu("a")}, {}, "boot-1");
  EXPECT_EQ(uuids_of(now), (std::vector<std::string>{"a", "missing b", "c", "d"}));
  // Back again, it is where it was.
  EXPECT_EQ(uuids_of(settle_inventory(now, {gpu("b"), gpu("a"), gpu("c"), gpu("d")}, {}, "boot-2")),
            (std::vector<std::string>{"a", "b", "c", "d"}));
}

TEST(Inventory, ADeviceThatIsGoneForGoodIsForgottenAtTheNextBootUnlessAnAttemptHasIt) {
  const std::vector<KnownDevice> before = {{.facts = gpu("a"), .missing_since = "boot-1"},
                                           {.facts = gpu("b")}};
  EXPECT_EQ(settle_inventory(before, {gpu("b")}, {}, "boot-1").size(), 2u);
  EXPECT_EQ(uuids_of(settle_inventory(before, {gpu("b")}, {}, "boot-2")), std::vector<std::string>{"b"});
  EXPECT_EQ(settle_inventory(before, {gpu("b")}, {"a"}, "boot-2").size(), 2u);
}

TEST(SlotDriver, ALostDriversDevicesAreUnhealthyForAReason) {
  const auto driver = make_slot_driver(nullptr, {{.facts = gpu("GPU-1")}}, "version mismatch");
  EXPECT_EQ(driver->inventory().size(), 1u);
  const DeviceReading reading = driver->read(0);
  EXPECT_EQ(reading.condition, v1::DEVICE_CONDITION_UNHEALTHY);
  EXPECT_NE(reading.detail.find("version mismatch"), std::string::npos);
}

TEST(SlotDriver, ReadsEachDeviceByItsUuidWhateverItsNumberIs) {
  TemporaryFolder folder;
  const std::string control = folder.path() + "/sim-gpus.json";
  std::ofstream(control) << R"({"order": [2, 0], "devices": {"0": {"temperature_celsius": 50},
                                "1": {"condition": "absent"}, "2": {"temperature_celsius": 52}}})";
  Result<std::unique_ptr<GpuDriver>> opened = open_sim_driver("3xT4-16GB", "n1", control, "3");
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  std::shared_ptr<GpuDriver> driver = std::move(*opened);
  ASSERT_EQ(driver->inventory().size(), 2u);
  EXPECT_EQ(driver->inventory()[0].uuid, "GPU-sim-n1-2");

  const std::vector<KnownDevice> before = {
      {.facts = gpu("GPU-sim-n1-0")}, {.facts = gpu("GPU-sim-n1-1")}, {.facts = gpu("GPU-sim-n1-2")}};
  driver = make_slot_driver(driver, settle_inventory(before, driver->inventory(), {}, "b"), "it is gone");
  ASSERT_EQ(driver->inventory().size(), 3u);
  EXPECT_EQ(driver->read(0).temperature_celsius, 50);
  EXPECT_EQ(driver->read(1).condition, v1::DEVICE_CONDITION_MISSING);
  EXPECT_EQ(driver->read(1).detail, "it is gone");
  EXPECT_EQ(driver->read(2).temperature_celsius, 52);
  EXPECT_FALSE(driver->make_slice(1, "1g.10gb", 0).ok());
  ASSERT_EQ(driver->topology().links.size(), 3u);
  EXPECT_EQ(Link::of(driver->topology().links[pair_index(0, 2, 3)]).kind, LinkKind::kNvlink);
  EXPECT_EQ(driver->topology().links[pair_index(0, 1, 3)], 0);
}

}  // namespace
}  // namespace gpusched

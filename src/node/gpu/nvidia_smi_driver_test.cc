#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "node/gpu/gpu_driver.h"
#include "node/gpu/nvidia_smi_mig.h"
#include "node/testing/testing.h"

namespace gpusched {
namespace {

constexpr const char* kTwo =
    "GPU-aaa, NVIDIA A100-SXM4-80GB, 81920, 4, 37, 41, 61.32, 0\n"
    "GPU-bbb, NVIDIA A100-SXM4-80GB, 81920, 40213, 99, 66, 388.10, [N/A]\n";

constexpr const char* kInstances = R"(+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.10gb         19       13          6:1     |
+-------------------------------------------------------+
|   0  MIG 3g.40gb          9        2          0:4     |
+-------------------------------------------------------+
)";

constexpr const char* kTables = R"(Mon Mar  3 10:21:07 2025
+---------------------------------------------------------------------------------------+
| NVIDIA-SMI 535.104.05             Driver Version: 535.104.05   CUDA Version: 12.2     |
|-----------------------------------------+----------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |         Memory-Usage | GPU-Util  Compute M. |
|                                         |                      |               MIG M. |
|=========================================+======================+======================|
|   0  NVIDIA A100-SXM4-80GB          On  | 00000000:07:00.0 Off |                   On |
| N/A   33C    P0              58W / 400W |   1086MiB / 81920MiB |     N/A      Default |
|                                         |                      |              Enabled |
+-----------------------------------------+----------------------+----------------------+
|   1  NVIDIA A100-SXM4-80GB          On  | 00000000:0F:00.0 Off |                    0 |
| N/A   31C    P0              61W / 400W |      4MiB / 81920MiB |      0%      Default |
|                                         |                      |             Disabled |
+-----------------------------------------+----------------------+----------------------+

+---------------------------------------------------------------------------------------+
| MIG devices:                                                                          |
+------------------+--------------------------------+-----------+-----------------------+
| GPU  GI  CI  MIG |                   Memory-Usage |        Vol|      Shared           |
|      ID  ID  Dev |                     BAR1-Usage | SM     Unc| CE ENC DEC OFA JPG    |
|                  |                                |        ECC|                       |
|==================+================================+===========+=======================|
|  0    2   0   0  |              37MiB / 40192MiB  | 42      0 |  3   0    2    0    0 |
|                  |               0MiB / 65535MiB  |           |                       |
+------------------+--------------------------------+-----------+-----------------------+
|  0   13   0   1  |            1049MiB /  9728MiB  | 14      0 |  1   0    0    0    0 |
|                  |               0MiB / 16383MiB  |           |                       |
+------------------+--------------------------------+-----------+-----------------------+

+---------------------------------------------------------------------------------------+
| Processes:                                                                            |
|  GPU   GI   CI        PID   Type   Process name                            GPU Memory |
|        ID   ID                                                             Usage      |
|=======================================================================================|
|    0   13    0       4711      C   python3                                    1036MiB |
|    1   N/A  N/A      4712      G   /usr/lib/xorg/Xorg                            4MiB |
+---------------------------------------------------------------------------------------+
)";

constexpr const char* kList =
    "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-aaa)\n"
    "  MIG 3g.40gb     Device  0: (UUID: MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f)\n"
    "  MIG 1g.10gb     Device  1: (UUID: MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb)\n"
    "GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-bbb)\n";

/// A program that answers as nvidia-smi does, with what stands in files.
class NvidiaSmi : public ::testing::Test {
 protected:
  void SetUp() override {
    program_ = folder_.path() + "/nvidia-smi";
    std::ofstream(program_) << "#!/bin/sh\n"
                               "cd '"
                            << folder_.path()
                            << "'\n"
                               "[ -e hang ] && exec sleep 600\n"
                               "echo \"$*\" >> calls\n"
                               "case \"$*\" in\n"
                               "  mig*-lgi*) file=lgi ;;\n"
                               "  mig*-cgi*) file=cgi; [ ! -e made ] || . ./made ;;\n"
                               "  mig*-dci*) file=dci ;;\n"
                               "  mig*-dgi*) file=dgi; [ ! -e gone ] || . ./gone ;;\n"
                               "  *mig.mode.current*) file=modes ;;\n"
                               "  -L) file=list ;;\n"
                               "  '') file=tables ;;\n"
                               "  *--query-compute-apps=*) file=apps ;;\n"
                               "  *--id=*) file=alone-${3#--id=} ;;\n"
                               "  *) file=gpus ;;\n"
                               "esac\n"
                               "cat \"$file\"\n"
                               "[ ! -e \"$file.status\" ] || exit \"$(cat \"$file.status\")\"\n";
    ::chmod(program_.c_str(), 0755);
    answer("gpus", kTwo);
    answer("apps", "GPU-bbb, 4711\nGPU-bbb, 4712\n");
  }
  /// As it was the case for GPU 0 of a machine with an instance of 3g.40gb and one of 1g.10gb.
  void switch_mig_on() {
    answer("modes", "GPU-aaa, 0, Enabled, Enabled\nGPU-bbb, 1, Disabled, Disabled\n");
    answer("lgi", kInstances);
    answer("tables", kTables);
    answer("list", kList);
    answer("apps", "");
  }
  std::string calls() {
    std::ifstream in(folder_.path() + "/calls");
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  void answer(const std::string& file, const std::string& text, int status = 0) {
    std::ofstream(folder_.path() + "/" + file) << text;
    std::ofstream(folder_.path() + "/" + file + ".status") << status;
  }
  Result<std::unique_ptr<GpuDriver>> open(Duration patience = seconds(30)) {
    return open_nvidia_smi_driver(program_, patience);
  }
  std::unique_ptr<GpuDriver> opened(Duration patience = seconds(30)) {
    Result<std::unique_ptr<GpuDriver>> driver = open(patience);
    EXPECT_TRUE(driver.ok()) << (driver.ok() ? "" : driver.error().message);
    return driver.ok() ? std::move(*driver) : nullptr;
  }

  TemporaryFolder folder_;
  std::string program_;
};

TEST_F(NvidiaSmi, TellsDevicesAndReadings) {
  const std::unique_ptr<GpuDriver> driver = opened();
  ASSERT_EQ(driver->inventory().size(), 2u);
  EXPECT_EQ(driver->inventory()[1].uuid, "GPU-bbb");
  EXPECT_EQ(driver->inventory()[0].model, "NVIDIA A100-SXM4-80GB");
  EXPECT_EQ(driver->inventory()[0].memory_mb, 81'920);
  const DeviceReading idle = driver->read(0);
  EXPECT_EQ(idle.condition, v1::DEVICE_CONDITION_OK) << idle.detail;
  EXPECT_EQ(idle.memory_used_mb, 4);
  EXPECT_TRUE(idle.processes.empty());
  const DeviceReading busy = driver->read(1);
  EXPECT_EQ(busy.condition, v1::DEVICE_CONDITION_OK) << busy.detail;
  EXPECT_EQ(busy.utilization_percent, 99);
  EXPECT_EQ(busy.temperature_celsius, 66);
  EXPECT_EQ(busy.power_watts, 388);
  EXPECT_EQ(busy.processes, (std::vector<int64_t>{4711, 4712}));
}

TEST_F(NvidiaSmi, AReadingIsNeverToldTwice) {
  const std::unique_ptr<GpuDriver> driver = opened();
  EXPECT_EQ(driver->read(1).processes.size(), 2u);
  answer("apps", "");
  EXPECT_TRUE(driver->read(1).processes.empty());
}

TEST_F(NvidiaSmi, ASensorThatIsMissingIsNoTrouble) {
  answer("gpus", "GPU-aaa, NVIDIA T4, 15360, 3, [N/A], [Not Supported], [N/A], [N/A]\n");
  answer("apps", "");
  EXPECT_EQ(opened()->read(0).condition, v1::DEVICE_CONDITION_OK);
}

TEST_F(NvidiaSmi, AnErrorInACellIsUnhealthy) {
  const std::unique_ptr<GpuDriver> driver = opened();
  answer("gpus",
         "GPU-aaa, NVIDIA A100-SXM4-80GB, 81920, 4, 0, ERR!, ERR!, 0\n"
         "GPU-bbb, NVIDIA A100-SXM4-80GB, 81920, [Unknown Error], 0, 41, 61.0, 0\n");
  const DeviceReading first = driver->read(0);
  EXPECT_EQ(first.condition, v1::DEVICE_CONDITION_UNHEALTHY);
  EXPECT_EQ(first.detail, "nvidia-smi says ERR!");
  EXPECT_EQ(driver->read(1).condition, v1::DEVICE_CONDITION_UNHEALTHY);
  answer("gpus", "GPU-aaa, NVIDIA A100-SXM4-80GB, 81920, 4, 0, 40, 60.0, 3\n");
  EXPECT_EQ(driver->read(0).ecc_uncorrected, 3);
}

TEST_F(NvidiaSmi, WhatIsNoNumberIsNoMemory) {
  const std::unique_ptr<GpuDriver> driver = opened();
  answer("gpus",
         "GPU-aaa, NVIDIA A100-SXM4-80GB, 81920, nan, 0, 40, 60.0, 0\n"
         "GPU-bbb, NVIDIA A100-SXM4-80GB, 81920, 4, 99999999999, 40, 60.0, 0\n");
  EXPECT_EQ(driver->read(0).detail, "nvidia-smi does not report its memory: nan");
  EXPECT_EQ(driver->read(1).utilization_percent, 0);
}

TEST_F(NvidiaSmi, ALostDeviceDoesNotTakeTheOthersWithIt) {
  const std::unique_ptr<GpuDriver> driver = opened();
  const std::string lost =
      "Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost.  Reboot the system to "
      "recover this "
      "GPU\n";
  answer("gpus", lost, 15);
  answer("alone-GPU-aaa", "GPU-aaa, NVIDIA A100-SXM4-80GB, 81920, 4, 0, 40, 60.0, 0\n");
  answer("alone-GPU-bbb", lost, 15);
  EXPECT_EQ(driver->read(0).condition, v1::DEVICE_CONDITION_OK);
  const DeviceReading reading = driver->read(1);
  EXPECT_EQ(reading.condition, v1::DEVICE_CONDITION_MISSING);
  EXPECT_NE(reading.detail.find("GPU is lost"), std::string::npos);
  EXPECT_EQ(driver->inventory().size(), 2u);
}

TEST_F(NvidiaSmi, ADeviceThatIsNoLongerListedIsMissing) {
  const std::unique_ptr<GpuDriver> driver = opened();
  answer("gpus", std::string(kTwo).substr(0, std::string(kTwo).find('\n') + 1));
  EXPECT_EQ(driver->read(0).condition, v1::DEVICE_CONDITION_OK);
  EXPECT_EQ(driver->read(1).condition, v1::DEVICE_CONDITION_MISSING);
}

TEST_F(NvidiaSmi, TellsWhatEachProcessUsesWhereItKnows) {
  const std::unique_ptr<GpuDriver> driver = opened();
  answer("apps", "GPU-bbb, 4711, 1024\nGPU-bbb, 4712, [N/A]\n");
  const DeviceReading reading = driver->read(1);
  EXPECT_EQ(reading.processes, (std::vector<int64_t>{4711, 4712}));
  EXPECT_EQ(reading.process_memory_mb, (std::vector<int64_t>{1024, -1}));
}

TEST_F(NvidiaSmi, UnreadableProcessesLeaveNoDeviceFree) {
  const std::unique_ptr<GpuDriver> driver = opened();
  answer("apps", "Insufficient Permissions\n", 4);
  const DeviceReading reading = driver->read(0);
  EXPECT_EQ(reading.condition, v1::DEVICE_CONDITION_UNHEALTHY);
  EXPECT_NE(reading.detail.find("Insufficient Permissions"), std::string::npos);
}

TEST_F(NvidiaSmi, AMismatchOfDriverAndLibraryIsAnErrorAndNotZeroDevices) {
  answer("gpus", "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.54\n",
         18);
  const Result<std::unique_ptr<GpuDriver>> refused = open();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(refused.error().message, "Failed to initialize NVML: Driver/library version mismatch");
}

TEST_F(NvidiaSmi, AMismatchWhileItRunsMakesEveryDeviceMissing) {
  const std::unique_ptr<GpuDriver> driver = opened();
  const std::string text = "Failed to initialize NVML: Driver/library version mismatch\n";
  for (const char* const file : {"gpus", "apps", "alone-GPU-aaa", "alone-GPU-bbb"}) answer(file, text, 18);
  for (uint32_t index = 0; index < 2; ++index) {
    EXPECT_EQ(driver->read(index).condition, v1::DEVICE_CONDITION_MISSING);
    EXPECT_EQ(driver->read(index).detail, "Failed to initialize NVML: Driver/library version mismatch");
  }
}

TEST_F(NvidiaSmi, AHangEndsWithItsPatience) {
  const std::unique_ptr<GpuDriver> driver = opened();
  std::ofstream(folder_.path() + "/hang") << "";
  const Result<std::unique_ptr<GpuDriver>> refused = open(milliseconds(200));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
  EXPECT_NE(refused.error().message.find("did not answer in time"), std::string::npos);
}

TEST_F(NvidiaSmi, WithoutTheProgramOrWithoutADeviceThereIsNone) {
  EXPECT_EQ(open_nvidia_smi_driver("/nowhere/nvidia-smi", seconds(30)).error().code, ErrorCode::kNotFound);
  answer("gpus", "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", 9);
  EXPECT_EQ(open().error().code, ErrorCode::kNotFound);
  answer("gpus", "No devices were found\n", 6);
  EXPECT_EQ(open().error().code, ErrorCode::kNotFound);
}

TEST_F(NvidiaSmi, StandsInForNvml) {
  const Result<std::unique_ptr<GpuDriver>> driver = open_real_driver("/nowhere/libnvidia-ml.so.1", program_);
  ASSERT_TRUE(driver.ok()) << driver.error().message;
  EXPECT_EQ((*driver)->name(), "nvidia-smi");
  const Result<std::unique_ptr<GpuDriver>> none =
      open_real_driver("/nowhere/libnvidia-ml.so.1", "/nowhere/nvidia-smi");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kNotFound);
}

TEST_F(NvidiaSmi, WithoutAWordOfMigThereIsNone) {
  answer("modes", "Field \"mig.mode.current\" is not a valid field to query.\n", 2);
  EXPECT_FALSE(opened()->inventory()[0].mig);
  answer("modes", "GPU-aaa, 0, [N/A], [N/A]\nGPU-bbb, 1, Disabled, Enabled\n");
  const std::unique_ptr<GpuDriver> driver = opened();
  EXPECT_FALSE(driver->inventory()[0].mig);
  EXPECT_FALSE(driver->inventory()[0].mig_pending);
  EXPECT_FALSE(driver->inventory()[1].mig);
  EXPECT_TRUE(driver->inventory()[1].mig_pending);
}

TEST_F(NvidiaSmi, TellsSlicesAndWhatIsInThem) {
  switch_mig_on();
  const std::unique_ptr<GpuDriver> driver = opened();
  EXPECT_TRUE(driver->inventory()[0].mig);
  EXPECT_FALSE(driver->inventory()[1].mig);
  const DeviceReading reading = driver->read(0);
  EXPECT_EQ(reading.condition, v1::DEVICE_CONDITION_OK) << reading.detail;
  ASSERT_EQ(reading.slices.size(), 2u);
  const SliceReading& small = reading.slices[0];
  EXPECT_EQ(small.profile, "1g.10gb");
  EXPECT_EQ(small.start, 6);
  EXPECT_EQ(small.made.uuid, "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb");
  EXPECT_EQ(small.made.gpu_instance, 13);
  EXPECT_EQ(small.made.compute_instance, 0);
  EXPECT_EQ(small.processes, std::vector<int64_t>{4711});
  EXPECT_EQ(small.memory_used_mb, 1'049);
  const SliceReading& large = reading.slices[1];
  EXPECT_EQ(large.profile, "3g.40gb");
  EXPECT_EQ(large.start, 0);
  EXPECT_EQ(large.made.uuid, "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f");
  EXPECT_TRUE(large.processes.empty());
  EXPECT_TRUE(driver->read(1).slices.empty());
}

TEST_F(NvidiaSmi, AGpuInMigModeMayHaveNoInstance) {
  switch_mig_on();
  answer("lgi", "No GPU instances found: Not Found\n", 6);
  const DeviceReading reading = opened()->read(0);
  EXPECT_EQ(reading.condition, v1::DEVICE_CONDITION_OK) << reading.detail;
  EXPECT_TRUE(reading.slices.empty());
}

TEST_F(NvidiaSmi, WhoMayNotListInstancesIsToldSo) {
  switch_mig_on();
  answer("lgi",
         "Failed to display GPU instances: Insufficient Permissions\nNo GPU instances found: Insufficient "
         "Permissions\n",
         4);
  const std::unique_ptr<GpuDriver> driver = opened();
  EXPECT_EQ(driver->read(0).condition, v1::DEVICE_CONDITION_UNHEALTHY);
  EXPECT_EQ(
      driver->read(0).detail,
      "its MIG instances cannot be listed: Failed to display GPU instances: Insufficient Permissions: run "
      "gpu-agent as root");
  EXPECT_EQ(driver->read(1).condition, v1::DEVICE_CONDITION_OK);
}

TEST_F(NvidiaSmi, ASliceIsMadeWhereItIsWanted) {
  switch_mig_on();
  const std::unique_ptr<GpuDriver> driver = opened();
  answer("lgi", "No GPU instances found: Not Found\n", 6);
  answer("full", kInstances);
  std::ofstream(folder_.path() + "/made") << "cp full lgi; echo 0 > lgi.status\n";
  answer("cgi",
         "Successfully created GPU instance ID 13 on GPU  0 using profile MIG 1g.10gb (ID 19)\n"
         "Successfully created compute instance ID  0 on GPU  0 GPU instance ID 13 using profile MIG 1g.10gb "
         "(ID  0)\n");
  const Result<MadeSlice> made = driver->make_slice(0, "1g.10gb", 6);
  ASSERT_TRUE(made.ok()) << made.error().message;
  EXPECT_EQ(made->uuid, "MIG-cba663e8-9bed-5b25-b243-5985ef7c9beb");
  EXPECT_NE(calls().find("mig -cgi 19:6 -C -i 0\n"), std::string::npos) << calls();
}

TEST_F(NvidiaSmi, ASliceThatCannotBeMadeHasItsReason) {
  switch_mig_on();
  const std::unique_ptr<GpuDriver> driver = opened();
  answer("cgi",
         "Unable to create a GPU instance on GPU  0 using profile 19: Insufficient Resources\n"
         "Failed to create GPU instances: Insufficient Resources\n",
         19);
  EXPECT_EQ(driver->make_slice(0, "1g.10gb", 2).error().message,
            "Failed to create GPU instances: Insufficient Resources");
  EXPECT_FALSE(driver->make_slice(0, "1g.5gb", 5).ok());
  EXPECT_FALSE(driver->make_slice(1, "1g.10gb", 5).ok());
  EXPECT_EQ(calls().find("19:5"), std::string::npos);
}

// An instance made in part is of no use to anybody, and would keep its slots.
TEST_F(NvidiaSmi, AnInstanceWithoutComputeIsDestroyedAgain) {
  switch_mig_on();
  const std::unique_ptr<GpuDriver> driver = opened();
  answer("list", "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-aaa)\n");
  std::string tables = kTables;
  tables.erase(tables.find("|  0   13"),
               tables.find("+---", tables.find("|  0   13")) - tables.find("|  0   13"));
  answer("tables", tables);
  answer("cgi",
         "Successfully created GPU instance ID 13 on GPU  0 using profile MIG 1g.10gb (ID 19)\n"
         "Failed to create compute instances: Unknown Error\n",
         255);
  answer("dgi", "Successfully destroyed GPU instance ID 13 from GPU  0\n");
  EXPECT_EQ(driver->make_slice(0, "1g.10gb", 6).error().message,
            "Failed to create compute instances: Unknown Error");
  EXPECT_NE(calls().find("mig -dgi -gi 13 -i 0\n"), std::string::npos) << calls();
  EXPECT_EQ(calls().find("-dci"), std::string::npos);
}

TEST_F(NvidiaSmi, ASliceIsDestroyedWithItsComputeInstance) {
  switch_mig_on();
  const std::unique_ptr<GpuDriver> driver = opened();
  answer("dci", "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID  2\n");
  answer("dgi", "Successfully destroyed GPU instance ID  2 from GPU  0\n");
  EXPECT_TRUE(driver->destroy_slice(0, "3g.40gb", 0).ok());
  const std::string said = calls();
  const std::size_t first = said.find("mig -dci -gi 2 -i 0\n");
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_NE(said.find("mig -dgi -gi 2 -i 0\n", first), std::string::npos) << said;
  EXPECT_TRUE(driver->destroy_slice(0, "2g.20gb", 4).ok());  // There is none.
}

TEST_F(NvidiaSmi, ASliceInUseStays) {
  switch_mig_on();
  const std::unique_ptr<GpuDriver> driver = opened();
  answer("dci", "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID 13\n");
  answer("dgi",
         "Unable to destroy GPU instance ID 13 from GPU  0: In use by another client\n"
         "Failed to destroy GPU instances: In use by another client\n",
         19);
  EXPECT_EQ(driver->destroy_slice(0, "1g.10gb", 6).error().message,
            "Failed to destroy GPU instances: In use by another client");
}

TEST(NvidiaSmiMig, TextThatIsCutIsLeftOut) {
  const std::string instances = kInstances;
  const std::string tables = kTables;
  const std::string list = kList;
  const auto slices = [&](std::size_t size) {
    return smi::slices_of(0, "NVIDIA A100-SXM4-80GB", 81'920, instances.substr(0, size),
                          tables.substr(0, size), list.substr(0, size));
  };
  for (std::size_t size = 0; size < tables.size(); ++size) EXPECT_LE(slices(size).size(), 2u);
  EXPECT_EQ(slices(tables.size()).size(), 2u);
  EXPECT_EQ(smi::slices_of(0, "NVIDIA T4", 15'360, instances, tables, list).at(0).profile, "profile-19");
  EXPECT_TRUE(smi::slices_of(1, "NVIDIA A100-SXM4-80GB", 81'920, instances, tables, list).empty());
}

TEST_F(NvidiaSmi, AnOldInventoryIsNotMadeOfErrors) {
  answer("gpus", "GPU-aaa, NVIDIA A100-SXM4-80GB, [GPU requires reset], 4, 0, 40, 60.0, 0\n");
  EXPECT_EQ(open().error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace gpusched

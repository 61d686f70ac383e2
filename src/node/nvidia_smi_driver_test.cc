#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "node/gpu_driver.h"
#include "node/testing.h"

namespace gpusched {
namespace {

constexpr const char* kTwo =
    "GPU-aaa, NVIDIA A100-SXM4-80GB, 81920, 4, 37, 41, 61.32, 0\n"
    "GPU-bbb, NVIDIA A100-SXM4-80GB, 81920, 40213, 99, 66, 388.10, [N/A]\n";

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
                               "case \"$*\" in\n"
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
  EXPECT_EQ(driver->read(0).detail, "nvidia-smi does not tell its memory: nan");
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

TEST_F(NvidiaSmi, AnOldInventoryIsNotMadeOfErrors) {
  answer("gpus", "GPU-aaa, NVIDIA A100-SXM4-80GB, [GPU requires reset], 4, 0, 40, 60.0, 0\n");
  EXPECT_EQ(open().error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace gpusched

#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "node/gpu_driver.h"

namespace gpusched {
namespace {

class InlineMonitor final : public DeviceMonitor {
 public:
  explicit InlineMonitor(std::shared_ptr<GpuDriver> driver) : driver_(std::move(driver)) {}

  std::optional<DeviceReading> read(uint32_t index) override {
    CHECK(driver_ != nullptr);
    return driver_->read(index);
  }
  std::vector<Finished> take_finished() override { return {}; }
  int finished_event() const override { return -1; }

 private:
  std::shared_ptr<GpuDriver> driver_;
};

/// What monitor and thread share. The thread keeps it alive, so that a hanging one may be left behind.
struct Shared {
  ~Shared() { close(event); }

  std::shared_ptr<GpuDriver> driver;
  int event = -1;
  std::mutex mutex;  ///< Guards what follows.
  std::condition_variable wake;
  std::deque<uint32_t> wanted;
  std::vector<DeviceMonitor::Finished> finished;
  bool stopping = false;
};

class ThreadMonitor final : public DeviceMonitor {
 public:
  explicit ThreadMonitor(std::shared_ptr<GpuDriver> driver) : shared_(std::make_shared<Shared>()) {
    shared_->driver = std::move(driver);
    shared_->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    CHECK(shared_->event >= 0);
    std::thread([shared = shared_] { run(*shared); }).detach();
  }
  ~ThreadMonitor() override {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->stopping = true;
    }
    shared_->wake.notify_one();
  }

  std::optional<DeviceReading> read(uint32_t index) override {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->wanted.push_back(index);
    }
    shared_->wake.notify_one();
    return std::nullopt;
  }
  std::vector<Finished> take_finished() override {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t size = ::read(shared_->event, &count, sizeof count);
    const std::lock_guard lock(shared_->mutex);
    return std::exchange(shared_->finished, {});
  }
  int finished_event() const override { return shared_->event; }

 private:
  static void run(Shared& shared) {
    std::unique_lock lock(shared.mutex);
    while (true) {
      shared.wake.wait(lock, [&] { return shared.stopping || !shared.wanted.empty(); });
      if (shared.stopping) return;
      const uint32_t index = shared.wanted.front();
      shared.wanted.pop_front();
      lock.unlock();
      DeviceReading reading = shared.driver->read(index);
      lock.lock();
      shared.finished.push_back({.index = index, .reading = std::move(reading)});
      const uint64_t one = 1;
      [[maybe_unused]] const ssize_t size = write(shared.event, &one, sizeof one);
    }
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace

std::unique_ptr<DeviceMonitor> make_device_monitor(std::shared_ptr<GpuDriver> driver) {
  if (driver != nullptr && driver->may_block()) return std::make_unique<ThreadMonitor>(std::move(driver));
  return std::make_unique<InlineMonitor>(std::move(driver));
}

}  // namespace gpusched

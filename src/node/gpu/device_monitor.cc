#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "node/gpu/gpu_driver.h"

namespace gpusched {
namespace {

using Finished = DeviceMonitor::Finished;

struct Work {
  Finished::Kind kind = Finished::Kind::kReading;
  uint32_t index = 0;
  std::string profile = {};
  int32_t start = 0;
};

DeviceReading read_device(GpuDriver& driver, uint32_t index, const std::vector<std::string>& daemons) {
  DeviceReading reading = driver.read(index);
  set_daemons_apart(reading, daemons, [&driver](int64_t pid) { return driver.program_of(pid); });
  return reading;
}

Finished carry_out(GpuDriver& driver, const Work& work, const std::vector<std::string>& daemons) {
  Finished done{.kind = work.kind, .index = work.index, .profile = work.profile, .start = work.start};
  switch (work.kind) {
    case Finished::Kind::kReading:
      done.reading = read_device(driver, work.index, daemons);
      break;
    case Finished::Kind::kMade: {
      Result<MadeSlice> made = driver.make_slice(work.index, work.profile, work.start);
      if (made) {
        done.made = std::move(*made);
      } else {
        done.problem = made.error().message;
      }
      break;
    }
    case Finished::Kind::kDestroyed:
      if (const Result<Unit> gone = driver.destroy_slice(work.index, work.profile, work.start); !gone)
        done.problem = gone.error().message;
      break;
  }
  return done;
}

int make_event() {
  const int event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  CHECK(event >= 0);
  return event;
}

void signal_event(int event) {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t size = write(event, &one, sizeof one);
}

void clear_event(int event) {
  uint64_t count = 0;
  [[maybe_unused]] const ssize_t size = ::read(event, &count, sizeof count);
}

class InlineMonitor final : public DeviceMonitor {
 public:
  InlineMonitor(std::shared_ptr<GpuDriver> driver, std::vector<std::string> daemons)
      : driver_(std::move(driver)), daemons_(std::move(daemons)), event_(make_event()) {}
  ~InlineMonitor() override { close(event_); }

  std::optional<DeviceReading> read(uint32_t index) override {
    CHECK(driver_ != nullptr);
    return read_device(*driver_, index, daemons_);
  }
  void make_slice(uint32_t index, const std::string& profile, int32_t start) override {
    do_now({.kind = Finished::Kind::kMade, .index = index, .profile = profile, .start = start});
  }
  void destroy_slice(uint32_t index, const std::string& profile, int32_t start) override {
    do_now({.kind = Finished::Kind::kDestroyed, .index = index, .profile = profile, .start = start});
  }
  std::vector<Finished> take_finished() override {
    clear_event(event_);
    return std::exchange(finished_, {});
  }
  int finished_event() const override { return event_; }

 private:
  void do_now(const Work& work) {
    CHECK(driver_ != nullptr);
    finished_.push_back(carry_out(*driver_, work, daemons_));
    signal_event(event_);
  }

  std::shared_ptr<GpuDriver> driver_;
  const std::vector<std::string> daemons_;
  const int event_;
  std::vector<Finished> finished_;
};

/// Data that monitor and thread share. The thread keeps it alive, so that a hanging one may be left behind.
struct Shared {
  ~Shared() { close(event); }

  std::shared_ptr<GpuDriver> driver;
  std::vector<std::string> daemons;
  int event = -1;
  std::mutex mutex;  ///< Guards what follows.
  std::condition_variable wake;
  std::deque<Work> wanted;
  std::vector<Finished> finished;
  bool stopping = false;
};

class ThreadMonitor final : public DeviceMonitor {
 public:
  ThreadMonitor(std::shared_ptr<GpuDriver> driver, std::vector<std::string> daemons)
      : shared_(std::make_shared<Shared>()) {
    shared_->driver = std::move(driver);
    shared_->daemons = std::move(daemons);
    shared_->event = make_event();
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
    want({.index = index});
    return std::nullopt;
  }
  void make_slice(uint32_t index, const std::string& profile, int32_t start) override {
    want({.kind = Finished::Kind::kMade, .index = index, .profile = profile, .start = start});
  }
  void destroy_slice(uint32_t index, const std::string& profile, int32_t start) override {
    want({.kind = Finished::Kind::kDestroyed, .index = index, .profile = profile, .start = start});
  }
  std::vector<Finished> take_finished() override {
    clear_event(shared_->event);
    const std::lock_guard lock(shared_->mutex);
    return std::exchange(shared_->finished, {});
  }
  int finished_event() const override { return shared_->event; }

 private:
  void want(Work work) {
    {
      const std::lock_guard lock(shared_->mutex);
      shared_->wanted.push_back(std::move(work));
    }
    shared_->wake.notify_one();
  }
  static void run(Shared& shared) {
    std::unique_lock lock(shared.mutex);
    while (true) {
      shared.wake.wait(lock, [&] { return shared.stopping || !shared.wanted.empty(); });
      if (shared.stopping) return;
      const Work work = std::move(shared.wanted.front());
      shared.wanted.pop_front();
      lock.unlock();
      Finished done = carry_out(*shared.driver, work, shared.daemons);
      lock.lock();
      shared.finished.push_back(std::move(done));
      signal_event(shared.event);
    }
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace

std::unique_ptr<DeviceMonitor> make_device_monitor(std::shared_ptr<GpuDriver> driver,
                                                   std::vector<std::string> daemons) {
  if (driver != nullptr && driver->may_block())
    return std::make_unique<ThreadMonitor>(std::move(driver), std::move(daemons));
  return std::make_unique<InlineMonitor>(std::move(driver), std::move(daemons));
}

}  // namespace gpusched

#include "journal/disk/process_disk.h"

#include <map>
#include <utility>

namespace gpusched {

/// Shared with the process's files, which may outlive the disk's object.
struct ProcessDisk::Life {
  bool dead = false;
  std::optional<uint64_t> calls_left;  ///< Until it dies.
  bool dies_after = false;
  std::map<uint64_t, std::unique_ptr<DiskLock>> locks;
  uint64_t next_lock = 1;

  void die() {
    dead = true;
    locks.clear();
  }
  /// Makes one call, if the process lives to do so.
  template <typename T, typename Call>
  Result<T> make(Call call) {
    const Error ended{.code = ErrorCode::kIo, .message = "the process is dead"};
    if (dead) return ended;
    const bool last = calls_left && *calls_left == 0;
    if (calls_left && *calls_left > 0) *calls_left -= 1;
    if (last && !dies_after) {
      die();
      return ended;
    }
    Result<T> result = call();
    if (!last) return result;
    die();
    return ended;
  }
};

class ProcessFile final : public DiskFile {
 public:
  ProcessFile(std::shared_ptr<ProcessDisk::Life> life, std::unique_ptr<DiskFile> file)
      : life_(std::move(life)), file_(std::move(file)) {}

  Result<std::size_t> pwrite(uint64_t offset, std::string_view bytes) override {
    return life_->make<std::size_t>([&] { return file_->pwrite(offset, bytes); });
  }
  Result<std::size_t> pread(uint64_t offset, char* out, std::size_t size) override {
    return life_->make<std::size_t>([&] { return file_->pread(offset, out, size); });
  }
  Result<Unit> fdatasync() override {
    return life_->make<Unit>([&] { return file_->fdatasync(); });
  }
  Result<Unit> allocate(uint64_t size) override {
    return life_->make<Unit>([&] { return file_->allocate(size); });
  }
  void drop_cached() override {
    if (!life_->dead) file_->drop_cached();
  }
  Result<uint64_t> size() override {
    return life_->make<uint64_t>([&] { return file_->size(); });
  }

 private:
  std::shared_ptr<ProcessDisk::Life> life_;
  std::unique_ptr<DiskFile> file_;
};

/// Lock for the caller; the real one ends with the process at the latest.
class ProcessLock final : public DiskLock {
 public:
  ProcessLock(std::shared_ptr<ProcessDisk::Life> life, uint64_t number)
      : life_(std::move(life)), number_(number) {}
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;
  ~ProcessLock() override { life_->locks.erase(number_); }
  Result<Unit> check() const override {
    const auto lock = life_->locks.find(number_);
    if (lock == life_->locks.end()) return Error{.code = ErrorCode::kIo, .message = "the process is dead"};
    return lock->second->check();
  }

 private:
  std::shared_ptr<ProcessDisk::Life> life_;
  const uint64_t number_;
};

ProcessDisk::ProcessDisk(Disk& disk) : disk_(disk), life_(std::make_shared<Life>()) {}
ProcessDisk::~ProcessDisk() { life_->die(); }

Result<std::unique_ptr<DiskFile>> ProcessDisk::open(const std::string& path, DiskOpen mode) {
  Result<std::unique_ptr<DiskFile>> opened =
      life_->make<std::unique_ptr<DiskFile>>([&] { return disk_.open(path, mode); });
  if (!opened) return opened;
  return std::unique_ptr<DiskFile>(std::make_unique<ProcessFile>(life_, std::move(*opened)));
}

Result<std::unique_ptr<DiskMapping>> ProcessDisk::map(const std::string& path) {
  return life_->make<std::unique_ptr<DiskMapping>>([&] { return disk_.map(path); });
}

Result<Unit> ProcessDisk::rename(const std::string& from, const std::string& to) {
  return life_->make<Unit>([&] { return disk_.rename(from, to); });
}

Result<Unit> ProcessDisk::remove(const std::string& path) {
  return life_->make<Unit>([&] { return disk_.remove(path); });
}

Result<Unit> ProcessDisk::make_dir(const std::string& path) {
  return life_->make<Unit>([&] { return disk_.make_dir(path); });
}

Result<Unit> ProcessDisk::sync_dir(const std::string& path) {
  return life_->make<Unit>([&] { return disk_.sync_dir(path); });
}

Result<std::vector<std::string>> ProcessDisk::list(const std::string& path) {
  return life_->make<std::vector<std::string>>([&] { return disk_.list(path); });
}

Result<std::unique_ptr<DiskLock>> ProcessDisk::lock(const std::string& path) {
  Result<std::unique_ptr<DiskLock>> locked =
      life_->make<std::unique_ptr<DiskLock>>([&] { return disk_.lock(path); });
  if (!locked) return locked;
  const uint64_t number = life_->next_lock++;
  life_->locks[number] = std::move(*locked);
  return std::unique_ptr<DiskLock>(std::make_unique<ProcessLock>(life_, number));
}

void ProcessDisk::die() { life_->die(); }

void ProcessDisk::die_at(uint64_t calls, bool after) {
  life_->calls_left = calls;
  life_->dies_after = after;
}

bool ProcessDisk::is_dead() const { return life_->dead; }

}  // namespace gpusched

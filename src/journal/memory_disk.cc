#include "journal/memory_disk.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

namespace gpusched {
namespace {

constexpr uint64_t kSectorBytes = 512;  // Written whole or not at all.

std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

Error not_found(const std::string& path) {
  return {.code = ErrorCode::kNotFound, .message = "open " + path + ": No such file or directory"};
}

void write_at(std::string& bytes, uint64_t offset, std::string_view data) {
  if (bytes.size() < offset + data.size()) bytes.resize(offset + data.size(), '\0');
  std::memcpy(bytes.data() + offset, data.data(), data.size());
}

class MemoryMapping final : public DiskMapping {
 public:
  explicit MemoryMapping(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string_view bytes() const override { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace

struct MemoryDisk::LockTable {
  std::mutex mutex;
  std::set<std::string> held;
};

class MemoryDisk::Lock final : public DiskLock {
 public:
  Lock(std::shared_ptr<LockTable> table, std::string path)
      : table_(std::move(table)), path_(std::move(path)) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() override {
    const std::lock_guard guard(table_->mutex);
    table_->held.erase(path_);
  }

 private:
  std::shared_ptr<LockTable> table_;
  std::string path_;
};

struct MemoryDisk::Inode {
  struct Write {
    uint64_t offset = 0;
    std::string bytes;
  };
  std::string now;
  std::string durable;
  std::vector<Write> unsynced;

  void sync() {
    for (const Write& write : unsynced) write_at(durable, write.offset, write.bytes);
    unsynced.clear();
    durable.resize(now.size(), '\0');
  }
  /// What a crash leaves: sectors of later writes may be there without those of earlier ones.
  std::string after_crash(Prng& prng) const {
    std::string left = durable;
    for (const Write& write : unsynced) {
      // Often everything or nothing survives; both are worth trying as well as the mixtures.
      const uint64_t mood = prng.below(4);
      uint64_t at = write.offset;
      const uint64_t end = write.offset + write.bytes.size();
      while (at < end) {
        const uint64_t next = std::min(end, (at / kSectorBytes + 1) * kSectorBytes);
        const bool kept = mood == 0 || (mood != 1 && prng.chance(500));
        if (kept) write_at(left, at, std::string_view(write.bytes).substr(at - write.offset, next - at));
        at = next;
      }
    }
    return left;
  }
};

class MemoryFile final : public DiskFile {
 public:
  MemoryFile(MemoryDisk& disk, std::shared_ptr<MemoryDisk::Inode> inode, std::string path)
      : disk_(disk), inode_(std::move(inode)), path_(std::move(path)) {}

  Result<std::size_t> pwrite(uint64_t offset, std::string_view bytes) override {
    std::size_t size = bytes.size();
    {
      const std::lock_guard guard(disk_.mutex_);
      if (auto error = disk_.fault(MemoryDisk::Call::kWrite, path_)) return *error;
      if (disk_.short_writes_ && size > 1) size /= 2;
      const Result<Unit> grown = disk_.grow(*inode_, offset + size);
      if (!grown) return grown.error();
      write_at(inode_->now, offset, bytes.substr(0, size));
      inode_->unsynced.push_back({.offset = offset, .bytes = std::string(bytes.substr(0, size))});
    }
    disk_.changed();
    return size;
  }
  Result<std::size_t> pread(uint64_t offset, char* out, std::size_t size) override {
    const std::lock_guard guard(disk_.mutex_);
    if (auto error = disk_.fault(MemoryDisk::Call::kRead, path_)) return *error;
    if (offset >= inode_->now.size()) return std::size_t{0};
    const std::size_t got = std::min<std::size_t>(size, inode_->now.size() - offset);
    std::memcpy(out, inode_->now.data() + offset, got);
    return got;
  }
  Result<Unit> fdatasync() override {
    {
      const std::lock_guard guard(disk_.mutex_);
      if (auto error = disk_.fault(MemoryDisk::Call::kSync, path_)) return *error;
      inode_->sync();
    }
    disk_.changed();
    return Unit{};
  }
  Result<Unit> allocate(uint64_t size) override {
    {
      const std::lock_guard guard(disk_.mutex_);
      if (auto error = disk_.fault(MemoryDisk::Call::kAllocate, path_)) return *error;
      const Result<Unit> grown = disk_.grow(*inode_, size);
      if (!grown) return grown;
      if (inode_->now.size() < size) inode_->now.resize(size, '\0');
    }
    disk_.changed();
    return Unit{};
  }
  Result<uint64_t> size() override {
    const std::lock_guard guard(disk_.mutex_);
    return uint64_t{inode_->now.size()};
  }

 private:
  MemoryDisk& disk_;
  std::shared_ptr<MemoryDisk::Inode> inode_;
  std::string path_;
};

MemoryDisk::MemoryDisk() : locks_(std::make_shared<LockTable>()) {}
MemoryDisk::~MemoryDisk() = default;

Result<std::unique_ptr<DiskFile>> MemoryDisk::open(const std::string& path, DiskOpen mode) {
  std::shared_ptr<Inode> inode;
  {
    const std::lock_guard guard(mutex_);
    if (auto error = fault(Call::kOpen, path)) return *error;
    const auto found = names_.find(path);
    if (mode != DiskOpen::kCreate) {
      if (found == names_.end()) return not_found(path);
      return std::unique_ptr<DiskFile>(std::make_unique<MemoryFile>(*this, found->second, path));
    }
    if (!dirs_.contains(folder_of(path))) return not_found(path);
    inode = std::make_shared<Inode>();
    change_names({.dir = folder_of(path), .names = {{path, inode}}});
  }
  changed();
  return std::unique_ptr<DiskFile>(std::make_unique<MemoryFile>(*this, inode, path));
}

Result<std::unique_ptr<DiskMapping>> MemoryDisk::map(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (auto error = fault(Call::kOpen, path)) return *error;
  const auto found = names_.find(path);
  if (found == names_.end()) return not_found(path);
  return std::unique_ptr<DiskMapping>(std::make_unique<MemoryMapping>(found->second->now));
}

Result<Unit> MemoryDisk::rename(const std::string& from, const std::string& to) {
  {
    const std::lock_guard guard(mutex_);
    if (auto error = fault(Call::kRename, from)) return *error;
    const auto found = names_.find(from);
    if (found == names_.end()) return not_found(from);
    change_names({.dir = folder_of(to), .names = {{from, nullptr}, {to, found->second}}});
  }
  changed();
  return Unit{};
}

Result<Unit> MemoryDisk::remove(const std::string& path) {
  {
    const std::lock_guard guard(mutex_);
    if (auto error = fault(Call::kRemove, path)) return *error;
    if (!names_.contains(path)) return not_found(path);
    change_names({.dir = folder_of(path), .names = {{path, nullptr}}});
  }
  changed();
  return Unit{};
}

Result<Unit> MemoryDisk::make_dir(const std::string& path) {
  const std::lock_guard guard(mutex_);
  dirs_.insert(path);  // Folders are durable at once: the journal makes one, before anything else.
  return Unit{};
}

Result<Unit> MemoryDisk::sync_dir(const std::string& path) {
  {
    const std::lock_guard guard(mutex_);
    if (auto error = fault(Call::kSyncDir, path)) return *error;
    std::vector<NameChange> kept;
    for (NameChange& change : name_changes_) {
      if (change.dir != path) {
        kept.push_back(std::move(change));
        continue;
      }
      for (const auto& [name, inode] : change.names) {
        if (inode == nullptr) durable_names_.erase(name);
        if (inode != nullptr) durable_names_[name] = inode;
      }
    }
    name_changes_ = std::move(kept);
  }
  changed();
  return Unit{};
}

Result<std::vector<std::string>> MemoryDisk::list(const std::string& path) {
  const std::lock_guard guard(mutex_);
  if (!dirs_.contains(path)) return not_found(path);
  std::vector<std::string> names;
  for (const auto& [name, inode] : names_) {
    if (folder_of(name) == path) names.push_back(name.substr(path.size() + 1));
  }
  return names;
}

Result<std::unique_ptr<DiskLock>> MemoryDisk::lock(const std::string& path) {
  const std::lock_guard guard(locks_->mutex);
  if (!locks_->held.insert(path).second) {
    return Error{.code = ErrorCode::kLocked, .message = path + " is held by process 1"};
  }
  return std::unique_ptr<DiskLock>(std::make_unique<Lock>(locks_, path));
}

std::unique_ptr<MemoryDisk> MemoryDisk::crash(Prng& prng) const {
  const std::lock_guard guard(mutex_);
  auto image = std::make_unique<MemoryDisk>();
  image->dirs_ = dirs_;
  std::map<std::string, std::shared_ptr<Inode>> left = durable_names_;
  const uint64_t mood = prng.below(3);
  for (const NameChange& change : name_changes_) {
    if (mood == 0 || (mood == 1 && prng.chance(500))) continue;
    for (const auto& [name, inode] : change.names) {
      if (inode == nullptr) left.erase(name);
      if (inode != nullptr) left[name] = inode;
    }
  }
  for (const auto& [name, inode] : left) {
    auto fresh = std::make_shared<Inode>();
    fresh->now = inode->after_crash(prng);
    fresh->durable = fresh->now;
    image->names_[name] = fresh;
  }
  image->durable_names_ = image->names_;
  return image;
}

std::unique_ptr<MemoryDisk> MemoryDisk::copy() const {
  const std::lock_guard guard(mutex_);
  auto image = std::make_unique<MemoryDisk>();
  image->dirs_ = dirs_;
  for (const auto& [name, inode] : names_) {
    auto fresh = std::make_shared<Inode>();
    fresh->now = inode->now;
    fresh->durable = inode->now;
    image->names_[name] = fresh;
  }
  image->durable_names_ = image->names_;
  return image;
}

void MemoryDisk::set_capacity(uint64_t bytes) {
  const std::lock_guard guard(mutex_);
  capacity_ = bytes;
}

uint64_t MemoryDisk::used() const {
  const std::lock_guard guard(mutex_);
  uint64_t bytes = 0;
  for (const auto& [name, inode] : names_) bytes += inode->now.size();
  return bytes;
}

void MemoryDisk::fail(Call call, ErrorCode code, uint64_t after) {
  const std::lock_guard guard(mutex_);
  faults_[call] = {.code = code, .after = after};
}

void MemoryDisk::heal() {
  const std::lock_guard guard(mutex_);
  faults_.clear();
}

void MemoryDisk::set_short_writes(bool on) {
  const std::lock_guard guard(mutex_);
  short_writes_ = on;
}

void MemoryDisk::set_after_change(std::function<void()> hook) {
  const std::lock_guard guard(mutex_);
  after_change_ = std::move(hook);
}

std::string MemoryDisk::content(const std::string& path) const {
  const std::lock_guard guard(mutex_);
  const auto found = names_.find(path);
  CHECK(found != names_.end());
  return found->second->now;
}

void MemoryDisk::corrupt(const std::string& path, uint64_t offset, std::string_view bytes) {
  const std::lock_guard guard(mutex_);
  const auto found = names_.find(path);
  CHECK(found != names_.end());
  write_at(found->second->now, offset, bytes);
  write_at(found->second->durable, offset, bytes);
}

bool MemoryDisk::exists(const std::string& path) const {
  const std::lock_guard guard(mutex_);
  return names_.contains(path);
}

std::optional<Error> MemoryDisk::fault(Call call, const std::string& path) {
  const auto found = faults_.find(call);
  if (found == faults_.end()) return std::nullopt;
  if (found->second.after > 0) {
    found->second.after -= 1;
    return std::nullopt;
  }
  return Error{.code = found->second.code, .message = "injected fault at " + path};
}

Result<Unit> MemoryDisk::grow(Inode& inode, uint64_t size) {
  if (size <= inode.now.size()) return Unit{};
  uint64_t used = 0;
  for (const auto& [name, other] : names_) used += other->now.size();
  if (used + (size - inode.now.size()) > capacity_) {
    return Error{.code = ErrorCode::kStorageFull, .message = "No space left on device"};
  }
  return Unit{};
}

void MemoryDisk::change_names(NameChange change) {
  for (const auto& [name, inode] : change.names) {
    if (inode == nullptr) names_.erase(name);
    if (inode != nullptr) names_[name] = inode;
  }
  name_changes_.push_back(std::move(change));
}

void MemoryDisk::changed() {
  std::function<void()> hook;
  {
    const std::lock_guard guard(mutex_);
    hook = after_change_;
  }
  if (hook) hook();
}

}  // namespace gpusched

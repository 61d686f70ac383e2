#include "journal/disk/memory_disk.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "journal/disk/cached_bytes.h"

namespace gpusched {
namespace {

/// The folder of a path; the one in which everything begins has no name.
std::string folder_of(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

std::string folder_named(const std::string& path) {
  return path == "." || path == "/" ? std::string() : path;
}

Error not_found(const std::string& path) {
  return {.code = ErrorCode::kNotFound, .message = "open " + path + ": No such file or directory"};
}

void flip_a_bit(char* bytes, std::size_t size, Prng& prng) {
  if (size == 0) return;
  bytes[prng.below(size)] ^= static_cast<char>(1U << prng.below(8));
}

class MemoryMapping final : public DiskMapping {
 public:
  explicit MemoryMapping(std::string bytes) : bytes_(std::move(bytes)) {}
  std::string_view bytes() const override { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace

using Outcome = MemoryDisk::Outcome;

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
  Result<Unit> check() const override { return Unit{}; }

 private:
  std::shared_ptr<LockTable> table_;
  std::string path_;
};

struct MemoryDisk::Inode {
  CachedBytes bytes;
};

class MemoryFile final : public DiskFile {
 public:
  using Call = MemoryDisk::Call;

  MemoryFile(MemoryDisk& disk, std::shared_ptr<MemoryDisk::Inode> inode, std::string path)
      : disk_(disk), inode_(std::move(inode)), path_(std::move(path)) {}

  Result<std::size_t> pwrite(uint64_t offset, std::string_view bytes) override {
    std::size_t size = bytes.size();
    MemoryDisk::Verdict verdict;
    {
      const std::lock_guard guard(disk_.mutex_);
      verdict = disk_.judge(Call::kWrite, path_);
      if (verdict.outcome == Outcome::kFails) return MemoryDisk::injected(verdict, path_);
      const bool half = disk_.short_writes_ || verdict.outcome == Outcome::kFailsLate;
      if (half && size > 1) size /= 2;
      const Result<Unit> grown = disk_.grow(*inode_, offset + size);
      if (!grown) return grown.error();
      inode_->bytes.write(offset, bytes.substr(0, size));
      if (verdict.outcome == Outcome::kLies) inode_->bytes.misdirect(offset, size, {}, inode_->bytes);
      if (verdict.outcome == Outcome::kStrays) disk_.stray(*inode_, offset, size);
    }
    disk_.changed();
    if (verdict.outcome == Outcome::kFailsLate) return MemoryDisk::injected(verdict, path_);
    return size;
  }
  Result<std::size_t> pread(uint64_t offset, char* out, std::size_t size) override {
    const std::lock_guard guard(disk_.mutex_);
    const MemoryDisk::Verdict verdict = disk_.judge(Call::kRead, path_);
    if (verdict.outcome == Outcome::kFails || verdict.outcome == Outcome::kFailsLate) {
      return MemoryDisk::injected(verdict, path_);
    }
    const std::string& bytes = inode_->bytes.cached();
    if (offset >= bytes.size()) return std::size_t{0};
    const std::size_t got = std::min<std::size_t>(size, bytes.size() - offset);
    std::memcpy(out, bytes.data() + offset, got);
    if (verdict.outcome == Outcome::kLies) flip_a_bit(out, got, disk_.prng_);
    return got;
  }
  Result<Unit> fdatasync() override {
    {
      const std::lock_guard guard(disk_.mutex_);
      const MemoryDisk::Verdict verdict = disk_.judge(Call::kSync, path_);
      if (verdict.outcome == Outcome::kLies) {
        inode_->bytes.lie_about_sync();
        return Unit{};
      }
      if (verdict.outcome == Outcome::kFails || verdict.outcome == Outcome::kFailsLate) {
        inode_->bytes.fail_sync(disk_.prng_);
        return MemoryDisk::injected(verdict, path_);
      }
      inode_->bytes.sync();
    }
    disk_.changed();
    return Unit{};
  }
  Result<Unit> allocate(uint64_t size) override {
    {
      const std::lock_guard guard(disk_.mutex_);
      const MemoryDisk::Verdict verdict = disk_.judge(Call::kAllocate, path_);
      if (verdict.outcome == Outcome::kFails) return MemoryDisk::injected(verdict, path_);
      const Result<Unit> grown = disk_.grow(*inode_, size);
      if (!grown) return grown;
      inode_->bytes.grow(size);
      if (verdict.outcome == Outcome::kFailsLate) return MemoryDisk::injected(verdict, path_);
    }
    disk_.changed();
    return Unit{};
  }
  Result<uint64_t> size() override {
    const std::lock_guard guard(disk_.mutex_);
    return uint64_t{inode_->bytes.cached().size()};
  }
  void drop_cached() override {
    const std::lock_guard guard(disk_.mutex_);
    inode_->bytes.drop_cache();
  }

 private:
  MemoryDisk& disk_;
  std::shared_ptr<MemoryDisk::Inode> inode_;
  std::string path_;
};

MemoryDisk::MemoryDisk(uint64_t seed) : locks_(std::make_shared<LockTable>()), prng_(seed) {}
MemoryDisk::~MemoryDisk() = default;

Result<std::unique_ptr<DiskFile>> MemoryDisk::open(const std::string& path, DiskOpen mode) {
  std::shared_ptr<Inode> inode;
  Verdict verdict;
  {
    const std::lock_guard guard(mutex_);
    verdict = judge(Call::kOpen, path);
    if (verdict.outcome == Outcome::kFails) return injected(verdict, path);
    const auto found = names_.find(path);
    if (mode != DiskOpen::kCreate) {
      if (found == names_.end()) return not_found(path);
      if (verdict.outcome == Outcome::kFailsLate) return injected(verdict, path);
      return std::unique_ptr<DiskFile>(std::make_unique<MemoryFile>(*this, found->second, path));
    }
    if (!dirs_.contains(folder_of(path))) return not_found(path);
    inode = std::make_shared<Inode>();
    change_names({.dir = folder_of(path), .names = {{path, inode}}, .made_dir = {}});
  }
  changed();
  if (verdict.outcome == Outcome::kFailsLate) return injected(verdict, path);
  return std::unique_ptr<DiskFile>(std::make_unique<MemoryFile>(*this, inode, path));
}

Result<std::unique_ptr<DiskMapping>> MemoryDisk::map(const std::string& path) {
  const std::lock_guard guard(mutex_);
  const Verdict verdict = judge(Call::kMap, path);
  if (verdict.outcome == Outcome::kFails || verdict.outcome == Outcome::kFailsLate) {
    return injected(verdict, path);
  }
  const auto found = names_.find(path);
  if (found == names_.end()) return not_found(path);
  std::string bytes = found->second->bytes.cached();
  if (verdict.outcome == Outcome::kLies) flip_a_bit(bytes.data(), bytes.size(), prng_);
  return std::unique_ptr<DiskMapping>(std::make_unique<MemoryMapping>(std::move(bytes)));
}

Result<Unit> MemoryDisk::rename(const std::string& from, const std::string& to) {
  Verdict verdict;
  {
    const std::lock_guard guard(mutex_);
    verdict = judge(Call::kRename, from);
    if (verdict.outcome == Outcome::kFails) return injected(verdict, from);
    const auto found = names_.find(from);
    if (found == names_.end()) return not_found(from);
    change_names({.dir = folder_of(to), .names = {{from, nullptr}, {to, found->second}}, .made_dir = {}});
  }
  changed();
  if (verdict.outcome == Outcome::kFailsLate) return injected(verdict, from);
  return Unit{};
}

Result<Unit> MemoryDisk::remove(const std::string& path) {
  Verdict verdict;
  {
    const std::lock_guard guard(mutex_);
    verdict = judge(Call::kRemove, path);
    if (verdict.outcome == Outcome::kFails) return injected(verdict, path);
    if (!names_.contains(path)) return not_found(path);
    change_names({.dir = folder_of(path), .names = {{path, nullptr}}, .made_dir = {}});
  }
  changed();
  if (verdict.outcome == Outcome::kFailsLate) return injected(verdict, path);
  return Unit{};
}

Result<Unit> MemoryDisk::make_dir(const std::string& path) {
  {
    const std::lock_guard guard(mutex_);
    const Verdict verdict = judge(Call::kMakeDir, path);
    if (verdict.outcome == Outcome::kFails) return injected(verdict, path);
    if (dirs_.contains(path)) return Unit{};
    change_names({.dir = folder_of(path), .names = {}, .made_dir = path});
    if (verdict.outcome == Outcome::kFailsLate) return injected(verdict, path);
  }
  changed();
  return Unit{};
}

Result<Unit> MemoryDisk::sync_dir(const std::string& path) {
  Verdict verdict;
  {
    const std::lock_guard guard(mutex_);
    verdict = judge(Call::kSyncDir, path);
    if (verdict.outcome == Outcome::kFails) return injected(verdict, path);
    if (verdict.outcome == Outcome::kLies) return Unit{};
    std::vector<NameChange> kept;
    for (NameChange& change : name_changes_) {
      if (change.dir == folder_named(path)) {
        make_durable(change);
      } else {
        kept.push_back(std::move(change));
      }
    }
    name_changes_ = std::move(kept);
  }
  changed();
  if (verdict.outcome == Outcome::kFailsLate) return injected(verdict, path);
  return Unit{};
}

Result<std::vector<std::string>> MemoryDisk::list(const std::string& path) {
  const std::lock_guard guard(mutex_);
  const Verdict verdict = judge(Call::kList, path);
  if (verdict.outcome == Outcome::kFails || verdict.outcome == Outcome::kFailsLate) {
    return injected(verdict, path);
  }
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
  std::unique_ptr<MemoryDisk> image = clone();
  image->lose_power(prng);
  return image;
}

std::unique_ptr<MemoryDisk> MemoryDisk::killed() const {
  const std::lock_guard guard(mutex_);
  return clone();
}

std::unique_ptr<MemoryDisk> MemoryDisk::clone() const {
  auto image = std::make_unique<MemoryDisk>();
  std::map<const Inode*, std::shared_ptr<Inode>> copies;  // Only looked up: its order means nothing.
  const auto copy_of = [&copies](const std::shared_ptr<Inode>& inode) -> std::shared_ptr<Inode> {
    if (inode == nullptr) return nullptr;
    std::shared_ptr<Inode>& copy = copies[inode.get()];
    if (copy == nullptr) copy = std::make_shared<Inode>(*inode);
    return copy;
  };
  for (const auto& [name, inode] : names_) image->names_[name] = copy_of(inode);
  for (const auto& [name, inode] : durable_names_) image->durable_names_[name] = copy_of(inode);
  image->dirs_ = dirs_;
  image->durable_dirs_ = durable_dirs_;
  image->name_changes_ = name_changes_;
  for (NameChange& change : image->name_changes_) {
    for (auto& [name, inode] : change.names) inode = copy_of(inode);
  }
  return image;
}

void MemoryDisk::lose_power(Prng& prng) {
  const std::lock_guard guard(mutex_);
  const uint64_t mood = prng.below(3);
  for (const NameChange& change : name_changes_) {
    if (mood == 0 || (mood == 1 && prng.chance(500))) continue;
    make_durable(change);
  }
  name_changes_.clear();
  std::erase_if(durable_names_, [this](const auto& entry) {
    const std::string folder = folder_of(entry.first);
    return !folder.empty() && !durable_dirs_.contains(folder);
  });
  names_ = durable_names_;
  dirs_ = durable_dirs_;
  for (const auto& [name, inode] : names_) inode->bytes.lose_power(prng);
}

void MemoryDisk::write_back(Prng& prng) {
  const std::lock_guard guard(mutex_);
  for (const auto& [name, inode] : names_) {
    if (inode->bytes.is_dirty()) inode->bytes.write_back(prng);
  }
}

void MemoryDisk::settle() {
  const std::lock_guard guard(mutex_);
  for (const NameChange& change : name_changes_) make_durable(change);
  name_changes_.clear();
  for (const auto& [name, inode] : names_) inode->bytes.settle();
}

void MemoryDisk::drop_cache() {
  const std::lock_guard guard(mutex_);
  for (const auto& [name, inode] : names_) inode->bytes.drop_cache();
}

void MemoryDisk::set_capacity(uint64_t bytes) {
  const std::lock_guard guard(mutex_);
  capacity_ = bytes;
}

uint64_t MemoryDisk::used() const {
  const std::lock_guard guard(mutex_);
  uint64_t bytes = 0;
  for (const auto& [name, inode] : names_) bytes += inode->bytes.cached().size();
  return bytes;
}

void MemoryDisk::set_rule(Rule rule) {
  const std::lock_guard guard(mutex_);
  rule_ = std::move(rule);
}

std::optional<DiskRoom> MemoryDisk::room(const std::string&) {
  const uint64_t taken = used();
  const std::lock_guard guard(mutex_);
  if (capacity_ == UINT64_MAX) return std::nullopt;
  return DiskRoom{.total_bytes = capacity_, .free_bytes = capacity_ - std::min(capacity_, taken)};
}

void MemoryDisk::fail(Call call, ErrorCode code, uint64_t after) {
  const std::lock_guard guard(mutex_);
  planned_[call] = {.verdict = {.outcome = Outcome::kFails, .code = code}, .after = after, .once = false};
}

void MemoryDisk::fail_once(Call call, Verdict verdict, uint64_t after) {
  const std::lock_guard guard(mutex_);
  planned_[call] = {.verdict = verdict, .after = after, .once = true};
}

void MemoryDisk::heal() {
  const std::lock_guard guard(mutex_);
  planned_.clear();
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
  return found->second->bytes.cached();
}

std::string MemoryDisk::on_device(const std::string& path) const {
  const std::lock_guard guard(mutex_);
  const auto found = names_.find(path);
  CHECK(found != names_.end());
  return found->second->bytes.on_device();
}

void MemoryDisk::corrupt(const std::string& path, uint64_t offset, std::string_view bytes) {
  const std::lock_guard guard(mutex_);
  const auto found = names_.find(path);
  CHECK(found != names_.end());
  found->second->bytes.overwrite(offset, bytes);
}

void MemoryDisk::decay(const std::string& path, uint64_t offset, std::string_view bytes) {
  const std::lock_guard guard(mutex_);
  const auto found = names_.find(path);
  CHECK(found != names_.end());
  found->second->bytes.decay(offset, bytes);
}

bool MemoryDisk::is_damaged() const {
  const std::lock_guard guard(mutex_);
  return std::any_of(names_.begin(), names_.end(),
                     [](const auto& entry) { return entry.second->bytes.is_damaged(); });
}

void MemoryDisk::repair() {
  const std::lock_guard guard(mutex_);
  for (const auto& [name, inode] : names_) inode->bytes.repair();
}

bool MemoryDisk::exists(const std::string& path) const {
  const std::lock_guard guard(mutex_);
  return names_.contains(path);
}

std::vector<std::string> MemoryDisk::files() const {
  const std::lock_guard guard(mutex_);
  std::vector<std::string> paths;
  for (const auto& [name, inode] : names_) paths.push_back(name);
  return paths;
}

MemoryDisk::Verdict MemoryDisk::judge(Call call, const std::string& path) {
  const auto found = planned_.find(call);
  if (found != planned_.end()) {
    Planned& planned = found->second;
    if (planned.after == 0) {
      const Verdict verdict = planned.verdict;
      if (planned.once) planned_.erase(found);
      return verdict;
    }
    planned.after -= 1;
  }
  return rule_ ? rule_(call, path) : Verdict{};
}

Error MemoryDisk::injected(const Verdict& verdict, const std::string& path) {
  return {.code = verdict.code, .message = "injected fault at " + path};
}

Result<Unit> MemoryDisk::grow(const Inode& inode, uint64_t size) const {
  if (size <= inode.bytes.cached().size()) return Unit{};
  uint64_t used = 0;
  for (const auto& [name, other] : names_) used += other->bytes.cached().size();
  if (used + (size - inode.bytes.cached().size()) > capacity_) {
    return Error{.code = ErrorCode::kStorageFull, .message = "No space left on device"};
  }
  return Unit{};
}

void MemoryDisk::change_names(NameChange change) {
  for (const auto& [name, inode] : change.names) {
    if (inode == nullptr) names_.erase(name);
    if (inode != nullptr) names_[name] = inode;
  }
  if (!change.made_dir.empty()) dirs_.insert(change.made_dir);
  name_changes_.push_back(std::move(change));
}

void MemoryDisk::make_durable(const NameChange& change) {
  for (const auto& [name, inode] : change.names) {
    if (inode == nullptr) durable_names_.erase(name);
    if (inode != nullptr) durable_names_[name] = inode;
  }
  if (!change.made_dir.empty()) durable_dirs_.insert(change.made_dir);
}

/// The device puts what was written at another sector, of this file or of any other.
void MemoryDisk::stray(Inode& inode, uint64_t offset, uint64_t size) {
  auto target = names_.begin();
  std::advance(target, static_cast<std::ptrdiff_t>(prng_.below(names_.size())));
  CachedBytes& other = prng_.chance(700) ? inode.bytes : target->second->bytes;
  const uint64_t sectors = other.on_device().size() / CachedBytes::kSectorBytes + 1;
  inode.bytes.misdirect(offset, size, prng_.below(sectors), other);
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

#include "node/folder_files.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shim/log_bound.h"
#include "shim/protocol.h"
#include "shim/remove_tree.h"

namespace gpusched {
namespace {

constexpr std::size_t kSparesMax = 1'024;

/// Whether the folder and its files are just what a shim makes, and nobody else may be behind them.
bool is_as_made(const struct stat& facts, mode_t type, mode_t permissions) {
  const bool shared = type == S_IFREG && facts.st_nlink != 1;
  return (facts.st_mode & S_IFMT) == type && (facts.st_mode & 07777) == permissions &&
         facts.st_uid == geteuid() && !shared;
}

/// Empties the attempt's files. False, and nothing is lost but their content, when there is anything else.
bool empty_attempt_folder(const std::string& path) {
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (folder < 0) return false;
  struct stat facts{};
  bool usable = fstat(folder, &facts) == 0 && is_as_made(facts, S_IFDIR, facts.st_mode & 0750);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_own_folder = name == shim::kWorkFolder || name == shim::kTmpFolder;
    if (is_own_folder && unlinkat(folder, name.c_str(), AT_REMOVEDIR) == 0) continue;
    if (name == shim::kLogTimesFile && unlinkat(folder, name.c_str(), 0) == 0) continue;
    usable = usable &&
             (name == shim::kStdoutFile || name == shim::kStderrFile || name == shim::kOutcomeFile) &&
             fstatat(folder, name.c_str(), &facts, AT_SYMLINK_NOFOLLOW) == 0 &&
             is_as_made(facts, S_IFREG, facts.st_mode & 0640);
    if (!usable) break;
    if (facts.st_size == 0) continue;
    const int file = openat(folder, name.c_str(), O_WRONLY | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    usable = file >= 0;
    if (usable) close(file);
  }
  close(folder);
  return usable && !error;
}

}  // namespace

Result<Unit> make_attempts_folder(const std::string& data_folder) {
  const std::string path = data_folder + "/" + shim::kAttemptsFolder;
  if (access(path.c_str(), F_OK) == 0) return Unit{};
  // ext4 looks for a free inode near the parent's, and steps slowly over those that were deleted in the last
  // minutes. Marked as a top of hierarchies, the data folder gets its next folder, by the hash of its name,
  // somewhere else.
  const int folder = open(data_folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder >= 0) {
    int flags = 0;
    if (ioctl(folder, FS_IOC_GETFLAGS, &flags) == 0) {
      flags |= FS_TOPDIR_FL;
      [[maybe_unused]] const int done = ioctl(folder, FS_IOC_SETFLAGS, &flags);  // Only a hint.
    }
    close(folder);
  }
  std::string draft = path + ".XXXXXX";
  if (mkdtemp(draft.data()) == nullptr || chmod(draft.c_str(), 0750) != 0 ||
      rename(draft.c_str(), path.c_str()) != 0) {
    return Error{.code = ErrorCode::kIo, .message = "cannot make " + path + ": " + std::strerror(errno)};
  }
  return Unit{};
}

SpareFolders::SpareFolders(std::string data_folder)
    : folder_(std::move(data_folder) + "/" + shim::kSpareFolder) {
  mkdir(folder_.c_str(), 0750);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, ignored)) {
    const std::string name = entry.path().filename().string();
    names_.push_back(name);
    next_name_ = std::max<uint64_t>(next_name_, std::strtoull(name.c_str(), nullptr, 10) + 1);
  }
}

std::string SpareFolders::take() {
  const std::lock_guard lock(mutex_);
  if (names_.empty()) return {};
  std::string name = std::move(names_.back());
  names_.pop_back();
  return name;
}

bool SpareFolders::put(const std::string& attempt_folder) {
  if (!empty_attempt_folder(attempt_folder)) return false;
  const std::lock_guard lock(mutex_);
  if (names_.size() >= kSparesMax) return false;
  const std::string name = std::to_string(next_name_);
  if (rename(attempt_folder.c_str(), (folder_ + "/" + name).c_str()) != 0) return false;
  next_name_ += 1;
  names_.push_back(name);
  return true;
}

FolderFiles::FolderFiles(std::string attempts_folder, SpareFolders* spares)
    : attempts_folder_(std::move(attempts_folder)), spares_(spares) {
  remover_ = std::thread([this] { run(); });
}

FolderFiles::~FolderFiles() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  remover_.join();
}

Result<LogPiece> FolderFiles::read(const AttemptKey& key, bool of_stderr, int64_t offset, int32_t size_max) {
  const std::string path = attempts_folder_ + "/" + shim::key_text(key) + "/" +
                           (of_stderr ? shim::kStderrFile : shim::kStdoutFile);
  // The job may have put something else there: never follow a link, never wait for a pipe.
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) {
    const ErrorCode code = errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo;
    return Error{.code = code, .message = "cannot open " + path + ": " + std::strerror(errno)};
  }
  struct stat facts{};
  LogPiece piece;
  if (fstat(file, &facts) != 0 || !S_ISREG(facts.st_mode)) {
    close(file);
    return Error{.code = ErrorCode::kIo, .message = path + " is no file any more"};
  }
  piece.offset = std::min<int64_t>(offset, facts.st_size);
  piece.size = facts.st_size;
  piece.data.resize(static_cast<std::size_t>(std::min<int64_t>(size_max, piece.size - piece.offset)));
  const ssize_t got = pread(file, piece.data.data(), piece.data.size(), piece.offset);
  const int error = errno;
  close(file);
  if (got < 0)
    return Error{.code = ErrorCode::kIo, .message = "cannot read " + path + ": " + std::strerror(error)};
  piece.data.resize(static_cast<std::size_t>(got));
  return piece;
}

void FolderFiles::remove(const AttemptKey& key) { queue({.key = key}); }

void FolderFiles::remove_scratch(const AttemptKey& key) { queue({.key = key, .scratch_only = true}); }

void FolderFiles::queue(const Removal& removal) {
  {
    const std::lock_guard lock(mutex_);
    to_remove_.push_back(removal);
  }
  changed_.notify_all();
}

void FolderFiles::remove_unknown(const std::map<AttemptKey, StoredAttempt>& known) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(attempts_folder_, ignored)) {
    const std::optional<AttemptKey> key = shim::parse_key(entry.path().filename().string());
    if (!key) continue;
    const bool is_known = known.contains(*key);
    if (is_known && access((entry.path() / shim::kTmpFolder).c_str(), F_OK) != 0) continue;
    const bool ended = access((entry.path() / shim::kOutcomeFile).c_str(), F_OK) == 0;
    // Without an outcome it may be running, and is found with its shim.
    if (ended) queue({.key = *key, .scratch_only = is_known});
  }
}

void FolderFiles::wait_removed() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return to_remove_.empty() && !removing_; });
}

void FolderFiles::carry_out(const Removal& removal) const {
  const std::string name = shim::key_text(removal.key);
  const std::string folder = attempts_folder_ + "/" + name;
  if (!removal.scratch_only && spares_ != nullptr && spares_->put(folder)) return;
  const std::string parent = removal.scratch_only ? folder : attempts_folder_;
  const int descriptor = open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (descriptor < 0) return;
  shim::remove_tree(descriptor, removal.scratch_only ? shim::kTmpFolder : name.c_str());
  close(descriptor);
}

void FolderFiles::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !to_remove_.empty(); });
    if (stopping_) return;
    const Removal removal = to_remove_.front();
    to_remove_.pop_front();
    removing_ = true;
    lock.unlock();
    carry_out(removal);
    lock.lock();
    removing_ = false;
    changed_.notify_all();
  }
}

}  // namespace gpusched

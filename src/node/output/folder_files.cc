#include "node/output/folder_files.h"

#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "log/log.h"
#include "node/ports/system_clock.h"
#include "shim/attempt/log_bound.h"
#include "shim/protocol.h"

namespace gpusched {
namespace {

constexpr std::size_t kSparesMax = 1'024;
/// Work comes in crowds, several for each attempt, and none of it is waited for: one wake-up does for so
/// long.
constexpr auto kGatherPause = std::chrono::milliseconds(5);
/// For the size of a file of a job's choice. The agent waits so long.
constexpr Duration kAnswerPatience = milliseconds(20);

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

/// When the data folder was made: nothing in it is older.
Time birth_of(const std::string& data_folder) {
  struct stat facts{};
  if (stat((data_folder + "/instance").c_str(), &facts) != 0) return {};
  return Time{int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec};
}

/// Whether the file system gives back what is inside a file.
bool has_holes(const std::string& folder) {
  constexpr off_t kProbeBytes = 64 * 1024;
  const int file = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (file < 0) return errno == ENOSPC || errno == EDQUOT;  // Nothing is known; most have them.
  const std::string bytes(kProbeBytes, 'x');
  const bool cut = write(file, bytes.data(), bytes.size()) == kProbeBytes &&
                   fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, kProbeBytes / 2) == 0;
  close(file);
  return cut;
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

void SpareFolders::give_back(std::string name) {
  const std::lock_guard lock(mutex_);
  names_.push_back(std::move(name));
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

FolderFiles::FolderFiles(FolderFilesOptions options)
    : options_(std::move(options)),
      attempts_folder_(options_.data_folder + "/" + shim::kAttemptsFolder),
      payloads_folder_(options_.data_folder + "/" + shim::kPayloadsFolder),
      reader_(options_.data_folder),
      retention_({.data_folder = options_.data_folder,
                  .bytes_max = options_.log_bytes_max,
                  .kept = options_.logs_kept}),
      trash_(options_.data_folder, stopping_) {
  mkdir(payloads_folder_.c_str(), 0700);
  worker_ = std::thread([this] { run(); });
}

FolderFiles::~FolderFiles() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  worker_.join();
}

void FolderFiles::read(const v1::ReadLog& order, AttemptLife life) { reader_.read(order, life); }
void FolderFiles::forget_reads() { reader_.forget_reads(); }
void FolderFiles::began(const AttemptKey& key) { add({.what = What::kBegan, .key = key}); }
void FolderFiles::remove(const AttemptKey& key) {
  add({.what = What::kRemove, .key = key, .at = SystemClock().monotonic()});
}
/// As far as it answers: the file of a job's choice may be on a file system that does not.
int64_t FolderFiles::size_behind(const std::string& link) {
  const std::optional<std::string> size = looks_.ask(
      link,
      [link] {
        struct stat facts{};
        return std::to_string(stat(link.c_str(), &facts) == 0 ? static_cast<int64_t>(facts.st_size) : 0);
      },
      kAnswerPatience);
  return size ? std::strtoll(size->c_str(), nullptr, 10) : 0;
}

// Counts files of the job's own too, as far as the links to them can be followed.
int64_t FolderFiles::output_size(const AttemptKey& key) {
  int64_t size = 0;
  for (const char* const name : {shim::kStdoutFile, shim::kStderrFile}) {
    struct stat facts{};
    const std::string path = attempts_folder_ + "/" + shim::key_text(key) + "/" + name;
    if (lstat(path.c_str(), &facts) != 0) continue;
    size += S_ISLNK(facts.st_mode) ? size_behind(path) : static_cast<int64_t>(facts.st_size);
  }
  return size;
}

Result<Unit> FolderFiles::keep_payload(const AttemptKey& key, std::string_view payload) {
  const std::string path = payloads_folder_ + '/' + shim::key_text(key);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
  std::size_t done = 0;
  int why = errno;
  while (file >= 0 && done < payload.size()) {
    const ssize_t size = write(file, payload.data() + done, payload.size() - done);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      why = errno;
      break;
    }
    done += static_cast<std::size_t>(size);
  }
  if (file >= 0) close(file);
  if (file >= 0 && done == payload.size()) return Unit{};
  unlink(path.c_str());
  return Error{.code = ErrorCode::kIo,
               .message = "this node cannot keep the task's payload in " + payloads_folder_ + ": " +
                          std::strerror(why)};
}

void FolderFiles::remove_payload(const AttemptKey& key) {
  unlink((payloads_folder_ + '/' + shim::key_text(key)).c_str());
}

void FolderFiles::remove_scratch(const AttemptKey& key) { add({.what = What::kScratch, .key = key}); }
void FolderFiles::ended(const AttemptKey& key) {
  reader_.ended(key);
  add({.what = What::kEnded, .key = key, .at = SystemClock().monotonic()});
}

void FolderFiles::add(Work work) {
  {
    const std::lock_guard lock(mutex_);
    works_.push_back(work);
    if (works_.size() > 1 || working_) return;  // The thread was woken already, or looks again by itself.
  }
  changed_.notify_all();
}

void FolderFiles::remove_unknown(const std::map<AttemptKey, StoredAttempt>& known) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(payloads_folder_, ignored)) {
    const std::optional<AttemptKey> key = shim::parse_key(entry.path().filename().string());
    const auto found = key ? known.find(*key) : known.end();
    if (found == known.end() || found->second.outcome) unlink(entry.path().c_str());
  }
  for (const auto& entry : std::filesystem::directory_iterator(attempts_folder_, ignored)) {
    const std::optional<AttemptKey> key = shim::parse_key(entry.path().filename().string());
    if (!key) continue;
    const bool is_known = known.contains(*key);
    if (is_known && access((entry.path() / shim::kTmpFolder).c_str(), F_OK) != 0) continue;
    // Without an outcome, or with an empty one, it may be running, and is found with its shim.
    struct stat facts{};
    if (lstat((entry.path() / shim::kOutcomeFile).c_str(), &facts) != 0 || facts.st_size == 0) continue;
    is_known ? remove_scratch(*key) : remove(*key);
  }
}

void FolderFiles::wait_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return works_.empty() && !working_; });
}

// The thread.

void FolderFiles::run() {
  pthread_setname_np(pthread_self(), "files");
  if (!has_holes(options_.data_folder)) {
    log_event(LogLevel::kWarning, "agent", "output_not_bounded", {},
              {{"folder", options_.data_folder},
               {"why", "its file system does not support sparse files; put --data-dir on a local disk"}});
  }
  const SystemClock clock;
  Duration boot_time = clock.wall() - clock.monotonic();  // As this clock says, until it is confirmed.
  retention_.look_around(birth_of(options_.data_folder), clock.wall());
  trash_.empty();
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (!works_.empty()) changed_.wait_for(lock, kGatherPause, [this] { return stopping_.load(); });
    const std::deque<Work> works = std::exchange(works_, {});
    const std::optional<Duration> confirmed = boot_time_;
    lock.unlock();
    // A clock that jumps makes nothing old, neither ahead nor back from where it was wrong.
    if (confirmed && *confirmed != boot_time) {
      retention_.shift(*confirmed - boot_time);
      boot_time = *confirmed;
    }
    carry_out(works, boot_time);
    const Duration pause = retention_.enforce(clock.monotonic() + boot_time, confirmed.has_value());
    lock.lock();
    if (!works_.empty()) continue;
    working_ = false;
    changed_.notify_all();
    changed_.wait_for(lock, std::chrono::nanoseconds(pause.ns),
                      [this] { return stopping_ || !works_.empty(); });
    working_ = true;
  }
}

void FolderFiles::note_time(Time wall) {
  {
    const std::lock_guard lock(mutex_);
    boot_time_ = wall - SystemClock().monotonic();
  }
  changed_.notify_all();
}

void FolderFiles::carry_out(const std::deque<Work>& works, Duration boot_time) {
  bool removed = false;
  for (const Work& work : works) {
    if (stopping_) return;
    switch (work.what) {
      case What::kBegan:
        retention_.began(work.key);
        break;
      case What::kEnded:
        remove_payload(work.key);
        retention_.ended(work.key, work.at + boot_time);
        break;
      case What::kScratch:
        removed |=
            trash_.throw_away(attempts_folder_ + "/" + shim::key_text(work.key) + "/" + shim::kTmpFolder);
        break;
      case What::kRemove:
        retention_.forgot(work.key, work.at + boot_time,
                          "this node keeps the output of only the last " +
                              std::to_string(options_.finished_kept) + " ended attempts");
        remove_folder(work.key);
        removed = true;
        break;
    }
  }
  if (removed) trash_.empty();
}

void FolderFiles::remove_folder(const AttemptKey& key) {
  const std::string folder = attempts_folder_ + "/" + shim::key_text(key);
  if (options_.spares == nullptr || !options_.spares->put(folder)) trash_.throw_away(folder);
}

}  // namespace gpusched

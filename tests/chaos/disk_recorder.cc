// Preloaded into a program (LD_PRELOAD), records what it does to the files below one folder: writes with
// their bytes, syncs, names that come and go. From the record tests/chaos/disk_images.py draws what a power
// loss at any moment could have left. It can also end the process in the middle of a call, or let a sync
// fail.
//
//   GPUSCHED_RECORD_FOLDER  what is recorded: an absolute path
//   GPUSCHED_RECORD_FILE    where to; appended to
//   GPUSCHED_RECORD_KILL    N or N+: the process kills itself before, or behind, its N-th recorded call
//   GPUSCHED_RECORD_FAIL    N: its N-th sync of a file fails, and makes nothing durable
//
// A record is one line of text, then the bytes it announces, if any. All are written by one call each to a
// file that is appended to, so that several processes, one after the other, share a record.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>

namespace {

template <typename Call>
Call real(const char* name) {
  return reinterpret_cast<Call>(dlsym(RTLD_NEXT, name));
}

/// The calls that are recorded, in the order in which they happened.
class Recorder {
 public:
  static Recorder& the() {
    static Recorder* const recorder = new Recorder;  // Outlives every other thing that writes.
    return *recorder;
  }

  bool covers(std::string_view path) const {
    return !folder_.empty() && path.starts_with(folder_) &&
           (path.size() == folder_.size() || path[folder_.size()] == '/');
  }
  /// The path of an open file, when it is recorded; empty otherwise.
  std::string path_of(int fd) const {
    if (folder_.empty()) return {};
    char link[64];
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    char target[PATH_MAX];
    const ssize_t size = readlink(link, target, sizeof target);
    const std::string path(target, size > 0 ? static_cast<std::size_t>(size) : 0);
    return covers(path) ? path : std::string();
  }
  /// The number of an open file: its names may change.
  static unsigned long long file_of(int fd) {
    struct stat status{};
    return fstat(fd, &status) == 0 ? status.st_ino : 0;
  }
  static unsigned long long file_at(const char* path) {
    struct stat status{};
    return lstat(path, &status) == 0 ? status.st_ino : 0;
  }
  static unsigned long long size_of(int fd) {
    struct stat status{};
    return fstat(fd, &status) == 0 ? static_cast<unsigned long long>(status.st_size) : 0;
  }

  /// Held around each recorded call, so that the record has the calls' own order.
  std::mutex& mutex() { return mutex_; }

  /// Ends the process when its time has come. To be called before and behind each recorded call.
  void pass(bool behind) {
    if (!behind) ++calls_;
    if (kill_at_ == 0 || calls_ != kill_at_ || behind != kill_behind_) return;
    write_line("killed\n", {});
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
  bool sync_fails() { return fail_at_ != 0 && ++syncs_ == fail_at_; }

  void note(const std::string& line, std::string_view bytes = {}) { write_line(line + "\n", bytes); }

 private:
  Recorder() {
    const char* const folder = std::getenv("GPUSCHED_RECORD_FOLDER");
    const char* const file = std::getenv("GPUSCHED_RECORD_FILE");
    if (folder == nullptr || file == nullptr) return;
    sink_ =
        real<int (*)(const char*, int, ...)>("open")(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    if (sink_ < 0) return;
    folder_ = folder;
    if (const char* const at = std::getenv("GPUSCHED_RECORD_KILL")) {
      kill_at_ = std::strtoull(at, nullptr, 10);
      kill_behind_ = at[0] != '\0' && at[std::strlen(at) - 1] == '+';
    }
    if (const char* const at = std::getenv("GPUSCHED_RECORD_FAIL")) fail_at_ = std::strtoull(at, nullptr, 10);
    write_line("\n\nbegins\n", {});
    for (const char* const below : {"/journal", "/snapshots"}) list(folder_ + below);
    write_line("found\n", {});
  }

  void list(const std::string& folder) {
    DIR* const dir = opendir(folder.c_str());
    if (dir == nullptr) return;
    while (const dirent* const entry = readdir(dir)) {
      const std::string path = folder + "/" + entry->d_name;
      struct stat status{};
      if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
      write_line("have " + std::to_string(status.st_ino) + " " + path + "\n", {});
    }
    closedir(dir);
  }

  void write_line(const std::string& line, std::string_view bytes) {
    static const auto writev_really = real<ssize_t (*)(int, const iovec*, int)>("writev");
    const iovec parts[] = {{const_cast<char*>(line.data()), line.size()},
                           {const_cast<char*>(bytes.data()), bytes.size()}};
    const auto whole = static_cast<ssize_t>(line.size() + bytes.size());
    // A record with a hole in it would lie about everything behind.
    if (writev_really(sink_, parts, bytes.empty() ? 1 : 2) != whole) abort();
  }

  std::string folder_;
  int sink_ = -1;
  std::mutex mutex_;
  unsigned long long kill_at_ = 0;
  bool kill_behind_ = false;
  unsigned long long fail_at_ = 0;
  unsigned long long calls_ = 0;
  unsigned long long syncs_ = 0;
};

bool all_zero(std::string_view bytes) {
  return bytes.empty() ||
         (bytes.front() == '\0' && std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0);
}

/// Runs a call on a recorded file or name, and records it when it worked.
template <typename Call, typename Note>
auto recorded(Call call, Note note) {
  Recorder& recorder = Recorder::the();
  const std::lock_guard lock(recorder.mutex());
  recorder.pass(false);
  const auto result = call();
  const int code = errno;
  if (result >= 0) note(recorder, result);
  recorder.pass(true);
  errno = code;
  return result;
}

void note_write(Recorder& recorder, int fd, long long offset, std::string_view bytes) {
  const std::string head = std::to_string(Recorder::file_of(fd)) + " " + std::to_string(offset) + " " +
                           std::to_string(bytes.size());
  if (all_zero(bytes)) return recorder.note("zeros " + head);
  recorder.note("write " + head, bytes);
}

int open_recorded(const char* path, int flags, mode_t mode, int (*open_really)(const char*, int, ...)) {
  if (!Recorder::the().covers(path) || (flags & (O_CREAT | O_TRUNC)) == 0)
    return open_really(path, flags, mode);
  const bool was_there = Recorder::file_at(path) != 0;
  return recorded([&] { return open_really(path, flags, mode); },
                  [&](Recorder& recorder, int fd) {
                    if (was_there && (flags & O_TRUNC) == 0) return;
                    recorder.note(std::string(was_there ? "empty " : "make ") +
                                  std::to_string(Recorder::file_of(fd)) + " " + path);
                  });
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
  static const auto open_really = real<int (*)(const char*, int, ...)>("open");
  va_list more;
  va_start(more, flags);
  const auto mode = static_cast<mode_t>(va_arg(more, unsigned));
  va_end(more);
  return open_recorded(path, flags, mode, open_really);
}

int open64(const char* path, int flags, ...) {
  static const auto open_really = real<int (*)(const char*, int, ...)>("open64");
  va_list more;
  va_start(more, flags);
  const auto mode = static_cast<mode_t>(va_arg(more, unsigned));
  va_end(more);
  return open_recorded(path, flags, mode, open_really);
}

ssize_t pwrite(int fd, const void* bytes, size_t size, off_t offset) {
  static const auto pwrite_really = real<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
  if (Recorder::the().path_of(fd).empty()) return pwrite_really(fd, bytes, size, offset);
  return recorded([&] { return pwrite_really(fd, bytes, size, offset); },
                  [&](Recorder& recorder, ssize_t done) {
                    note_write(recorder, fd, offset,
                               {static_cast<const char*>(bytes), static_cast<size_t>(done)});
                  });
}
ssize_t pwrite64(int fd, const void* bytes, size_t size, off64_t offset) {
  return pwrite(fd, bytes, size, offset);
}

int fallocate(int fd, int mode, off_t offset, off_t size) {
  static const auto fallocate_really = real<int (*)(int, int, off_t, off_t)>("fallocate");
  if (Recorder::the().path_of(fd).empty()) return fallocate_really(fd, mode, offset, size);
  return recorded([&] { return fallocate_really(fd, mode, offset, size); },
                  [&](Recorder& recorder, int) {
                    recorder.note("grow " + std::to_string(Recorder::file_of(fd)) + " " +
                                  std::to_string(Recorder::size_of(fd)));
                  });
}
int fallocate64(int fd, int mode, off64_t offset, off64_t size) { return fallocate(fd, mode, offset, size); }

static int sync_recorded(int fd, const char* name) {
  const auto sync_really = real<int (*)(int)>(name);
  const std::string path = Recorder::the().path_of(fd);
  if (path.empty()) return sync_really(fd);
  struct stat status{};
  const bool folder = fstat(fd, &status) == 0 && S_ISDIR(status.st_mode);
  bool fails = false;
  const int result = recorded(
      [&] {
        fails = !folder && Recorder::the().sync_fails();
        return fails ? 0 : sync_really(fd);
      },
      [&](Recorder& recorder, int) {
        if (folder) return recorder.note("syncdir " + path);
        recorder.note((fails ? "failed " : "sync ") + std::to_string(Recorder::file_of(fd)));
      });
  if (!fails) return result;
  errno = EIO;
  return -1;
}
int fdatasync(int fd) { return sync_recorded(fd, "fdatasync"); }
int fsync(int fd) { return sync_recorded(fd, "fsync"); }

int rename(const char* from, const char* to) {
  static const auto rename_really = real<int (*)(const char*, const char*)>("rename");
  if (!Recorder::the().covers(from) && !Recorder::the().covers(to)) return rename_really(from, to);
  return recorded([&] { return rename_really(from, to); },
                  [&](Recorder& recorder, int) { recorder.note("rename " + std::string(from) + "\t" + to); });
}

int unlink(const char* path) {
  static const auto unlink_really = real<int (*)(const char*)>("unlink");
  if (!Recorder::the().covers(path)) return unlink_really(path);
  return recorded([&] { return unlink_really(path); },
                  [&](Recorder& recorder, int) { recorder.note("unlink " + std::string(path)); });
}

int mkdir(const char* path, mode_t mode) {
  static const auto mkdir_really = real<int (*)(const char*, mode_t)>("mkdir");
  if (!Recorder::the().covers(path)) return mkdir_really(path, mode);
  return recorded([&] { return mkdir_really(path, mode); },
                  [&](Recorder& recorder, int) { recorder.note("mkdir " + std::string(path)); });
}

}  // extern "C"

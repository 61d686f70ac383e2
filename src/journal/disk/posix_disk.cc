#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include "journal/disk/disk.h"

namespace gpusched {
namespace {

Error system_error(std::string_view call, const std::string& path, int code) {
  ErrorCode kind = ErrorCode::kIo;
  if (code == ENOENT) kind = ErrorCode::kNotFound;
  if (code == EACCES || code == EPERM || code == EROFS) kind = ErrorCode::kPermissionDenied;
  if (code == ENOSPC || code == EDQUOT) kind = ErrorCode::kStorageFull;
  return {.code = kind,
          .message = std::string(call) + " " + path + ": " + std::generic_category().message(code)};
}

/// Repeats a call that a signal interrupted.
template <typename Call>
auto retry(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }

 private:
  int fd_;
};

class PosixFile final : public DiskFile {
 public:
  PosixFile(Descriptor fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Result<std::size_t> pwrite(uint64_t offset, std::string_view bytes) override {
    const ssize_t written =
        retry([&] { return ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (written < 0) return system_error("pwrite", path_, errno);
    if (written == 0 && !bytes.empty()) return system_error("pwrite", path_, ENOSPC);
    return static_cast<std::size_t>(written);
  }
  Result<std::size_t> pread(uint64_t offset, char* out, std::size_t size) override {
    const ssize_t got = retry([&] { return ::pread(fd_.get(), out, size, static_cast<off_t>(offset)); });
    if (got < 0) return system_error("pread", path_, errno);
    return static_cast<std::size_t>(got);
  }
  Result<Unit> fdatasync() override {
    // Not repeated on EINTR: after any failure the kernel may have dropped the dirty pages.
    if (::fdatasync(fd_.get()) != 0) return system_error("fdatasync", path_, errno);
    return Unit{};
  }
  Result<Unit> allocate(uint64_t size) override {
    const int result = retry([&] { return ::fallocate(fd_.get(), 0, 0, static_cast<off_t>(size)); });
    if (result == 0 || errno == EOPNOTSUPP || errno == ENOSYS) return Unit{};
    return system_error("fallocate", path_, errno);
  }
  Result<uint64_t> size() override {
    struct stat status{};
    if (::fstat(fd_.get(), &status) != 0) return system_error("fstat", path_, errno);
    return static_cast<uint64_t>(status.st_size);
  }
  void drop_cached() override { (void)::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED); }

 private:
  Descriptor fd_;
  std::string path_;
};

class PosixMapping final : public DiskMapping {
 public:
  PosixMapping(void* address, std::size_t size) : address_(address), size_(size) {}
  PosixMapping(const PosixMapping&) = delete;
  PosixMapping& operator=(const PosixMapping&) = delete;
  ~PosixMapping() override {
    if (size_ > 0) ::munmap(address_, size_);
  }
  std::string_view bytes() const override { return {static_cast<const char*>(address_), size_}; }

 private:
  void* address_;
  std::size_t size_;
};

/// The file is locked for programs that look at nothing else; the folder, because a file can be removed and
/// made again, and then two processes hold a lock of that name.
class PosixLock final : public DiskLock {
 public:
  PosixLock(Descriptor dir, Descriptor file, std::string dir_path, std::string path, bool dir_is_locked)
      : dir_(std::move(dir)),
        file_(std::move(file)),
        dir_path_(std::move(dir_path)),
        path_(std::move(path)),
        dir_is_locked_(dir_is_locked) {}

  Result<Unit> check() const override {
    if (!is_at(dir_, dir_path_)) return replaced(dir_path_);
    // Without a lock on the folder the file is all that keeps others out.
    if (!dir_is_locked_ && !is_at(file_, path_)) return replaced(path_);
    return Unit{};
  }
  /// Whether the open file is what the path names.
  static bool is_at(const Descriptor& open, const std::string& path) {
    struct stat held{};
    struct stat named{};
    if (::fstat(open.get(), &held) != 0 || ::stat(path.c_str(), &named) != 0) return false;
    return held.st_dev == named.st_dev && held.st_ino == named.st_ino;
  }

 private:
  static Error replaced(const std::string& path) {
    return {.code = ErrorCode::kLocked,
            .message = path +
                       " was moved or replaced while this process was using it, and another process may "
                       "write there now. Move it back, or start again with the new one"};
  }

  Descriptor dir_;  // flock ends when the description is closed.
  Descriptor file_;
  const std::string dir_path_;
  const std::string path_;
  const bool dir_is_locked_;
};

std::string holder_of(int fd) {
  char text[32] = {};
  const ssize_t got = retry([&] { return ::pread(fd, text, sizeof text - 1, 0); });
  std::string holder(text, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  while (!holder.empty() && (holder.back() < '0' || holder.back() > '9')) holder.pop_back();
  return holder;
}

class PosixDisk final : public Disk {
 public:
  Result<std::unique_ptr<DiskFile>> open(const std::string& path, DiskOpen mode) override {
    int flags = O_CLOEXEC;
    if (mode == DiskOpen::kRead) flags |= O_RDONLY;
    if (mode == DiskOpen::kReadWrite) flags |= O_RDWR;
    if (mode == DiskOpen::kCreate) flags |= O_RDWR | O_CREAT | O_TRUNC;
    Descriptor fd(retry([&] { return ::open(path.c_str(), flags, 0600); }));
    if (!fd.valid()) return system_error("open", path, errno);
    return std::unique_ptr<DiskFile>(std::make_unique<PosixFile>(std::move(fd), path));
  }

  Result<std::unique_ptr<DiskMapping>> map(const std::string& path) override {
    const Descriptor fd(retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
    if (!fd.valid()) return system_error("open", path, errno);
    struct stat status{};
    if (::fstat(fd.get(), &status) != 0) return system_error("fstat", path, errno);
    const auto size = static_cast<std::size_t>(status.st_size);
    void* address = nullptr;
    if (size > 0) {
      address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
      if (address == MAP_FAILED) return system_error("mmap", path, errno);
    }
    return std::unique_ptr<DiskMapping>(std::make_unique<PosixMapping>(address, size));
  }

  Result<Unit> rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return system_error("rename", from, errno);
    return Unit{};
  }
  Result<Unit> remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return system_error("unlink", path, errno);
    return Unit{};
  }
  Result<Unit> make_dir(const std::string& path) override {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return system_error("mkdir", path, errno);
    return Unit{};
  }
  Result<Unit> sync_dir(const std::string& path) override {
    const Descriptor fd(retry([&] { return ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (!fd.valid()) return system_error("open", path, errno);
    if (::fsync(fd.get()) != 0) return system_error("fsync", path, errno);
    return Unit{};
  }

  Result<std::vector<std::string>> list(const std::string& path) override {
    DIR* dir = ::opendir(path.c_str());
    if (dir == nullptr) return system_error("opendir", path, errno);
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(dir)) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") names.push_back(name);
    }
    const int code = errno;
    ::closedir(dir);
    if (code != 0) return system_error("readdir", path, code);
    std::sort(names.begin(), names.end());
    return names;
  }

  Result<std::unique_ptr<DiskLock>> lock(const std::string& path) override {
    const std::string dir_path = folder_above(path);
    Descriptor dir(retry([&] { return ::open(dir_path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); }));
    if (!dir.valid()) return system_error("open", dir_path, errno);
    const bool dir_is_locked = retry([&] { return ::flock(dir.get(), LOCK_EX | LOCK_NB); }) == 0;
    // Some network file systems lock no folders; there the file has to do.
    if (!dir_is_locked && errno == EWOULDBLOCK) return held_by_another(path);
    Result<Descriptor> file = lock_file(path);
    if (!file) return file.error();
    const std::string holder = std::to_string(::getpid()) + "\n";
    // A full disk must not stop the start: the lock holds without the text that explains it.
    if (::ftruncate(file->get(), 0) == 0) {
      [[maybe_unused]] const ssize_t written = ::pwrite(file->get(), holder.data(), holder.size(), 0);
    }
    return std::unique_ptr<DiskLock>(
        std::make_unique<PosixLock>(std::move(dir), std::move(*file), dir_path, path, dir_is_locked));
  }

 private:
  static Error held_by_another(const std::string& path) {
    const Descriptor file(retry([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC); }));
    const std::string holder = file.valid() ? holder_of(file.get()) : std::string();
    return {.code = ErrorCode::kLocked,
            .message = path + " is held by " + (holder.empty() ? "another process" : "process " + holder) +
                       ": stop that process first, or use another folder"};
  }

  /// Opens and locks the file that the path names at the end: one that is replaced in between is tried again.
  static Result<Descriptor> lock_file(const std::string& path) {
    constexpr int kAttemptsMax = 100;
    for (int attempt = 0; attempt < kAttemptsMax; ++attempt) {
      Descriptor file(retry([&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); }));
      if (!file.valid()) return system_error("open", path, errno);
      if (retry([&] { return ::flock(file.get(), LOCK_EX | LOCK_NB); }) != 0) {
        if (errno != EWOULDBLOCK) return system_error("flock", path, errno);
        return held_by_another(path);
      }
      if (PosixLock::is_at(file, path)) return file;
    }
    return Error{.code = ErrorCode::kLocked,
                 .message = path + " is replaced repeatedly: stop the program that does so"};
  }

  std::optional<DiskRoom> room(const std::string& path) override {
    struct statvfs facts{};
    if (retry([&] { return ::statvfs(path.c_str(), &facts); }) != 0 || facts.f_blocks == 0)
      return std::nullopt;
    return DiskRoom{.total_bytes = uint64_t{facts.f_blocks} * facts.f_frsize,
                    .free_bytes = uint64_t{facts.f_bavail} * facts.f_frsize};
  }
};

}  // namespace

Disk& posix_disk() {
  static PosixDisk disk;
  return disk;
}

}  // namespace gpusched

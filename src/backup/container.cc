#include "backup/container.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <utility>

#include "backup/files.h"
#include "backup/manifest.h"
#include "backup/tar_header.h"
#include "journal/disk/disk.h"

namespace gpusched::backup {
namespace {

constexpr const char* kPartial = ".partial";
constexpr int kOpenAttemptsMax = 3;

Error is_there(const std::string& path) {
  return {.code = ErrorCode::kAlreadyExists, .message = path + " is there already; give another name"};
}

Error others_write(const std::string& partial) {
  return {.code = ErrorCode::kLocked, .message = "another process is writing " + partial};
}

class FolderWriter final : public Writer {
 public:
  FolderWriter(std::string path, std::optional<Owner> owner)
      : path_(std::move(path)), partial_(path_ + kPartial), owner_(owner) {}
  ~FolderWriter() override {
    std::error_code failed;
    if (lock_.is_open() && !finished_) std::filesystem::remove_all(partial_, failed);
  }

  /// Makes the folder to write into, in the place of one that a killed process left.
  Result<Unit> open() {
    for (int attempt = 1; attempt <= kOpenAttemptsMax; ++attempt) {
      const bool made = ::mkdir(partial_.c_str(), 0700) == 0;
      if (!made && errno != EEXIST) return file_failed("cannot make", partial_);
      Descriptor folder(::open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
      if (!folder.is_open()) return file_failed("cannot open", partial_);
      if (::flock(folder.get(), LOCK_EX | LOCK_NB) != 0) return others_write(partial_);
      if (made) {
        lock_ = std::move(folder);
        return give(lock_.get(), partial_);
      }
      std::error_code failed;
      std::filesystem::remove_all(partial_, failed);
      if (failed) return file_failed("cannot remove", partial_);
    }
    return others_write(partial_);
  }

  Result<Unit> begin(const std::string& path, uint64_t /*bytes*/) override {
    const Result<Unit> made = make_folders(path);
    if (!made.ok()) return made;
    name_ = partial_ + "/" + path;
    file_ = Descriptor(::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file_.is_open()) return file_failed("cannot make", name_);
    return give(file_.get(), name_);
  }
  Result<Unit> write(std::string_view bytes) override { return write_fully(file_.get(), name_, bytes); }
  Result<Unit> end() override {
    if (::fsync(file_.get()) != 0) return file_failed("cannot write", name_);
    // Whoever reads it back reads the disk.
    (void)::posix_fadvise(file_.get(), 0, 0, POSIX_FADV_DONTNEED);
    file_ = Descriptor();
    return Unit{};
  }
  Result<Unit> complete() override {
    for (const std::string& folder : folders_) {
      Result<Unit> synced = sync_folder(folder);
      if (!synced.ok()) return synced;
    }
    return sync_folder(partial_);
  }
  Result<Unit> finish() override {
    // An empty folder may be replaced; any other refuses.
    if (::rename(partial_.c_str(), path_.c_str()) != 0) {
      return errno == ENOTEMPTY || errno == EEXIST || errno == ENOTDIR ? is_there(path_)
                                                                       : file_failed("cannot make", path_);
    }
    finished_ = true;
    return sync_folder(folder_above(path_));
  }
  std::string staged() const override { return partial_; }

 private:
  Result<Unit> give(int fd, const std::string& path) const {
    if (owner_ && ::fchown(fd, owner_->user, owner_->group) != 0)
      return file_failed("cannot change the owner of", path);
    return Unit{};
  }

  Result<Unit> make_folders(const std::string& path) {
    for (std::size_t at = path.find('/'); at != std::string::npos; at = path.find('/', at + 1)) {
      const std::string folder = partial_ + "/" + path.substr(0, at);
      if (!folders_.insert(folder).second) continue;
      if (::mkdir(folder.c_str(), 0700) != 0) return file_failed("cannot make", folder);
      const Descriptor made(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
      if (!made.is_open()) return file_failed("cannot open", folder);
      Result<Unit> given = give(made.get(), folder);
      if (!given.ok()) return given;
    }
    return Unit{};
  }

  const std::string path_;
  const std::string partial_;
  const std::optional<Owner> owner_;
  Descriptor lock_;
  std::set<std::string> folders_;
  std::string name_;
  Descriptor file_;
  bool finished_ = false;
};

/// Writes an archive to a descriptor that somebody else closes.
class StreamWriter : public Writer {
 public:
  StreamWriter(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}

  Result<Unit> begin(const std::string& path, uint64_t bytes) override {
    const Result<std::string> header = encode_tar_header({.path = path, .bytes = bytes});
    if (!header.ok()) return header.error();
    padding_ = tar_padding(bytes);
    return write_fully(fd_, name_, *header);
  }
  Result<Unit> write(std::string_view bytes) override { return write_fully(fd_, name_, bytes); }
  Result<Unit> end() override { return write_fully(fd_, name_, std::string(padding_, '\0')); }
  Result<Unit> complete() override { return write_fully(fd_, name_, std::string(2 * kTarBlock, '\0')); }
  Result<Unit> finish() override { return Unit{}; }

 protected:
  int fd_;
  const std::string name_;

 private:
  std::size_t padding_ = 0;
};

class ArchiveWriter final : public StreamWriter {
 public:
  explicit ArchiveWriter(const std::string& path) : StreamWriter(-1, path + kPartial), path_(path) {}
  ~ArchiveWriter() override {
    if (file_.is_open()) ::unlink(name_.c_str());
  }

  Result<Unit> open() {
    Descriptor file(::open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file.is_open()) return file_failed("cannot make", name_);
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return others_write(name_);
    struct stat status{};
    if (::fstat(file.get(), &status) != 0) return file_failed("cannot make", name_);
    if (!S_ISREG(status.st_mode) || status.st_uid != ::geteuid() || status.st_nlink != 1)
      return is_there(name_);
    if (::fchmod(file.get(), 0600) != 0 || ::ftruncate(file.get(), 0) != 0)
      return file_failed("cannot make", name_);
    fd_ = file.get();
    file_ = std::move(file);
    return Unit{};
  }
  Result<Unit> complete() override {
    Result<Unit> ended = StreamWriter::complete();
    if (ended.ok() && ::fsync(fd_) != 0) return file_failed("cannot write", name_);
    (void)::posix_fadvise(fd_, 0, 0, POSIX_FADV_DONTNEED);
    return ended;
  }
  Result<Unit> finish() override {
    // A link never replaces what is there.
    if (::link(name_.c_str(), path_.c_str()) != 0)
      return errno == EEXIST ? is_there(path_) : file_failed("cannot make", path_);
    return sync_folder(folder_above(path_));
  }
  std::string staged() const override { return name_; }

 private:
  const std::string path_;
  Descriptor file_;
};

Result<std::map<std::string, Member>> list_folder(const std::string& path) {
  std::map<std::string, Member> members;
  std::error_code failed;
  std::filesystem::recursive_directory_iterator walk(path, failed);
  for (; !failed && walk != std::filesystem::recursive_directory_iterator(); walk.increment(failed)) {
    if (!walk->is_regular_file(failed) || walk->is_symlink(failed)) continue;
    const std::string relative = walk->path().lexically_relative(path).string();
    if (!is_safe_path(relative)) continue;
    const uint64_t bytes = walk->file_size(failed);
    members[relative] = {.file = walk->path().string(), .offset = 0, .bytes = bytes};
  }
  if (failed)
    return Error{.code = ErrorCode::kIo, .message = "cannot read " + path + ": " + failed.message()};
  return members;
}

Result<std::map<std::string, Member>> list_archive(const std::string& path) {
  uint64_t size = 0;
  const Result<Descriptor> file = open_regular(path, size);
  if (!file.ok()) return file.error();
  const Error cut{.code = ErrorCode::kCorrupt,
                  .message = path + " is no backup, or was altered or cut off: use another backup"};
  std::map<std::string, Member> members;
  uint64_t at = 0;
  while (true) {
    if (size - at < kTarBlock) return cut;
    std::string block;
    const Result<Unit> read = read_range(file->get(), path, at, kTarBlock, [&](std::string_view bytes) {
      block += bytes;
      return Result<Unit>(Unit{});
    });
    if (!read.ok()) return read.error();
    if (block == std::string(kTarBlock, '\0')) return members;
    const std::optional<TarHeader> header = parse_tar_header(block);
    at += kTarBlock;
    if (!header || header->bytes > size - at || tar_padding(header->bytes) > size - at - header->bytes)
      return cut;
    if (header->is_file && is_safe_path(header->path))
      members[header->path] = {.file = path, .offset = at, .bytes = header->bytes};
    at += header->bytes + tar_padding(header->bytes);
  }
}

}  // namespace

Result<std::unique_ptr<Writer>> write_folder(const std::string& path, std::optional<Owner> owner) {
  auto writer = std::make_unique<FolderWriter>(path, owner);
  const Result<Unit> opened = writer->open();
  if (!opened.ok()) return opened.error();
  return std::unique_ptr<Writer>(std::move(writer));
}

Result<std::unique_ptr<Writer>> write_archive(const std::string& path) {
  auto writer = std::make_unique<ArchiveWriter>(path);
  const Result<Unit> opened = writer->open();
  if (!opened.ok()) return opened.error();
  return std::unique_ptr<Writer>(std::move(writer));
}

std::unique_ptr<Writer> write_stream(int fd) {
  return std::make_unique<StreamWriter>(fd, "the standard output");
}

Result<std::map<std::string, Member>> list_members(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0)
    return Error{.code = ErrorCode::kNotFound, .message = "there is no backup " + path};
  return S_ISDIR(status.st_mode) ? list_folder(path) : list_archive(path);
}

}  // namespace gpusched::backup

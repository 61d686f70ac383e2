#include "node/folder_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "shim/protocol.h"

namespace gpusched {

FolderFiles::FolderFiles(std::string attempts_folder) : attempts_folder_(std::move(attempts_folder)) {
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
  const std::string path = attempts_folder_ + "/" + shim::attempt_folder(key) + "/" +
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

void FolderFiles::remove(const AttemptKey& key) {
  {
    const std::lock_guard lock(mutex_);
    to_remove_.push_back(key);
  }
  changed_.notify_all();
}

void FolderFiles::wait_removed() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return to_remove_.empty() && !removing_; });
}

void FolderFiles::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !to_remove_.empty(); });
    if (stopping_) return;
    const AttemptKey key = to_remove_.front();
    to_remove_.pop_front();
    removing_ = true;
    lock.unlock();
    const std::filesystem::path folder = attempts_folder_ + "/" + shim::attempt_folder(key);
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    rmdir(folder.parent_path().c_str());  // The job's folder goes with its last attempt.
    lock.lock();
    removing_ = false;
    changed_.notify_all();
  }
}

}  // namespace gpusched

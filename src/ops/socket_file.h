#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include <memory>
#include <string>

#include "base/result.h"

/// A Unix socket that a server listens on: its file is taken from nobody, and nothing is left of it.
namespace gpusched::ops {

/// Length of a path that the kernel takes, without its end.
inline constexpr std::size_t kSocketPathMax = 107;
/// For servers that decide by who connects: everybody may connect.
inline constexpr mode_t kSocketForAll = 0666;
inline constexpr mode_t kSocketForOwner = 0600;

/// A bound Unix socket, which those who come to its folder and its mode allows may connect to. A lock beside
/// it, `PATH.lock`, is held for as long: whoever has it is the living server of that path.
class SocketFile {
 public:
  /// Replaces what a dead server left. kInvalidArgument: the path is relative or too long, or something else
  /// is there; kLocked: a living server has it; kIo: anything else. The messages name the path.
  static Result<std::unique_ptr<SocketFile>> bind(const std::string& path, mode_t mode = kSocketForAll);
  ~SocketFile() { remove(); }
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

  const std::string& path() const { return path_; }
  /// The bound socket, which is the caller's to close from then on. Once.
  int take_descriptor();
  /// Takes the file away, unless somebody put another one there. Again: does nothing.
  void remove();

 private:
  SocketFile(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}

  std::string path_;
  int lock_;
  int descriptor_ = -1;
  bool bound_ = false;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace gpusched::ops

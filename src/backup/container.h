#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

/// The container of a backup's files: a folder, or a tar archive (ustar, with the sizes of GNU tar over 8
/// GiB).
namespace gpusched::backup {

/// User and group for what is written.
struct Owner {
  uid_t user = 0;
  gid_t group = 0;
};

/// Receives files one after the other. Nothing has the destination's name before `finish`; without it the
/// destructor removes what was written. Not thread-safe.
class Writer {
 public:
  virtual ~Writer() = default;
  /// Starts a file of so many bytes, which `write` then brings; `end` behind the last one.
  virtual Result<Unit> begin(const std::string& path, uint64_t bytes) = 0;
  virtual Result<Unit> write(std::string_view bytes) = 0;
  virtual Result<Unit> end() = 0;
  /// Makes all of it durable. A folder or file has then all its bytes, under a name of its own: `staged`.
  virtual Result<Unit> complete() = 0;
  /// Gives it its name, durably. kAlreadyExists: somebody else made that name meanwhile.
  virtual Result<Unit> finish() = 0;
  /// Where it can be read between `complete` and `finish`; empty: nowhere, it is a stream.
  virtual std::string staged() const { return {}; }
};

/// Files of 0600 in folders of 0700; an empty folder of that name is replaced.
Result<std::unique_ptr<Writer>> write_folder(const std::string& path, std::optional<Owner> owner);
/// One tar archive of 0600.
Result<std::unique_ptr<Writer>> write_archive(const std::string& path);
/// A tar archive to a descriptor, which stays open.
std::unique_ptr<Writer> write_stream(int fd);

/// Where a file's bytes lie.
struct Member {
  std::string file;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};
/// The files in a folder or an archive by their paths. Untrusted: of a path that leaves its folder, or of
/// what is no regular file, there is no member. kNotFound, kIo; kCorrupt: no archive, or one that was cut
/// off.
Result<std::map<std::string, Member>> list_members(const std::string& path);

}  // namespace gpusched::backup

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "backup/backup.h"
#include "backup/container.h"
#include "backup/files.h"
#include "backup/manifest.h"

/// Steps that backup and restore share.
namespace gpusched::backup {

/// Counts what was written, and tells it.
class Meter {
 public:
  Meter(const Progress& tell, uint64_t total) : tell_(tell), total_(total) {}
  void add(uint64_t bytes) {
    done_ += bytes;
    if (tell_) tell_(done_, total_);
  }

 private:
  const Progress& tell_;
  const uint64_t total_;
  uint64_t done_ = 0;
};

/// The manifest among the members. kCorrupt: there is none, or it is not whole. kVersion.
Result<Manifest> read_manifest(const std::map<std::string, Member>& members, const std::string& source);
/// Reads a listed file, gives its bytes to `take` (which may be empty), and compares. kCorrupt: it is
/// missing, altered or cut off.
Result<Unit> read_listed(const std::map<std::string, Member>& members, const ManifestFile& listed,
                         const TakeBytes& take);
/// Reads every file of a backup and compares. kCorrupt, kVersion, kNotFound, kIo.
Result<Manifest> verify(const std::string& source);
Summary summary_of(const Manifest& manifest);

}  // namespace gpusched::backup

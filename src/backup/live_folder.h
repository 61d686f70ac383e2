#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backup/backup.h"
#include "backup/files.h"
#include "journal/disk/disk.h"

namespace gpusched::backup {

/// A file whose bytes can be read whatever becomes of its name.
struct Source {
  std::string path;  ///< In the backup.
  uint64_t bytes = 0;
  // One of them.
  Descriptor file;
  std::shared_ptr<DiskMapping> mapping;
  std::string text;
};

/// A data folder at one moment.
struct LiveFolder {
  uint64_t position = 0;  ///< The last journal record in it.
  std::vector<Source> sources;
};

/// Opens everything that the scheduler of this folder needs to start at its present state, while it goes on.
/// The first segments hold what was durable; the last one is as it was read, without an unfinished write at
/// its end. Errors as make_backup.
Result<LiveFolder> open_live_folder(const std::string& data_dir, const std::vector<OtherFile>& others);

}  // namespace gpusched::backup

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

/// A scheduler's data folder copied while it runs, and made again from such a copy, each file proven by its
/// SHA-256 (docs/adr/recovery.md#copy-the-data-folder-while-it-is-written).
namespace gpusched::backup {

/// Bytes that are written, and bytes that there are to write.
using Progress = std::function<void(uint64_t done, uint64_t total)>;

/// A file for the backup that does not stand in the data folder, or not under that path.
struct OtherFile {
  std::string path;  ///< In the backup, such as "history/history.db".
  std::string file;
};

struct BackupOptions {
  std::string data_dir;
  /// "-": a tar archive to `stream`; a name that ends in ".tar": an archive; else a folder. Must not be
  /// there.
  std::string destination;
  int stream = 1;
  /// The history; a copy that was made before this call, so that the journal reaches at least as far.
  std::vector<OtherFile> history;
  std::string version;  ///< Of this program.
  std::string taken;    ///< Now, as RFC 3339.
  Progress progress;    ///< May be empty.
};

/// The contents of a backup.
struct Summary {
  std::string version;
  std::string taken;
  uint64_t position = 0;  ///< The last journal record in it.
  uint64_t files = 0;
  uint64_t bytes = 0;
  bool has_history = false;
};

/// Copies the journal up to its last whole record, the snapshots, and every other file of the data folder but
/// ports.json, the database of the history, and the place among several schedulers, whose votes a copy would
/// forget: token, keys, authority, audit. Everything that a client was
/// told before the call is in it. Works beside a running scheduler and takes no lock. What was written is
/// read back and compared with its digests, but for a stream. An error leaves nothing under the destination's
/// name. Any thread. kNotFound: no data folder. kAlreadyExists: the destination. kCorrupt: the folder is
/// damaged, or the copy is not what was written. kStorageFull, kIo, kInvalidArgument, kLocked.
Result<Summary> make_backup(const BackupOptions& options);

/// Makes `data_dir`, which must be missing or empty, of a backup: checks every digest first, then copies and
/// checks what is copied, reads the whole journal, syncs, and renames. As root, an empty folder that was
/// there gives its owner to all files. An error leaves nothing behind. Any thread. kAlreadyExists: the folder
/// is not empty. kLocked: a scheduler has it open. kCorrupt: altered or cut off. kVersion: of a newer
/// program. kNotFound, kStorageFull, kIo.
Result<Summary> restore_backup(const std::string& source, const std::string& data_dir,
                               const Progress& progress);

}  // namespace gpusched::backup

#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "node/ports/ports.h"

/// Facts that this machine tells of itself.
namespace gpusched {

/// A new one for each boot.
std::string read_boot_id();
int64_t usable_cpus();
int64_t total_memory_mb();

/// The data folder's own name: made once, kept in `<folder>/instance`, and told to the scheduler alone.
Result<std::string> load_or_make_instance(const std::string& data_folder);
/// The mark of the folder's processes, control groups and containers, for all to see: the name cannot be
/// found from it. Folders of older agents have their name for a mark, which is on what they run.
std::string mark_of_instance(const std::string& instance);
/// Writes it into the folder's file `mark`, for whoever has to find what runs of this folder. Without room
/// there is none.
void tell_mark(const std::string& data_folder, const std::string& instance);

/// Holds `<folder>/agent.lock`, and the folder itself, as long as it lives, or as the process does: removing
/// or replacing the file lets nobody in.
class FolderLock {
 public:
  /// kLocked names the process that holds it.
  static Result<FolderLock> take(const std::string& data_folder);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&& other) = delete;
  ~FolderLock();

 private:
  FolderLock(int folder, int file) : folder_(folder), file_(file) {}
  int folder_;
  int file_;
};

/// Load of this machine since the last call.
class ProcMeter final : public HostMeter {
 public:
  HostLoad load() override;

 private:
  uint64_t busy_ = 0;
  uint64_t total_ = 0;
};

}  // namespace gpusched

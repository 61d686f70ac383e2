#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "node/ports.h"

/// What this machine says of itself.
namespace gpusched {

/// A new one for each boot.
std::string read_boot_id();
int64_t usable_cpus();
int64_t total_memory_mb();

/// The data folder's own name: made once, kept in `<folder>/instance`.
Result<std::string> load_or_make_instance(const std::string& data_folder);

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

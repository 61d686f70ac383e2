#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "journal/disk/disk.h"

namespace gpusched {

/// A disk as one process uses it. The process can be told to die at a call; from then on no call through here
/// has an effect, so that destructors of a killed process's objects tidy nothing up. For tests and the
/// simulation. Not thread-safe.
class ProcessDisk final : public Disk {
 public:
  /// `disk` must outlive this and every file opened through it.
  explicit ProcessDisk(Disk& disk);
  ~ProcessDisk() override;

  Result<std::unique_ptr<DiskFile>> open(const std::string& path, DiskOpen mode) override;
  Result<std::unique_ptr<DiskMapping>> map(const std::string& path) override;
  Result<Unit> rename(const std::string& from, const std::string& to) override;
  Result<Unit> remove(const std::string& path) override;
  Result<Unit> make_dir(const std::string& path) override;
  Result<Unit> sync_dir(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  /// The lock ends with this object, or when the process dies.
  Result<std::unique_ptr<DiskLock>> lock(const std::string& path) override;

  void die();
  /// It dies at the `calls`-th call from now on, before it or, with `after`, when the call has had its
  /// effect. 0: at the next.
  void die_at(uint64_t calls, bool after);
  bool is_dead() const;

 private:
  friend class ProcessFile;
  friend class ProcessLock;
  struct Life;

  Disk& disk_;
  std::shared_ptr<Life> life_;
};

}  // namespace gpusched

#pragma once

#include <set>
#include <string>
#include <vector>

namespace gpusched::pilot {

/// Tells that something changed in one of some folders, by inotify. Changes that the kernel does not tell
/// (network file systems, more folders than it watches) show only when the caller looks by itself. Not
/// thread-safe.
class FolderWatch {
 public:
  FolderWatch();
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  /// Watches these folders and no others.
  void watch(const std::vector<std::string>& folders);
  /// Whether something changed since the last call. Never blocks.
  bool changed();
  /// Readable when something changed; -1: the kernel has no inotify for this user.
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
  std::set<std::pair<std::string, int>> watched_;
};

}  // namespace gpusched::pilot

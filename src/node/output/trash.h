#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace gpusched {

/// Removes folders whatever jobs left there: a million files, folders deeper than a path can be long. A
/// folder is first moved into the trash, `<data folder>/trash`, and so are the folders in it, so that no
/// depth is walked and a removal goes on after a restart.
///
/// `stopping` ends a removal in between; the next `empty` takes it up. Not thread-safe.
class Trash {
 public:
  Trash(const std::string& data_folder, const std::atomic<bool>& stopping);
  ~Trash();
  Trash(const Trash&) = delete;
  Trash& operator=(const Trash&) = delete;

  /// Moves the folder there; false: it is not there, or cannot be moved.
  bool throw_away(const std::string& folder);
  /// Removes all in it. Files that resist (a mount, an immutable one) stay, and are tried again another time.
  void empty();

 private:
  bool empty_folder(int folder);
  bool remove_entry(int folder, const char* name);

  const std::atomic<bool>& stopping_;
  int trash_ = -1;
  uint64_t next_name_ = 1;
};

}  // namespace gpusched

#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "pilot/monitors/folder_watch.h"
#include "pilot/monitors/monitor.h"
#include "pilot/monitors/open_file.h"

namespace gpusched::pilot {

/// Tells what is new in files: lines that were not in a file before, or cells of a notebook. Files that are
/// there at its start are read then, so that only what is written later is news. A file larger than
/// kWatchedBytesMax is not read.
class FileWatcher final : public Monitor {
 public:
  static constexpr int64_t kWatchedBytesMax = 1 << 20;

  /// `patterns` are absolute, see path_search.h; `suffixes`, such as ".py", name the files that are read.
  FileWatcher(std::vector<std::string> patterns, std::vector<std::string> suffixes,
              OpenFile open = open_to_read);

  std::vector<int> descriptors() const override;
  void look(Time now, const Sink& sink) override;

 private:
  using Version = std::tuple<uint64_t, int64_t, int64_t>;  // Inode, size, time of change in nanoseconds.
  struct File {
    Version version = {};
    std::set<uint64_t> known;  ///< Hashes of its lines or cells.
    bool is_listed = true;
  };

  void look_at(const std::string& path, const Sink& sink);

  const std::vector<std::string> patterns_, suffixes_;
  const OpenFile open_;
  FolderWatch watch_;
  std::map<std::string, File> files_;
  Time searched_at_;
  bool is_first_ = true;
};

}  // namespace gpusched::pilot

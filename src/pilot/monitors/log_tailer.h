#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "anticipate/plain_text.h"
#include "pilot/monitors/folder_watch.h"
#include "pilot/monitors/monitor.h"
#include "pilot/monitors/open_file.h"

namespace gpusched::pilot {

/// Bytes of one file read in one look.
inline constexpr int64_t kReadBytesMax = 1 << 20;
/// A file that grew by more than this since the last look is read from kReadBytesMax before its end on.
inline constexpr int64_t kBehindBytesMax = 16 << 20;
/// Lines of one file told in one look; the rest of what was read is passed over.
inline constexpr std::size_t kLinesMax = 2'000;

/// Follows the lines of growing files. Those that are there at its start are followed from their end on,
/// those that come later from their beginning. A file that is renamed is followed on under its new name, one
/// that becomes shorter begins again, and only regular files are opened.
class LogTailer final : public Monitor {
 public:
  /// `patterns` are absolute, see path_search.h. `is_history`: lines are a shell's history, without the
  /// times that shells write beside commands.
  LogTailer(std::vector<std::string> patterns, bool is_history, OpenFile open = open_to_read);
  ~LogTailer() override;

  std::vector<int> descriptors() const override;
  void look(Time now, const Sink& sink) override;

  /// Bytes that were not read because a file grew faster than it is followed.
  int64_t passed_over_bytes() const { return passed_over_bytes_; }

 private:
  using Inode = std::pair<uint64_t, uint64_t>;  // Device and number.
  struct File;

  void search(Time now);
  void read(File& file, const Sink& sink);

  const std::vector<std::string> patterns_;
  const bool is_history_;
  const OpenFile open_;
  FolderWatch watch_;
  std::map<Inode, std::unique_ptr<File>> files_;
  Time searched_at_;
  bool is_first_ = true;
  int64_t passed_over_bytes_ = 0;
};

/// The command of a line of a shell's history: without "#1700000000" of bash and ": 1700000000:0;" of zsh.
std::string history_command(std::string line);

}  // namespace gpusched::pilot

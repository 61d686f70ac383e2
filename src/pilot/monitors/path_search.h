#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace gpusched::pilot {

struct FoundPaths {
  std::vector<std::string> files;    ///< Regular files, sorted, each once.
  std::vector<std::string> folders;  ///< Folders that were searched: something new shows in one of them.
  bool is_cut = false;               ///< There are more than the limits allow.
};

inline constexpr std::size_t kFilesMax = 1'000;     ///< Files of one monitor.
inline constexpr std::size_t kFoldersMax = 1'000;   ///< Folders that one monitor searches.
inline constexpr std::size_t kEntriesMax = 50'000;  ///< Names that one search looks at.

/// Files that match one of the absolute patterns. `*`, `?` and `[...]` stand for characters of a name, `**`
/// for any number of folders. A pattern without them that names a folder means all files below it. Links to
/// folders are followed only where a pattern names them; `.git`, `node_modules`, `__pycache__` and `.venv`
/// never by `**`.
FoundPaths search_paths(const std::vector<std::string>& patterns);

/// Whether one of the patterns would find a file of that absolute path, links apart. `path` may be a
/// stranger's: "." and ".." in it match nothing.
bool matches_paths(const std::vector<std::string>& patterns, const std::string& path);

}  // namespace gpusched::pilot

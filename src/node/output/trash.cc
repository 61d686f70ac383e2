#include "node/output/trash.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <vector>

#include "log/log.h"

namespace gpusched {
namespace {

constexpr const char* kTrashFolder = "trash";
constexpr int kNameTries = 1'000'000;

/// The names in an open folder, at most so many: a folder of a million files is not held in memory.
std::vector<std::string> some_names(int folder, std::size_t count_max) {
  std::vector<std::string> names;
  const int again = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const entries = again < 0 ? nullptr : fdopendir(again);
  if (entries == nullptr) {
    if (again >= 0) close(again);
    return names;
  }
  while (names.size() < count_max) {
    const dirent* const entry = readdir(entries);
    if (entry == nullptr) break;
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    names.emplace_back(entry->d_name);
  }
  closedir(entries);
  return names;
}

/// An agent that is not root opens and empties what its job took its own rights from.
int open_folder(int parent, const char* name) {
  constexpr int kHow = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  int folder = openat(parent, name, kHow);
  if (folder < 0 && errno == EACCES) {
    fchmodat(parent, name, 0700, 0);
    folder = openat(parent, name, kHow);
  }
  if (folder >= 0 && geteuid() != 0) fchmod(folder, 0700);
  return folder;
}

}  // namespace

Trash::Trash(const std::string& data_folder, const std::atomic<bool>& stopping) : stopping_(stopping) {
  const std::string path = data_folder + "/" + kTrashFolder;
  mkdir(path.c_str(), 0750);
  trash_ = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

Trash::~Trash() {
  if (trash_ >= 0) close(trash_);
}

bool Trash::throw_away(const std::string& folder) {
  for (int tries = 0; tries < kNameTries; ++tries) {
    const std::string name = std::to_string(next_name_++);
    if (renameat2(AT_FDCWD, folder.c_str(), trash_, name.c_str(), RENAME_NOREPLACE) == 0) return true;
    if (errno != EEXIST) return false;
  }
  return false;
}

void Trash::empty() {
  std::set<std::string> resisting;
  bool progress = true;
  while (progress && !stopping_) {
    progress = false;
    for (const std::string& name : some_names(trash_, 1'000 + resisting.size())) {
      if (stopping_) return;
      if (resisting.contains(name)) continue;
      progress = true;
      if (!remove_entry(trash_, name.c_str())) {
        const int folder = open_folder(trash_, name.c_str());
        const bool emptied = folder >= 0 && empty_folder(folder);
        if (folder >= 0) close(folder);
        if (emptied && unlinkat(trash_, name.c_str(), AT_REMOVEDIR) == 0) continue;
        if (!stopping_) resisting.insert(name);
      }
    }
  }
  for (const std::string& name : resisting)
    log_event(LogLevel::kWarning, "agent", "folder_not_removed", {},
              {{"name", std::string(kTrashFolder) + "/" + name}});
}

/// Files go; folders that are not empty move up into the trash. False when something resists.
bool Trash::empty_folder(int folder) {
  while (!stopping_) {
    const std::vector<std::string> names = some_names(folder, 1'000);
    if (names.empty()) return true;
    bool progress = false;
    for (const std::string& name : names) {
      if (remove_entry(folder, name.c_str())) {
        progress = true;
        continue;
      }
      for (int tries = 0; tries < 2 && errno != EBUSY; ++tries) {
        const std::string moved = std::to_string(next_name_++);
        if (renameat2(folder, name.c_str(), trash_, moved.c_str(), RENAME_NOREPLACE) == 0) {
          progress = true;
          break;
        }
        if (errno == EEXIST) --tries;
        if (errno == EACCES) fchmodat(folder, name.c_str(), 0700, 0);
      }
    }
    if (!progress) return false;
  }
  return false;
}

bool Trash::remove_entry(int folder, const char* name) {
  if (unlinkat(folder, name, 0) == 0) return true;
  if (errno != EISDIR && errno != EPERM) return errno == ENOENT;
  return unlinkat(folder, name, AT_REMOVEDIR) == 0;
}

}  // namespace gpusched

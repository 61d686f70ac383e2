#include "shim/remove_tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

namespace gpusched::shim {
namespace {

constexpr std::size_t kDepthMax = 256;  ///< Each level keeps a descriptor open.
constexpr int kRoundsMax = 16;          ///< Through one folder, while somebody still adds to it.

/// Entries that could not be removed as files.
bool remove_files(int folder, std::vector<std::string>& folders) {
  const int copy = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* list = copy < 0 ? nullptr : fdopendir(copy);
  if (list == nullptr) {
    if (copy >= 0) close(copy);
    return false;
  }
  bool all = true;
  while (const dirent* entry = readdir(list)) {
    if (std::strcmp(entry->d_name, ".") == 0 || std::strcmp(entry->d_name, "..") == 0) continue;
    if (entry->d_type != DT_DIR && unlinkat(folder, entry->d_name, 0) == 0) continue;
    if (entry->d_type == DT_DIR || errno == EISDIR || errno == EPERM) {
      folders.emplace_back(entry->d_name);
    } else if (errno != ENOENT) {
      all = false;
    }
  }
  closedir(list);
  return all;
}

/// A folder right in `parent`, on the same mount; -1 with errno. Before Linux 5.6 only another file system is
/// told from it.
int open_folder(int parent, const char* name) {
  constexpr int kHow = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  open_how how{};
  how.flags = kHow;
  how.resolve = RESOLVE_NO_XDEV | RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
  int folder = -1;
  do {
    folder = static_cast<int>(syscall(SYS_openat2, parent, name, &how, sizeof how));
  } while (folder < 0 && errno == EAGAIN);  // Something was moved meanwhile.
  if (folder >= 0 || (errno != ENOSYS && errno != EPERM)) return folder;
  return openat(parent, name, kHow);
}

bool remove_folder(int parent, const char* name, dev_t device, std::size_t depth) {
  if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return true;
  if (depth >= kDepthMax) return false;
  const int folder = open_folder(parent, name);
  if (folder < 0) return errno == ENOENT;
  struct stat facts{};
  bool good = fstat(folder, &facts) == 0 && (device == 0 || facts.st_dev == device);
  // A user may have taken its own right to look away; as the same user we take it back.
  if (good && (facts.st_mode & 0700) != 0700) fchmod(folder, 0700);
  for (int round = 0; good && round < kRoundsMax; ++round) {
    std::vector<std::string> folders;
    good = remove_files(folder, folders);
    for (const std::string& below : folders) {
      good = remove_folder(folder, below.c_str(), facts.st_dev, depth + 1) && good;
    }
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || errno == ENOENT) break;
    good = good && (errno == ENOTEMPTY || errno == EEXIST);
  }
  close(folder);
  return good && faccessat(parent, name, F_OK, AT_SYMLINK_NOFOLLOW) != 0;
}

}  // namespace

bool remove_tree(int parent, const char* name) {
  if (unlinkat(parent, name, 0) == 0 || errno == ENOENT) return true;  // It is no folder any more.
  return remove_folder(parent, name, 0, 0);
}

}  // namespace gpusched::shim

#include "shim/attempt_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "shim/protocol.h"

namespace gpusched::shim {

int open_emptied(int folder, const char* name, int flags) {
  const int file = openat(folder, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | flags, 0640);
  if (file < 0) return -1;
  struct stat facts{};
  if (fstat(file, &facts) == 0 && (facts.st_size == 0 || ftruncate(file, 0) == 0)) return file;
  const int why = errno;
  close(file);
  errno = why;
  return -1;
}

int take_payload(int attempts_folder, const AttemptKey& key, uint64_t bytes) {
  const std::string path = std::string("../") + kPayloadsFolder + '/' + key_text(key);
  const int file = openat(attempts_folder, path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return -1;
  struct stat facts{};
  if (fstat(file, &facts) == 0 && static_cast<uint64_t>(facts.st_size) == bytes) {
    unlinkat(attempts_folder, path.c_str(), 0);
    return file;
  }
  close(file);
  errno = EIO;
  return -1;
}

}  // namespace gpusched::shim

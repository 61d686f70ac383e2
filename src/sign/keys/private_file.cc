#include "sign/keys/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace gpusched::sign {

Error file_error(const char* what, const std::string& path) {
  return {ErrorCode::kIo, std::string("cannot ") + what + " " + path + ": " + std::strerror(errno)};
}

Result<Unit> write_whole(const std::string& path, const std::string& text, mode_t mode) {
  const std::string draft = path + ".new";
  ::unlink(draft.c_str());
  const int file = ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, mode);
  if (file < 0) return file_error("write", draft);
  const bool written = ::fchmod(file, mode) == 0 &&
                       ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(file) == 0;
  const Error trouble = file_error("write", draft);
  ::close(file);
  if (!written) {
    ::unlink(draft.c_str());
    return trouble;
  }
  if (::rename(draft.c_str(), path.c_str()) != 0) return file_error("write", path);
  return Unit{};
}

}  // namespace gpusched::sign

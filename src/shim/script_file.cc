#include "shim/script_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace gpusched::shim {
namespace {

constexpr std::string_view kBlank = " \t";

bool write_whole(int file, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(file, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return true;
}

}  // namespace

std::vector<std::string> interpreter_words(std::string_view script) {
  if (!script.starts_with("#!")) return {};
  std::string_view line = script.substr(2, script.find('\n') - 2);
  const std::size_t begin = line.find_first_not_of(kBlank);
  if (begin == std::string_view::npos) return {};
  line = line.substr(begin, line.find_last_not_of(kBlank) + 1 - begin);
  const std::size_t end = std::min(line.find_first_of(kBlank), line.size());
  std::vector<std::string> words = {std::string(line.substr(0, end))};
  if (end < line.size()) words.emplace_back(line.substr(line.find_first_not_of(kBlank, end)));
  return words;
}

bool write_script(int folder, const std::string& name, std::string_view text,
                  const std::optional<Credentials>& user, mode_t mode) {
  if (unlinkat(folder, name.c_str(), 0) != 0 && errno != ENOENT) return false;
  const int file = openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return false;
  const bool made = write_whole(file, text) && (!user || fchown(file, user->uid, user->gid) == 0) &&
                    fchmod(file, mode) == 0;
  const int error = errno;
  close(file);  // Before a process runs it: none may, while it is open for writing.
  errno = error;
  return made;
}

}  // namespace gpusched::shim

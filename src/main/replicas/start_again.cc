#include "main/replicas/start_again.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "log/log.h"

namespace gpusched {
namespace {

struct Start {
  std::vector<std::string> words;
  std::vector<std::string> environment;
};

Start& start_of_process() {
  static Start start;
  return start;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  list.reserve(texts.size() + 1);
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

/// Not every library opens its files and sockets so.
void close_all_on_exec() {
  std::error_code failed;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", failed)) {
    const int fd = std::atoi(entry.path().filename().c_str());
    if (fd > STDERR_FILENO) (void)::fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
}

}  // namespace

void remember_start(char** argv) {
  Start& start = start_of_process();
  start = {};
  for (char** word = argv; *word != nullptr; ++word) start.words.emplace_back(*word);
  for (char** entry = environ; *entry != nullptr; ++entry) start.environment.emplace_back(*entry);
}

void start_again() {
  log_flush();
  close_all_on_exec();
  Start& start = start_of_process();
  ::execve("/proc/self/exe", pointers(start.words).data(), pointers(start.environment).data());
  std::fprintf(stderr,
               "gpu-scheduler: cannot start again: %s; exiting, so that the service manager does it\n",
               std::strerror(errno));
  std::_Exit(1);
}

}  // namespace gpusched

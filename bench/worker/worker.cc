// bench_worker: a persistent worker of tasks of 0 ms, in the protocol of docs/reference/agent-tasks.md;
// answers each task with its payload. Without frames it is `cat`.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace {

bool read_whole(int file, char* to, size_t size) {
  while (size > 0) {
    const ssize_t taken = read(file, to, size);
    if (taken <= 0) return false;
    to += taken;
    size -= static_cast<size_t>(taken);
  }
  return true;
}

bool write_whole(int file, const char* from, size_t size) {
  while (size > 0) {
    const ssize_t given = write(file, from, size);
    if (given <= 0) return false;
    from += given;
    size -= static_cast<size_t>(given);
  }
  return true;
}

int copy_input() {
  char buffer[65'536];
  for (ssize_t size = 0; (size = read(0, buffer, sizeof buffer)) > 0;)
    if (!write_whole(1, buffer, static_cast<size_t>(size))) return 1;
  return 0;
}

/// {"id":"12-1-0",...: the scheduler writes the id first.
std::string id_of(const std::string& line) {
  const size_t begin = line.find("\"id\":\"") + 6;
  return line.substr(begin, line.find('"', begin) - begin);
}

}  // namespace

int main() {
  const char* const number = std::getenv("GPU_SCHEDULER_WORKER_FD");
  if (number == nullptr) return copy_input();
  const int frames = std::atoi(number);
  uint32_t size = 0;
  while (read_whole(frames, reinterpret_cast<char*>(&size), sizeof size)) {
    std::string frame(size, '\0');
    if (!read_whole(frames, frame.data(), frame.size())) return 0;
    const size_t end = frame.find('\n');
    if (end == std::string::npos) return 1;
    std::string answer(sizeof size, '\0');
    answer += id_of(frame.substr(0, end)) + " 0\n" + frame.substr(end + 1);
    const auto length = static_cast<uint32_t>(answer.size() - sizeof size);
    std::memcpy(answer.data(), &length, sizeof length);
    if (!write_whole(frames, answer.data(), answer.size())) return 1;
  }
  return 0;
}

// Preloaded into a program (LD_PRELOAD), lets each sync of a file take GPUSCHED_SLOW_DISK_MS milliseconds
// longer, as on a disk that others keep busy. Nothing is lost.
#include <dlfcn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <ctime>

namespace {

void wait_a_while() {
  static const char* const text = std::getenv("GPUSCHED_SLOW_DISK_MS");
  static const long ms = text == nullptr ? 0 : std::atol(text);
  timespec left{.tv_sec = ms / 1'000, .tv_nsec = ms % 1'000 * 1'000'000};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) {
  }
}

int slow_sync(const char* name, int fd) {
  wait_a_while();
  return reinterpret_cast<int (*)(int)>(dlsym(RTLD_NEXT, name))(fd);
}

}  // namespace

extern "C" {

int fsync(int fd) { return slow_sync("fsync", fd); }
int fdatasync(int fd) { return slow_sync("fdatasync", fd); }
int syncfs(int fd) noexcept { return slow_sync("syncfs", fd); }

}  // extern "C"

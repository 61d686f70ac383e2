// bench_stamp FILE: writes CLOCK_MONOTONIC at its start, in nanoseconds, as text.
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

int main(int argc, char** argv) {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  if (argc != 2) return 2;
  const int file = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
  char text[32];
  const int size =
      std::snprintf(text, sizeof text, "%lld%09ld\n", static_cast<long long>(time.tv_sec), time.tv_nsec);
  if (file < 0 || write(file, text, static_cast<size_t>(size)) != size) return 1;
  return 0;
}

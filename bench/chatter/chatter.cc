// A job that writes lines at a steady pace: chatter LINES PER_SECOND. Each line is 100 bytes and begins with
// its number and the time of its writing in nanoseconds of CLOCK_MONOTONIC. PER_SECOND of 0: it only waits,
// for so many seconds.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>

int main(int argc, char** argv) {
  const int64_t lines = argc > 1 ? std::atoll(argv[1]) : 100;
  const int64_t per_second = argc > 2 ? std::atoll(argv[2]) : 10;
  if (per_second == 0) {
    const timespec span{.tv_sec = lines, .tv_nsec = 0};
    nanosleep(&span, nullptr);
    return 0;
  }
  for (int64_t line = 0; line < lines; ++line) {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    char text[160];
    const int64_t ns = int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
    std::snprintf(text, sizeof text, "%10lld %20lld %067d\n", static_cast<long long>(line),
                  static_cast<long long>(ns), 0);
    if (write(1, text, 100) != 100) return 1;
    const timespec pause{.tv_sec = 0, .tv_nsec = 1'000'000'000 / per_second};
    nanosleep(&pause, nullptr);
  }
  return 0;
}

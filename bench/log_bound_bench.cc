// rooms: shim base
//
// Ways to bound what a job writes, by what they cost the writer: the file itself, whose oldest part becomes a
// hole (what shims do); a pipe that another process pumps into files of half the size in turn; the file
// alone, without any bound.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <thread>

#include "shim/attempt/log_bound.h"
#include "support/cluster.h"
#include "support/machine.h"

namespace gpusched::bench {
namespace {

struct Cost {
  double wall_seconds = 0;  ///< Time of the writer.
  double cpu_seconds = 0;   ///< Time of all.
  int64_t kept_bytes = 0;
};

double cpu_of(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}
double cpu_of_all() { return cpu_of(RUSAGE_SELF) + cpu_of(RUSAGE_CHILDREN); }

int64_t bytes_on_disk(const std::string& path) {
  struct stat facts{};
  return ::stat(path.c_str(), &facts) == 0 ? int64_t{facts.st_blocks} * 512 : 0;
}

/// A child that writes lines into `out`, in blocks.
pid_t start_writer(int out, int64_t bytes, std::size_t block) {
  const pid_t pid = ::fork();
  expect(pid >= 0, "cannot fork");
  if (pid > 0) return pid;
  std::string lines;
  while (lines.size() < block)
    lines += std::string(std::min<std::size_t>(99, block - lines.size() - 1), 'x') + "\n";
  for (int64_t done = 0; done < bytes; done += static_cast<int64_t>(block)) {
    if (::write(out, lines.data(), block) != static_cast<ssize_t>(block)) ::_exit(1);
  }
  ::_exit(0);
}

Cost by_file(const std::string& folder, int64_t bytes, std::size_t block, int64_t limit) {
  const std::string path = folder + "/stdout";
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
  const int parent = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ::unlink((folder + "/log-times").c_str());
  shim::LogBound bound(parent, file, -1, limit);
  const double before = cpu_of_all();
  const int64_t begin = now_ns();
  const pid_t writer = start_writer(file, bytes, block);
  Duration pause = milliseconds(10);
  int status = 0;
  while (::waitpid(writer, &status, WNOHANG) == 0) {
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(pause, milliseconds(10)).ns));
    if (limit > 0) pause = bound.look(Time{now_ns()}, Time{now_ns()});
  }
  Cost cost{.wall_seconds = seconds_between(begin, now_ns())};
  expect(status == 0, "the writer failed");
  if (limit > 0) bound.finish(Time{now_ns()});
  cost.cpu_seconds = cpu_of_all() - before;
  cost.kept_bytes = bytes_on_disk(path);
  ::close(file);
  ::close(parent);
  return cost;
}

Cost by_pipe(const std::string& folder, int64_t bytes, std::size_t block, int64_t limit) {
  int ends[2];
  expect(::pipe2(ends, O_CLOEXEC) == 0, "cannot make a pipe");
  ::fcntl(ends[1], F_SETPIPE_SZ, 1 << 20);
  const double before = cpu_of_all();
  const int64_t begin = now_ns();
  const pid_t writer = start_writer(ends[1], bytes, block);
  ::close(ends[1]);
  std::string buffer(256 << 10, '\0');
  const std::string paths[2] = {folder + "/pumped.0", folder + "/pumped.1"};
  int file = -1;
  int64_t written = 0;
  for (int turn = 0;;) {
    const ssize_t got = ::read(ends[0], buffer.data(), buffer.size());
    if (got <= 0) break;
    if (file < 0 || written >= limit / 2) {
      if (file >= 0) ::close(file);
      file = ::open(paths[turn ^= 1].c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
      written = 0;
    }
    expect(::write(file, buffer.data(), static_cast<std::size_t>(got)) == got, "cannot write");
    written += got;
  }
  int status = 0;
  ::waitpid(writer, &status, 0);
  expect(status == 0, "the writer failed");
  if (file >= 0) ::close(file);
  ::close(ends[0]);
  return {.wall_seconds = seconds_between(begin, now_ns()),
          .cpu_seconds = cpu_of_all() - before,
          .kept_bytes = bytes_on_disk(paths[0]) + bytes_on_disk(paths[1])};
}

int run(int64_t megabytes, int64_t limit_megabytes, int rounds) {
  const WorkFolder folder;
  print_head(folder.path());
  print_line("sizes",
             text_of("%lld MB in lines of 100 bytes, %lld MB kept, medians of %d rounds in turns",
                     static_cast<long long>(megabytes), static_cast<long long>(limit_megabytes), rounds));
  for (const std::size_t block : {std::size_t{100}, std::size_t{4'096}, std::size_t{65'536}}) {
    const int64_t bytes = (block == 100 ? megabytes / 8 : megabytes) << 20;
    const int64_t limit = limit_megabytes << 20;
    std::vector<double> wall[3], cpu[3];
    int64_t kept[3] = {};
    for (int round = 0; round < rounds; ++round) {
      const Cost costs[3] = {by_file(folder.path(), bytes, block, 0),
                             by_file(folder.path(), bytes, block, limit),
                             by_pipe(folder.path(), bytes, block, limit)};
      for (int i = 0; i < 3; ++i) {
        wall[i].push_back(costs[i].wall_seconds);
        cpu[i].push_back(costs[i].cpu_seconds);
        kept[i] = std::max(kept[i], costs[i].kept_bytes);
      }
    }
    const char* const names[3] = {"unbounded file", "file with holes", "pumped pipe"};
    for (int i = 0; i < 3; ++i) {
      print_line("figure",
                 text_of("blocks of %zu: %s %.2f s of the writer, %.2f s of CPU, %lld MB kept", block,
                         names[i], median(wall[i]), median(cpu[i]), static_cast<long long>(kept[i] >> 20)));
    }
  }
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// log_bound_bench [MEGABYTES [KEPT [ROUNDS]]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoll(argv[1]) : 1'024, argc > 2 ? std::atoll(argv[2]) : 64,
                              argc > 3 ? std::atoi(argv[3]) : 5);
}

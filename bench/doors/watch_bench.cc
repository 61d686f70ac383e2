// rooms: bench_load
//
// Idle watchers over REST, each a server-sent stream of its own (GET /v1/watch), of 64 callers: what they
// cost the scheduler, and how soon all of them are told of a job that changes.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/cluster.h"
#include "support/machine.h"

namespace gpusched::bench {
namespace {

constexpr int kCallers = 64;  // No caller has more calls than all leave free.
constexpr rlim_t kFilesOfOurs = 64;
constexpr std::size_t kTailBytes = 256;  // A text that is looked for may come in two pieces.

void allow_files(int watchers) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  expect(files.rlim_cur >= static_cast<rlim_t>(watchers) + kFilesOfOurs,
         text_of("a process has %llu files here, and the scheduler serves half as many connections: fewer "
                 "watchers, or a higher `ulimit -Hn`",
                 static_cast<unsigned long long>(files.rlim_cur)));
}

struct Watcher {
  int socket = -1;
  std::string tail;  ///< The last bytes, until what is waited for is in them.
  bool told = false;
};

/// The watchers' end of their connections: one thread.
class Watchers {
 public:
  Watchers() : epoll_(::epoll_create1(EPOLL_CLOEXEC)) { expect(epoll_ >= 0, "no epoll"); }
  ~Watchers() {
    for (const Watcher& watcher : all_) ::close(watcher.socket);
    ::close(epoll_);
  }

  /// Begins so many, and waits until each is told that it has begun.
  void begin(const Scheduler& scheduler, const std::vector<std::string>& keys, int count) {
    all_.resize(static_cast<std::size_t>(count));
    constexpr std::size_t kAtOnce = 256;  // Connections that wait to be accepted.
    for (std::size_t first = 0; first < all_.size(); first += kAtOnce) {
      const std::size_t end = std::min(first + kAtOnce, all_.size());
      for (std::size_t i = first; i < end; ++i) connect(all_[i], scheduler, keys[i % keys.size()]);
      wait_until_told("event: begin", end - first);
    }
  }

  /// Forgets who was told what.
  void expect_news() {
    for (Watcher& watcher : all_) {
      watcher.told = false;
      watcher.tail.clear();
    }
  }
  std::size_t count() const { return all_.size(); }

  /// Until so many more have read `text`; when each did.
  Samples wait_until_told(const std::string& text, std::size_t count, int64_t begin_ns = now_ns()) {
    Samples samples;
    std::array<epoll_event, 256> ready;
    while (samples.count() < count) {
      const int found = ::epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), 30'000);
      expect(found > 0, text_of("only %zu of %zu watchers were told within 30 s", samples.count(), count));
      for (int i = 0; i < found; ++i) {
        Watcher& watcher = *static_cast<Watcher*>(ready[static_cast<std::size_t>(i)].data.ptr);
        if (reads(watcher, text)) samples.add(now_ns() - begin_ns);
      }
    }
    return samples;
  }

 private:
  void connect(Watcher& watcher, const Scheduler& scheduler, const std::string& key) {
    watcher.socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    expect(watcher.socket >= 0, "no socket");
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(scheduler.http_port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    expect(::connect(watcher.socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0,
           "cannot connect");
    const std::string request =
        "GET /v1/watch HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + key + "\r\n\r\n";
    expect(::send(watcher.socket, request.data(), request.size(), MSG_NOSIGNAL) ==
               static_cast<ssize_t>(request.size()),
           "a request was not taken whole");
    ::fcntl(watcher.socket, F_SETFL, O_NONBLOCK);
    epoll_event interest{.events = EPOLLIN, .data = {.ptr = &watcher}};
    expect(::epoll_ctl(epoll_, EPOLL_CTL_ADD, watcher.socket, &interest) == 0, "epoll_ctl");
  }

  /// Takes what has come. Whether it has the text now, for the first time.
  static bool reads(Watcher& watcher, const std::string& text) {
    std::array<char, 16'384> buffer;
    const ssize_t size = ::recv(watcher.socket, buffer.data(), buffer.size(), 0);
    if (size < 0 && errno == EAGAIN) return false;
    expect(size > 0, "the server closed a watch: " + watcher.tail);
    if (watcher.told) return false;
    watcher.tail.append(buffer.data(), static_cast<std::size_t>(size));
    watcher.told = watcher.tail.find(text) != std::string::npos;
    if (watcher.told) {
      watcher.tail = {};
    } else if (watcher.tail.size() > kTailBytes) {
      watcher.tail.erase(0, watcher.tail.size() - kTailBytes);
    }
    return watcher.told;
  }

  const int epoll_;
  std::vector<Watcher> all_;
};

int run(int count, int events) {
  allow_files(count);
  const WorkFolder folder;
  print_head(folder.path());
  Scheduler scheduler(folder.path());
  std::vector<std::string> keys;
  for (int i = 0; i < kCallers; ++i) {
    keys.push_back(scheduler
                       .post("/v1/keys", R"({"name":"w)" + std::to_string(i) +
                                             R"(","roles":[{"role":"viewer"}]})")["secret"]
                       .text());
  }
  print_line("sizes", text_of("%d watchers of %d callers, %d jobs submitted one after the other, no node",
                              count, kCallers, events));
  const auto resident_mb = [&scheduler] {
    return static_cast<double>(scheduler.process().resident_bytes()) / 1e6;
  };
  const double empty_mb = resident_mb();
  Watchers watchers;
  watchers.begin(scheduler, keys, count);
  const double idle_mb = resident_mb();
  Samples each;
  std::vector<double> all_ms;
  for (int i = 0; i < events; ++i) {
    watchers.expect_news();
    const int64_t begin = now_ns();
    const std::string job =
        scheduler.post("/v1/jobs", R"({"spec":{"command":["true"]}})")["job_ids"].items().front().text();
    const Samples round = watchers.wait_until_told("\"" + job + "\"", watchers.count(), begin);
    all_ms.push_back(round.percentile_ms(1));
    each.add(round);
  }
  print_line("measured", text_of("until one watcher has an event: p50 %.1f ms, p99 %.1f ms",
                                 each.percentile_ms(0.5), each.percentile_ms(0.99)));
  print_line("", text_of("%.1f MB resident at the end", resident_mb()));
  print_line("figure",
             text_of("%d idle watchers: %.1f MB resident (target < 300 MB with 10000; %.1f MB before they "
                     "came); from a submission until all have it: p50 %.1f ms, worst %.1f ms of %d (target "
                     "< 250 ms)",
                     count, idle_mb, empty_mb, median(all_ms), *std::ranges::max_element(all_ms), events));
  return 0;
}

}  // namespace
}  // namespace gpusched::bench

/// watch_bench [WATCHERS [EVENTS]]
int main(int argc, char** argv) {
  return gpusched::bench::run(argc > 1 ? std::atoi(argv[1]) : 9'000, argc > 2 ? std::atoi(argv[2]) : 30);
}

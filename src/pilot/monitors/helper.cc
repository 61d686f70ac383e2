#include "pilot/monitors/helper.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstring>

#include "base/errors.h"
#include "pilot/monitors/open_file.h"
#include "pilot/monitors/path_search.h"

namespace gpusched::pilot {
namespace {

constexpr char kOpen = 'o', kStart = 's', kEnd = 'e';
/// The longest path that the kernel takes, and one letter.
constexpr std::size_t kRequestBytesMax = 4'096 + 1;

/// Sends one byte, and a descriptor if there is one.
void answer(int socket, int descriptor) {
  char byte = 0;
  iovec bytes{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = space.data();
    message.msg_controllen = space.size();
    cmsghdr* const head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  }
  ::sendmsg(socket, &message, MSG_NOSIGNAL);
  if (descriptor >= 0) ::close(descriptor);
}

int receive(int socket) {
  char byte = 0;
  iovec bytes{.iov_base = &byte, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) <= 0) return -1;
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  if (head == nullptr || head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) return -1;
  int descriptor = -1;
  std::memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
  return descriptor;
}

/// The helper's own side.
class Duty {
 public:
  Duty(HelperDuties duties, int socket)
      : duties_(std::move(duties)), socket_(socket), running_(duties_.programs.size(), 0) {}

  /// Serves until nobody is there to ask.
  void serve() {
    std::array<char, kRequestBytesMax> request;
    while (true) {
      const ssize_t size = ::read(socket_, request.data(), request.size());
      if (size < 0 && errno == EINTR) continue;
      if (size <= 0) break;
      const std::string about(request.data() + 1, static_cast<std::size_t>(size - 1));
      answer(socket_, carry_out(request.front(), about));
    }
    for (std::size_t number = 0; number < running_.size(); ++number) end(number);
  }

 private:
  int carry_out(char what, const std::string& about) {
    if (what == kOpen) return matches_paths(duties_.patterns, about) ? open_to_read(about) : -1;
    std::size_t number = running_.size();
    std::from_chars(about.data(), about.data() + about.size(), number);
    if (number >= running_.size()) return -1;
    end(number);
    return what == kStart ? start(number) : -1;
  }

  void end(std::size_t number) {
    if (running_[number] <= 0) return;
    ::kill(-running_[number], SIGKILL);
    ::waitpid(running_[number], nullptr, 0);
    running_[number] = 0;
  }

  int start(std::size_t number) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return -1;
    std::vector<char*> words;
    for (const std::string& word : duties_.programs[number]) words.push_back(const_cast<char*>(word.c_str()));
    words.push_back(nullptr);
    const pid_t parent = ::getpid();
    const pid_t child = ::fork();
    if (child == 0) {
      ::setpgid(0, 0);
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      sigset_t none;
      sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
      ::signal(SIGPIPE, SIG_DFL);
      const int nothing = ::open("/dev/null", O_RDONLY);
      const bool is_ready =
          ::getppid() == parent && ::dup2(nothing, STDIN_FILENO) >= 0 && ::dup2(ends[1], STDOUT_FILENO) >= 0;
      if (is_ready) ::execvp(words.front(), words.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    if (child < 0) {
      ::close(ends[0]);
      return -1;
    }
    ::setpgid(child, child);
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
    running_[number] = child;
    return ends[0];
  }

  const HelperDuties duties_;
  const int socket_;
  std::vector<pid_t> running_;  ///< By the program's number; 0: it does not run.
};

/// Keeps the standard ones and that socket, as descriptor 3.
void close_others(int socket) {
  constexpr int kSocket = 3;
  if (socket != kSocket) ::dup2(socket, kSocket);
  ::fcntl(kSocket, F_SETFD, FD_CLOEXEC);
  ::close_range(kSocket + 1, ~0U, 0);
}

}  // namespace

Result<std::unique_ptr<Helper>> Helper::start(HelperDuties duties) {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0)
    return io_error("cannot make a socket for the helper");
  const pid_t process = ::fork();
  if (process == 0) {
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);  // It ends when nobody is there to ask, and not before.
    close_others(ends[1]);
    Duty(std::move(duties), 3).serve();
    ::_exit(0);
  }
  ::close(ends[1]);
  if (process < 0) {
    ::close(ends[0]);
    return io_error("cannot start the helper");
  }
  return std::unique_ptr<Helper>(new Helper(process, ends[0]));
}

Helper::~Helper() {
  ::close(socket_);
  ::waitpid(process_, nullptr, 0);
}

int Helper::ask(char what, const std::string& about) const {
  const std::string request = what + about;
  if (request.size() > kRequestBytesMax) return -1;
  if (::write(socket_, request.data(), request.size()) < 0) return -1;
  return receive(socket_);
}

int Helper::open_file(const std::string& path) const { return ask(kOpen, path); }
int Helper::start_program(std::size_t number) const { return ask(kStart, std::to_string(number)); }
void Helper::end_program(std::size_t number) const { ask(kEnd, std::to_string(number)); }

}  // namespace gpusched::pilot

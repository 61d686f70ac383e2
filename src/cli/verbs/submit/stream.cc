#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cli/commands.h"
#include "cli/terminal/text.h"
#include "cli/verbs/submit/submit.h"
#include "client/json.h"

namespace gpusched::cli {
namespace {

constexpr size_t kReadBytes = 256 * 1024;
constexpr size_t kSendBytesMax = 2u << 20;  // For one request; all that has arrived by then goes together.
constexpr size_t kLineBytesMax = 4u << 20;

/// Lines of a file or of standard input, as they come.
class LineSource {
 public:
  explicit LineSource(int file) : file_(file) {}

  /// Waits for whole lines and takes all that are there, up to some megabytes. Empty: there are no more.
  Result<std::string> take() {
    for (;;) {
      const size_t end = over_ ? waiting_.size() : waiting_.rfind('\n') + 1;  // Nothing found: 0.
      const bool enough = end > 0 && (over_ || end >= kSendBytesMax || !more_is_there());
      if (enough || (over_ && end == 0)) {
        std::string lines = waiting_.substr(0, end);
        waiting_.erase(0, end);
        return lines;
      }
      if (waiting_.size() - end > kLineBytesMax) {
        return Error{.code = ErrorCode::kTooLarge, .message = "a line is larger than 4 MiB"};
      }
      const Result<Unit> read = read_some();
      if (!read) return read.error();
    }
  }

 private:
  bool more_is_there() const {
    pollfd ready{.fd = file_, .events = POLLIN, .revents = 0};
    return ::poll(&ready, 1, 0) > 0;
  }
  Result<Unit> read_some() {
    const size_t before = waiting_.size();
    waiting_.resize(before + kReadBytes);
    ssize_t count = 0;
    do {
      count = ::read(file_, waiting_.data() + before, kReadBytes);
    } while (count < 0 && errno == EINTR);
    waiting_.resize(before + static_cast<size_t>(std::max<ssize_t>(count, 0)));
    if (count < 0) return Error{.code = ErrorCode::kIo, .message = std::strerror(errno)};
    over_ = count == 0;
    return Unit{};
  }

  const int file_;
  std::string waiting_;
  bool over_ = false;
};

/// Sends lines and prints their answers.
class LineSender {
 public:
  LineSender(Session& session, bool retry) : session_(session), keys_(random_key()), retry_(retry) {}

  /// One exchange, repeated while what hinders it is passing: the keys make the lines safe to repeat.
  std::optional<Trouble> send(std::string_view lines) {
    const std::string body = with_keys(lines);
    Patience patience(session_.io());
    for (;;) {
      std::string answer;
      const Reply reply = session_.stream_post("/v1/jobs:stream", body, [&answer](std::string_view piece) {
        answer.append(piece);
        return true;
      });
      if (reply) {
        print(answer);
        said_ = false;
        return std::nullopt;
      }
      if (!retry_ || !reply.trouble->passing) return reply.trouble;
      if (!std::exchange(said_, true)) say_repeating(session_, *reply.trouble);
      if (!patience.wait_again()) return reply.trouble;
    }
  }
  int refused() const { return refused_; }

 private:
  /// Gives each line a key of its own, before what it says itself: of a field given twice the last one holds.
  std::string with_keys(std::string_view lines) {
    std::string out;
    numbers_.clear();
    while (!lines.empty()) {
      const size_t end = std::min(lines.find('\n'), lines.size());
      const std::string_view line = lines.substr(0, end);
      lines.remove_prefix(std::min(end + 1, lines.size()));
      read_ += 1;
      const size_t brace = line.find_first_not_of(" \t\r");
      if (brace == std::string_view::npos) continue;
      numbers_.push_back(read_);
      const bool is_object =
          line[brace] == '{' && line.find_first_not_of(" \t\r", brace + 1) != std::string_view::npos;
      const bool is_empty = is_object && line[line.find_first_not_of(" \t\r", brace + 1)] == '}';
      if (is_object && !is_empty) {
        out.append("{\"request_key\":\"")
            .append(keys_)
            .append("-")
            .append(std::to_string(read_))
            .append("\",");
        out.append(line.substr(brace + 1));
      } else {
        out.append(line);  // The scheduler says what is wrong with it.
      }
      out.push_back('\n');
    }
    return out;
  }

  void print(std::string_view answer) {
    for (const int64_t number : numbers_) {
      const size_t end = std::min(answer.find('\n'), answer.size());
      const std::string_view line = answer.substr(0, end);
      answer.remove_prefix(std::min(end + 1, answer.size()));
      if (session_.options().json) session_.io().out(std::string(line) + "\n");
      const Result<Json> json = Json::parse(line);
      const Json value = json.ok() ? *json : Json();
      if (!value["job_ids"].is_array()) {
        refused_ += 1;
        std::string sentence = value["error"].text();
        if (sentence.empty()) sentence = "the answer is not a scheduler's";
        print_error(session_.io(), "line " + std::to_string(number) + ": " + sentence, value["code"].text());
      } else if (!session_.options().json) {
        std::string ids;
        for (const Json& id : value["job_ids"].items()) ids.append(id.text()).append("\n");
        session_.io().out(ids);
      }
    }
  }

  Session& session_;
  const std::string keys_;
  const bool retry_;
  bool said_ = false;             // Whether it was said that it repeats.
  int64_t read_ = 0;              // Lines so far.
  std::vector<int64_t> numbers_;  // Numbers of the lines that were sent now.
  int refused_ = 0;
};

}  // namespace

int submit_stream(Session& session, const std::string& path, bool retry) {
  const int file = path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return session.fail(kExitUsage, "--stream: cannot read " + path + ": " + std::strerror(errno), "usage");
  }
  LineSource source(file);
  LineSender sender(session, await_scheduler(session, retry));
  int exit_code = kExitOk;
  for (;;) {
    const Result<std::string> lines = source.take();
    if (!lines) {
      exit_code = session.fail(kExitUsage, "--stream: " + lines.error().message, "usage");
      break;
    }
    if (lines->empty()) break;
    if (const auto trouble = sender.send(*lines)) {
      exit_code = session.fail(*trouble);
      break;
    }
  }
  if (file != STDIN_FILENO) ::close(file);
  return exit_code == kExitOk && sender.refused() > 0 ? kExitRefused : exit_code;
}

}  // namespace gpusched::cli

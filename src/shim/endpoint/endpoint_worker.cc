#include "shim/endpoint/endpoint_worker.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "base/text/task_payload.h"
#include "shim/clocks.h"
#include "shim/endpoint/http_exchange.h"
#include "shim/worker/task_wire.h"

namespace gpusched::shim {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kResultBytesMax = kAnswerBytesMax - kAnswerLineBytesMax;
constexpr std::size_t kHealthBytesMax = 64 * 1024;
constexpr Duration kHealthTimeout = seconds(5);
constexpr Duration kHealthPause = seconds(1);  ///< Between checks while it is not healthy.
constexpr Duration kHealthyFor = seconds(5);   ///< Time that a good answer counts.
constexpr Duration kBackoffFirst = milliseconds(500);
constexpr Duration kBackoffMax = seconds(10);
constexpr int64_t kBackoffSteps = 5;

/// The text of a member in one of the agent's or the shim's lines, which have no blanks and no escapes there.
std::optional<std::string_view> member_of(std::string_view line, std::string_view start, char end) {
  if (!line.starts_with(start)) return std::nullopt;
  line.remove_prefix(start.size());
  const std::size_t at = line.find(end);
  if (at == std::string_view::npos) return std::nullopt;
  return line.substr(0, at);
}

std::string seconds_text(Duration span) {
  const int64_t ms = span.ms();
  return ms % 1'000 == 0 ? std::to_string(ms / 1'000) + " s" : std::to_string(ms) + " ms";
}

Duration backoff_after(int64_t tries) {
  Duration pause = kBackoffFirst;
  for (int64_t i = 1; i < std::min(tries, kBackoffSteps + 1); ++i) pause = pause * 2;
  return std::min(pause, kBackoffMax);
}

/// Tasks of one endpoint. Not thread-safe.
class EndpointWorker {
 public:
  EndpointWorker(int frames, const Endpoint& endpoint, uint32_t tasks_max)
      : frames_(frames), endpoint_(endpoint), url_(parse_endpoint_url(endpoint.url).value()) {
    say("ready " + std::to_string(tasks_max) + " cancel health");
  }

  int run() {
    while (!closed_ && !broken_) {
      const Time now = boot_now();
      advance_all(now);
      begin_all(boot_now());
      wait();
    }
    return broken_ ? 1 : 0;
  }

 private:
  struct Call {
    std::string body;
    int64_t tries = 0;
    Time not_before = {};                         ///< The next try.
    Time waits_since = {};                        ///< For that try.
    std::unique_ptr<HttpExchange> exchange = {};  ///< Null: it waits.
  };

  // The endpoint.

  std::string request_of(const std::string& method, const std::string& target,
                         const std::string& rest) const {
    return method + ' ' + target + " HTTP/1.1\r\nHost: " + url_.host + ':' + url_.port +
           "\r\nAccept: */*\r\nConnection: close\r\n" + rest;
  }

  bool is_to_be_checked(Time now) const { return !endpoint_.health_path.empty() && now >= healthy_until_; }

  void begin_check(Time now) {
    check_ =
        std::make_unique<HttpExchange>(url_, request_of("GET", endpoint_.health_path, "\r\n"),
                                       kHealthBytesMax, now + std::min(kHealthTimeout, endpoint_.timeout));
  }

  void begin_try(const std::string& id, Call& call, Time now) {
    call.tries += 1;
    const std::string rest = "Content-Type: application/json\r\nX-Request-Id: " + id +
                             "\r\nContent-Length: " + std::to_string(call.body.size()) + "\r\n\r\n" +
                             call.body;
    call.exchange = std::make_unique<HttpExchange>(url_, request_of("POST", url_.target, rest),
                                                   kResultBytesMax, now + endpoint_.timeout);
  }

  /// Tasks that wait are sent, or have waited for too long.
  void begin_all(Time now) {
    std::vector<std::string> given_up;
    for (auto& [id, call] : calls_) {
      if (call.exchange || now < call.not_before) continue;
      if (!is_to_be_checked(now)) {
        begin_try(id, call, now);
        continue;
      }
      if (!check_ && now >= check_due_) begin_check(now);
      // One check at least was for this task.
      const bool late = now >= call.waits_since + endpoint_.patience && checked_at_ >= call.waits_since;
      if (late && !check_problem_.empty()) given_up.push_back(id);
    }
    for (const std::string& id : given_up)
      finish(id, 1,
             "the endpoint was not healthy within " + seconds_text(endpoint_.patience) + ": GET " +
                 endpoint_.health_path + ": " + check_problem_);
  }

  void advance_all(Time now) {
    if (check_) {
      check_->advance(now);
      if (check_->end() != HttpExchange::End::kNone) end_check(now);
    }
    std::vector<std::string> over;
    for (auto& [id, call] : calls_) {
      if (!call.exchange) continue;
      call.exchange->advance(now);
      if (call.exchange->end() != HttpExchange::End::kNone) over.push_back(id);
    }
    for (const std::string& id : over) end_try(id, calls_.at(id), now);
  }

  void end_check(Time now) {
    const std::unique_ptr<HttpExchange> check = std::move(check_);
    const bool answered = check->end() == HttpExchange::End::kAnswered;
    const int status = answered ? check->answer().status() : 0;
    checked_at_ = now;
    if (status >= 200 && status < 300) {
      check_problem_.clear();
      healthy_until_ = now + kHealthyFor;
      check_due_ = {};
    } else {
      check_problem_ = answered ? "it answered " + check->answer().status_words() : check->problem();
      check_due_ = now + kHealthPause;
    }
  }

  void end_try(const std::string& id, Call& call, Time now) {
    using End = HttpExchange::End;
    const std::unique_ptr<HttpExchange> exchange = std::move(call.exchange);
    const bool answered = exchange->end() == End::kAnswered;
    const int status = answered ? exchange->answer().status() : 0;
    if (status >= 200 && status < 300) {
      healthy_until_ = now + kHealthyFor;
      return finish(id, 0, {}, std::move(exchange->answer().body()));
    }
    // Failures that may pass: the server is not there, the connection broke, or it is the server's own fault.
    const bool may_pass = exchange->end() == End::kNotReached || exchange->end() == End::kBroken ||
                          status >= 500 || status == 429;
    if (may_pass) healthy_until_ = {};
    if (may_pass && call.tries <= endpoint_.retries) {
      call.not_before = call.waits_since = now + backoff_after(call.tries);
      return;
    }
    std::string words = "the endpoint failed: " + exchange->problem();
    if (answered) words = "the endpoint answered " + exchange->answer().status_words();
    if (exchange->end() == End::kLate)
      words =
          "the endpoint is too slow: " + exchange->problem() + " within " + seconds_text(endpoint_.timeout);
    if (call.tries > 1) words += " (" + std::to_string(call.tries) + " tries)";
    finish(id, 1, words, answered ? std::move(exchange->answer().body()) : std::string());
  }

  /// `words`: why it failed; empty: it did not.
  void finish(std::string id, int exit_code, const std::string& words, std::string result = {}) {
    calls_.erase(id);
    std::string line = std::move(id) + ' ' + std::to_string(exit_code);
    if (!words.empty()) line += ' ' + words;
    line.resize(std::min(line.size(), kAnswerLineBytesMax));
    say(line + '\n', std::move(result));
  }

  // Frames.

  void say(const std::string& line, std::string rest = {}) {
    const auto size = static_cast<uint32_t>(line.size() + rest.size());
    std::string head;
    for (std::size_t i = 0; i < kLengthBytes; ++i) head += static_cast<char>(size >> (8 * i) & 0xFF);
    to_shim_.push_back(head + line);
    if (!rest.empty()) to_shim_.push_back(std::move(rest));
  }

  void write_frames() {
    while (!to_shim_.empty()) {
      const std::string_view left = std::string_view(to_shim_.front()).substr(written_);
      const ssize_t size = send(frames_, left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) {
        closed_ = closed_ || errno != EAGAIN;
        return;
      }
      written_ += static_cast<std::size_t>(size);
      if (written_ < to_shim_.front().size()) continue;
      to_shim_.pop_front();
      written_ = 0;
    }
  }

  void read_frames() {
    std::array<char, 64 * 1024> buffer;
    const ssize_t size = recv(frames_, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (size <= 0) {
      closed_ = true;
      return;
    }
    from_shim_.append(buffer.data(), static_cast<std::size_t>(size));
    while (from_shim_.size() >= kLengthBytes) {
      uint32_t length = 0;
      for (std::size_t i = 0; i < kLengthBytes; ++i)
        length |= uint32_t{static_cast<unsigned char>(from_shim_[i])} << (8 * i);
      if (length > kTaskFrameBytesMax + kTaskPayloadBytesMax) {
        broken_ = true;
        return;
      }
      if (from_shim_.size() < kLengthBytes + length) return;
      take_frame(std::string_view(from_shim_).substr(kLengthBytes, length));
      from_shim_.erase(0, kLengthBytes + length);
    }
  }

  void take_frame(std::string_view frame) {
    const std::string_view line = frame.substr(0, frame.find('\n'));
    if (const auto number = member_of(line, "{\"check\":", '}'))
      return say("healthy " + std::string(*number));
    if (const auto id = member_of(line, "{\"cancel\":\"", '"')) {
      if (calls_.contains(std::string(*id))) finish(std::string(*id), 1, "cancelled");
      return;
    }
    const auto id = member_of(line, "{\"id\":\"", '"');
    if (!id) {
      broken_ = true;
      return;
    }
    const std::size_t rest = std::min(line.size() + 1, frame.size());
    calls_[std::string(*id)] = {.body = std::string(frame.substr(rest)), .waits_since = boot_now()};
  }

  // Waiting.

  Time next_look() const {
    Time next = check_ ? check_->deadline() : kNever;
    if (check_ && check_->end() != HttpExchange::End::kNone) next = {};
    for (const auto& [id, call] : calls_) {
      if (call.exchange) {
        next = std::min(
            next, call.exchange->end() == HttpExchange::End::kNone ? call.exchange->deadline() : Time{});
      } else if (!check_) {
        next = std::min(next, std::max(call.not_before, check_due_));
      }
    }
    return next;
  }

  void wait() {
    std::vector<pollfd> sources = {{.fd = frames_, .events = POLLIN, .revents = 0}};
    if (!to_shim_.empty()) sources[0].events |= POLLOUT;
    const auto add = [&sources](const HttpExchange& exchange) {
      if (exchange.end() == HttpExchange::End::kNone)
        sources.push_back({.fd = exchange.descriptor(), .events = exchange.events(), .revents = 0});
    };
    if (check_) add(*check_);
    for (const auto& [id, call] : calls_) {
      if (call.exchange) add(*call.exchange);
    }
    const Time next = next_look();
    const int64_t span = next == kNever ? -1 : (next.ns - boot_now().ns + 999'999) / 1'000'000;
    const int limit = next == kNever ? -1 : static_cast<int>(std::clamp<int64_t>(span, 0, INT_MAX));
    if (poll(sources.data(), sources.size(), limit) <= 0) return;
    if ((sources[0].revents & POLLOUT) != 0) write_frames();
    if ((sources[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_frames();
  }

  const int frames_;
  const Endpoint endpoint_;
  const WebhookUrl url_;
  std::map<std::string, Call> calls_;  ///< By their tasks' ids.
  std::unique_ptr<HttpExchange> check_;
  Time healthy_until_;
  Time check_due_;
  Time checked_at_;
  std::string check_problem_;  ///< Problem of the last check; empty: it is healthy.
  std::string from_shim_;
  std::deque<std::string> to_shim_;
  std::size_t written_ = 0;  ///< Bytes of the first of them.
  bool closed_ = false;
  bool broken_ = false;
};

}  // namespace

int serve_endpoint(int frames, const Endpoint& endpoint, uint32_t tasks_max) {
  return EndpointWorker(frames, endpoint, tasks_max).run();
}

int run_endpoint_worker(const std::vector<std::string>& words) {
  const std::optional<Endpoint> endpoint =
      words.size() == 1 ? parse_endpoint(words[0]) : std::optional<Endpoint>();
  const char* const frames = std::getenv(kFrameVariable);
  if (!endpoint || frames == nullptr) {
    std::fprintf(stderr, "gpu-shim %s is started by gpu-agent: no endpoint, or no frames\n", kEndpointFlag);
    return 2;
  }
  const char* const tasks = std::getenv(kTasksVariable);
  const int64_t most = tasks == nullptr ? 1 : std::strtoll(tasks, nullptr, 10);
  return serve_endpoint(static_cast<int>(std::strtol(frames, nullptr, 10)), *endpoint,
                        static_cast<uint32_t>(std::clamp<int64_t>(most, 1, int64_t{kTasksAtOnceMax})));
}

}  // namespace gpusched::shim

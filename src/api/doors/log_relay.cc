#include "api/doors/log_relay.h"

#include <atomic>
#include <mutex>
#include <optional>

namespace gpusched::api {
namespace {

constexpr Duration kPieceWait = seconds(10);  // A following read returns after so long without news.
constexpr Duration kRetryAfter = milliseconds(500);
constexpr int64_t kOffsetMax = int64_t{1} << 40;
constexpr int64_t kTailLinesMax = 10'000'000;
constexpr std::size_t kGrepBytesMax = 1'024;
constexpr int kRetriesMax = 600;  // In a row: five minutes.

/// One thing is under way at a time: a read, a write, a watch for the start, or a pause.
class Relay : public std::enable_shared_from_this<Relay> {
 public:
  Relay(Backend& backend, HttpServer& server, RestCallPtr call, LogRequest request, bool follow)
      : backend_(backend),
        server_(server),
        call_(std::move(call)),
        request_(std::move(request)),
        follow_(follow) {
    request_.wait = follow ? kPieceWait : Duration{};
  }

  void begin() {
    if (follow_) call_->on_gone([self = shared_from_this()] { self->stop(); });
    read();
  }

 private:
  void stop() {
    gone_ = true;
    const std::lock_guard lock(mutex_);
    watch_ = nullptr;
  }

  void read() {
    if (gone_) return;
    backend_.read_log(request_, [self = shared_from_this()](Answer<LogPiece> answer) {
      if (self->gone_) return;
      if (!answer) return self->failed(answer.error());
      self->retries_ = 0;
      self->send(std::move(*answer));
    });
  }

  void send(LogPiece piece) {
    begin_stream();
    // Lines that do not hold the wanted text are passed over without any data.
    const bool moved = piece.next_offset != request_.offset || !piece.data.empty();
    const bool over = piece.at_end || (!follow_ && !moved);
    request_.go_on(piece);
    stream_->write(std::move(piece.data), [self = shared_from_this(), over](bool alive) {
      if (!alive) return self->stop();
      if (over) return self->stream_->finish();
      self->read();
    });
  }

  void begin_stream() {
    if (stream_) return;
    stream_ = call_->stream({.content_type = "application/octet-stream"});
  }

  void failed(const ApiError& error) {
    if (follow_ && error.kind == ErrorKind::kLogNotFound && !started_) return wait_for_start(error);
    const bool may_pass = error.kind == ErrorKind::kUnavailable || error.kind == ErrorKind::kTimeout ||
                          error.kind == ErrorKind::kLogNotFound;
    if (follow_ && may_pass && retries_ < kRetriesMax && (error.kind != ErrorKind::kLogNotFound || !ended_)) {
      retries_ += 1;
      server_.run_after(kRetryAfter, [self = shared_from_this()] { self->read(); });
      return;
    }
    finish_with(error);
  }

  void finish_with(const ApiError& error) {
    if (!stream_) return call_->fail(error);
    stream_->abort();  // Half an answer must not look like a whole one.
  }

  void wait_for_start(const ApiError& why) {
    auto watch = backend_.watch_job(
        request_.job, request_.tenant, [self = shared_from_this(), why](Answer<JobView> job) {
          if (self->gone_) return;
          const bool waits = job.ok() && !is_final(job->state) && job->state != JobState::kRunning;
          if (waits || self->started_.exchange(true)) return;
          if (!job) return self->finish_with(job.error());
          self->ended_ = is_final(job->state);
          if (job->attempts == 0) return self->finish_with(why);  // It ended without ever being started.
          self->read();
        });
    const std::lock_guard lock(mutex_);
    if (!gone_) watch_ = std::move(watch);
  }

  Backend& backend_;
  HttpServer& server_;
  RestCallPtr call_;
  LogRequest request_;
  const bool follow_;
  std::optional<HttpStream> stream_;
  int retries_ = 0;
  std::atomic<bool> gone_{false};
  std::atomic<bool> started_{false};
  std::atomic<bool> ended_{false};
  std::mutex mutex_;  // Guards the watch.
  std::shared_ptr<void> watch_;
};

}  // namespace

LogQuery read_log_query(JobId job, RestQuery& query) {
  LogQuery wanted{.request = {.job = job, .tenant = query.text("tenant_id").value_or("")}};
  LogRequest& request = wanted.request;
  if (const auto stream = query.text("stream")) {
    request.from_stderr = *stream == "stderr";
    if (*stream != "stdout" && *stream != "stderr") query.fail("stream", "must be stdout or stderr");
  }
  request.attempt = static_cast<uint32_t>(query.count("attempt", 0, UINT32_MAX));
  request.offset = query.count("offset", 0, kOffsetMax);
  request.tail_lines = query.count("tail_lines", 0, kTailLinesMax);
  if (const auto since = query.text("since")) {
    const auto time = parse_since(*since);
    if (!time)
      query.fail("since", "must be a time such as 2025-01-31T09:00:00Z, or how long ago, such as 10m");
    request.since = time.value_or(Time{});
  }
  request.grep = query.text("grep").value_or("");
  if (request.grep.size() > kGrepBytesMax) query.fail("grep", "is longer than 1024 bytes; shorten it");
  wanted.follow = query.flag("follow");
  return wanted;
}

void relay_log(Backend& backend, HttpServer& server, const RestCallPtr& call, LogRequest request,
               bool follow) {
  std::make_shared<Relay>(backend, server, call, std::move(request), follow)->begin();
}

}  // namespace gpusched::api

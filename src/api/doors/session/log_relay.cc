#include "api/doors/session/log_relay.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

#include "api/contract/json_writer.h"
#include "base/limits.h"
#include "base/net/base64.h"

namespace gpusched::api {
namespace {

constexpr Duration kPieceWait = seconds(10);  // A following read returns after so long without news.
constexpr Duration kRetryAfter = milliseconds(500);
constexpr int64_t kOffsetMax = int64_t{1} << 62;
constexpr int kRetriesMax = 600;  // In a row: five minutes.

/// One thing is under way at a time: a read, a write, a watch for the start, or a pause.
class Relay : public std::enable_shared_from_this<Relay> {
 public:
  Relay(Backend& backend, HttpServer& server, RestCallPtr call, LogRequest request, bool follow,
        LogFormat format)
      : backend_(backend),
        server_(server),
        call_(std::move(call)),
        request_(std::move(request)),
        follow_(follow),
        format_(format) {
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
    backend_.read_log(call_->caller(), request_, [self = shared_from_this()](Answer<LogPiece> answer) {
      if (self->gone_) return;
      if (!answer) return self->failed(answer.error());
      self->retries_ = 0;
      self->send(std::move(*answer));
    });
  }

  void send(LogPiece piece) {
    begin_stream();
    std::string bytes = format_ == LogFormat::kBytes ? piece.data : json_line(piece);
    const bool over = is_end(piece, follow_);
    request_.go_on(piece);
    stream_->write(std::move(bytes), [self = shared_from_this(), over](bool alive) {
      if (!alive) return self->stop();
      if (over) return self->stream_->finish();
      self->read();
    });
  }

  /// Empty when there is nothing to tell.
  std::string json_line(LogPiece& piece) {
    if (piece.data.empty() && piece.skipped == 0) return {};
    return log_piece_json(piece, request_.from_stderr, request_.of_lines());
  }

  void begin_stream() {
    if (stream_) return;
    const bool bytes = format_ == LogFormat::kBytes;
    stream_ = call_->stream({.content_type = bytes ? "application/octet-stream" : "application/x-ndjson"});
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
        call_->caller(), request_.job, request_.tenant,
        [self = shared_from_this(), why](Answer<JobView> job) {
          if (self->gone_) return;
          const bool waits = job.ok() && !is_final(job->state) && job->state != JobState::kRunning &&
                             job->state != JobState::kPreempted;
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
  const LogFormat format_;
  std::optional<HttpStream> stream_;
  int retries_ = 0;
  std::atomic<bool> gone_{false};
  std::atomic<bool> started_{false};
  std::atomic<bool> ended_{false};
  std::mutex mutex_;  // Guards the watch.
  std::shared_ptr<void> watch_;
};

/// How many bytes of the beginning are whole UTF-8 characters.
std::size_t utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto lead = static_cast<unsigned char>(text[at]);
    std::size_t size = 1;
    uint32_t letter = lead;
    if (lead >= 0xF0 && lead < 0xF5) {
      size = 4;
      letter = lead & 0x07;
    } else if (lead >= 0xE0 && lead < 0xF0) {
      size = 3;
      letter = lead & 0x0F;
    } else if (lead >= 0xC2 && lead < 0xE0) {
      size = 2;
      letter = lead & 0x1F;
    } else if (lead >= 0x80) {
      return at;
    }
    if (at + size > text.size()) return at;
    for (std::size_t i = 1; i < size; ++i) {
      const auto next = static_cast<unsigned char>(text[at + i]);
      if ((next & 0xC0) != 0x80) return at;
      letter = letter << 6 | (next & 0x3F);
    }
    const bool too_long =
        (size == 3 && letter < 0x800) || (size == 4 && (letter < 0x10000 || letter > 0x10FFFF));
    if (too_long || (letter >= 0xD800 && letter < 0xE000)) return at;
    at += size;
  }
  return at;
}

}  // namespace

LogQuery read_log_query(JobId job, RestQuery& query) {
  LogQuery wanted{.request = {.job = job, .tenant = query.text("tenant_id").value_or("")}};
  LogRequest& request = wanted.request;
  if (const auto stream = query.text("stream")) {
    request.from_stderr = *stream == "stderr";
    if (*stream != "stdout" && *stream != "stderr") query.fail("stream", "must be stdout or stderr");
  }
  request.attempt = static_cast<uint32_t>(query.count("attempt", 0, UINT32_MAX));
  request.member = static_cast<uint32_t>(query.count("member", 0, limits::kMembersMax));
  request.offset = query.count("offset", 0, kOffsetMax);
  request.tail_lines = query.count("tail_lines", 0, kTailLinesMax);
  if (const auto since = query.text("since")) {
    const auto time = parse_since(*since);
    if (!time)
      query.fail("since", "must be a time such as 2025-01-31T09:00:00Z, or how long ago, such as 10m");
    request.since = time.value_or(Time{});
  }
  request.grep = query.text("grep").value_or("");
  if (const auto problem = check_log_request(request)) query.fail(*problem);
  request.timestamps = query.flag("timestamps");
  wanted.follow = query.flag("follow");
  if (const auto format = query.text("format")) {
    if (*format != "bytes" && *format != "json") query.fail("format", "must be bytes or json");
    if (*format == "json") wanted.format = LogFormat::kJsonLines;
  }
  return wanted;
}

std::optional<ApiError> check_log_request(const LogRequest& request) {
  if (request.offset < 0)
    return ApiError{ErrorKind::kInvalidArgument, "offset must not be negative", "offset"};
  if (request.tail_lines < 0)
    return ApiError{ErrorKind::kInvalidArgument, "the number of lines must not be negative", "tail_lines"};
  if (request.grep.size() > kGrepBytesMax || request.grep.find('\n') != std::string::npos) {
    return ApiError{
        ErrorKind::kInvalidArgument,
        "the text to search for must be one line of at most " + std::to_string(kGrepBytesMax) + " bytes",
        "grep"};
  }
  return std::nullopt;
}

bool is_end(const LogPiece& piece, bool follow) {
  // Lines that do not hold the wanted text are passed over without any data.
  return piece.at_end || (!follow && piece.data.empty() && piece.next_offset <= piece.offset);
}

std::string log_piece_json(LogPiece& piece, bool of_stderr, bool whole_lines) {
  constexpr std::size_t kCutCharacterMax = 3;
  std::size_t plain = utf8_prefix(piece.data);
  const std::size_t rest = piece.data.size() - plain;
  if (rest > 0 && rest <= kCutCharacterMax && plain > 0 && !whole_lines && !piece.at_end) {
    piece.data.resize(plain);
    piece.next_offset = piece.offset + static_cast<int64_t>(plain);
  }
  std::string line;
  JsonWriter json(line);
  json.begin_object().field("attempt", piece.attempt);
  json.field("stream", of_stderr ? "stderr" : "stdout");
  json.field("offset", piece.offset).field("next_offset", piece.next_offset);
  if (piece.skipped > 0) json.field("skipped", piece.skipped);
  if (plain == piece.data.size()) {
    json.field("text", std::string_view(piece.data));
  } else {
    json.field("base64", base64_encoded(piece.data));
  }
  json.end_object();
  line += '\n';
  return line;
}

void relay_log(Backend& backend, HttpServer& server, const RestCallPtr& call, LogRequest request, bool follow,
               LogFormat format) {
  if (follow) {
    if (const auto refused = call->become_stream()) return call->fail(*refused);
  }
  std::make_shared<Relay>(backend, server, call, std::move(request), follow, format)->begin();
}

}  // namespace gpusched::api

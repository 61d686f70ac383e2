#include "api/doors/native/native_rest_stream.h"

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "api/calls/trace_jobs.h"
#include "api/doors/native/native_rest_bodies.h"
#include "api/doors/native/ordered_answers.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kLinesUnderWayMax = 1'024;  // Lines that are read and not yet answered.
constexpr std::size_t kLineBytesMax = 4u << 20;   // As a whole body may have.
constexpr std::size_t kLineBytesUnderWayMax = 16u << 20;
constexpr std::size_t kAnswersPerPiece = 1'024;
constexpr Duration kSilenceMax = minutes(10);

/// One stream. Reading and writing go on side by side, each one piece at a time: reading stops while too many
/// lines are under way, and goes on when answers were written.
class LineStream : public std::enable_shared_from_this<LineStream> {
 public:
  LineStream(Backend& backend, HttpServer& server, CallerPtr caller, std::string by, std::string traceparent)
      : backend_(backend),
        server_(server),
        caller_(std::move(caller)),
        by_(std::move(by)),
        traceparent_(std::move(traceparent)) {}
  ~LineStream() { note_.drop(); }

  void begin(const RestCallPtr& call) {
    body_ = call->body();
    call->on_gone([self = shared_from_this()] { self->gone_ = true; });
    note_ = std::move(call->note());  // Each submission is told by itself.
    // Lines that are under way are answered first: a client takes each answer for that of its next line.
    out_ = call->stream({.content_type = "application/x-ndjson"},
                        [weak = weak_from_this()](const ApiError& error) {
                          const auto self = weak.lock();
                          if (self != nullptr && !self->ended_) self->end_with(error);
                        });
    watch_silence();
    read();
  }

 private:
  // --- Of the server's thread ---

  void read() {
    body_.read([self = shared_from_this()](const std::string& piece, HttpBody::State state) {
      self->pieces_ += 1;
      self->take(piece, state);
    });
  }

  void take(std::string_view piece, HttpBody::State state) {
    if (gone_ || ended_) return;
    if (state == HttpBody::State::kBroken) {
      out_.abort();  // Lines without an answer may or may not have been done; the client is gone anyway.
      gone_ = true;
      return;
    }
    rest_.append(piece);
    body_over_ = state == HttpBody::State::kEnd;
    go_on();
  }

  /// Submits the lines that are there, as many as may be under way.
  void go_on() {
    if (std::exchange(submitting_, true)) return;  // An answer was written at once: the loop below goes on.
    paused_ = false;
    submit_lines();
    submitting_ = false;
    paused_ = full();
    if (paused_) return write();
    if (body_over_) {
      submit(std::exchange(rest_, {}));
      ended_ = true;
      return write();
    }
    if (rest_.size() > kLineBytesMax) {
      return end_with({ErrorKind::kTooLarge, "a line is larger than " + std::to_string(kLineBytesMax) +
                                                 " bytes; put large data into a file that the job reads"});
    }
    read();
  }

  void submit_lines() {
    std::size_t begin = 0;
    while (!full()) {
      const std::size_t end = rest_.find('\n', std::max(begin, searched_));
      if (end == std::string::npos) {
        searched_ = rest_.size();
        break;
      }
      submit(std::string_view(rest_).substr(begin, end - begin));
      begin = end + 1;
      searched_ = begin;
    }
    rest_.erase(0, begin);
    searched_ -= std::min(searched_, begin);
  }

  bool full() const {
    return ended_ || answers_.size() >= kLinesUnderWayMax || bytes_ >= kLineBytesUnderWayMax;
  }

  void submit(std::string_view line) {
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;  // An empty line asks for nothing.
    const uint64_t place = answers_.reserve();
    bytes_ += line.size();
    Answer<SubmitRequest> request = read_native_submit(line, "", backend_.containers_possible());
    if (!request) {
      note_.part().tell(&request.error());
      return answered(place, line.size(), error_json(request.error()));
    }
    request->by = by_;
    auto note = std::make_shared<CallNote>(note_.part());
    note->name_user(*request);
    trace_jobs(*request, traceparent_, *note);
    backend_.submit(caller_, std::move(*request),
                    [self = shared_from_this(), place, size = line.size(), note](Answer<Submitted> answer) {
                      if (answer) note->name_jobs(*answer);
                      note->tell(answer ? nullptr : &answer.error());
                      self->answered(
                          place, size,
                          answer.ok() ? native_submitted_json(*answer) : error_json(answer.error()));
                    });
  }

  /// The last line of the answer, and no more is read.
  void end_with(const ApiError& error) {
    const uint64_t place = answers_.reserve();
    ended_ = true;
    answered(place, 0, error_json(error));
  }

  void watch_silence() {
    server_.run_after(kSilenceMax, [self = shared_from_this(), before = pieces_] {
      if (self->gone_ || self->ended_) return;
      if (self->pieces_ == before && !self->paused_) {
        return self->end_with({ErrorKind::kRequestTimeout,
                               "no line arrived for ten minutes; open another stream for further lines"});
      }
      self->watch_silence();
    });
  }

  // --- Of any thread ---

  void answered(uint64_t place, std::size_t size, std::string text) {
    text.push_back('\n');
    bytes_ -= size;
    answers_.put(place, std::move(text));
    write();
  }

  /// Writes what is ready, unless a piece is on its way: then its end writes the next.
  void write() {
    std::vector<std::string> ready;
    {
      const std::lock_guard lock(mutex_);
      if (writing_ || finished_) return;
      ready = answers_.take(kAnswersPerPiece);
      finished_ = ready.empty() && ended_ && answers_.size() == 0;
      if (ready.empty() && !finished_) return;
      writing_ = !finished_;
    }
    if (ready.empty()) return out_.finish();
    std::string piece;
    for (const std::string& text : ready) piece.append(text);
    out_.write(std::move(piece), [self = shared_from_this()](bool alive) { self->written(alive); });
  }

  /// On the server's thread.
  void written(bool alive) {
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
    }
    if (!alive) {
      gone_ = true;
      return;
    }
    write();
    if (paused_ && !ended_ && answers_.size() < kLinesUnderWayMax / 2) go_on();
  }

  Backend& backend_;
  HttpServer& server_;
  const CallerPtr caller_;
  const std::string by_, traceparent_;
  HttpBody body_;
  HttpStream out_;
  OrderedAnswers<std::string> answers_;
  std::atomic<std::size_t> bytes_{0};  // Size of lines under way.
  std::atomic<bool> gone_{false}, ended_{false};
  std::mutex mutex_;  // Guards the two below.
  bool writing_ = false, finished_ = false;
  // Used on the server's thread.
  std::string rest_;          // Bytes that arrived and are not submitted.
  std::size_t searched_ = 0;  // No end of a line before here.
  uint64_t pieces_ = 0;
  CallNote note_;
  bool body_over_ = false, paused_ = false, submitting_ = false;
};

}  // namespace

void submit_lines(Backend& backend, HttpServer& server, const RestCallPtr& call, std::string by,
                  std::string traceparent) {
  if (const auto refused = call->become_stream()) return call->fail(*refused);
  std::make_shared<LineStream>(backend, server, call->caller(), std::move(by), std::move(traceparent))
      ->begin(call);
}

}  // namespace gpusched::api

#include "api/doors/native/native_grpc_stream.h"

#include <atomic>
#include <mutex>

#include "api/calls/trace_jobs.h"
#include "api/contract/names.h"
#include "api/doors/native/native_views.h"
#include "api/doors/native/ordered_answers.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kUnderWayMax = 1'024;  // Requests that were read and not yet answered.
constexpr std::size_t kBytesUnderWayMax = 16u << 20;

using Request = v1::SubmitJobsRequest;
using Response = v1::SubmitJobsResponse;

Response response_of(const Answer<Submitted>& answer) {
  Response response;
  if (!answer) {
    const ApiError& error = answer.error();
    response.set_code(std::string(row_of(error.kind).code));
    response.set_message(error.message);
    response.set_field(error.field);
    response.set_retry_after_ms(error.retry_after.ms());
    return response;
  }
  for (const JobId job : answer->jobs()) {
    response.add_job_ids(job_name(job));
  }
  return response;
}

/// Reading and writing go on side by side, each one message at a time.
class SubmitStream final : public GrpcBidi<Request, Response>,
                           public std::enable_shared_from_this<SubmitStream> {
 public:
  SubmitStream(Backend& backend, const GrpcMethodRow& method, std::unique_ptr<SubmitStreamCall> call)
      : GrpcBidi(std::move(call)), backend_(backend), note_(thread().note_of(method)) {
    note_.line.peer = address_of(context().peer());
    note_.line.claimed_by = label_of(context());
  }
  ~SubmitStream() override { note_.drop(); }

  void begin(const Doorkeeper& doorkeeper) {
    self_ = shared_from_this();
    if (const auto refused = thread().admit(context(), true, note_, ticket_)) return refuse(*refused);
    if (const auto refused = let_in(doorkeeper)) return refuse(*refused);
    StartRead(&request_);
  }

 private:
  void refuse(const ApiError& error) {
    {
      const std::lock_guard lock(mutex_);
      finished_ = true;
    }
    tell_call(note_, context(), &error, nullptr, nullptr);
    Finish(to_status(context(), error));
  }

  std::optional<ApiError> let_in(const Doorkeeper& doorkeeper) {
    Answer<CallerPtr> caller = caller_of(doorkeeper, context(), note_);
    if (!caller) return caller.error();
    caller_ = std::move(*caller);
    Answer<std::shared_ptr<void>> token =
        doorkeeper.while_valid(caller_, note_.line.action, [weak = weak_from_this()](const ApiError& error) {
          if (const auto self = weak.lock()) self->cut(error);
        });
    if (!token) return token.error();
    let_in_ = std::move(*token);
    return std::nullopt;
  }

  /// Takes nothing more. Messages under way are answered first. Any thread.
  void cut(const ApiError& error) {
    {
      const std::lock_guard lock(mutex_);
      if (!cut_) cut_ = error;
    }
    pump();
  }

  // gRPC's calls.

  void OnReadDone(bool ok) override {
    if (!ok) {  // The client has said all, or is gone.
      {
        const std::lock_guard lock(mutex_);
        read_all_ = true;
      }
      return pump();
    }
    {
      const std::lock_guard lock(mutex_);
      if (cut_) return;
    }
    const uint64_t place = answers_.reserve();
    const std::size_t size = request_.ByteSizeLong();
    bytes_ += size;
    const std::optional<ApiError> refused = thread().refuses(context());
    Answer<SubmitRequest> parsed = refused ? *refused : read_submit(request_, backend_.containers_possible());
    if (parsed) parsed->by = requester_of(context());
    const auto note = std::make_shared<CallNote>(note_.part());  // Each submission is told by itself.
    if (!parsed) {
      note->tell(&parsed.error());
      answered(place, size, response_of(parsed.error()));
    } else {
      note->name_user(*parsed);
      trace_jobs(*parsed, metadata_of(context(), "traceparent"), *note);
      backend_.submit(caller_, std::move(*parsed),
                      [self = shared_from_this(), place, size, note](const Answer<Submitted>& answer) {
                        if (answer) note->name_jobs(*answer);
                        note->tell(answer ? nullptr : &answer.error());
                        self->answered(place, size, response_of(answer));
                      });
    }
    {
      const std::lock_guard lock(mutex_);
      paused_ = answers_.size() >= kUnderWayMax || bytes_ >= kBytesUnderWayMax;
      if (paused_) return;
    }
    StartRead(&request_);
  }

  void OnWriteDone(bool ok) override {
    bool read_on = false;
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      if (!ok) broken_ = true;
      read_on = paused_ && !cut_ && answers_.size() < kUnderWayMax / 2;
      if (read_on) paused_ = false;
    }
    if (read_on) StartRead(&request_);
    pump_here();
  }

  void OnDone() override {
    let_in_.reset();
    ticket_.end();
    std::shared_ptr<SubmitStream> last;
    last.swap(self_);  // Answers that are still under way hold it a little longer.
  }

  void answered(uint64_t place, std::size_t size, Response response) {
    bytes_ -= size;
    answers_.put(place, std::move(response));
    pump();
  }

  /// Has the thread for answers look, once for all that is ready by then.
  void pump() {
    if (pumping_.exchange(true)) return;
    thread().run([self = shared_from_this()] {
      self->pumping_ = false;
      self->pump_here();
    });
  }

  void pump_here() {
    bool finish = false;
    std::optional<ApiError> why;
    {
      const std::lock_guard lock(mutex_);
      if (writing_ || finished_) return;
      std::vector<Response> ready = broken_ ? std::vector<Response>{} : answers_.take(1);
      if (!ready.empty()) {
        writing_ = true;
        response_ = std::move(ready.front());
      } else if (broken_ || ((read_all_ || cut_) && answers_.size() == 0)) {
        finished_ = finish = true;
        why = cut_;
      } else {
        return;
      }
    }
    if (finish) return Finish(why ? to_status(context(), *why) : grpc::Status::OK);
    grpc::WriteOptions options;
    // More is ready: the transport may wait for it before it writes.
    if (answers_.ready()) options.set_buffer_hint();
    StartWrite(&response_, options);
  }

  Backend& backend_;
  CallNote note_;
  CallTicket ticket_;
  CallerPtr caller_;
  std::shared_ptr<void> let_in_;        // Drops what waits for the end of the caller's key.
  std::shared_ptr<SubmitStream> self_;  // Until gRPC is done with it.
  OrderedAnswers<Response> answers_;
  Request request_;
  Response response_;
  std::atomic<std::size_t> bytes_{0};
  std::atomic<bool> pumping_{false};
  std::mutex mutex_;             // Guards the rest.
  std::optional<ApiError> cut_;  // It ends with this.
  bool writing_ = false, paused_ = false, read_all_ = false, broken_ = false, finished_ = false;
};

}  // namespace

void serve_submit_stream(Backend& backend, const Doorkeeper& doorkeeper, const GrpcMethodRow& method,
                         std::unique_ptr<SubmitStreamCall> call) {
  std::make_shared<SubmitStream>(backend, method, std::move(call))->begin(doorkeeper);
}

}  // namespace gpusched::api

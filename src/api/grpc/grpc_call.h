#pragma once

#include <google/protobuf/arena.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <grpcpp/support/async_stream.h>
#include <grpcpp/support/async_unary_call.h>

#include <array>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "api/contract/errors.h"
#include "api/grpc/call_metadata.h"
#include "api/grpc/grpc_bidi.h"
#include "api/grpc/grpc_service.h"
#include "api/grpc/grpc_thread.h"
#include "base/check.h"
#include "base/limits.h"
#include "base/queue_limits.h"

/// Common parts of the gRPC services: all calls of all services run on one completion queue with one thread,
/// which is what gRPC 1.51 is fastest with (docs/adr/grpc.md). Handlers run on it and must not block; they
/// answer at once or later, from any thread. Included by the services' sources only.
namespace gpusched::api {

grpc::StatusCode to_status_code(const ApiError& error);
/// The error as a status; its code and field go into the call's trailing metadata.
grpc::Status to_status(grpc::ServerContext& context, const ApiError& error);

/// Ends the note about a call; null: it did well. The call's subject is found in its messages, where they are
/// given; a call that fails gets its request's id into its trailing metadata.
void tell_call(CallNote& note, grpc::ServerContext& context, const ApiError* error,
               const google::protobuf::Message* request, const google::protobuf::Message* response);
/// The caller, as the note knows it since the call was let in, or else as the doorkeeper says; the note is
/// told.
Answer<CallerPtr> caller_of(const Doorkeeper& doorkeeper, const grpc::ServerContext& context, CallNote& note);

/// For how long a unary call's caller need not be looked up again, whose message is still to come.
inline constexpr std::chrono::milliseconds kCallerHolds{1'000};

/// The right, and the duty, to answer one unary call once. Copies mean the same call.
class GrpcCall {
 public:
  GrpcCall(GrpcThread& thread, GrpcUnary* call) : thread_(&thread), call_(call) {}

  const grpc::ServerContext& context() const { return call_->context(); }
  /// The answer tells it. A handler may say more in it before.
  CallNote& note() const { return call_->note; }
  /// For those who tell in its stead.
  CallNote take_note() const;
  Answer<CallerPtr> caller_of(const Doorkeeper& doorkeeper) const {
    return api::caller_of(doorkeeper, context(), note());
  }
  void finish() const {
    call_->tell(nullptr);
    thread_->answer(call_, nullptr, true);
  }
  void finish_at_flush() const {
    call_->tell(nullptr);
    thread_->answer(call_, nullptr, false);
  }
  /// The answer itself says that the call was refused, and why.
  void finish_refused(const ApiError& why) const {
    call_->tell(&why);
    thread_->answer(call_, nullptr, true);
  }
  void fail(const ApiError& error) const {
    call_->tell(&error);
    thread_->answer(call_, std::make_unique<grpc::Status>(to_status(call_->context(), error)), true);
  }

 private:
  GrpcThread* thread_;
  GrpcUnary* call_;
};

/// A stream of answers whose messages are made elsewhere: one at a time, as fast as the client takes them.
template <typename Message>
class GrpcWriter final : public std::enable_shared_from_this<GrpcWriter<Message>> {
 public:
  explicit GrpcWriter(GrpcThread& thread) : thread_(thread) {}

  const grpc::ServerContext& context() const { return context_; }
  /// The stream ends when the caller's key ends, or loses the role that it needs. In the handler.
  Answer<CallerPtr> caller_of(const Doorkeeper& doorkeeper) {
    Answer<CallerPtr> caller = api::caller_of(doorkeeper, context_, note_);
    if (!caller) return caller;
    Answer<std::shared_ptr<void>> token = doorkeeper.while_valid(
        *caller, note_.line.action, [weak = this->weak_from_this()](const ApiError& error) {
          if (const auto self = weak.lock()) self->cut(error);
        });
    if (!token) return token.error();
    let_in_ = std::move(*token);
    return caller;
  }
  /// `gone` is called once, on the thread, when the client has cancelled or the stream is over. In the
  /// handler.
  void on_gone(std::function<void()> gone) { gone_ = std::move(gone); }

  /// Tells the client that the stream has begun, by its head, before there is any message.
  void begin() {
    {
      const std::lock_guard lock(mutex_);
      begin_wanted_ = true;
    }
    pump();
  }
  /// Queues a message; `written` is called when the client's connection took it, or with false when it is
  /// gone. For a client that reads too slowly limits::kStreamMessagesMax are kept: the newest of them gives
  /// way to this one. A caller that must not lose any waits for `written`.
  void write(Message message, std::function<void(bool)> written = nullptr) {
    bool is_idle = false;
    {
      const std::lock_guard lock(mutex_);
      is_idle = !writing_ && queue_.empty();  // Else who writes, or is about to, goes on with this one.
      if (!ended_) {
        tell(nullptr);
        Entry entry{std::move(message), std::exchange(written, nullptr)};
        if (queue_.size() < limits::kStreamMessagesMax) {
          queue_.push_back(std::move(entry));
        } else {
          written = std::exchange(queue_.back(), std::move(entry)).written;
        }
      }
    }
    if (written != nullptr) written(false);
    if (is_idle) pump();
  }
  bool has_ended() {
    const std::lock_guard lock(mutex_);
    return ended_;
  }
  /// Ends the stream well after what is queued.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      tell(nullptr);
      ended_ = true;
    }
    pump();
  }
  /// Ends it with an error after what is queued.
  void fail(const ApiError& error) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      tell(&error);
      ended_ = true;
      status_ = to_status(context_, error);
    }
    pump();
  }

 private:
  template <typename Service, typename Request, typename Out>
  friend class GrpcStreamMethod;

  /// Ends it with an error at once: what is queued is dropped, and whoever makes messages is told.
  void cut(const ApiError& error) {
    std::deque<Entry> dropped;
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      tell(&error);
      ended_ = true;
      status_ = to_status(context_, error);
      dropped.swap(queue_);
    }
    for (Entry& entry : dropped) {
      if (entry.written != nullptr) entry.written(false);
    }
    thread_.run([self = this->shared_from_this()] {
      if (const auto gone = std::exchange(self->gone_, nullptr); gone != nullptr) gone();
      self->pump_here();
    });
  }
  /// Tells the first message, or the end without any: more messages are not counted, and nobody is told.
  void tell(const ApiError* error) {
    const auto code = error == nullptr ? grpc::StatusCode::OK : to_status_code(*error);
    if (!std::exchange(counted_, true)) thread_.count(*note_.line.action, code, began_);
    tell_call(note_, context_, error, request_.get(), nullptr);
  }
  void pump() {
    thread_.run([self = this->shared_from_this()] { self->pump_here(); });
  }
  void pump_here() {
    bool finish = false;
    bool begin = false;
    grpc::WriteOptions options;
    {
      const std::lock_guard lock(mutex_);
      if (writing_ || finishing_) return;
      begin = std::exchange(begin_wanted_, false);
      if (begin) {
        writing_ = true;
      } else if (!queue_.empty()) {
        writing_ = true;
        current_ = std::move(queue_.front());
        queue_.pop_front();
        if (!queue_.empty()) options.set_buffer_hint();  // They go to the connection together.
      } else if (ended_) {
        finishing_ = finish = true;
      } else {
        return;
      }
    }
    if (begin) {
      thread_.begin([this] { writer_.SendInitialMetadata(written_op_.tag()); });
    } else if (finish) {
      if (!thread_.begin([this] { writer_.Finish(status_, finished_op_.tag()); })) on_finished(false);
    } else {
      thread_.begin([this, &options] { writer_.Write(current_.message, options, written_op_.tag()); });
    }
  }
  void on_written(bool ok) {
    std::function<void(bool)> written;
    {
      const std::lock_guard lock(mutex_);
      written = std::exchange(current_.written, nullptr);
      if (!ok && !ended_) {
        ended_ = true;
        status_ = grpc::Status::CANCELLED;
        queue_.clear();
      }
    }
    if (written != nullptr) written(ok);
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
    }
    pump_here();
  }
  /// The call is over for the client: well, or because it was cancelled.
  void on_over(bool) {
    std::deque<Entry> dropped;
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
      if (!ended_) {
        ended_ = true;
        status_ = grpc::Status::CANCELLED;
      }
      dropped.swap(queue_);
    }
    for (Entry& entry : dropped) {
      if (entry.written != nullptr) entry.written(false);
    }
    if (const auto gone = std::exchange(gone_, nullptr); gone != nullptr) gone();
    let_in_.reset();
    pump_here();
    let_go();
  }
  void on_finished(bool) {
    finished_ = true;
    let_go();
  }
  /// gRPC knows it no more: the rest of its life belongs to those who still hold it.
  void let_go() {
    if (!over_ || !finished_ || reading_) return;
    ticket_.end();
    self_.reset();
  }

  struct Entry {
    Message message;
    std::function<void(bool)> written;
  };
  bool begin_wanted_ = false;
  GrpcThread& thread_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<Message, grpc::ByteBuffer> writer_{&context_};
  GrpcOp<GrpcWriter> over_op_{*this, &GrpcWriter::on_over};
  GrpcOp<GrpcWriter> written_op_{*this, &GrpcWriter::on_written};
  GrpcOp<GrpcWriter> finished_op_{*this, &GrpcWriter::on_finished};
  std::function<void()> gone_;
  std::shared_ptr<void> let_in_;  ///< Used on the thread: drops the wait for the end of the caller's key.
  CallNote note_;
  CallTicket ticket_;  ///< Used on the thread.
  RequestMeter::Clock::time_point began_;
  std::unique_ptr<google::protobuf::Message> request_;      ///< The request, once it is known.
  std::shared_ptr<GrpcWriter> self_;                        ///< Until gRPC is done with it.
  bool reading_ = false, over_ = false, finished_ = false;  // Used on the thread.
  std::mutex mutex_;                                        // Guards all below.
  std::deque<Entry> queue_;
  Entry current_;
  grpc::Status status_;
  bool writing_ = false, ended_ = false, finishing_ = false, counted_ = false;
};

// --- What a service's constructor calls, with the name of one of its methods. ---

/// The answer to a call that ended before its message, or whose bytes do not parse: the client's fault.
inline ApiError no_message() {
  return {ErrorKind::kInvalidArgument, "the call has no message, or one that does not belong to its method"};
}

/// Calls of one unary method. Their messages live in arenas that are used again.
template <typename Service, typename Request, typename Response>
class GrpcUnaryMethod final : public GrpcMethod {
 public:
  using Handler = void (Service::*)(const GrpcCall&, const Request*, Response*);

  GrpcUnaryMethod(GrpcThread& thread, Service& service, const char* name, Handler handler, int asked)
      : thread_(thread),
        service_(service),
        row_(service.method_row(name)),
        number_(service.method_of(name, Request::descriptor())),
        handler_(handler),
        asked_(asked) {}

  void begin() override {
    for (int i = 0; i < asked_; ++i) ask_for_one();
  }

 private:
  static constexpr std::size_t kFreeMax = 512;

  class Call final : public GrpcUnary, public GrpcWaiter {
   public:
    explicit Call(GrpcUnaryMethod& method) : method_(method), arena_(options(first_block_)) {}

    bool ask() {
      context_.emplace();
      stream_.emplace(&*context_);
      request_ = google::protobuf::Arena::CreateMessage<Request>(&arena_);
      response_ = google::protobuf::Arena::CreateMessage<Response>(&arena_);
      return method_.thread_.ask([this](grpc::ServerCompletionQueue* queue) {
        method_.service_.ask(method_.number_, &*context_, &*stream_, queue, came_op_.tag());
      });
    }
    grpc::ServerContext& context() override { return *context_; }
    void answer(const grpc::Status& status) override {
      answering_ = true;
      method_.thread_.count(method_.row_.action, status.error_code(), began_);
      method_.thread_.begin([&] {
        if (status.ok()) return stream_->WriteAndFinish(*response_, {}, status, answered_op_.tag());
        stream_->Finish(status, answered_op_.tag());
      });
    }
    void tell(const ApiError* error) override {
      tell_call(note, *context_, error, request_, error == nullptr ? response_ : nullptr);
    }
    void too_late() override { refuse(method_.thread_.too_late()); }
    void clear() {
      note = {};
      ticket_.end();
      stream_.reset();
      context_.reset();
      arena_.Reset();
      reading_ = answering_ = answered_ = false;
    }
    std::size_t index = 0;  // Its place in `all_`.

   private:
    static google::protobuf::ArenaOptions options(std::array<char, 4'096>& block) {
      google::protobuf::ArenaOptions options;
      options.initial_block = block.data();
      options.initial_block_size = block.size();
      return options;
    }
    void refuse(const ApiError& error) {
      tell(&error);
      answer(to_status(*context_, error));
    }
    void came(bool ok) {
      if (!ok) return method_.take_back(this);  // The server ends.
      began_ = RequestMeter::Clock::now();
      note = method_.thread_.note_of(method_.row_);
      method_.ask_for_one();
      if (const auto refused = method_.thread_.admit(*context_, false, note, ticket_))
        return refuse(*refused);
      reading_ = method_.thread_.begin([this] { stream_->Read(request_, read_op_.tag()); });
      if (reading_) method_.thread_.expect(*this);
    }
    void read(bool ok) {
      reading_ = false;
      method_.thread_.came(*this);
      if (answering_) return let_go();
      // A key that ended while its call's message was long on its way is found to have ended.
      if (RequestMeter::Clock::now() - began_ > kCallerHolds) note.line.caller = nullptr;
      if (ok)
        return (method_.service_.*method_.handler_)(GrpcCall(method_.thread_, this), request_, response_);
      refuse(no_message());
    }
    void answered(bool) {
      answered_ = true;
      let_go();
    }
    void let_go() {
      if (answered_ && !reading_) method_.take_back(this);
    }

    GrpcUnaryMethod& method_;
    alignas(std::max_align_t) std::array<char, 4'096> first_block_;
    google::protobuf::Arena arena_;
    std::optional<grpc::ServerContext> context_;
    std::optional<grpc::ServerAsyncReaderWriter<Response, Request>> stream_;
    GrpcOp<Call> came_op_{*this, &Call::came};
    GrpcOp<Call> read_op_{*this, &Call::read};
    GrpcOp<Call> answered_op_{*this, &Call::answered};
    RequestMeter::Clock::time_point began_;
    CallTicket ticket_;
    Request* request_ = nullptr;
    Response* response_ = nullptr;
    bool reading_ = false, answering_ = false, answered_ = false;
  };

  // All of the thread, or before it starts.
  void ask_for_one() {
    Call* call = nullptr;
    if (free_.empty()) {
      all_.push_back(std::make_unique<Call>(*this));
      call = all_.back().get();
      call->index = all_.size() - 1;
    } else {
      call = free_.back();
      free_.pop_back();
    }
    if (!call->ask()) take_back(call);
  }
  void take_back(Call* call) {
    call->clear();
    if (free_.size() < kFreeMax) return free_.push_back(call);
    std::swap(all_[call->index], all_.back());
    all_[call->index]->index = call->index;
    all_.pop_back();
  }

  GrpcThread& thread_;
  Service& service_;
  const GrpcMethodRow& row_;
  const int number_;
  const Handler handler_;
  const int asked_;
  std::vector<std::unique_ptr<Call>> all_;
  std::vector<Call*> free_;
};

template <typename Service, typename Request, typename Response>
void serve_unary(GrpcThread& thread, Service& service, const char* name,
                 void (Service::*handler)(const GrpcCall&, const Request*, Response*), int asked = 2) {
  thread.add(
      std::make_unique<GrpcUnaryMethod<Service, Request, Response>>(thread, service, name, handler, asked));
}

/// Calls of one method that answers with a stream.
template <typename Service, typename Request, typename Out>
class GrpcStreamMethod final : public GrpcMethod {
 public:
  using Writer = GrpcWriter<Out>;
  using Handler = void (Service::*)(const std::shared_ptr<Writer>&, const Request&);

  GrpcStreamMethod(GrpcThread& thread, Service& service, const char* name, Handler handler)
      : thread_(thread),
        service_(service),
        row_(service.method_row(name)),
        number_(service.method_of(name, Request::descriptor())),
        handler_(handler) {}
  void begin() override { ask_for_one(); }

 private:
  /// A call until its message is there. It deletes itself then.
  struct Waiting final : public GrpcWaiter {
    explicit Waiting(GrpcStreamMethod& its_method)
        : method(its_method), writer(std::make_shared<Writer>(its_method.thread_)) {}
    void too_late() override { writer->fail(method.thread_.too_late()); }
    void came(bool ok) { method.came(ok); }
    void read(bool ok) {
      const std::unique_ptr<Waiting> self(this);
      writer->reading_ = false;
      method.thread_.came(*this);
      Request request;
      const bool whole = ok && grpc::SerializationTraits<Request>::Deserialize(&message, &request).ok();
      writer->request_ = std::make_unique<Request>(request);
      if (whole && !writer->over_ && !writer->has_ended())
        return (method.service_.*method.handler_)(writer, request);
      if (!writer->over_) writer->fail(no_message());
      writer->let_go();
    }
    GrpcStreamMethod& method;
    std::shared_ptr<Writer> writer;
    grpc::ByteBuffer message;
    GrpcOp<Waiting> came_op{*this, &Waiting::came};
    GrpcOp<Waiting> read_op{*this, &Waiting::read};
  };

  void ask_for_one() {
    waiting_ = std::make_unique<Waiting>(*this);
    thread_.ask([this](grpc::ServerCompletionQueue* queue) {
      Writer& writer = *waiting_->writer;
      writer.context_.AsyncNotifyWhenDone(writer.over_op_.tag());
      service_.ask(number_, &writer.context_, &writer.writer_, queue, waiting_->came_op.tag());
    });
  }
  void came(bool ok) {
    std::unique_ptr<Waiting> call = std::move(waiting_);
    if (!ok) return;
    Writer& writer = *call->writer;
    writer.self_ = call->writer;
    writer.note_ = thread_.note_of(row_);
    ask_for_one();
    writer.began_ = RequestMeter::Clock::now();
    if (const auto refused = thread_.admit(writer.context(), true, writer.note_, writer.ticket_))
      return writer.fail(*refused);
    const auto read = [&] { writer.writer_.Read(&call->message, call->read_op.tag()); };
    writer.reading_ = thread_.begin(read);
    if (!writer.reading_) return;
    thread_.expect(*call);
    call.release();  // NOLINT(bugprone-unused-return-value): see `read`.
  }

  GrpcThread& thread_;
  Service& service_;
  const GrpcMethodRow& row_;
  const int number_;
  const Handler handler_;
  std::unique_ptr<Waiting> waiting_;
};

template <typename Service, typename Request, typename Out>
void serve_stream(GrpcThread& thread, Service& service, const char* name,
                  void (Service::*handler)(const std::shared_ptr<GrpcWriter<Out>>&, const Request&)) {
  thread.add(std::make_unique<GrpcStreamMethod<Service, Request, Out>>(thread, service, name, handler));
}

}  // namespace gpusched::api

#pragma once

#include <grpcpp/grpcpp.h>

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "api/errors.h"

/// What the gRPC services share. Included by their sources only.
namespace gpusched::api {

/// Ends calls on a thread of its own: writing to a client's connection costs microseconds that neither the
/// host's nor the observer's thread has. Thread-safe.
class GrpcFinisher {
 public:
  GrpcFinisher();
  ~GrpcFinisher();

  /// Ends the call. `wake` false: leaves that to `flush`, for answers that come in groups.
  void finish(grpc::ServerUnaryReactor* reactor, bool wake);
  void finish(grpc::ServerUnaryReactor* reactor, grpc::Status status);
  /// Runs `call` on the thread.
  void run(std::function<void()> call);
  void flush();
  /// Does what is queued and ends the thread. Again: does nothing.
  void stop();

 private:
  struct Task {
    grpc::ServerUnaryReactor* reactor = nullptr;
    std::unique_ptr<grpc::Status> status;  ///< Null: OK.
    std::function<void()> call;
  };
  void add(Task task, bool wake);
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> tasks_;
  bool woken_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

/// The error as a status; its code and field go into the call's trailing metadata.
grpc::Status to_status(grpc::ServerContextBase* context, const ApiError& error);

/// Why the call may not pass; nothing when it may. An empty token: everybody may.
std::optional<ApiError> check_bearer(const grpc::ServerContextBase& context, const std::string& token);

/// One unary call on its way. Copyable; used once.
class GrpcCall {
 public:
  GrpcCall(GrpcFinisher& finisher, grpc::CallbackServerContext* context)
      : finisher_(&finisher), context_(context), reactor_(context->DefaultReactor()) {}

  grpc::ServerUnaryReactor* reactor() const { return reactor_; }
  void finish() const { finisher_->finish(reactor_, true); }
  void finish_at_flush() const { finisher_->finish(reactor_, false); }
  void fail(const ApiError& error) const { finisher_->finish(reactor_, to_status(context_, error)); }

 private:
  GrpcFinisher* finisher_;
  grpc::CallbackServerContext* context_;
  grpc::ServerUnaryReactor* reactor_;
};

/// A stream of answers whose messages are made elsewhere: one at a time, as fast as the client takes them.
template <typename Message>
class GrpcWriter final : public grpc::ServerWriteReactor<Message> {
 public:
  /// `gone` is called once when the client has cancelled or the stream is over.
  static std::shared_ptr<GrpcWriter> make(GrpcFinisher& finisher, grpc::CallbackServerContext* context,
                                          std::function<void()> gone) {
    std::shared_ptr<GrpcWriter> writer(new GrpcWriter(finisher, context, std::move(gone)));
    writer->self_ = writer;
    return writer;
  }

  /// Queues a message; `written` is called when the client's connection took it, or with false when it is
  /// gone.
  void write(Message message, std::function<void(bool)> written = nullptr) {
    {
      const std::lock_guard lock(mutex_);
      if (!ended_) queue_.push_back({std::move(message), std::exchange(written, nullptr)});
    }
    if (written != nullptr) return written(false);
    pump();
  }
  /// Ends the stream well after what is queued.
  void end() {
    {
      const std::lock_guard lock(mutex_);
      if (ended_) return;
      ended_ = true;
    }
    pump();
  }
  /// Ends it with an error after what is queued.
  void fail(const ApiError& error) {
    {
      const std::lock_guard lock(mutex_);
      if (ended_ || self_ == nullptr) return;  // Without a self the call, and its context, are gone.
      ended_ = true;
      status_ = to_status(context_, error);
    }
    pump();
  }

 private:
  GrpcWriter(GrpcFinisher& finisher, grpc::CallbackServerContext* context, std::function<void()> gone)
      : finisher_(finisher), context_(context), gone_(std::move(gone)) {}

  void pump() {
    finisher_.run([self = self_copy()] {
      if (self != nullptr) self->pump_here();
    });
  }
  std::shared_ptr<GrpcWriter> self_copy() {
    const std::lock_guard lock(mutex_);
    return self_;
  }
  void pump_here() {
    bool finish = false;
    {
      const std::lock_guard lock(mutex_);
      if (writing_ || finished_) return;
      if (!queue_.empty()) {
        writing_ = true;
        current_ = std::move(queue_.front());
        queue_.erase(queue_.begin());
      } else if (ended_) {
        finished_ = finish = true;
      } else {
        return;
      }
    }
    if (finish) {
      this->Finish(status_);
    } else {
      this->StartWrite(&current_.message);
    }
  }
  void OnWriteDone(bool ok) override {
    std::function<void(bool)> written;
    {
      const std::lock_guard lock(mutex_);
      writing_ = false;
      written = std::move(current_.written);
      if (!ok && !ended_) {
        ended_ = true;
        status_ = grpc::Status::CANCELLED;
        queue_.clear();
      }
    }
    if (written != nullptr) written(ok);
    pump();
  }
  void OnCancel() override {
    std::vector<Entry> dropped;
    {
      const std::lock_guard lock(mutex_);
      if (!ended_) {
        ended_ = true;
        status_ = grpc::Status::CANCELLED;
      }
      dropped.swap(queue_);
    }
    for (Entry& entry : dropped) {
      if (entry.written != nullptr) entry.written(false);
    }
    pump();
  }
  void OnDone() override {
    std::shared_ptr<GrpcWriter> last;
    std::function<void()> gone;
    {
      const std::lock_guard lock(mutex_);
      last.swap(self_);
      gone = std::move(gone_);
    }
    if (gone != nullptr) gone();
  }

  struct Entry {
    Message message;
    std::function<void(bool)> written;
  };
  GrpcFinisher& finisher_;
  grpc::CallbackServerContext* context_;
  std::function<void()> gone_;
  std::mutex mutex_;
  std::shared_ptr<GrpcWriter> self_;  ///< Until gRPC is done with it.
  std::vector<Entry> queue_;
  Entry current_;
  grpc::Status status_;
  bool writing_ = false, ended_ = false, finished_ = false;
};

}  // namespace gpusched::api

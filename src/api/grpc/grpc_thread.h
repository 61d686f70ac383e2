#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "api/calls/call_note.h"
#include "api/contract/errors.h"
#include "api/grpc/grpc_methods.h"
#include "api/http/request_meter.h"
#include "api/limits/admission.h"
#include "base/time.h"
#include "log/loop_step.h"

/// The thread that all gRPC calls run on, and what it needs to know of a call. Included by the services'
/// sources only.
namespace gpusched::api {

/// An operation that the completion queue tells the end of.
class GrpcEvent {
 public:
  virtual void done(bool ok) = 0;

 protected:
  ~GrpcEvent() = default;
};

/// An operation whose end goes to a member function.
template <typename Owner>
class GrpcOp final : public GrpcEvent {
 public:
  GrpcOp(Owner& owner, void (Owner::*then)(bool)) : owner_(owner), then_(then) {}
  void done(bool ok) override { (owner_.*then_)(ok); }
  /// The tag that gRPC gives back.
  void* tag() { return static_cast<GrpcEvent*>(this); }

 private:
  Owner& owner_;
  void (Owner::*then_)(bool);
};

/// A method of a service that waits for calls.
class GrpcMethod {
 public:
  virtual ~GrpcMethod() = default;
  /// Asks for its first calls; the server has started.
  virtual void begin() = 0;
};

/// One unary call as the thread sees it.
class GrpcUnary {
 public:
  virtual grpc::ServerContext& context() = 0;
  /// Ends the call's note; null: the call did well. Before `answer`, on any thread.
  virtual void tell(const ApiError* error) = 0;
  /// The note about the call.
  CallNote note;
  /// Sends the answer; on the thread, once.
  virtual void answer(const grpc::Status& status) = 0;

 protected:
  ~GrpcUnary() = default;
};

/// A call that waits for its client to say something, and not for ever. All of the thread.
class GrpcWaiter {
 public:
  /// Its time is over, and it waits no more.
  virtual void too_late() = 0;
  virtual ~GrpcWaiter() = default;

 private:
  friend class GrpcThread;
  GrpcWaiter* before_ = nullptr;
  GrpcWaiter* behind_ = nullptr;
  std::chrono::steady_clock::time_point until_;
  bool waits_ = false;
};

/// How calls are let in.
struct GrpcThreadOptions {
  Duration message_wait = seconds(30);  ///< For the whole of a call's message, from its headers on.
  /// Both null: nobody is limited. They must outlive the thread.
  Admission* admission = nullptr;
  const Doorkeeper* doorkeeper = nullptr;
  /// Meters of the answers to calls that read, and to those that change something; null: they are not
  /// counted. They must outlive the thread.
  RequestMeter* reads = nullptr;
  RequestMeter* writes = nullptr;
  audit::AuditLog* audit = nullptr;  ///< Null: there is none. It must outlive the thread.
  Duration step_max = {};            ///< Longest step of the thread, as for a LoopWatch; zero: any.
};

/// The one thread of all gRPC calls. Thread-safe.
class GrpcThread {
 public:
  explicit GrpcThread(GrpcThreadOptions manners = {})
      : manners_(manners),
        watch_("gRPC", manners.step_max),
        wake_(*this, &GrpcThread::woken),
        tick_(*this, &GrpcThread::ticked) {}
  ~GrpcThread() { stop(); }

  /// Before the server is built.
  void join(grpc::ServerBuilder& builder) { queue_ = builder.AddCompletionQueue(); }
  void add(std::unique_ptr<GrpcMethod> method) { methods_.push_back(std::move(method)); }
  /// After it has started.
  void start();

  /// Answers a call. `wake` false: leaves that to `flush`, for answers that come in groups. At once when it
  /// is called on the thread.
  void answer(GrpcUnary* call, std::unique_ptr<grpc::Status> status, bool wake);
  /// Runs `call` on the thread, later.
  void run(std::function<void()> call);
  void flush();

  /// On the thread: ends the wait of `waiter` when it takes longer than calls may take to say what they want.
  void expect(GrpcWaiter& waiter);
  /// It came, or is no longer waited for. Again: does nothing.
  void came(GrpcWaiter& waiter);
  /// The error for a call whose message does not come.
  ApiError too_late() const;
  /// Whether the caller's address asks too often; before anything else of a call is looked at.
  std::optional<ApiError> refuses(const grpc::ServerContext& context) const;
  /// Why the call may not come in, which the note is about: its address, its credential, its caller. Else it
  /// has a ticket, as one that goes on for as long as there is something to tell if it `is_stream`.
  std::optional<ApiError> admit(const grpc::ServerContext& context, bool is_stream, CallNote& note,
                                CallTicket& ticket) const;
  /// A note about a call that just came.
  CallNote note_of(const GrpcMethodRow& method) const;
  /// A call of the action that began then is answered with the code.
  void count(access::Action action, int code, RequestMeter::Clock::time_point began) const;
  /// Runs `begin`, which begins an operation on the queue, unless that takes no more: gRPC ends the process
  /// then. A call that the end overtook is done with.
  template <typename Begin>
  bool begin(const Begin& begin_operation) {
    const std::lock_guard lock(ending_);
    if (ended_) return false;
    begin_operation();
    return true;
  }

  /// Runs `ask`, which asks the server for something on the queue, unless the end has begun.
  template <typename Ask>
  bool ask(const Ask& ask_server) {
    const std::lock_guard lock(asking_);
    if (closing_) return false;
    ask_server(queue_.get());
    return true;
  }
  /// No call is asked for any more. Before the server's Shutdown.
  void close();
  /// After it: does what is queued and ends the thread. Again: does nothing.
  void stop();

 private:
  struct Task {
    GrpcUnary* call = nullptr;
    std::unique_ptr<grpc::Status> status;  ///< Null: OK.
    std::function<void()> run;
  };
  void add_task(Task task, bool wake);
  void loop();
  void woken(bool ok);
  void ticked(bool ok);
  void set_tick();

  const GrpcThreadOptions manners_;
  const LoopWatch watch_;

  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::vector<std::unique_ptr<GrpcMethod>> methods_;
  std::thread thread_;
  std::atomic<std::thread::id> thread_id_{};
  std::mutex asking_;  // Guards `closing_`.
  bool closing_ = false;

  std::mutex ending_;  // Guards `ended_`.
  bool ended_ = false;

  std::mutex mutex_;  // Guards the four below.
  std::vector<Task> tasks_;
  bool woken_ = false;
  bool stopped_ = false;
  grpc::Alarm alarm_;
  std::vector<Task> now_;  // Used on the thread.
  GrpcOp<GrpcThread> wake_;
  GrpcWaiter* first_waiter_ = nullptr;  // Used on the thread; in the order of their times.
  GrpcWaiter* last_waiter_ = nullptr;
  bool tick_set_ = false;
  grpc::Alarm tick_alarm_;
  GrpcOp<GrpcThread> tick_;
};

}  // namespace gpusched::api

#pragma once

#include <grpcpp/grpcpp.h>
#include <grpcpp/support/async_stream.h>

#include <memory>
#include <utility>

#include "api/grpc/grpc_thread.h"

/// gRPC calls with streams both ways. Included by the services' sources only.
namespace gpusched::api {

/// A bidirectional stream: derive from it and begin what is to be done. The On... functions run on the
/// thread; so must the Start... ones and Finish.
template <typename In, typename Out>
class GrpcBidi {
 public:
  /// The objects that gRPC needs before there is anybody to serve the stream.
  struct Call {
    explicit Call(GrpcThread& its_thread) : thread(its_thread) {}
    GrpcThread& thread;
    grpc::ServerContext context;
    grpc::ServerAsyncReaderWriter<Out, In> stream{&context};
    GrpcBidi* owner = nullptr;
    GrpcOp<Call> over_op{*this, &Call::over};
    void over(bool ok) { owner->on_over(ok); }
  };

  explicit GrpcBidi(std::unique_ptr<Call> call) : call_(std::move(call)) { call_->owner = this; }
  virtual ~GrpcBidi() = default;
  GrpcBidi(const GrpcBidi&) = delete;
  GrpcBidi& operator=(const GrpcBidi&) = delete;

  void StartRead(In* message) {
    reading_ = call_->thread.begin([&] { call_->stream.Read(message, read_op_.tag()); });
  }
  /// One at a time; the message must live until OnWriteDone.
  void StartWrite(const Out* message, grpc::WriteOptions options = {}) {
    writing_ = call_->thread.begin([&] { call_->stream.Write(*message, options, write_op_.tag()); });
  }
  /// Once, while no write is under way.
  void Finish(const grpc::Status& status) {
    call_->thread.begin([&] { call_->stream.Finish(status, finish_op_.tag()); });
  }

 protected:
  GrpcThread& thread() { return call_->thread; }
  grpc::ServerContext& context() { return call_->context; }

  virtual void OnReadDone(bool ok) = 0;
  virtual void OnWriteDone(bool ok) = 0;
  /// The client went away, or the server is shutting down: Finish is still to be called.
  virtual void OnCancel() {}
  /// gRPC knows it no more. It may delete itself.
  virtual void OnDone() = 0;

 private:
  void on_read(bool ok) {
    reading_ = false;
    OnReadDone(ok);
    maybe_done();
  }
  void on_write(bool ok) {
    writing_ = false;
    OnWriteDone(ok);
    maybe_done();
  }
  void on_over(bool) {
    over_ = true;
    if (!finished_ && call_->context.IsCancelled()) OnCancel();
    maybe_done();
  }
  void on_finish(bool) {
    finished_ = true;
    maybe_done();
  }
  void maybe_done() {
    if (over_ && finished_ && !reading_ && !writing_) OnDone();
  }

  std::unique_ptr<Call> call_;
  GrpcOp<GrpcBidi> read_op_{*this, &GrpcBidi::on_read};
  GrpcOp<GrpcBidi> write_op_{*this, &GrpcBidi::on_write};
  GrpcOp<GrpcBidi> finish_op_{*this, &GrpcBidi::on_finish};
  bool reading_ = false, writing_ = false, over_ = false, finished_ = false;
};

/// Calls of one method with streams both ways. The handler makes what serves the stream.
template <typename Service, typename In, typename Out>
class GrpcBidiMethod final : public GrpcMethod {
 public:
  using Call = typename GrpcBidi<In, Out>::Call;
  using Handler = void (Service::*)(std::unique_ptr<Call>);

  GrpcBidiMethod(GrpcThread& thread, Service& service, int number, Handler handler)
      : thread_(thread), service_(service), number_(number), handler_(handler) {}
  void begin() override { ask_for_one(); }

 private:
  void ask_for_one() {
    waiting_ = std::make_unique<Call>(thread_);
    thread_.ask([this](grpc::ServerCompletionQueue* queue) {
      waiting_->context.AsyncNotifyWhenDone(waiting_->over_op.tag());
      service_.ask(number_, &waiting_->context, &waiting_->stream, queue, came_op_.tag());
    });
  }
  void came(bool ok) {
    std::unique_ptr<Call> call = std::move(waiting_);
    if (!ok) return;
    ask_for_one();
    (service_.*handler_)(std::move(call));
  }

  GrpcThread& thread_;
  Service& service_;
  const int number_;
  const Handler handler_;
  GrpcOp<GrpcBidiMethod> came_op_{*this, &GrpcBidiMethod::came};
  std::unique_ptr<Call> waiting_;
};

template <typename In, typename Out, typename Service>
void serve_bidi(GrpcThread& thread, Service& service, const char* name,
                void (Service::*handler)(std::unique_ptr<typename GrpcBidi<In, Out>::Call>)) {
  thread.add(
      std::make_unique<GrpcBidiMethod<Service, In, Out>>(thread, service, service.method_of(name), handler));
}

}  // namespace gpusched::api

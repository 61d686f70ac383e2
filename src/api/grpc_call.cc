#include "api/grpc_call.h"

#include <pthread.h>

#include "api/token.h"

namespace gpusched::api {

void GrpcThread::start() {
  for (const auto& method : methods_) method->begin();
  thread_ = std::thread([this] { loop(); });
}

void GrpcThread::answer(GrpcUnary* call, std::unique_ptr<grpc::Status> status, bool wake) {
  if (std::this_thread::get_id() == thread_id_) {
    call->answer(status == nullptr ? grpc::Status::OK : *status);
    return;
  }
  add_task({.call = call, .status = std::move(status), .run = nullptr}, wake);
}

void GrpcThread::run(std::function<void()> call) {
  // What the thread gives itself it finds by itself.
  const bool wake = std::this_thread::get_id() != thread_id_;
  add_task({.call = nullptr, .status = nullptr, .run = std::move(call)}, wake);
}

void GrpcThread::add_task(Task task, bool wake) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  tasks_.push_back(std::move(task));
  if (!wake || woken_) return;
  woken_ = true;
  alarm_.Set(queue_.get(), gpr_inf_past(GPR_CLOCK_MONOTONIC), wake_.tag());
}

void GrpcThread::flush() {
  const std::lock_guard lock(mutex_);
  if (stopped_ || woken_ || tasks_.empty()) return;
  woken_ = true;
  alarm_.Set(queue_.get(), gpr_inf_past(GPR_CLOCK_MONOTONIC), wake_.tag());
}

void GrpcThread::woken(bool) {
  const std::lock_guard lock(mutex_);
  woken_ = false;
}

void GrpcThread::loop() {
  pthread_setname_np(pthread_self(), "api-grpc");
  thread_id_ = std::this_thread::get_id();
  void* tag = nullptr;
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
    static_cast<GrpcEvent*>(tag)->done(ok);
    {
      const std::lock_guard lock(mutex_);
      if (!stopped_) now_.swap(tasks_);
    }
    for (Task& task : now_) {
      if (task.run != nullptr) {
        task.run();
      } else {
        task.call->answer(task.status == nullptr ? grpc::Status::OK : *task.status);
      }
    }
    now_.clear();
  }
}

void GrpcThread::close() {
  const std::lock_guard lock(asking_);
  closing_ = true;
}

void GrpcThread::stop() {
  close();
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopped_, true)) return;
  }
  if (queue_ == nullptr) return;
  queue_->Shutdown();
  if (thread_.joinable()) {
    thread_.join();
    return;
  }
  void* tag = nullptr;  // The server never started.
  bool ok = false;
  while (queue_->Next(&tag, &ok)) {
  }
}

grpc::Status to_status(grpc::ServerContext& context, const ApiError& error) {
  const ErrorRow& row = row_of(error.kind);
  context.AddTrailingMetadata("gpusched-code", std::string(row.code));
  if (!error.field.empty()) context.AddTrailingMetadata("gpusched-field", error.field);
  // What gRPC's own retries go by.
  if (error.retry_after.ns > 0)
    context.AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(error.retry_after.ms()));
  return {static_cast<grpc::StatusCode>(row.grpc_status), error.message};
}

std::string_view authorization_of(const grpc::ServerContext& context) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("authorization");
  return found == metadata.end() ? std::string_view()
                                 : std::string_view(found->second.data(), found->second.size());
}

}  // namespace gpusched::api

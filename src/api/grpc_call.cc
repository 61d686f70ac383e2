#include "api/grpc_call.h"

#include <pthread.h>

#include "api/token.h"

namespace gpusched::api {

GrpcFinisher::GrpcFinisher() : thread_([this] { loop(); }) {}
GrpcFinisher::~GrpcFinisher() { stop(); }

void GrpcFinisher::finish(grpc::ServerUnaryReactor* reactor, bool wake) {
  add({.reactor = reactor, .status = nullptr, .call = nullptr}, wake);
}

void GrpcFinisher::finish(grpc::ServerUnaryReactor* reactor, grpc::Status status) {
  add({.reactor = reactor, .status = std::make_unique<grpc::Status>(std::move(status)), .call = nullptr},
      true);
}

void GrpcFinisher::run(std::function<void()> call) {
  add({.reactor = nullptr, .status = nullptr, .call = std::move(call)}, true);
}

void GrpcFinisher::add(Task task, bool wake) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (!wake || woken_) return;
  woken_ = true;
  changed_.notify_one();
}

void GrpcFinisher::flush() {
  const std::lock_guard lock(mutex_);
  if (woken_ || tasks_.empty()) return;
  woken_ = true;
  changed_.notify_one();
}

void GrpcFinisher::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    changed_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void GrpcFinisher::loop() {
  pthread_setname_np(pthread_self(), "api-grpc");
  std::vector<Task> now;
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return woken_ || stopping_; });
      woken_ = false;
      now.swap(tasks_);
      if (now.empty() && stopping_) return;
    }
    for (Task& task : now) {
      if (task.call != nullptr) {
        task.call();
      } else {
        task.reactor->Finish(task.status == nullptr ? grpc::Status::OK : *task.status);
      }
    }
    now.clear();
  }
}

grpc::Status to_status(grpc::ServerContextBase* context, const ApiError& error) {
  const ErrorRow& row = row_of(error.kind);
  context->AddTrailingMetadata("gpusched-code", std::string(row.code));
  if (!error.field.empty()) context->AddTrailingMetadata("gpusched-field", error.field);
  return {static_cast<grpc::StatusCode>(row.grpc_status), error.message};
}

std::optional<ApiError> check_bearer(const grpc::ServerContextBase& context, const std::string& token) {
  if (token.empty()) return std::nullopt;
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find("authorization");
  if (found != metadata.end() && bearer_matches({found->second.data(), found->second.size()}, token))
    return std::nullopt;
  return ApiError{
      ErrorKind::kUnauthenticated,
      "the shared token is missing or wrong; send the metadata `authorization: Bearer <token>` with the "
      "content of the scheduler's DATA_DIR/token"};
}

}  // namespace gpusched::api

#include "api/grpc/grpc_call.h"

#include <pthread.h>

#include <algorithm>

#include "api/contract/caller.h"
#include "api/contract/token.h"
#include "base/check.h"
#include "base/utf8.h"

namespace gpusched::api {

namespace {

/// Name of metadata whose value is not UTF-8, or "" when all is. Binary ones, whose names end with "-bin",
/// may be anything.
std::string_view unreadable_metadata(const grpc::ServerContext& context) {
  for (const auto& [name, value] : context.client_metadata()) {
    const std::string_view key(name.data(), name.size());
    if (!key.ends_with("-bin") && !is_utf8({value.data(), value.size()})) return key;
  }
  return {};
}

}  // namespace

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
  // The thread finds tasks that it gives itself without being woken.
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
    {
      const LoopStep step(watch_, "an event of a call");
      static_cast<GrpcEvent*>(tag)->done(ok);
    }
    {
      const std::lock_guard lock(mutex_);
      if (!stopped_) now_.swap(tasks_);
    }
    for (Task& task : now_) {
      const LoopStep step(watch_, task.run != nullptr ? "a call" : "an answer");
      if (task.run != nullptr) {
        task.run();
      } else {
        task.call->answer(task.status == nullptr ? grpc::Status::OK : *task.status);
      }
    }
    if (now_.empty()) continue;
    now_.clear();
    flush();  // Tasks that the tasks gave the thread: no event need follow them.
  }
}

void GrpcThread::expect(GrpcWaiter& waiter) {
  waiter.waits_ = true;
  waiter.until_ = std::chrono::steady_clock::now() + std::chrono::nanoseconds(manners_.message_wait.ns);
  waiter.before_ = std::exchange(last_waiter_, &waiter);
  waiter.behind_ = nullptr;
  (waiter.before_ == nullptr ? first_waiter_ : waiter.before_->behind_) = &waiter;
  set_tick();
}

void GrpcThread::came(GrpcWaiter& waiter) {
  if (!std::exchange(waiter.waits_, false)) return;
  (waiter.before_ == nullptr ? first_waiter_ : waiter.before_->behind_) = waiter.behind_;
  (waiter.behind_ == nullptr ? last_waiter_ : waiter.behind_->before_) = waiter.before_;
}

// One alarm for all, set for a while after the first of them: few calls wait long enough to see it.
void GrpcThread::set_tick() {
  if (tick_set_ || first_waiter_ == nullptr) return;
  const auto left = first_waiter_->until_ - std::chrono::steady_clock::now();
  const std::chrono::nanoseconds wait =
      std::max<std::chrono::nanoseconds>(left, std::chrono::milliseconds(50));
  tick_set_ = ask([&](grpc::ServerCompletionQueue* queue) {
    const gpr_timespec at =
        gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), gpr_time_from_nanos(wait.count(), GPR_TIMESPAN));
    tick_alarm_.Set(queue, at, tick_.tag());
  });
}

void GrpcThread::ticked(bool) {
  tick_set_ = false;
  const auto now = std::chrono::steady_clock::now();
  while (first_waiter_ != nullptr && first_waiter_->until_ <= now) {
    GrpcWaiter& waiter = *first_waiter_;
    came(waiter);
    waiter.too_late();
  }
  set_tick();
}

ApiError GrpcThread::too_late() const {
  return {ErrorKind::kRequestTimeout, "the call's message did not arrive within " +
                                          std::to_string(manners_.message_wait.ms() / 1'000) +
                                          " s; send it immediately, and large batches in parts"};
}

std::optional<ApiError> GrpcThread::refuses(const grpc::ServerContext& context) const {
  if (manners_.admission == nullptr) return std::nullopt;
  return manners_.admission->take(address_of(context.peer()));
}

std::optional<ApiError> GrpcThread::admit(const grpc::ServerContext& context, bool is_stream, CallNote& note,
                                          CallTicket& ticket) const {
  if (const std::string_view name = unreadable_metadata(context); !name.empty()) {
    return ApiError{ErrorKind::kInvalidArgument,
                    "the metadata " + std::string(name) + " has bytes that are not UTF-8; send text in UTF-8",
                    std::string(name)};
  }
  // Health is told to everybody, and counts nowhere.
  if (manners_.admission == nullptr || note.line.action == access::Action::kSeeHealth) return std::nullopt;
  Admission& admission = *manners_.admission;
  const std::string address = address_of(context.peer());
  if (auto refused = admission.take(address)) return refused;
  Answer<CallerPtr> caller = admission.caller_of(*manners_.doorkeeper, address, authorization_of(context));
  if (!caller) return caller.error();
  note.line.caller = *caller;
  Answer<CallTicket> opened =
      admission.open(**caller, address, CallRoom::kGrpc, [&] { return need_of(note.line.action); });
  if (!opened) return opened.error();
  ticket = std::move(*opened);
  return is_stream ? ticket.become_stream() : std::nullopt;
}

CallNote GrpcThread::note_of(const GrpcMethodRow& method) const {
  CallNote note(manners_.audit, audit::Door::kGrpc);
  note.line.action = method.action;
  return note;
}

void GrpcThread::count(access::Action action, int code, RequestMeter::Clock::time_point began) const {
  const bool writes = access::row_of(action).audit == access::Audit::kWrites;
  RequestMeter* const meter = writes ? manners_.writes : manners_.reads;
  if (meter != nullptr) meter->count(code, began);
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
  {
    const std::lock_guard lock(ending_);
    ended_ = true;
  }
  tick_alarm_.Cancel();  // It is not set again: the end has begun.
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

GrpcService::GrpcService(const std::string& full_name)
    : descriptor_(google::protobuf::DescriptorPool::generated_pool()->FindServiceByName(full_name)) {
  CHECK(descriptor_ != nullptr);
  const int count = descriptor_->method_count();
  paths_.reserve(static_cast<std::size_t>(count));  // gRPC keeps pointers to them.
  for (int i = 0; i < count; ++i) {
    paths_.push_back("/" + full_name + "/" + descriptor_->method(i)->name());
    AddMethod(new grpc::internal::RpcServiceMethod(paths_.back().c_str(),
                                                   grpc::internal::RpcMethod::BIDI_STREAMING, nullptr));
    MarkMethodAsync(i);
  }
}

int GrpcService::method_of(const char* name, const google::protobuf::Descriptor* request) const {
  const google::protobuf::MethodDescriptor* const method = descriptor_->FindMethodByName(name);
  CHECK(method != nullptr);
  CHECK(request == nullptr || method->input_type() == request);
  return method->index();
}

grpc::StatusCode to_status_code(const ApiError& error) {
  return static_cast<grpc::StatusCode>(row_of(error.kind).grpc_status);
}

grpc::Status to_status(grpc::ServerContext& context, const ApiError& error) {
  const ErrorRow& row = row_of(error.kind);
  context.AddTrailingMetadata("gpusched-code", std::string(row.code));
  if (!error.field.empty()) context.AddTrailingMetadata("gpusched-field", error.field);
  // The metadata that gRPC's own retries go by.
  if (error.retry_after.ns > 0)
    context.AddTrailingMetadata("grpc-retry-pushback-ms", std::to_string(error.retry_after.ms()));
  return {to_status_code(error), error.message};
}

namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

/// The text of the field, or of the last of several; empty: there is none.
std::string text_of(const Message& message, const char* name, bool is_last = false) {
  const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(name);
  if (field == nullptr || field->cpp_type() != FieldDescriptor::CPPTYPE_STRING) return {};
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  if (!field->is_repeated()) return reflection.GetString(message, field);
  const int size = reflection.FieldSize(message, field);
  return size == 0 ? std::string() : reflection.GetRepeatedString(message, field, is_last ? size - 1 : 0);
}

int size_of(const Message& message, const char* name) {
  const FieldDescriptor* const field = message.GetDescriptor()->FindFieldByName(name);
  const bool repeated = field != nullptr && field->is_repeated();
  return repeated ? message.GetReflection()->FieldSize(message, field) : 1;
}

/// The resource that a call is about, as its message names it.
std::string resource_in(const Message& message, access::Action action) {
  for (const char* const name :
       {"job_id", "job_ids", "node_name", "reservation", "service", "key_id", "id", "tenant_id", "name"}) {
    const bool is_tenants = access::row_of(action).subject == access::Subject::kTenant;
    if (!is_tenants && std::string_view(name) == "tenant_id") continue;
    if (std::string text = text_of(message, name); !text.empty()) return text;
  }
  const FieldDescriptor* const inner = message.GetDescriptor()->FindFieldByName("tenant");
  const bool is_message = inner != nullptr && inner->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  return is_message ? resource_in(message.GetReflection()->GetMessage(message, inner), action)
                    : std::string();
}

void name_call(CallNote& note, const Message* request, const Message* response) {
  const access::Action action = *note.line.action;
  if (request != nullptr && note.line.resource.empty()) note.line.resource = resource_in(*request, action);
  if (request != nullptr) {
    if (const std::string by = text_of(*request, "by"); !by.empty()) note.claim(by);
    const FieldDescriptor* const index = request->GetDescriptor()->FindFieldByName("index");
    if (index != nullptr && action == access::Action::kSetDevice)
      note.line.resource += "-gpu-" + std::to_string(request->GetReflection()->GetUInt32(*request, index));
  }
  const bool makes_it = action == access::Action::kSubmitJob || action == access::Action::kCreateTenant ||
                        action == access::Action::kUpdateTenant || action == access::Action::kCreateKey;
  if (response == nullptr || !makes_it) return;
  if (std::string made = resource_in(*response, action); !made.empty()) note.line.resource = made;
  note.line.last = text_of(*response, "job_ids", true);
  note.line.count = static_cast<uint64_t>(size_of(*response, "job_ids"));
}

void note_client(CallNote& note, const grpc::ServerContext& context) {
  note.line.peer = address_of(context.peer());
  note.line.claimed_by = label_of(context);
  note.name_call(metadata_of(context, "x-request-id"), metadata_of(context, "traceparent"));
}

}  // namespace

void tell_call(CallNote& note, grpc::ServerContext& context, const ApiError* error, const Message* request,
               const Message* response) {
  if (error != nullptr) context.AddTrailingMetadata("gpusched-request-id", to_string(note.line.request));
  if (note.is_wanted(error)) {
    note_client(note, context);
    name_call(note, request, response);
  }
  note.tell(error);
}

CallNote GrpcCall::take_note() const {
  CallNote note = std::move(call_->note);
  note_client(note, context());
  return note;
}

Answer<CallerPtr> caller_of(const Doorkeeper& doorkeeper, const grpc::ServerContext& context,
                            CallNote& note) {
  // Known since the call was let in. Streams ask whether that still holds.
  if (note.line.caller != nullptr) return note.line.caller;
  Answer<CallerPtr> caller = doorkeeper.caller_of(authorization_of(context));
  if (caller) note.line.caller = *caller;
  return caller;
}

}  // namespace gpusched::api

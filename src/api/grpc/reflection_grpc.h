#pragma once

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "api/grpc/grpc_bidi.h"
#include "api/grpc/grpc_methods.h"
#include "api/grpc/grpc_service.h"
#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "grpc/reflection/v1alpha/reflection.grpc.pb.h"

namespace gpusched::api {

/// Files of message types, and all that they import, each before those that import it.
inline void add_with_imports(const google::protobuf::FileDescriptor& file, std::set<std::string>& seen,
                             std::vector<std::string>& out) {
  if (!seen.insert(file.name()).second) return;
  for (int i = 0; i < file.dependency_count(); ++i) add_with_imports(*file.dependency(i), seen, out);
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  out.push_back(proto.SerializeAsString());
}

/// Answers one question about the services and messages of this program; `Request` and `Response` are those
/// of a version of the reflection service.
template <typename Request, typename Response>
Response reflect(const Request& request) {
  const auto& pool = *google::protobuf::DescriptorPool::generated_pool();
  Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  const auto answer_file = [&response](const google::protobuf::FileDescriptor* file,
                                       const std::string& what) {
    if (file == nullptr) {
      response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
      response.mutable_error_response()->set_error_message("there is no " + what);
      return;
    }
    std::set<std::string> seen;
    std::vector<std::string> files;
    add_with_imports(*file, seen, files);
    // The one that was asked for comes first.
    for (auto at = files.rbegin(); at != files.rend(); ++at)
      response.mutable_file_descriptor_response()->add_file_descriptor_proto(std::move(*at));
  };
  switch (request.message_request_case()) {
    case Request::kFileByFilename:
      answer_file(pool.FindFileByName(request.file_by_filename()), "file " + request.file_by_filename());
      break;
    case Request::kFileContainingSymbol:
      answer_file(pool.FindFileContainingSymbol(request.file_containing_symbol()),
                  "symbol " + request.file_containing_symbol());
      break;
    case Request::kListServices: {
      std::set<std::string> names;
      for (const GrpcMethodRow& row : grpc_methods()) names.emplace(row.service);
      for (const std::string& name : names)
        response.mutable_list_services_response()->add_service()->set_name(name);
      break;
    }
    case Request::kFileContainingExtension:
    case Request::kAllExtensionNumbersOfType:
    case Request::MESSAGE_REQUEST_NOT_SET:
      response.mutable_error_response()->set_error_code(grpc::StatusCode::NOT_FOUND);
      response.mutable_error_response()->set_error_message("there are no extensions");
      break;
  }
  return response;
}

/// The standard reflection service of gRPC: which services and messages there are, for tools. It tells
/// everybody the same, which is in this program's sources anyway. On the thread of gRPC.
template <typename Reflection, typename Request, typename Response>
class ReflectionService final : public GrpcService {
 public:
  explicit ReflectionService(GrpcThread& thread) : GrpcService(Reflection::service_full_name()) {
    serve_bidi<Request, Response>(thread, *this, "ServerReflectionInfo",
                                  &ReflectionService::ServerReflectionInfo);
  }

 private:
  static constexpr int kStreamsMax = 64;       ///< At once, of all callers.
  static constexpr int kQuestionsMax = 1'000;  ///< On one stream.
  using Bidi = GrpcBidi<Request, Response>;

  /// Answers each question before it reads the next. It deletes itself when gRPC knows it no more.
  class Stream final : public Bidi {
   public:
    Stream(std::unique_ptr<typename Bidi::Call> call, std::shared_ptr<int> open)
        : Bidi(std::move(call)), open_(std::move(open)) {
      if (++*open_ > kStreamsMax) {
        is_finished_ = true;
        this->Finish(
            {grpc::StatusCode::RESOURCE_EXHAUSTED, "too many reflection streams are open; try again"});
      } else {
        this->StartRead(&request_);
      }
    }

   private:
    void OnReadDone(bool ok) override {
      if (!ok || ++questions_ > kQuestionsMax) return finish();
      response_ = reflect<Request, Response>(request_);
      is_writing_ = true;
      this->StartWrite(&response_);
    }
    void OnWriteDone(bool ok) override {
      is_writing_ = false;
      if (!ok || is_cancelled_) return finish();
      this->StartRead(&request_);
    }
    void OnCancel() override {
      is_cancelled_ = true;
      if (!is_writing_) finish();  // Else the write ends first.
    }
    void OnDone() override {
      --*open_;
      delete this;
    }
    void finish() {
      if (std::exchange(is_finished_, true)) return;
      this->Finish(grpc::Status::OK);
    }

    const std::shared_ptr<int> open_;
    Request request_;
    Response response_;
    int questions_ = 0;
    bool is_writing_ = false, is_cancelled_ = false, is_finished_ = false;
  };

  void ServerReflectionInfo(std::unique_ptr<typename Bidi::Call> call) { new Stream(std::move(call), open_); }

  const std::shared_ptr<int> open_ = std::make_shared<int>(0);  ///< On the thread.
};

using ReflectionV1 =
    ReflectionService<grpc::reflection::v1::ServerReflection, grpc::reflection::v1::ServerReflectionRequest,
                      grpc::reflection::v1::ServerReflectionResponse>;
using ReflectionV1Alpha = ReflectionService<grpc::reflection::v1alpha::ServerReflection,
                                            grpc::reflection::v1alpha::ServerReflectionRequest,
                                            grpc::reflection::v1alpha::ServerReflectionResponse>;

}  // namespace gpusched::api

#pragma once

#include <google/protobuf/descriptor.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/service_type.h>

#include <string>
#include <vector>

#include "api/grpc/grpc_methods.h"

namespace gpusched::api {

/// A service of a generated one's name whose calls are seen when their headers are there. gRPC itself shows a
/// call of one message only when it has all of that: nobody could refuse it before, or end it when it does
/// not come. Here every method is declared as one with streams, and the message is read like a stream's
/// first.
class GrpcService : public grpc::Service {
 public:
  explicit GrpcService(const std::string& full_name);

  template <typename Stream>
  void ask(int method, grpc::ServerContext* context, Stream* stream, grpc::ServerCompletionQueue* queue,
           void* tag) {
    RequestAsyncBidiStreaming(method, context, stream, queue, queue, tag);
  }
  /// The row of the method; it must be there.
  const GrpcMethodRow& method_row(const char* name) const {
    return grpc_method(descriptor_->full_name(), name);
  }
  /// The method's number; it must be there, and take `request` where that is given.
  int method_of(const char* name, const google::protobuf::Descriptor* request = nullptr) const;

 private:
  const google::protobuf::ServiceDescriptor* const descriptor_;
  std::vector<std::string> paths_;
};

}  // namespace gpusched::api

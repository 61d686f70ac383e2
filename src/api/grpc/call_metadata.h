#pragma once

#include <grpcpp/server_context.h>

#include <string>
#include <string_view>

/// Reads the metadata that a call carries beside its message.
namespace gpusched::api {

/// The IP address in gRPC's words for a client's address, as the HTTP server writes it.
std::string address_of(std::string_view peer);

/// The call's metadata of that name, in small letters; empty: there is none.
std::string_view metadata_of(const grpc::ServerContext& context, const char* name);
std::string_view authorization_of(const grpc::ServerContext& context);
/// The client's name for itself, unchecked: the metadata "x-requested-by".
std::string_view label_of(const grpc::ServerContext& context);
/// The requester of a change as it is shown: the metadata "x-requested-by", or the client's address.
std::string requester_of(const grpc::ServerContext& context);

}  // namespace gpusched::api

#include "api/grpc/call_metadata.h"

#include "api/contract/caller.h"

namespace gpusched::api {

/// gRPC writes "ipv4:127.0.0.1:4711" and "ipv6:%5B::1%5D:4711".
std::string address_of(std::string_view peer) {
  if (peer.starts_with("ipv4:")) return std::string(peer.substr(5, peer.rfind(':') - 5));
  if (!peer.starts_with("ipv6:")) return std::string(peer);
  std::string_view address = peer.substr(5, peer.rfind(':') - 5);
  for (const std::string_view open : {"%5B", "["}) {
    if (address.starts_with(open)) address.remove_prefix(open.size());
  }
  return std::string(address.substr(0, address.find_first_of("%]")));
}

std::string_view metadata_of(const grpc::ServerContext& context, const char* name) {
  const auto& metadata = context.client_metadata();
  const auto found = metadata.find(name);
  return found == metadata.end() ? std::string_view()
                                 : std::string_view(found->second.data(), found->second.size());
}

std::string_view authorization_of(const grpc::ServerContext& context) {
  return metadata_of(context, "authorization");
}

std::string_view label_of(const grpc::ServerContext& context) {
  return metadata_of(context, "x-requested-by");
}

std::string requester_of(const grpc::ServerContext& context) {
  return shown_requester(label_of(context), address_of(context.peer()));
}

}  // namespace gpusched::api

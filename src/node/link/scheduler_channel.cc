#include "node/link/scheduler_channel.h"

#include <grpcpp/create_channel_posix.h>

namespace gpusched {

SchedulerChannel open_scheduler_channel(const std::string& scheduler, const LinkTls& tls,
                                        grpc::ChannelArguments arguments) {
  if (!tls.on) return {grpc::CreateCustomChannel(scheduler, grpc::InsecureChannelCredentials(), arguments)};
  // Addresses were checked when the agent started; an empty one fails with a sentence.
  const Result<Address> address = parse_address(scheduler);
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, scheduler);
  arguments.SetString(GRPC_ARG_HTTP2_SCHEME, "https");
  int end = -1;
  std::shared_ptr<TlsRelay> relay = TlsRelay::start(address ? *address : Address{}, tls, end);
  return {grpc::CreateCustomInsecureChannelFromFd(scheduler, end, arguments), std::move(relay)};
}

std::string SchedulerChannel::why(const grpc::Status& status) const {
  if (status.ok()) return "the scheduler ended the connection";
  // With any other status the scheduler answered, and knows better.
  const bool cut = status.error_code() == grpc::StatusCode::UNAVAILABLE;
  if (relay != nullptr) {
    const std::string trouble = cut ? relay->why() : std::string();
    return trouble.empty() ? status.error_message() : trouble;
  }
  const bool closed_at_once = status.error_message().find("ocket closed") != std::string::npos ||
                              status.error_message().find("onnection reset") != std::string::npos;
  return status.error_message() +
         (cut && closed_at_once ? "; if the scheduler speaks TLS, give this agent --ca-file or --ca" : "");
}

}  // namespace gpusched

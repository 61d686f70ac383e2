#include "node/link/scheduler_channel.h"

#include <grpcpp/create_channel_posix.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"
#include "node/link/trust.h"
#include "ops/api_socket.h"

namespace gpusched {
namespace {

SchedulerChannel open_socket(const std::string& scheduler, grpc::ChannelArguments arguments) {
  arguments.SetString(GRPC_ARG_DEFAULT_AUTHORITY, "localhost");
  const Result<int> end = ops::connect_believed(scheduler.substr(kUnixAddress.size()));
  if (end) return {grpc::CreateCustomInsecureChannelFromFd(scheduler, *end, arguments)};
  // A connection that is over: calls on it end at once. Where there is no descriptor left for one, nobody
  // listens at an address that no socket has.
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return {.channel = grpc::CreateCustomChannel("unix:/dev/null/none", grpc::InsecureChannelCredentials(),
                                                 arguments),
            .trouble = end.error().message};
  }
  ::close(ends[0]);
  return {.channel = grpc::CreateCustomInsecureChannelFromFd(scheduler, ends[1], arguments),
          .trouble = end.error().message};
}

}  // namespace

SchedulerChannel open_scheduler_channel(const std::string& scheduler, const LinkTls& tls,
                                        grpc::ChannelArguments arguments) {
  if (is_unix_address(scheduler)) return open_socket(scheduler, arguments);
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
  if (!trouble.empty()) return trouble;
  // With any other status the scheduler answered, and knows better.
  const bool cut = status.error_code() == grpc::StatusCode::UNAVAILABLE;
  if (relay != nullptr) {
    const std::string said = cut ? relay->why() : std::string();
    return said.empty() ? status.error_message() : said;
  }
  const bool closed_at_once = status.error_message().find("ocket closed") != std::string::npos ||
                              status.error_message().find("onnection reset") != std::string::npos;
  return status.error_message() +
         (cut && closed_at_once ? "; if the scheduler speaks TLS, give this agent --ca-file or --ca" : "");
}

}  // namespace gpusched

#include "node/link/probe.h"

#include <grpcpp/grpcpp.h>

#include <chrono>

#include "gpusched/v1/node.grpc.pb.h"
#include "node/link/scheduler_channel.h"
#include "node/link/trust.h"
#include "sign/keys/token_proof.h"

namespace gpusched {
namespace {

int64_t nanoseconds_of(std::chrono::nanoseconds span) { return span.count(); }

int64_t wall_ns() { return nanoseconds_of(std::chrono::system_clock::now().time_since_epoch()); }

constexpr Duration kTlsPatience = seconds(10);  // Nobody waits so long but where somebody is silent.

Error failure_of(const grpc::Status& status, const std::string& address, const SchedulerChannel& way) {
  if (is_unix_address(address)) {
    return {.code = ErrorCode::kUnavailable,
            .message = "no scheduler can be reached at " + address + ": " + way.why(status) +
                       "; check that it is running and that its agent.unix_socket is this path"};
  }
  if (way.relay == nullptr) {
    const Result<Address> scheduler = parse_address(address);
    if (scheduler && speaks_tls(*scheduler, kTlsPatience)) {
      return {.code = ErrorCode::kUnauthenticated,
              .message = "the scheduler at " + address +
                         " speaks TLS, and this agent does not; give it the authority's certificate with "
                         "--ca-file, or its fingerprint with --ca"};
    }
  } else if (const std::string why = way.relay->why(); !why.empty()) {
    return {.code = ErrorCode::kUnavailable,
            .message = "no connection with TLS to the scheduler at " + address + ": " + why};
  }
  if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
    return {.code = ErrorCode::kTimeout,
            .message =
                "no scheduler answers at " + address +
                " in time; check that this is the gRPC port (default: 9090) and that no firewall blocks it"};
  }
  const std::string why = status.ok() ? "it closed the connection" : status.error_message();
  return {.code = ErrorCode::kUnavailable,
          .message = "no scheduler can be reached at " + address + ": " + why +
                     "; check that it is running, that its api.address is not loopback only, and that this "
                     "is the gRPC port (default: 9090)"};
}

}  // namespace

Result<SchedulerFacts> probe_scheduler(const std::string& address, const LinkTls& tls,
                                       const std::string& token, const std::string& node_name,
                                       const std::string& version, Duration patience) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);  // A scheduler is never behind the user's web proxy.
  const SchedulerChannel way = open_scheduler_channel(address, tls, arguments);
  const std::unique_ptr<v1::NodeProtocol::Stub> stub = v1::NodeProtocol::NewStub(way.channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::nanoseconds(patience.ns));
  const auto stream = stub->Connect(&context);

  // The first exchange makes the connection; only what follows it would tell a round trip, so that the time
  // of the connection is left out by waiting for it first.
  const auto until = std::chrono::system_clock::now() + std::chrono::nanoseconds(patience.ns);
  if (way.relay != nullptr) {
    way.relay->await(patience);
  } else if (!is_unix_address(address)) {  // A Unix socket is connected already.
    way.channel->WaitForConnected(until);
  }
  v1::AgentMessage hello;
  const std::string nonce = sign::make_nonce();
  hello.mutable_hello()->set_node_name(node_name);
  hello.mutable_hello()->set_nonce(nonce);
  hello.mutable_hello()->set_version(version);
  hello.mutable_hello()->set_handshake(sign::kHandshake);
  const auto sent_at = std::chrono::steady_clock::now();
  v1::SchedulerMessage answer;
  if (!stream->Write(hello) || !stream->Read(&answer)) return failure_of(stream->Finish(), address, way);
  const Duration round_trip{nanoseconds_of(std::chrono::steady_clock::now() - sent_at)};
  const int64_t now_ns = wall_ns();
  const v1::Challenge challenge = answer.challenge();
  bool knows_token = false;
  std::string refusal;
  const bool can_prove = !token.empty() || !tls.identity.empty() || is_unix_address(address);
  if (answer.has_challenge() && can_prove) {
    if (challenge.handshake() < sign::kHandshake) {
      knows_token = sign::proves(challenge.proof(), token, sign::kOldSchedulerLabel, nonce);
    } else {
      const std::string both = nonce + challenge.nonce();
      v1::AgentMessage message;
      v1::SchedulerMessage proven;
      message.mutable_prove()->set_proof(sign::prove(token, sign::kAgentLabel, both));
      const bool answered = stream->Write(message) && stream->Read(&proven);
      if (answered && proven.has_refused()) refusal = proven.refused().message();
      knows_token =
          answered && proven.has_proven() &&
          (token.empty() || sign::proves(proven.proven().proof(), token, sign::kSchedulerLabel, both));
    }
  }
  context.TryCancel();
  [[maybe_unused]] const grpc::Status over = stream->Finish();
  if (answer.has_refused()) {
    return Error{.code = ErrorCode::kUnauthenticated,
                 .message = "the scheduler at " + address + " refused: " + answer.refused().message()};
  }
  if (!answer.has_challenge()) {
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "what answers at " + address + " is not the gRPC port of a gpu-scheduler"};
  }
  SchedulerFacts facts;
  facts.version = challenge.version();
  facts.knows_token = knows_token;
  facts.refusal = std::move(refusal);
  facts.uncertainty = {round_trip.ns / 2};
  facts.tells_time = challenge.unix_ns() != 0;
  if (facts.tells_time) facts.clock_ahead = {now_ns - facts.uncertainty.ns - challenge.unix_ns()};
  return facts;
}

}  // namespace gpusched

#include "api/grpc/tls_credentials.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "sign/testing/certificates.h"

namespace gpusched::api {
namespace {

std::shared_ptr<const sign::TlsIdentity> identity_of(const sign::TestAuthority::Files& files) {
  auto identity = sign::TlsIdentity::load({.certificate = files.certificate, .key = files.key});
  CHECK(identity.ok());
  return *identity;
}

class GrpcTls : public ::testing::Test {
 protected:
  GrpcTls()
      : tls_(std::make_shared<sign::TlsServer>(
            identity_of(first_.sign("here", "DNS:localhost,IP:127.0.0.1")))) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", credentials_, &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  ~GrpcTls() override { server_->Shutdown(std::chrono::system_clock::now()); }

  /// A new connection; null: it failed for good.
  std::shared_ptr<grpc::Channel> connect(const std::shared_ptr<grpc::ChannelCredentials>& credentials) const {
    grpc::ChannelArguments apart;
    apart.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    const auto channel = grpc::CreateCustomChannel("127.0.0.1:" + std::to_string(port_), credentials, apart);
    const auto until = std::chrono::system_clock::now() + std::chrono::minutes(1);
    for (auto state = channel->GetState(true); state != GRPC_CHANNEL_READY; state = channel->GetState(true)) {
      if (state == GRPC_CHANNEL_TRANSIENT_FAILURE) return nullptr;
      CHECK(channel->WaitForStateChange(state, until));
    }
    return channel;
  }
  static std::shared_ptr<grpc::ChannelCredentials> trust_in(const sign::TestAuthority& authority) {
    std::ifstream file(authority.file());
    return grpc::SslCredentials({.pem_root_certs = {std::istreambuf_iterator<char>(file), {}}});
  }

  sign::TestAuthority first_, second_;
  const std::shared_ptr<sign::TlsServer> tls_;
  const std::shared_ptr<grpc::ServerCredentials> credentials_ = make_tls_credentials(tls_);
  grpc::CallbackGenericService service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(GrpcTls, IsSpokenWithThoseWhoBelieveTheAuthorityAlone) {
  EXPECT_NE(connect(trust_in(first_)), nullptr);
  EXPECT_EQ(connect(trust_in(second_)), nullptr);
}

TEST_F(GrpcTls, GivesNewConnectionsTheNewIdentityAndKeepsTheOthers) {
  const auto before = connect(trust_in(first_));
  ASSERT_NE(before, nullptr);
  tls_->exchange(identity_of(second_.sign("here", "DNS:localhost,IP:127.0.0.1")));
  EXPECT_NE(connect(trust_in(second_)), nullptr);
  EXPECT_EQ(connect(trust_in(first_)), nullptr);
  EXPECT_EQ(before->GetState(false), GRPC_CHANNEL_READY);
}

}  // namespace
}  // namespace gpusched::api

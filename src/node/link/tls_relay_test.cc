#include "node/link/tls_relay.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>

#include "sign/testing/certificates.h"

namespace gpusched {
namespace {

std::string relayed_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A gRPC server, with TLS where a certificate is given.
class RelayedServer {
 public:
  explicit RelayedServer(const sign::TestAuthority::Files* files = nullptr) {
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    if (files != nullptr) {
      grpc::SslServerCredentialsOptions options(GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE);
      options.pem_key_cert_pairs = {{relayed_text(files->key), relayed_text(files->certificate)}};
      credentials = grpc::SslServerCredentials(options);
    }
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", credentials, &port);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
    address = {"127.0.0.1", static_cast<uint16_t>(port)};
  }
  ~RelayedServer() { server_->Shutdown(std::chrono::system_clock::now()); }
  Address address;

 private:
  grpc::CallbackGenericService service_;
  std::unique_ptr<grpc::Server> server_;
};

struct Relayed {
  std::string first_bytes, why;
  bool met_tls = false;
};
/// Until something comes from the server, or the end does.
Relayed relay_to(const Address& address, const LinkTls& tls) {
  int end = -1;
  const std::shared_ptr<TlsRelay> relay = TlsRelay::start(address, tls, end);
  pollfd source{.fd = end, .events = POLLIN, .revents = 0};
  EXPECT_EQ(::poll(&source, 1, 60'000), 1) << "nothing came";
  char bytes[100];
  const ssize_t count = ::recv(end, bytes, sizeof bytes, 0);
  Relayed seen{.first_bytes = std::string(bytes, static_cast<std::size_t>(std::max<ssize_t>(count, 0))),
               .why = relay->why(),
               .met_tls = relay->met_tls()};
  relay->stop();
  EXPECT_TRUE(::close(end) == 0);
  return seen;
}

class TlsRelayTest : public ::testing::Test {
 protected:
  sign::TestAuthority authority_;
  const sign::TestAuthority::Files files_ = authority_.sign("here", "IP:127.0.0.1");
};

TEST_F(TlsRelayTest, PassesOnWhatABelievedServerSays) {
  const RelayedServer server(&files_);
  const Relayed seen = relay_to(server.address, {.on = true, .ca_file = authority_.file()});
  // A frame of settings: HTTP/2's first word.
  ASSERT_GE(seen.first_bytes.size(), 9u) << seen.why;
  EXPECT_EQ(seen.first_bytes[3], 4);
  EXPECT_EQ(seen.why, "");
}

TEST_F(TlsRelayTest, EndsAndSaysWhyWithAServerThatIsNotBelieved) {
  const RelayedServer server(&files_);
  const sign::TestAuthority stranger;
  const Relayed seen = relay_to(server.address, {.on = true, .ca_file = stranger.file()});
  EXPECT_EQ(seen.first_bytes, "");
  EXPECT_NE(seen.why.find("not signed by an authority that is trusted here"), std::string::npos) << seen.why;
  EXPECT_TRUE(seen.met_tls);
}

TEST_F(TlsRelayTest, EndsAndSaysWhyWithAPlainServer) {
  const RelayedServer server;
  const Relayed seen = relay_to(server.address, {.on = true, .ca_file = authority_.file()});
  EXPECT_EQ(seen.first_bytes, "");
  EXPECT_TRUE(seen.why.starts_with("the server does not speak TLS there")) << seen.why;
  EXPECT_FALSE(seen.met_tls);
}

TEST_F(TlsRelayTest, SaysWhyNobodyIsReached) {
  uint16_t port = 0;
  {
    const RelayedServer server;
    port = server.address.port;
  }
  const Relayed refused = relay_to({"127.0.0.1", port}, {.on = true, .ca_file = authority_.file()});
  EXPECT_EQ(refused.why, "cannot connect: Connection refused");
  const Relayed nameless = relay_to({"host.invalid", port}, {.on = true, .ca_file = authority_.file()});
  EXPECT_TRUE(nameless.why.starts_with("the host name host.invalid could not be resolved")) << nameless.why;
}

TEST_F(TlsRelayTest, TellsServersWithTlsFromPlainOnes) {
  const RelayedServer secure(&files_), plain;
  EXPECT_TRUE(speaks_tls(secure.address, seconds(60)));
  EXPECT_FALSE(speaks_tls(plain.address, seconds(60)));
}

TEST(LinkTls, TakesOneTrustAndNeverLessThanWasAsked) {
  EXPECT_FALSE(link_tls_of(false, "", "")->on);
  EXPECT_TRUE(link_tls_of(true, "", "")->on);
  EXPECT_TRUE(link_tls_of(false, "ca.pem", "")->on);
  const std::string fingerprint = "sha256:" + std::string(64, '0');
  EXPECT_TRUE(link_tls_of(false, "", fingerprint)->on);
  EXPECT_FALSE(link_tls_of(true, "ca.pem", fingerprint).ok());
  EXPECT_FALSE(link_tls_of(true, "", "sha256:00").ok());
}

}  // namespace
}  // namespace gpusched

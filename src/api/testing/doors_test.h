#pragma once

#include <arpa/inet.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <memory>
#include <string>

#include "api/server.h"

namespace gpusched::api {

/// A shared token that is long enough for every address.
constexpr char kTestToken[] = "0123456789abcdef0123456789abcdef";

/// A real host on a temporary folder behind real ports.
class DoorsTest : public testing::Test {
 protected:
  explicit DoorsTest(ServerOptions options = {}, uint64_t term = 0) {
    char pattern[] = "/tmp/gpusched-doors-XXXXXX";
    folder_ = mkdtemp(pattern);
    HostOptions host_options{.data_dir = folder_, .term = term};
    host_options.engine.queue_size_max = 4'000;  // One tenant has half of them at most.
    auto host = Host::open(host_options);
    EXPECT_TRUE(host.ok());
    host_ = std::move(*host);
    options.http_port = options.grpc_port = options.metrics_port = 0;
    options.version = "test";
    options.grpc_message_wait = minutes(30);  // A step that is slow under a sanitizer is not wrong.
    if (options.token.empty() && options.everybody == nullptr) options.everybody = shared_token_caller();
    auto server = Server::start(options, *host_);
    EXPECT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(*server);
    channel_ = grpc::CreateChannel("127.0.0.1:" + std::to_string(server_->grpc_port()),
                                   grpc::InsecureChannelCredentials());
  }
  ~DoorsTest() override {
    server_->shutdown();
    host_->stop();
    server_.reset();
    host_.reset();  // Its journal prepares files in the folder until then.
    std::filesystem::remove_all(folder_);
  }

  /// As a scheduler does at its start; until then the rules are those of old journals.
  void use_newest_rules() {
    EngineConfig config;
    config.feature_level = kFeatureLevel;
    configure(config);
  }
  void configure(const EngineConfig& config) {
    std::promise<void> set;
    host_->propose(Configure{.config = config}, [&set](const Result<Decided>&) { set.set_value(); });
    set.get_future().get();
  }

  struct Reply {
    int status = 0;
    std::string head, body;
  };
  static int connect_to(uint16_t port) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return socket;
  }
  Reply http(const std::string& method, const std::string& target, const std::string& body = "",
             const std::string& headers = "", uint16_t port = 0) {
    const int socket = connect_to(port == 0 ? server_->http_port() : port);
    const timeval patience{20, 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const std::string request = method + " " + target +
                                " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers +
                                "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
    EXPECT_EQ(send(socket, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    std::string all;
    char buffer[65'536];
    for (ssize_t size = 0; (size = recv(socket, buffer, sizeof buffer, 0)) > 0;) {
      all.append(buffer, static_cast<std::size_t>(size));
    }
    close(socket);
    const std::size_t end = all.find("\r\n\r\n");
    if (end == std::string::npos) return {};
    return {.status = std::atoi(all.substr(9, 3).c_str()),
            .head = all.substr(0, end),
            .body = all.substr(end + 4)};
  }
  /// The value of a string field of flat JSON.
  static std::string field(const std::string& json, const std::string& name) {
    const std::size_t at = json.find("\"" + name + "\":\"");
    if (at == std::string::npos) return "";
    const std::size_t begin = at + name.size() + 4;
    return json.substr(begin, json.find('"', begin) - begin);
  }
  std::string submit(const std::string& body = R"({"script":"true","name":"x"})") {
    const Reply reply = http("POST", "/api/v1/jobs", body);
    EXPECT_EQ(reply.status, 201) << reply.body;
    return field(reply.body, "job_id");
  }

  std::string folder_;
  std::unique_ptr<Host> host_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

}  // namespace gpusched::api

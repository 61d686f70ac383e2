#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <sstream>
#include <string>

#include "api/testing/doors_test.h"

namespace gpusched::api {

namespace json = boost::json;

class NativeRestDoor : public DoorsTest {
 protected:
  json::value get(const std::string& path, int status = 200) { return body_of(http("GET", path), status); }
  json::value post(const std::string& path, const std::string& body = "", int status = 200,
                   const std::string& headers = "") {
    return body_of(http("POST", path, body, headers), status);
  }
  static json::value body_of(const Reply& reply, int status) {
    EXPECT_EQ(reply.status, status) << reply.head << reply.body;
    json::error_code error;
    json::value value = json::parse(reply.body, error);
    EXPECT_FALSE(error) << reply.body;
    return value;
  }
  static std::string text(const json::value& value, const char* key) {
    const json::value* found = value.as_object().if_contains(key);
    return found == nullptr || !found->is_string() ? "" : std::string(found->as_string());
  }
  /// Submits one job and gives its id.
  std::string job(const std::string& name = "x", const std::string& more = "") {
    const json::value answer =
        post("/v1/jobs", R"({"spec":{"script":"true","name":")" + name + "\"" + more + "}}", 201);
    return std::string(answer.at("job_ids").at(0).as_string());
  }
};

/// A connection that is written to and read from at the same time.
class Open {
 public:
  explicit Open(uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    const timeval patience{20, 0};
    setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  }
  ~Open() { close(socket_); }
  Open(const Open&) = delete;
  Open& operator=(const Open&) = delete;

  void send(const std::string& bytes) {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t count = ::send(socket_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      ASSERT_GT(count, 0);
      sent += static_cast<std::size_t>(count);
    }
  }
  void send_chunk(const std::string& bytes) {
    std::ostringstream size;
    size << std::hex << bytes.size();
    send(size.str() + "\r\n" + bytes + "\r\n");
  }
  /// All bytes so far, once `wanted` is among them.
  const std::string& until(const std::string& wanted) {
    char buffer[65'536];
    while (all_.find(wanted) == std::string::npos) {
      const ssize_t count = recv(socket_, buffer, sizeof buffer, 0);
      if (count <= 0) {
        ADD_FAILURE() << "no " << wanted << " in " << all_.substr(0, 2'000);
        break;
      }
      all_.append(buffer, static_cast<std::size_t>(count));
    }
    return all_;
  }
  std::size_t lines() const { return static_cast<std::size_t>(std::count(all_.begin(), all_.end(), '{')); }
  /// Reads until so many objects have come, or the connection ends.
  void until_objects(std::size_t wanted) {
    char buffer[65'536];
    while (lines() < wanted) {
      const ssize_t count = recv(socket_, buffer, sizeof buffer, 0);
      ASSERT_GT(count, 0) << lines() << " of " << wanted;
      all_.append(buffer, static_cast<std::size_t>(count));
    }
  }
  const std::string& all() const { return all_; }

 private:
  int socket_;
  std::string all_;
};

}  // namespace gpusched::api

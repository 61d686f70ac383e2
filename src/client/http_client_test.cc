#include "client/http_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/net/cancel_scope.h"
#include "client/test_server.h"

namespace gpusched {
namespace {

using Request = TestServer::Request;
using Reply = TestServer::Reply;

HttpClient client_of(const std::string& url, const std::string& token = {}) {
  Result<HttpClient> client = HttpClient::create({.url = url, .token = token});
  CHECK(client.ok());
  return std::move(*client);
}

/// A port that nobody listens on.
int closed_port() {
  const TestServer gone([](const Request&) { return Reply{}; });
  return gone.port();
}

TEST(HttpUrls, AreTakenApart) {
  const Result<HttpEndpoint> plain = parse_http_url("http://node1:8080");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->host, "node1");
  EXPECT_EQ(plain->port, "8080");
  EXPECT_EQ(plain->prefix, "");
  const Result<HttpEndpoint> rich = parse_http_url("[::1]/gpus//");
  ASSERT_TRUE(rich.ok());
  EXPECT_EQ(rich->host, "::1");
  EXPECT_EQ(rich->port, "80");
  EXPECT_EQ(rich->prefix, "/gpus");
}

TEST(HttpUrls, WithHttpsSaySo) {
  const Result<HttpEndpoint> plain = parse_http_url("http://node1");
  ASSERT_TRUE(plain.ok());
  EXPECT_FALSE(plain->tls);
  const Result<HttpEndpoint> secure = parse_http_url("https://node1/gpus");
  ASSERT_TRUE(secure.ok());
  EXPECT_TRUE(secure->tls);
  EXPECT_EQ(secure->host + ":" + secure->port + secure->prefix, "node1:443/gpus");
}

TEST(HttpUrls, OfUnixSocketsHaveAPath) {
  const Result<HttpEndpoint> local = parse_http_url("unix:///run/gpu-scheduler/api.sock");
  ASSERT_TRUE(local.ok());
  EXPECT_EQ(local->unix_socket, "/run/gpu-scheduler/api.sock");
  EXPECT_EQ(local->host, "localhost");  // The Host header's word for loopback.
  EXPECT_TRUE(parse_http_url("unix:///" + std::string(106, 'x')).ok());
  EXPECT_FALSE(parse_http_url("unix:///" + std::string(107, 'x')).ok());
  for (const char* url : {"unix://", "unix://api.sock", "unix:///a\nb"})
    EXPECT_FALSE(parse_http_url(url).ok()) << url;
  EXPECT_EQ(HttpClient::create({.url = "unix:///a/b"})->url(), "unix:///a/b");
}

TEST(HttpUrls, ThatLeadNowhereAreRefused) {
  for (const char* url :
       {"", "http://", "https://", "https://http://a", "ftp://a", "http://a:0", "http://a:99999",
        "http://a:x", "::1", "http://a b", "http://[::1", "http://user@a"}) {
    EXPECT_FALSE(parse_http_url(url).ok()) << url;
  }
}

TEST(UrlEncoding, KeepsOnlyUnreservedCharacters) {
  EXPECT_EQ(url_encoded("a-Z_0.~"), "a-Z_0.~");
  EXPECT_EQ(url_encoded("a b/c?é"), "a%20b%2Fc%3F%C3%A9");
}

TEST(HttpClientRequests, CarryMethodTargetBodyAndToken) {
  TestServer server([](const Request&) { return Reply{.status = 201, .body = "made"}; });
  HttpClient client = client_of(server.url() + "/prefix", "secret");
  const Result<HttpAnswer> answer = client.request(
      {.method = "POST", .target = "/things?x=1", .body = "{}", .headers = {{"Idempotency-Key", "k"}}});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->body, "made");
  const Request seen = server.requests().at(0);
  EXPECT_EQ(seen.method, "POST");
  EXPECT_EQ(seen.target, "/prefix/things?x=1");
  EXPECT_EQ(seen.body, "{}");
  EXPECT_EQ(seen.headers.at("authorization"), "Bearer secret");
  EXPECT_EQ(seen.headers.at("idempotency-key"), "k");
  EXPECT_EQ(seen.headers.at("content-type"), "application/json");
}

TEST(HttpClientRequests, ShareOneConnection) {
  TestServer server([](const Request&) { return Reply{.body = "ok"}; });
  HttpClient client = client_of(server.url());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client.request({.method = "GET", .target = "/"}).ok());
  ASSERT_EQ(server.requests().size(), 3u);
  EXPECT_EQ(server.requests().back().connection, 1);
}

TEST(HttpClientRequests, ReadChunkedAndLargeAnswersWhole) {
  const std::string large(300'000, 'x');
  TestServer server([&](const Request& request) {
    if (request.target == "/large") return Reply{.body = large};
    return Reply{.chunks = {"one ", large, " two"}};
  });
  HttpClient client = client_of(server.url());
  const Result<HttpAnswer> plain = client.request({.method = "GET", .target = "/large"});
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain->body, large);
  const Result<HttpAnswer> chunked = client.request({.method = "GET", .target = "/chunked"});
  ASSERT_TRUE(chunked.ok());
  EXPECT_EQ(chunked->body, "one " + large + " two");
}

TEST(HttpClientFailures, NameARefusedConnection) {
  HttpClient client = client_of("127.0.0.1:" + std::to_string(closed_port()));
  const Result<HttpAnswer> answer = client.request({.method = "POST", .target = "/", .repeatable = true});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(answer.error().message, "connection refused");
}

TEST(HttpClientFailures, LeaveTheOutcomeOfAPostUnknownWhenTheConnectionBreaks) {
  TestServer server([](const Request&) { return Reply{.hang_up = true}; });
  HttpClient client = client_of(server.url());
  const Result<HttpAnswer> answer = client.request({.method = "POST", .target = "/", .body = "{}"});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kOutcomeUnknown);
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST(HttpClientFailures, RepeatARepeatableRequestOnceOnANewConnection) {
  int count = 0;
  TestServer server(
      [&](const Request&) { return ++count == 1 ? Reply{.hang_up = true} : Reply{.body = "ok"}; });
  HttpClient client = client_of(server.url());
  const Result<HttpAnswer> answer =
      client.request({.method = "POST", .target = "/", .body = "{}", .repeatable = true});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(server.requests().back().connection, 2);
}

TEST(HttpClientFailures, GiveUpAfterTheSecondBreak) {
  TestServer server([](const Request&) { return Reply{.hang_up = true}; });
  HttpClient client = client_of(server.url());
  EXPECT_FALSE(client.request({.method = "POST", .target = "/", .body = "{}", .repeatable = true}).ok());
  EXPECT_EQ(server.requests().size(), 2u);
}

TEST(HttpClientFailures, SurviveAConnectionThatWasClosedWhileIdle) {
  TestServer server([](const Request&) { return Reply{.body = "ok", .close_after = true}; });
  HttpClient client = client_of(server.url());
  for (int i = 0; i < 3; ++i) {
    const Result<HttpAnswer> answer = client.request({.method = "GET", .target = "/", .repeatable = true});
    ASSERT_TRUE(answer.ok()) << answer.error().message;
  }
}

TEST(HttpClientFailures, EndASlowAnswerAtItsTimeout) {
  std::mutex held;
  held.lock();
  TestServer server([&](const Request&) {
    const std::lock_guard wait(held);
    return Reply{};
  });
  HttpClient client = client_of(server.url());
  const Result<HttpAnswer> answer =
      client.request({.method = "GET", .target = "/", .timeout = milliseconds(50), .repeatable = true});
  held.unlock();
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().code, ErrorCode::kTimeout);
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST(HttpClientFailures, SayWhenTheOtherSideSpeaksNoHttp) {
  TestServer server(
      [](const Request&) { return Reply{.close_after = true, .raw = "220 mail.example ready\r\n"}; });
  HttpClient client = client_of(server.url());
  const Result<HttpAnswer> answer = client.request({.method = "GET", .target = "/"});
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.error().message, "the server does not speak HTTP");
}

TEST(HttpClientStreams, GiveEachPieceAndEndWell) {
  TestServer server([](const Request&) { return Reply{.chunks = {"a", "bc", "d"}}; });
  HttpClient client = client_of(server.url());
  std::string got;
  const Result<HttpAnswer> answer =
      client.stream({.method = "GET", .target = "/"}, [&](std::string_view data) {
        got += data;
        return true;
      });
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "");
  EXPECT_EQ(got, "abcd");
}

TEST(HttpClientStreams, CollectTheBodyOfARefusal) {
  TestServer server([](const Request&) { return Reply{.status = 404, .body = "no"}; });
  HttpClient client = client_of(server.url());
  const Result<HttpAnswer> answer = client.stream({.method = "GET", .target = "/"}, [](std::string_view) {
    ADD_FAILURE();
    return true;
  });
  ASSERT_TRUE(answer.ok());
  EXPECT_EQ(answer->status, 404);
  EXPECT_EQ(answer->body, "no");
}

TEST(HttpClientStreams, AreNotRepeatedOnceSomethingArrived) {
  TestServer server([](const Request&) { return Reply{.chunks = {"a"}, .hang_up = true}; });
  HttpClient client = client_of(server.url());
  std::string got;
  const Result<HttpAnswer> answer =
      client.stream({.method = "GET", .target = "/", .repeatable = true}, [&](std::string_view data) {
        got += data;
        return true;
      });
  EXPECT_FALSE(answer.ok());
  EXPECT_EQ(got, "a");
  EXPECT_EQ(server.requests().size(), 1u);
}

TEST(HttpClientStreams, EndWhenTheCallerWantsNoMore) {
  TestServer server([](const Request&) { return Reply{.chunks = {"a", "b"}}; });
  HttpClient client = client_of(server.url());
  EXPECT_TRUE(client.stream({.method = "GET", .target = "/"}, [](std::string_view) { return false; }).ok());
  EXPECT_TRUE(client.request({.method = "GET", .target = "/"}).ok());
}

TEST(HttpClients, EndTheirWaitsWhenTheirThreadIsCancelled) {
  std::atomic<bool> cancelled{false}, asked{false};
  const TestServer silent([&](const Request&) {
    asked = true;
    while (!cancelled) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return Reply{};
  });
  std::thread canceller([&] {
    while (!asked) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    cancelled = true;
  });
  const CancelScope scope(cancelled);
  HttpClient client = client_of(silent.url());
  const Result<HttpAnswer> answer = client.request({.method = "GET", .target = "/", .timeout = seconds(600)});
  EXPECT_FALSE(answer.ok());
  canceller.join();
  // Nothing more is begun, not even a name looked up.
  EXPECT_FALSE(client_of("http://localhost:1").request({.method = "GET", .target = "/"}).ok());
  cancelled = false;
  EXPECT_TRUE(CancelScope::exists());
  const TestServer answers([](const Request&) { return Reply{}; });
  EXPECT_TRUE(client_of("http://localhost:" + std::to_string(answers.port()))
                  .request({.method = "GET", .target = "/", .timeout = seconds(60)})
                  .ok());
}

HttpClient client_of_several(const std::string& urls) {
  HttpClientOptions options;
  set_urls(options, urls);
  Result<HttpClient> client = HttpClient::create(std::move(options));
  CHECK(client.ok());
  return std::move(*client);
}

TEST(SeveralAddresses, AreSplitAtCommas) {
  EXPECT_EQ(split_urls("http://a"), (std::vector<std::string>{"http://a"}));
  EXPECT_EQ(split_urls("http://a:1/, https://b// ,unix:///c"),
            (std::vector<std::string>{"http://a:1", "https://b", "unix:///c"}));
  EXPECT_EQ(client_of_several("a:1,https://b").url(), "http://a:1,https://b:443");
  HttpClientOptions options;
  set_urls(options, "http://a,,http://b");
  EXPECT_FALSE(HttpClient::create(options).ok()) << "an empty one is a mistake";
}

TEST(SeveralAddresses, WhereNobodyAnswersArePassedOverOnce) {
  TestServer server([](const Request&) {
    return Reply{.body = "here", .close_after = true, .headers = "Connection: close\r\n"};
  });
  HttpClient client =
      client_of_several("http://127.0.0.1:" + std::to_string(closed_port()) + "," + server.url());
  for (int i = 0; i < 2; ++i) {
    const Result<HttpAnswer> answer = client.request({.method = "POST", .target = "/"});
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->body, "here");
  }
  EXPECT_EQ(server.requests().size(), 2u);
  EXPECT_EQ(server.requests()[0].headers.at("host"), "127.0.0.1:" + std::to_string(server.port()));
}

TEST(SeveralAddresses, WithoutAnybodyAreAllNamedWhenTheirTroublesDiffer) {
  const std::string closed = "http://127.0.0.1:" + std::to_string(closed_port());
  const Result<HttpAnswer> same = client_of_several(closed + "," + closed).request({"GET", "/"});
  ASSERT_FALSE(same.ok());
  EXPECT_EQ(same.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(same.error().message, "connection refused");
  const Result<HttpAnswer> others =
      client_of_several(closed + ",unix:///nowhere/api.sock").request({"GET", "/"});
  ASSERT_FALSE(others.ok());
  EXPECT_EQ(others.error().message,
            closed + ": connection refused; unix:///nowhere/api.sock: no such file or directory");
}

TEST(SeveralAddresses, GetARequestThatIsSafeToRepeatInTurn) {
  const auto hang_up = [](const Request&) { return Reply{.hang_up = true}; };
  TestServer first(hang_up), second(hang_up), third([](const Request&) { return Reply{.body = "here"}; });
  const std::string urls = first.url() + "," + second.url() + "," + third.url();
  const Result<HttpAnswer> answer =
      client_of_several(urls).request({.method = "POST", .target = "/", .repeatable = true});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->body, "here");
  EXPECT_EQ(first.requests().size() + second.requests().size(), 2u);
  const Result<HttpAnswer> unsafe = client_of_several(urls).request({.method = "POST", .target = "/"});
  ASSERT_FALSE(unsafe.ok());
  EXPECT_EQ(unsafe.error().code, ErrorCode::kOutcomeUnknown);
  EXPECT_EQ(third.requests().size(), 1u) << "what may have been done is not done again";
}

}  // namespace
}  // namespace gpusched

#include "api/http/request_rules.h"

#include <gtest/gtest.h>

namespace gpusched::api {
namespace {

std::string_view violation(std::string_view host, std::string_view target = "/health", int count = 1) {
  return violation_of({.host_count = count, .host = host, .target = target});
}

TEST(RequestRules, AHostIsNamedOnce) {
  for (const char* const host :
       {"localhost", "LOCALHOST:8080", "127.0.0.1", "[::1]:1", "my_box", "gpu-1.lab:65535"})
    EXPECT_EQ(violation(host), "") << host;
  for (const char* const host :
       {"", "a b", "a:", "a:x", "a:65536", "a:1:2", "u@a", "a/b", "::1", "[::1", "[x]", "a,b"})
    EXPECT_NE(violation(host), "") << host;
  EXPECT_NE(violation("localhost", "/", 2), "");
  EXPECT_NE(violation("", "/", 0), "");
  EXPECT_EQ(violation_of({.version_1_0 = true, .target = "/"}), "");
}

TEST(RequestRules, ATargetIsAPathOrAUrlOfTheSameHost) {
  for (const char* const target : {"/", "http://a/x", "HTTP://A:80/x", "http://a", "http://a?x"})
    EXPECT_EQ(violation("a", target), "") << target;
  for (const char* const target :
       {"*", "x", "http://b/x", "http://a:81/x", "ftp://a/x", "http:///x", "http://u@a/", "a:80"})
    EXPECT_NE(violation("a", target), "") << target;
  EXPECT_EQ(violation("a:443", "https://a/x"), "");
  EXPECT_EQ(violation_of({.host_count = 1, .host = "a", .target = "*", .is_options = true}), "");
}

TEST(RequestRules, TextsAreUtf8) {
  HttpRequest request{
      .path = "/jobs/caf%C3%A9", .query = "grep=%E2%82%AC&x=1", .requested_by = "j\xC3\xB6rg"};
  EXPECT_FALSE(problem_of_text(request));
  request.query = "x=%4&grep=%zz";  // Broken escapes are the door's to refuse.
  EXPECT_FALSE(problem_of_text(request));
  request.query = "x=1&grep=a%FFz";
  EXPECT_EQ(problem_of_text(request)->field, "grep");
  request.query = "%C0%80=1";
  EXPECT_TRUE(problem_of_text(request));
  request.query.clear();
  request.path = "/jobs/\xFF";
  EXPECT_EQ(problem_of_text(request)->field, "path");
  request.path = "/";
  request.requested_by = "\xED\xA0\x80";
  EXPECT_EQ(problem_of_text(request)->field, "X-Requested-By");
}

}  // namespace
}  // namespace gpusched::api

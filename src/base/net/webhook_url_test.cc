#include "base/net/webhook_url.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(WebhookUrl, HasHostPortAndTarget) {
  const auto url = parse_webhook_url("http://Hooks.example.com:8088/gone?job=1");
  ASSERT_TRUE(url.has_value());
  EXPECT_EQ(url->host, "hooks.example.com");
  EXPECT_EQ(url->port, "8088");
  EXPECT_EQ(url->target, "/gone?job=1");
  EXPECT_EQ(parse_webhook_url("http://h")->port, "80");
  EXPECT_EQ(parse_webhook_url("http://h")->target, "/");
  EXPECT_EQ(parse_webhook_url("http://h?a=b")->target, "/?a=b");
  EXPECT_EQ(parse_webhook_url("HTTP://[::1]:81/x")->host, "[::1]");
  EXPECT_EQ(parse_webhook_url("http://[::1]:81/x")->port, "81");
}

TEST(WebhookUrl, WhatIsAmbiguousIsNone) {
  for (const char* text : {"",
                           "http://",
                           "https://h/",
                           "ftp://h/",
                           "//h/",
                           "http:///x",
                           "http://a@h/",
                           "http://h:/",
                           "http://h:0/",
                           "http://h:65536/",
                           "http://h:8x/",
                           "http://h/#x",
                           "http://h /",
                           "http://h/\r\nX: 1",
                           "http://h\\@g/",
                           "http://h:80:81/",
                           "http://[::1",
                           "http://[::1]x/",
                           "http://h\xC3\xA9/",
                           "http://[]/"})
    EXPECT_FALSE(parse_webhook_url(text).has_value()) << text;
}

TEST(WebhookUrl, OnlyWhatIsListedIsAllowed) {
  const auto allowed = [](const char* url, const std::vector<std::string>& list) {
    return is_listed(*parse_webhook_url(url), list);
  };
  EXPECT_FALSE(allowed("http://h/", {}));
  EXPECT_TRUE(allowed("http://h:81/", {"H"}));
  EXPECT_TRUE(allowed("http://h:81/", {"g", "h:81"}));
  EXPECT_FALSE(allowed("http://h:82/", {"h:81"}));
  EXPECT_FALSE(allowed("http://h.evil/", {"h"}));
  EXPECT_FALSE(allowed("http://evil.h/", {"h"}));
}

}  // namespace
}  // namespace gpusched

#include "base/net/endpoint.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(Endpoint, IsAnAddressAndNoName) {
  const std::optional<WebhookUrl> url = parse_endpoint_url("http://127.0.0.1:8000/v1/chat/completions");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->host, "127.0.0.1");
  EXPECT_EQ(url->port, "8000");
  EXPECT_EQ(url->target, "/v1/chat/completions");
  for (const char* good : {"http://localhost:1/", "http://[::1]:8000/x?y=1", "http://10.0.0.7"})
    EXPECT_TRUE(parse_endpoint_url(good)) << good;
  for (const char* bad :
       {"", "https://127.0.0.1/", "http://example.com/", "http://127.1/", "http://0177.0.0.1/",
        "http://127.0.0.256/", "http://127.0.0.1.2/", "http://127.0.0./", "http://2130706433/",
        "http://127.0.0.1/it's", "http://127.0.0.1/a b", "http://ada@127.0.0.1/"})
    EXPECT_FALSE(parse_endpoint_url(bad)) << bad;
  EXPECT_FALSE(parse_endpoint_url("http://127.0.0.1/" + std::string(kEndpointUrlBytesMax, 'a')));
}

TEST(Endpoint, TheNodeItselfIsLoopbackAlone) {
  for (const char* own : {"http://127.0.0.1/", "http://127.9.8.7/", "http://localhost/", "http://[::1]/"})
    EXPECT_TRUE(is_loopback(*parse_endpoint_url(own))) << own;
  for (const char* other : {"http://10.0.0.1/", "http://128.0.0.1/", "http://[::2]/", "http://0.0.0.0/",
                            "http://[::ffff:127.0.0.1]/"})
    EXPECT_FALSE(is_loopback(*parse_endpoint_url(other))) << other;
}

TEST(Endpoint, IsReadAsItWasWritten) {
  Endpoint endpoint{.url = "http://127.0.0.1:8000/v1/embeddings",
                    .health_path = "/health",
                    .timeout = milliseconds(1'500),
                    .retries = 0,
                    .patience = {}};
  EXPECT_EQ(parse_endpoint(to_text(endpoint)), endpoint);
  endpoint.health_path = "";
  EXPECT_EQ(parse_endpoint(to_text(endpoint)), endpoint);
  for (const char* bad :
       {"", "http://127.0.0.1/", "http://127.0.0.1/ - 1 0", "http://127.0.0.1/ - 1 0 0 0",
        "http://name/ - 1 0 0", "http://127.0.0.1/ health 1 0 0", "http://127.0.0.1/ - 0 0 0",
        "http://127.0.0.1/ - 1 11 0", "http://127.0.0.1/ - 1 0 -1", "http://127.0.0.1/ - 1x 0 0",
        "http://127.0.0.1/ - 1 0 0 "})
    EXPECT_FALSE(parse_endpoint(bad)) << bad;
}

}  // namespace
}  // namespace gpusched

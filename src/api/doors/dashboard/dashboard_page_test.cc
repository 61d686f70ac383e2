#include "api/doors/dashboard/dashboard_page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "api/doors/dashboard/dashboard_assets.h"
#include "api/doors/dashboard/dashboard_snapshot.h"

namespace gpusched::api {
namespace {

TEST(DashboardPage, NothingInItsDataCanEndTheElementThatHoldsIt) {
  EXPECT_EQ(json_in_html(R"({"name":"</script><!--"})"), R"({"name":"\u003c/script\u003e\u003c!--"})");
  const HttpResponse page = dashboard_page(200, R"({"name":"</script><script>alert(1)</script>"})");
  EXPECT_EQ(page.body.find("<script>alert"), std::string::npos);
}

TEST(DashboardPage, IsKeptByNobodyAndFramedByNobody) {
  const HttpResponse page = dashboard_page(401, "{}");
  EXPECT_EQ(page.status, 401);
  const auto value_of = [&](std::string_view name) {
    const auto found = std::ranges::find(page.headers, name, [](const auto& header) { return header.first; });
    return found == page.headers.end() ? std::string() : found->second;
  };
  EXPECT_EQ(value_of("Cache-Control"), "no-store");
  EXPECT_NE(value_of("Content-Security-Policy").find("frame-ancestors 'none'"), std::string::npos);
  EXPECT_EQ(value_of("Content-Security-Policy").find("unsafe"), std::string::npos);
}

TEST(DashboardPage, NamesFilesThatAreThere) {
  const HttpResponse page = dashboard_page(200, "{}");
  ASSERT_EQ(dashboard_assets().size(), 3u);
  for (const DashboardAsset& asset : dashboard_assets()) {
    EXPECT_NE(page.body.find(asset.path), std::string::npos) << asset.path;
    EXPECT_EQ(find_dashboard_asset(asset.path), &asset);
    EXPECT_EQ(asset.bytes.substr(0, 2), "\x1f\x8b") << asset.path << " is not compressed by gzip";
  }
  EXPECT_EQ(find_dashboard_asset("/ui/assets/0.js"), nullptr);
}

TEST(DashboardSnapshot, WordsThatRepeatAreWrittenOnce) {
  NodeView node{.name = "n1", .state = "ready"};
  node.devices = {{.index = 0, .model = "A100", .state = "free", .condition = "ok"},
                  {.index = 1, .model = "A100", .state = "free", .condition = "ok"}};
  EXPECT_EQ(compact_nodes_json({node}),
            R"({"nodes":[["n1",0,1,[[0,2,3,4,0,0,0,0,0,[]],[1,2,3,4,0,0,0,0,0,[]]],0,0,0,0,0,"",""]],)"
            R"("words":["ready","connected","A100","free","ok"]})");
}

TEST(DashboardSnapshot, OfSomebodyWhoIsRefusedHasTheReasonAlone) {
  EXPECT_EQ(
      refused_snapshot({.version = "1", .has_sign_in = true}, {ErrorKind::kUnauthenticated, "no"}),
      R"({"version":"1","sign_in":true,"caller":null,"refused":{"code":"unauthenticated","message":"no"}})");
}

}  // namespace
}  // namespace gpusched::api

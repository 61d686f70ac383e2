#include "api/doors/docs/docs_page.h"

#include <gtest/gtest.h>

#include "api/doors/native/native_rest.h"
#include "api/doors/native/native_rest_openapi.h"

namespace gpusched::api {
namespace {

TEST(DocsPages, HaveEveryCallAndEveryMessageOfTheNativeApi) {
  const std::string page = docs_page(openapi_json(NativeRest::routes(), "1"));
  for (const NativeRoute& route : NativeRest::routes()) {
    EXPECT_NE(page.find("<details id=\"" + std::string(route.operation) + "\">"), std::string::npos);
    EXPECT_NE(page.find("<code>/" + std::string(route.path) + "</code>"), std::string::npos) << route.path;
    for (const NativeParameter& parameter : route.query)
      EXPECT_NE(page.find("<code>" + std::string(parameter.name) + "</code>"), std::string::npos);
  }
  // Each link leads somewhere.
  std::size_t links = 0;
  for (std::size_t at = page.find("href=\"#"); at != std::string::npos; at = page.find("href=\"#", at + 1)) {
    const std::string name = page.substr(at + 7, page.find('"', at + 7) - at - 7);
    EXPECT_NE(page.find("<h3 id=\"" + name + "\">"), std::string::npos) << name;
    links += 1;
  }
  EXPECT_GT(links, 50U);
}

TEST(DocsPages, AreTextsAndNotMarkupWhereTheDocumentHasThem) {
  const std::string page = docs_page(R"({"info":{"description":"a <b> & \"c\""},"paths":{"/v1/<x>":{"get":{
      "operationId":"o","summary":"<script>","parameters":[{"name":"p","in":"query","description":"one `of <i>`",
      "schema":{"type":"string","enum":["<u>"]}}]}}}})");
  for (const char* tag : {"<b> &", "<x>", "<script>", "<i>", "<u>"})
    EXPECT_EQ(page.find(tag), std::string::npos) << tag;
  EXPECT_NE(page.find("a &lt;b&gt; &amp; &quot;c&quot;"), std::string::npos);
  EXPECT_NE(page.find("one <code>of &lt;i&gt;</code>"), std::string::npos);
  EXPECT_EQ(page.find("<script"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::api

// Rules that a client meets over REST: what it is refused and told, and what a change leaves as it is.
#include <gtest/gtest.h>

#include <string>

#include "api/testing/native_rest_door.h"

namespace gpusched::api {
namespace {

TEST_F(NativeRestDoor, AWatchTellsWhoIsForgotten) {
  EngineConfig config{.finished_jobs_max = 1, .feature_level = kFeatureLevel};
  configure(config);
  Open watch(server_->http_port());
  watch.send("GET /v1/watch?fields=job_id,state HTTP/1.1\r\nHost: localhost\r\n\r\n");
  watch.until("event: begin\ndata: {\"sequence\":");
  const std::string first = job(), second = job();
  post("/v1/jobs/" + first + "/cancel");
  watch.until(R"(data: {"job_id":")" + first + R"(","state":"cancelled"})");
  post("/v1/jobs/" + second + "/cancel");
  watch.until("event: forgotten\ndata: {\"job_id\":\"" + first + "\"}");
  EXPECT_EQ(watch.all().find("event: forgotten\ndata: {\"job_id\":\"" + second), std::string::npos);
  EXPECT_EQ(text(get("/v1/jobs/" + first, 404), "code"), "job_not_found");
}

/// The id of the last event in what a watch has sent.
std::string last_id(const std::string& all) {
  const std::size_t at = all.rfind("\nid: ");
  if (at == std::string::npos) return "none";
  return all.substr(at + 5, all.find('\n', at + 5) - at - 5);
}

TEST_F(NativeRestDoor, AWatchIsResumedBehindTheLastEvent) {
  const std::string seen = job("seen");
  std::string told, id;
  {
    Open watch(server_->http_port());
    watch.send("GET /v1/watch?fields=job_id,state HTTP/1.1\r\nHost: localhost\r\n\r\n");
    watch.until("event: begin\ndata: {\"sequence\":");
    told = job();
    id = last_id(watch.until(R"(data: {"job_id":")" + told + R"(","state":"pending"})" + "\nid: "));
  }
  const std::string missed = job();
  post("/v1/jobs/" + seen + "/cancel");
  for (const std::string& how : {"?fields=job_id,state&after_sequence=" + id + " HTTP/1.1\r\n",
                                 "?fields=job_id,state HTTP/1.1\r\nLast-Event-ID: " + id + "\r\n"}) {
    Open watch(server_->http_port());
    watch.send("GET /v1/watch" + how + "Host: localhost\r\n\r\n");
    watch.until("event: begin\ndata: {\"sequence\":" + id + "}\nid: " + id + "\n\n");
    watch.until(R"(data: {"job_id":")" + seen + R"(","state":"cancelled"})");
    const std::string all =
        watch.until(R"(data: {"job_id":")" + missed + R"(","state":"pending"})" + "\nid: ");
    EXPECT_EQ(all.find("resync"), std::string::npos);
    EXPECT_EQ(all.find("\"" + told + "\""), std::string::npos) << "told of before the watch broke off";
  }
}

TEST_F(NativeRestDoor, AWatchThatCannotBeResumedSaysSo) {
  const std::string id = job();
  for (const std::string behind : {"0", "999999"}) {  // Before this scheduler knew of changes; not yet.
    Open watch(server_->http_port());
    watch.send("GET /v1/watch?fields=job_id,state&after_sequence=" + behind +
               " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    watch.until("event: begin\ndata: {\"sequence\":");
    watch.until("event: resync\ndata: {}\n\n");
    post("/v1/jobs/" + id + "/" + (behind == "0" ? "hold" : "release"));
    watch.until(R"(data: {"job_id":")" + id + R"(","state":"pending"})");  // It goes on all the same.
  }
  EXPECT_EQ(text(get("/v1/watch?after_sequence=x", 400), "field"), "after_sequence");
}

TEST_F(NativeRestDoor, AChangedNumberOfGpusLeavesTheirMemoryAsItIs) {
  use_newest_rules();
  const json::value made = post("/v1/jobs",
                                R"({"spec":{"script":"true"},"held":true,)"
                                R"("resources":{"gpu_count":2,"gpu_memory_mb":8000}})",
                                201);
  const std::string id(made.at("job_ids").at(0).as_string());
  const auto memory = [&] { return get("/v1/jobs/" + id).at("resources").at("gpu_memory_mb").as_int64(); };
  body_of(http("PATCH", "/v1/jobs/" + id, R"({"gpu_count":4})"), 200);
  EXPECT_EQ(memory(), 8'000);
  body_of(http("PATCH", "/v1/jobs/" + id, R"({"gpu_count":1})"), 200);
  EXPECT_EQ(memory(), 8'000);
}

TEST_F(NativeRestDoor, NoTenantHasANameThatLooksLikeAnothers) {
  use_newest_rules();
  post("/v1/tenants", R"({"name":"lab \u00e9"})", 201);
  for (const char* const name : {R"( lab)", R"(lab )", R"(la\u200bb)", R"(la\u202eb)", R"(e\u0301)",
                                 R"(la\tb)", R"(la\u00a0b)", R"(la\ufeffb)", R"(\ud834\udd73)"}) {
    const json::value refused = post("/v1/tenants", std::string(R"({"name":")") + name + "\"}", 400);
    EXPECT_EQ(text(refused, "field"), "name") << name;
  }
  EXPECT_EQ(text(post("/v1/tenants", R"({"name":"LAB \u00e9"})", 409), "code"), "tenant_exists");
}

TEST_F(NativeRestDoor, TheElementOfAHeldArrayIsNotReleasedAlone) {
  use_newest_rules();
  const json::value made = post("/v1/jobs", R"({"spec":{"script":"true"},"held":true,"array":"0-3"})", 201);
  const std::string id(made.at("job_ids").at(0).as_string());
  const std::string element = "job-" + std::to_string(std::stoull(id.substr(4)) + 2);
  const json::value refused = post("/v1/jobs/" + element + "/release", "", 422);
  EXPECT_EQ(text(refused, "code"), "unprocessable");
  EXPECT_NE(text(refused, "error").find("release " + id), std::string::npos) << text(refused, "error");
  post("/v1/jobs/" + id + "/release");
}

}  // namespace
}  // namespace gpusched::api

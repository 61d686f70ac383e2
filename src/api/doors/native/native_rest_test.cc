#include "api/doors/native/native_rest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <fstream>
#include <set>
#include <sstream>

#include "api/doors/native/native_rest_openapi.h"
#include "api/testing/native_rest_door.h"
#include "gpusched/v1/scheduler.grpc.pb.h"

namespace gpusched::api {
namespace {

std::string stream_head(const std::string& more) {
  return "POST /v1/jobs:stream HTTP/1.1\r\nHost: localhost\r\n" + more + "\r\n";
}

TEST_F(NativeRestDoor, ABatchIsAcceptedWholeAndSeenByEveryDoor) {
  const json::value answer = post("/v1/jobs",
                                  R"({"jobs":[{"spec":{"name":"a","command":["true"]}},
                                              {"spec":{"name":"b","script":"true"},"resources":{"gpu_count":2}}]})",
                                  201);
  ASSERT_EQ(answer.at("job_ids").as_array().size(), 2u);
  const std::string second(answer.at("job_ids").at(1).as_string());
  const json::value shown = get("/v1/jobs/" + second);
  EXPECT_EQ(text(shown, "job_id"), second);
  EXPECT_EQ(text(shown, "state"), "pending");
  EXPECT_EQ(text(shown.at("spec"), "name"), "b");
  EXPECT_EQ(shown.at("resources").at("gpu_count").as_int64(), 2);
  EXPECT_EQ(shown.at("priority").as_int64(), 100);
  EXPECT_EQ(text(get("/api/v1/jobs/" + second), "name"), "b");
}

TEST_F(NativeRestDoor, OneJobItselfIsABodyToo) {
  const json::value answer =
      post("/v1/jobs", R"({"tenant_id":"default","spec":{"name":"one","script":"true"},"priority":3})", 201);
  ASSERT_EQ(answer.at("job_ids").as_array().size(), 1u);
  const json::value shown = get("/v1/jobs/" + std::string(answer.at("job_ids").at(0).as_string()));
  EXPECT_EQ(shown.at("priority").as_int64(), 3);
  const json::value both = post("/v1/jobs", R"({"jobs":[],"spec":{"script":"true"}})", 422);
  EXPECT_EQ(text(both, "field"), "spec");
}

TEST_F(NativeRestDoor, WhatIsWrongWithAJobIsNamedByItsPlace) {
  EXPECT_EQ(text(post("/v1/jobs", R"({"jobs":[{"spec":{"script":"true"}},{"spec":{"name":"empty"}}]})", 422),
                 "field"),
            "jobs[1].spec.command");
  EXPECT_EQ(
      text(post("/v1/jobs", R"({"spec":{"script":"true"},"resources":{"gpu_count":-1}})", 400), "field"),
      "resources.gpu_count");
  EXPECT_EQ(text(post("/v1/jobs", R"({"spec":{"script":"true","working_directory":"here"}})", 400), "field"),
            "spec.working_directory");
  EXPECT_EQ(text(post("/v1/jobs", R"({"spec":{"scirpt":"true"}})", 400), "error"),
            "there is no field spec.scirpt; did you mean script?");
  EXPECT_EQ(text(post("/v1/jobs", R"({"jobs":[]})", 400), "field"), "jobs");
  EXPECT_EQ(text(post("/v1/jobs", "", 400), "code"), "malformed_json");
}

TEST_F(NativeRestDoor, ARepeatedKeyGetsTheSameJobAndAnotherBodyAConflict) {
  const std::string key = "Idempotency-Key: k1\r\n";
  const std::string body = R"({"spec":{"script":"true"}})";
  const json::value first = post("/v1/jobs", body, 201, key);
  EXPECT_EQ(post("/v1/jobs", body, 201, key), first);
  EXPECT_EQ(post("/v1/jobs", R"({"spec":{"script":"true"},"request_key":"k1"})", 201), first);
  EXPECT_EQ(text(post("/v1/jobs", R"({"spec":{"script":"false"}})", 409, key), "code"),
            "request_key_conflict");
  EXPECT_EQ(text(post("/v1/jobs", R"({"spec":{"script":"true"},"request_key":"k2"})", 400, key), "field"),
            "request_key");
}

TEST_F(NativeRestDoor, ListsFilterPageAndChooseFields) {
  std::vector<std::string> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(job("train-" + std::to_string(i)));
  const std::string labelled = job("other", R"(,"labels":{"team":"a","kind":"x"},"submitter":"ada")");
  const json::value page = get("/v1/jobs?page_size=4&fields=job_id");
  ASSERT_EQ(page.at("jobs").as_array().size(), 4u);
  EXPECT_EQ(page.at("total").as_int64(), 6);
  EXPECT_EQ(page.at("jobs").at(0), json::value({{"job_id", labelled}}));
  const json::value rest = get("/v1/jobs?page_size=4&page_token=" + text(page, "next_page_token"));
  ASSERT_EQ(rest.at("jobs").as_array().size(), 2u);
  EXPECT_EQ(text(rest.at("jobs").at(1), "job_id"), ids[0]);
  EXPECT_EQ(rest.as_object().if_contains("next_page_token"), nullptr);

  const auto found = [this](const std::string& query) {
    return get("/v1/jobs?" + query).at("jobs").as_array().size();
  };
  EXPECT_EQ(found("name=train-*"), 5u);
  EXPECT_EQ(found("name=train-3"), 1u);
  EXPECT_EQ(found("name=train-?"), 5u);
  EXPECT_EQ(found("name=train"), 0u);
  EXPECT_EQ(found("label=team%3Da"), 1u);
  EXPECT_EQ(found("label=team&label=kind%3Dx"), 1u);
  EXPECT_EQ(found("label=team&label=kind%3Dy"), 0u);
  EXPECT_EQ(found("user=ada"), 1u);
  EXPECT_EQ(found("user=bob"), 0u);
  EXPECT_EQ(found("state=pending"), 6u);
  EXPECT_EQ(found("state=running"), 0u);
  EXPECT_EQ(found("since=1h"), 6u);
  EXPECT_EQ(found("since=2100-01-01T00:00:00Z"), 0u);
  EXPECT_EQ(found("since=2020-01-01T00:00:00Z&name=other&tenant_id=default"), 1u);
  EXPECT_EQ(text(get("/v1/jobs?tenant_id=nobody", 404), "code"), "tenant_not_found");
}

TEST_F(NativeRestDoor, AWrongQueryNamesItsParameter) {
  for (const auto& [query, field] :
       std::initializer_list<std::pair<std::string, std::string>>{{"state=asleep", "state"},
                                                                  {"page_size=-1", "page_size"},
                                                                  {"page_token=x", "page_token"},
                                                                  {"since=yesterday", "since"},
                                                                  {"fields=nope", "fields"},
                                                                  {"limit=5", "limit"},
                                                                  {"sate=pending", "sate"}}) {
    EXPECT_EQ(text(get("/v1/jobs?" + query, 400), "field"), field) << query;
  }
  EXPECT_EQ(text(get("/v1/jobs?sate=pending", 400), "error"),
            "sate is not a parameter of this call; did you mean state?");
  EXPECT_EQ(get("/v1/jobs?name=%ZZ", 400).at("code"), "invalid_argument");
}

TEST_F(NativeRestDoor, AJobIsCancelledOnceAndManyAtOnce) {
  const std::string one = job(), two = job();
  EXPECT_EQ(text(post("/v1/jobs/" + one + "/cancel"), "state"), "cancelled");
  EXPECT_EQ(text(post("/v1/jobs/" + one + "/cancel", "", 409), "code"), "job_finished");
  const json::value many =
      post("/v1/jobs:cancel", R"({"job_ids":[")" + one + R"(",")" + two + R"(","job-x"]})");
  ASSERT_EQ(many.at("results").as_array().size(), 3u);
  EXPECT_EQ(text(many.at("results").at(0), "code"), "job_finished");
  EXPECT_EQ(text(many.at("results").at(1), "code"), "");
  EXPECT_EQ(text(many.at("results").at(2), "code"), "job_not_found");
  EXPECT_EQ(text(get("/v1/jobs/" + two), "state"), "cancelled");
}

TEST_F(NativeRestDoor, AJobIsHeldChangedAndReleased) {
  const std::string id = job();
  const json::value held = post("/v1/jobs/" + id + "/hold");
  EXPECT_TRUE(held.at("held").as_bool());
  EXPECT_EQ(text(post("/v1/jobs/" + id + "/explain", "", 405), "code"), "method_not_allowed");
  EXPECT_NE(text(get("/v1/jobs/" + id + "/explain"), "message").find("held"), std::string::npos);
  EXPECT_FALSE(post("/v1/jobs/" + id + "/release").at("held").as_bool());
  const json::value changed =
      body_of(http("PATCH", "/v1/jobs/" + id, R"({"priority":7,"name":"new","max_runtime_ms":5000})"), 200);
  EXPECT_EQ(changed.at("priority").as_int64(), 7);
  EXPECT_EQ(changed.at("max_runtime_ms").as_int64(), 5'000);
  EXPECT_EQ(text(changed.at("spec"), "name"), "new");
  EXPECT_EQ(text(body_of(http("PATCH", "/v1/jobs/" + id, "{}"), 422), "code"), "unprocessable");
  EXPECT_EQ(text(body_of(http("PATCH", "/v1/jobs/" + id, R"({"job_id":"job-1x"})"), 400), "field"), "job_id");
  EXPECT_EQ(text(body_of(http("PATCH", "/v1/jobs/" + id, R"({"priority":2000000})"), 400), "field"),
            "priority");
  EXPECT_EQ(text(post("/v1/jobs/" + id + "/requeue", "", 409), "code"), "job_not_placed");
}

TEST_F(NativeRestDoor, AnEndedJobRunsAgainAsItWasAskedFor) {
  const json::value made = post(
      "/v1/jobs",
      R"({"spec":{"name":"sweep","command":["true"],"environment":{"TOKEN":"s"},"secret_variables":["TOKEN"]},)"
      R"("resources":{"gpu_count":2,"gpu_model":"A100"},"priority":7,"max_runtime_ms":5000,)"
      R"("retry":{"exit_code_retries":3},"array":"0-9%4"})",
      201);
  const std::string id = std::string(made.at("job_ids").at(0).as_string());
  EXPECT_EQ(text(post("/v1/jobs/" + id + "/rerun", "", 409), "code"), "conflict");
  post("/v1/jobs/" + id + "/cancel", "{}");
  const json::value some = post("/v1/jobs/" + id + "/rerun?indexes=2,5-6", "", 201);
  const json::value again = get("/v1/jobs/" + std::string(some.at("job_ids").at(0).as_string()));
  EXPECT_EQ(text(again.at("array"), "indexes"), "2,5-6%4");
  EXPECT_EQ(text(again.at("spec"), "name"), "sweep");
  EXPECT_EQ(again.at("spec").at("secret_variables").at(0).as_string(), "TOKEN");
  EXPECT_EQ(again.at("resources").at("gpu_count").as_int64(), 2);
  EXPECT_EQ(text(again.at("resources"), "gpu_model"), "A100");
  EXPECT_EQ(again.at("priority").as_int64(), 7);
  EXPECT_EQ(again.at("max_runtime_ms").as_int64(), 5'000);
  EXPECT_EQ(again.at("retry").at("exit_code_retries").as_int64(), 3);
  const json::value fewer = post("/v1/jobs/" + id + "/rerun?indexes=0-3%252", "", 201);
  EXPECT_EQ(
      text(get("/v1/jobs/" + std::string(fewer.at("job_ids").at(0).as_string())).at("array"), "indexes"),
      "0-3%2");
  const json::value one = post("/v1/jobs/" + id + "%5B4%5D/rerun", "", 201);
  EXPECT_EQ(text(get("/v1/jobs/" + std::string(one.at("job_ids").at(0).as_string())).at("array"), "indexes"),
            "4%4");
  EXPECT_EQ(text(post("/v1/jobs/" + id + "/rerun?indexes=3,10", "", 422), "field"), "indexes");
  EXPECT_EQ(text(post("/v1/jobs/" + id + "/rerun?indexes=x", "", 400), "field"), "indexes");
  EXPECT_EQ(text(post("/v1/jobs/" + id + "/rerun?failed=true&indexes=3", "", 422), "field"), "indexes");
  EXPECT_EQ(text(post("/v1/jobs/" + id + "/rerun?failed=true", "", 409), "code"), "conflict");
  const std::string plain = job();
  post("/v1/jobs/" + plain + "/cancel", "{}");
  EXPECT_EQ(text(post("/v1/jobs/" + plain + "/rerun?failed=true", "", 422), "field"), "failed");
}

TEST_F(NativeRestDoor, TenantsAreMadeShownChangedListedAndDeleted) {
  const json::value made =
      post("/v1/tenants", R"({"name":"lab","max_gpus":4,"priority_tier":0,"allow_preemption":true})", 201);
  const std::string id = text(made, "tenant_id");
  EXPECT_EQ(made.at("max_gpus").as_int64(), 4);
  EXPECT_EQ(made.at("priority_tier").as_int64(), 0);
  EXPECT_EQ(text(get("/v1/tenants/lab"), "tenant_id"), id);
  const json::value changed = body_of(
      http("PATCH", "/v1/tenants/lab", R"({"max_gpus":null,"max_memory_mb":7,"allow_preemption":false})"),
      200);
  EXPECT_EQ(changed.as_object().if_contains("max_gpus"), nullptr);
  EXPECT_EQ(changed.at("max_memory_mb").as_int64(), 7);
  EXPECT_FALSE(changed.at("allow_preemption").as_bool());
  const json::value page = get("/v1/tenants?page_size=1");
  ASSERT_EQ(page.at("tenants").as_array().size(), 1u);
  EXPECT_EQ(page.at("total").as_int64(), 2);
  const json::value next = get("/v1/tenants?page_size=1&page_token=" + text(page, "next_page_token"));
  EXPECT_EQ(text(next.at("tenants").at(0), "name"), "lab");
  EXPECT_EQ(text(post("/v1/tenants", R"({"name":"lab"})", 409), "code"), "tenant_exists");
  EXPECT_EQ(text(post("/v1/tenants", "{}", 400), "field"), "name");
  EXPECT_EQ(text(post("/v1/tenants", R"({"nmae":"x"})", 400), "field"), "nmae");
  EXPECT_EQ(http("DELETE", "/v1/tenants/lab").body, "{}");
  EXPECT_EQ(text(get("/v1/tenants/lab", 404), "code"), "tenant_not_found");
}

TEST_F(NativeRestDoor, EditsOfTheClusterAreMadeTogetherOrNotAtAll) {
  const std::string tenants =
      R"({"name":"lab","max_gpus":4,"guaranteed_gpus":3},{"name":"desk","parent_id":"lab","guaranteed_gpus":2})";
  const auto edit = [&](const std::string& more, bool dry_run, int status) {
    return post("/v1/cluster:edit",
                std::string(R"({"dry_run":)") + (dry_run ? "true" : "false") + R"(,"tenants":[)" + tenants +
                    more + "]}",
                status);
  };
  const json::value tried = edit("", true, 200);
  EXPECT_EQ(tried.at("tenants_created").as_int64(), 2);
  EXPECT_TRUE(tried.at("dry_run").as_bool());
  // The guarantees of both children are more than their parent's.
  for (const bool dry_run : {true, false}) {
    const json::value refused =
        edit(R"(,{"name":"bench","parent_id":"lab","guaranteed_gpus":2})", dry_run, 422);
    EXPECT_EQ(text(refused, "code"), "unprocessable");
    EXPECT_TRUE(text(refused, "field").starts_with("tenants[2]")) << text(refused, "field");
    EXPECT_TRUE(text(refused, "error").starts_with("tenant bench: ")) << text(refused, "error");
    EXPECT_EQ(text(get("/v1/tenants/lab", 404), "code"), "tenant_not_found");
  }
  EXPECT_EQ(edit("", false, 200).at("tenants_created").as_int64(), 2);
  EXPECT_EQ(text(get("/v1/tenants/desk"), "parent_id"), text(get("/v1/tenants/lab"), "tenant_id"));
  EXPECT_EQ(edit("", false, 200).at("tenants_updated").as_int64(), 2);
  const json::value lifted = post("/v1/cluster:edit", R"({"tenants":[{"name":"lab","max_gpus":null}]})", 200);
  EXPECT_FALSE(lifted.at("dry_run").as_bool());
  EXPECT_EQ(get("/v1/tenants/lab").as_object().if_contains("max_gpus"), nullptr);
  const auto field = [&](const std::string& body, int status) {
    return text(post("/v1/cluster:edit", body, status), "field");
  };
  EXPECT_EQ(field(R"({"tenants":[{"name":"a"},{"max_gpus":1}]})", 400), "tenants[1].name");
  EXPECT_EQ(field(R"({"tenants":[{"name":"a"},{"name":"a"}]})", 400), "tenants[1].name");
  EXPECT_EQ(field(R"({"tenants":[{"name":"a","parent_id":"nobody"}]})", 422), "tenants[0].parent_id");
  EXPECT_EQ(field(R"({"tenants":[{"name":"a"}],"nodes":[{"node_name":"n7","set":{"a":"b"}}]})", 404),
            "nodes[0].node_name");
  EXPECT_EQ(text(get("/v1/tenants/a", 404), "code"), "tenant_not_found");
}

TEST_F(NativeRestDoor, WhatIsNotThereIsSaid) {
  EXPECT_EQ(text(get("/v1/jobs/job-999", 404), "code"), "job_not_found");
  EXPECT_EQ(text(get("/v1/jobs/7", 404), "code"), "job_not_found");
  EXPECT_EQ(text(get("/v1/nodes/n1", 404), "code"), "node_not_found");
  EXPECT_EQ(text(get("/v1/nothing", 404), "code"), "not_found");
  EXPECT_EQ(text(post("/v1/nodes/n1/drain", R"({"reason":"fan"})", 404), "code"), "node_not_found");
  EXPECT_EQ(text(post("/v1/nodes/n1/resume", "", 404), "code"), "node_not_found");
  EXPECT_EQ(text(post("/v1/nodes/n1/reboot", "{}", 404), "code"), "node_not_found");
  EXPECT_EQ(text(post("/v1/nodes/n1/label", R"({"set":{"rack":"r1"}})", 404), "code"), "node_not_found");
  EXPECT_EQ(text(post("/v1/nodes/n1/label", R"({"set":{"rack":7}})", 400), "field"), "set.rack");
  EXPECT_EQ(text(post("/v1/nodes/n1/devices/0/condition", R"({"condition":"ok"})", 404), "code"),
            "node_not_found");
  EXPECT_EQ(text(post("/v1/nodes/n1/devices/0/condition", R"({"condition":"bad"})", 400), "field"),
            "condition");
  EXPECT_EQ(text(post("/v1/nodes/n1/devices/x/condition", R"({"condition":"ok"})", 404), "code"),
            "device_not_found");
  const Reply wrong = http("PUT", "/v1/jobs", "{}");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_NE(wrong.head.find("Allow: POST, GET, HEAD, OPTIONS"), std::string::npos) << wrong.head;
  EXPECT_EQ(text(get("/v1/cluster"), "version"), "test");
  EXPECT_EQ(get("/v1/nodes").at("nodes").as_array().size(), 0u);
}

TEST_F(NativeRestDoor, AWatchedJobIsToldUntilItsEnd) {
  const std::string id = job();
  Open watch(server_->http_port());
  watch.send("GET /v1/jobs/" + id + "/watch?fields=job_id,state HTTP/1.1\r\nHost: localhost\r\n\r\n");
  watch.until(R"(data: {"job_id":")" + id + R"(","state":"pending"})");
  EXPECT_NE(watch.all().find("Content-Type: text/event-stream"), std::string::npos);
  post("/v1/jobs/" + id + "/cancel");
  watch.until(R"(data: {"job_id":")" + id + R"(","state":"cancelled"})");
  watch.until("\r\n0\r\n\r\n");
  EXPECT_EQ(text(get("/v1/jobs/job-999/watch", 404), "code"), "job_not_found");
}

TEST_F(NativeRestDoor, AWatchOfAStateTellsWhoLeavesIt) {
  Open watch(server_->http_port());
  watch.send("GET /v1/watch?fields=job_id,state&state=pending HTTP/1.1\r\nHost: localhost\r\n\r\n");
  watch.until("event: begin\ndata: {\"sequence\":");
  const std::string id = job();
  watch.until(R"(data: {"job_id":")" + id + R"(","state":"pending"})");
  post("/v1/jobs/" + id + "/cancel");
  watch.until("event: left\ndata: {\"job_id\":\"" + id + R"(","state":"cancelled"})");
}

TEST_F(NativeRestDoor, AWatchTellsOfEveryJobThatMatches) {
  Open watch(server_->http_port());
  watch.send("GET /v1/watch?fields=spec.name,state&name=seen* HTTP/1.1\r\nHost: localhost\r\n\r\n");
  watch.until("event: begin\ndata: {\"sequence\":");
  job("hidden");
  const std::string id = job("seen");
  watch.until(R"(data: {"spec":{"name":"seen"},"state":"pending"})");
  post("/v1/jobs/" + id + "/cancel");
  watch.until(R"(data: {"spec":{"name":"seen"},"state":"cancelled"})");
  EXPECT_EQ(watch.all().find("hidden"), std::string::npos);
  EXPECT_EQ(text(get("/v1/watch?tenant_id=nobody", 404), "code"), "tenant_not_found");
}

TEST_F(NativeRestDoor, LinesAreAnsweredInTheirOrder) {
  const std::string lines = R"({"spec":{"script":"true","name":"l1"}})"
                            "\n\n"
                            R"({"jobs":[{"spec":{"script":"true"}},{"spec":{"script":"true"}}]})"
                            "\nnot json\n"
                            R"({"spec":{"script":"true"},"tenant_id":"nobody"})"
                            "\n"
                            R"({"spec":{"script":"true","name":"last"}})";
  const Reply reply = http("POST", "/v1/jobs:stream", lines);
  EXPECT_EQ(reply.status, 200);
  std::vector<json::value> answers;
  std::size_t at = 0;
  // Chunked: each object is one line of the answer.
  while ((at = reply.body.find('{', at)) != std::string::npos) {
    const std::size_t end = reply.body.find('\n', at);
    answers.push_back(json::parse(reply.body.substr(at, end - at)));
    at = end;
  }
  ASSERT_EQ(answers.size(), 5u) << reply.body;
  EXPECT_EQ(answers[0].at("job_ids").as_array().size(), 1u);
  EXPECT_EQ(answers[1].at("job_ids").as_array().size(), 2u);
  EXPECT_EQ(text(answers[2], "code"), "malformed_json");
  EXPECT_EQ(text(answers[3], "code"), "tenant_not_found");
  const std::string last(answers[4].at("job_ids").at(0).as_string());
  EXPECT_EQ(text(get("/v1/jobs/" + last).at("spec"), "name"), "last");
  EXPECT_EQ(get("/v1/jobs").at("total").as_int64(), 4);
}

TEST_F(NativeRestDoor, ALineIsAnsweredWhileTheBodyStillComes) {
  Open stream(server_->http_port());
  stream.send(stream_head("Transfer-Encoding: chunked\r\n"));
  const std::string line = R"({"spec":{"script":"true"}})";
  stream.send_chunk(line.substr(0, 10));
  stream.send_chunk(line.substr(10) + "\n" + line.substr(0, 5));
  stream.until_objects(1);
  stream.send_chunk(line.substr(5) + "\n");
  stream.until_objects(2);
  stream.send("0\r\n\r\n");
  stream.until("\r\n0\r\n\r\n");
  // The connection serves on.
  stream.send("GET /v1/cluster HTTP/1.1\r\nHost: localhost\r\n\r\n");
  stream.until("\"total_jobs\":2");
}

TEST_F(NativeRestDoor, AStreamMayBeLongerThanABody) {
  // Six megabytes, where one body has at most four; answered in order, none missing.
  const std::string line = R"({"spec":{"script":"true","name":")" + std::string(250, 'n') +
                           R"(","environment":{"PAD":")" + std::string(6'000, 'p') + "\"}}}\n";
  constexpr std::size_t kLines = 1'000;
  Open stream(server_->http_port());
  stream.send(stream_head("Content-Length: " + std::to_string(line.size() * kLines) + "\r\n"));
  std::thread writer([&] {
    for (std::size_t i = 0; i < kLines; ++i) stream.send(line);
  });
  stream.until_objects(kLines);
  writer.join();
  stream.until("\r\n0\r\n\r\n");
  std::vector<uint64_t> ids;
  for (std::size_t at = 0; (at = stream.all().find("\"job-", at)) != std::string::npos; ++at) {
    ids.push_back(std::stoull(stream.all().substr(at + 5, 20)));
  }
  EXPECT_EQ(ids.size(), kLines);
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  EXPECT_EQ(get("/v1/jobs").at("total").as_int64(), static_cast<int64_t>(kLines));
}

TEST_F(NativeRestDoor, AStreamThatBreaksOffLeavesTheServerWell) {
  {
    Open stream(server_->http_port());
    stream.send(stream_head("Transfer-Encoding: chunked\r\n"));
    stream.send_chunk("{\"spec\":{\"script\":\"true\"}}\n{\"spec\":");
    stream.until_objects(1);
  }
  {
    Open stream(server_->http_port());
    stream.send(stream_head("Transfer-Encoding: chunked\r\n") + "zz\r\n");
  }
  {
    Open stream(server_->http_port());
    stream.send(stream_head("Content-Length: 10\r\n"));
  }
  EXPECT_EQ(get("/v1/jobs").at("total").as_int64(), 1);
}

TEST_F(NativeRestDoor, ALineWithoutEndIsRefused) {
  Open stream(server_->http_port());
  stream.send(stream_head("Transfer-Encoding: chunked\r\n"));
  const std::string piece(1u << 20, 'x');
  for (int i = 0; i < 5; ++i) stream.send_chunk(piece);
  stream.until("too_large");
  EXPECT_EQ(get("/v1/jobs").at("total").as_int64(), 0);
}

TEST_F(NativeRestDoor, TheGrpcStreamAnswersInOrderToo) {
  const auto stub = v1::Scheduler::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = stub->SubmitJobStream(&context);
  constexpr int kRequests = 1'500;  // More than may be under way.
  std::thread writer([&] {
    for (int i = 0; i < kRequests; ++i) {
      v1::SubmitJobsRequest request;
      if (i % 100 != 7) request.add_jobs()->mutable_spec()->set_script("true");
      EXPECT_TRUE(stream->Write(request));
    }
    EXPECT_TRUE(stream->WritesDone());
  });
  v1::SubmitJobsResponse response;
  std::vector<uint64_t> ids;
  int refused = 0, seen = 0;
  for (; stream->Read(&response); ++seen) {
    if (seen % 100 == 7) {
      EXPECT_EQ(response.code(), "invalid_argument");
      EXPECT_EQ(response.field(), "jobs");
      refused += 1;
    } else {
      ASSERT_EQ(response.job_ids_size(), 1) << response.code() << response.message();
      ids.push_back(std::stoull(response.job_ids(0).substr(4)));
    }
  }
  writer.join();
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(seen, kRequests);
  EXPECT_EQ(refused, kRequests / 100);
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  EXPECT_EQ(get("/v1/jobs").at("total").as_int64(), static_cast<int64_t>(ids.size()));
}

class NativeRestWithToken : public DoorsTest {
 protected:
  static ServerOptions options() { return {.address = "0.0.0.0", .token = kTestToken}; }
  NativeRestWithToken() : DoorsTest(options()) {}
};

TEST_F(NativeRestWithToken, EveryCallNeedsItButThePublicOnes) {
  for (const NativeRoute& route : NativeRest::routes()) {
    const Reply reply = http(std::string(to_string(route.method)), "/" + std::string(route.path), "{}");
    const bool is_public = route.path == "v1/login" || route.path == "docs";
    EXPECT_EQ(reply.status, is_public ? 200 : 401) << route.path;
  }
  grpc::ClientContext context;
  const auto stream = v1::Scheduler::NewStub(channel_)->SubmitJobStream(&context);
  v1::SubmitJobsResponse response;
  EXPECT_FALSE(stream->Read(&response));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

// --- The document ------------------------------------------------------------------------------------------

/// Every "$ref" in it.
void collect_references(const json::value& value, std::set<std::string>& out) {
  if (const auto* object = value.if_object()) {
    for (const auto& [key, inner] : *object) {
      if (key == "$ref") out.insert(std::string(inner.as_string()));
      collect_references(inner, out);
    }
  } else if (const auto* array = value.if_array()) {
    for (const json::value& inner : *array) collect_references(inner, out);
  }
}

TEST(NativeOpenApi, EveryRouteAndEveryMessageIsInIt) {
  const json::value document = json::parse(openapi_json(NativeRest::routes(), "1"));
  std::set<std::string> operations;
  for (const NativeRoute& route : NativeRest::routes()) {
    const json::value& path = document.at("paths").at("/" + std::string(route.path));
    std::string method(to_string(route.method));
    std::transform(method.begin(), method.end(), method.begin(),
                   [](char c) { return static_cast<char>(std::tolower(c)); });
    const json::value& operation = path.at(method);
    EXPECT_EQ(operation.at("operationId"), json::value(route.operation));
    EXPECT_TRUE(operations.insert(std::string(route.operation)).second) << route.operation;
    EXPECT_TRUE(route.summary.ends_with('.')) << route.summary;
  }
  std::set<std::string> references;
  collect_references(document, references);
  for (const std::string& reference : references) {
    json::error_code error;
    const std::string pointer = reference.substr(1);
    EXPECT_NE(document.find_pointer(pointer, error), nullptr) << reference;
  }
  EXPECT_TRUE(references.contains("#/components/schemas/Mount"));
  EXPECT_TRUE(references.contains("#/components/schemas/CancelJobsResponse.Result"));
}

TEST(NativeOpenApi, EveryRpcOfTheServiceHasItsCall) {
  std::set<std::string> operations;
  for (const NativeRoute& route : NativeRest::routes()) operations.insert(std::string(route.operation));
  const auto* const service =
      google::protobuf::DescriptorPool::generated_pool()->FindServiceByName("gpusched.v1.Scheduler");
  ASSERT_NE(service, nullptr);
  for (int i = 0; i < service->method_count(); ++i) {
    std::string name;
    for (const char c : service->method(i)->name()) {
      const bool upper = c >= 'A' && c <= 'Z';
      if (upper && !name.empty()) name.push_back('_');
      name.push_back(upper ? static_cast<char>(c - 'A' + 'a') : c);
    }
    EXPECT_TRUE(operations.contains(name)) << name << " has no REST call";
  }
}

TEST(NativeOpenApi, TheReferenceNamesEveryCall) {
  std::ifstream file(GPUSCHED_SOURCE_DIR "/docs/reference/native-rest.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(page.empty());
  for (const NativeRoute& route : NativeRest::routes()) {
    const std::string call = std::string(to_string(route.method)) + " /" + std::string(route.path);
    EXPECT_NE(page.find("`" + call), std::string::npos) << call;
    for (const NativeParameter& parameter : route.query) {
      EXPECT_NE(page.find("`" + std::string(parameter.name) + "`"), std::string::npos) << parameter.name;
    }
  }
}

}  // namespace
}  // namespace gpusched::api

#include <gtest/gtest.h>

#include "cli/framework/run_test_support.h"
#include "cli/verbs/sessions/port_listeners.h"

namespace gpusched::cli::testing {
namespace {

/// The submission of a notebook, which the server refuses.
Json submission(std::vector<std::string> words, const World& world = {}) {
  words.insert(words.begin(), "jupyter");
  std::vector<Request> seen;
  run_against(
      [](const Request&) {
        return Reply{.status = 422, .body = R"({"error":{"code":"no","message":"no"}})"};
      },
      words, &seen, world);
  const std::vector<Request> sent = posts(seen);
  EXPECT_EQ(sent.size(), 1u);
  return sent.empty() ? Json() : *Json::parse(sent[0].body);
}

TEST(Jupyter, SubmitsOneJobThatStartsItAndIsBounded) {
  const Json body = submission({"--gpus", "2", "--", "--ServerApp.root_dir=/data"});
  EXPECT_EQ(body["gpu_count"].integer(), 2);
  EXPECT_EQ(body["name"].text(), "jupyter");
  EXPECT_EQ(body["max_runtime_seconds"].integer(), 12 * 3600);
  EXPECT_EQ(body["preemption_mode"].text(), "cancel");
  const std::vector<Json> command = body["command"].items();
  ASSERT_EQ(command.size(), 5u);
  EXPECT_NE(command[2].text().find("\nexec $j --no-browser --ip=127.0.0.1 "), std::string::npos);
  EXPECT_EQ(command[4].text(), "--ServerApp.root_dir=/data");
}

TEST(Jupyter, LooksInTheEnvironmentThatIsActiveHereButNotInAContainer) {
  const World world{.environment = {{"VIRTUAL_ENV", "/home/me/it's mine"}}};
  EXPECT_NE(submission({}, world)["command"].items()[2].text().find("\nv='/home/me/it'\\''s mine'\n"),
            std::string::npos);
  EXPECT_NE(submission({"--image", "lab"}, world)["command"].items()[2].text().find("\nv=''\n"),
            std::string::npos);
}

TEST(Jupyter, RefusesWhatANotebookCannotBe) {
  EXPECT_NE(refusal({"jupyter", "--array", "1-3"}).find("--array: a notebook is one job"), std::string::npos);
  EXPECT_NE(refusal({"jupyter", "--nodes", "2"}).find("--nodes: a notebook runs on one node"),
            std::string::npos);
  EXPECT_NE(refusal({"jupyter", "--hold"}).find("--hold: Jupyter is waited for"), std::string::npos);
  EXPECT_NE(refusal({"jupyter", "--port", "0"}).find("--port"), std::string::npos);
}

TEST(Jupyter, SubmitsNothingWhenItsPortIsTaken) {
  PortListeners taken;
  ASSERT_TRUE(taken.add("127.0.0.1", 0));
  std::vector<Request> seen;
  const Ran ran = run_against([](const Request&) { return Reply{.status = 500}; },
                              {"jupyter", "--port", std::to_string(taken.ports()[0])}, &seen);
  EXPECT_EQ(ran.exit_code, kExitRefused);
  EXPECT_NE(ran.err.find("(port_in_use)"), std::string::npos) << ran.err;
  EXPECT_TRUE(posts(seen).empty());
}

}  // namespace
}  // namespace gpusched::cli::testing

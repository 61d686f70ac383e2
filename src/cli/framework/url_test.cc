#include <gtest/gtest.h>
#include <unistd.h>

#include "cli/framework/context.h"
#include "cli/framework/run_test_support.h"

namespace gpusched::cli::testing {
namespace {

TEST(CaFile, IsForHttpsAlone) {
  EXPECT_EQ(refusal({"--api-url", "http://a", "--ca-file", "a.pem", "list"}),
            "gpu-cli: --ca-file needs a URL that begins with https://, and not http://a (usage)\n");
  // Set for all schedulers of a machine it does not keep from those without TLS.
  const World world{.environment = {{"GPU_SCHEDULER_CA_FILE", "/nowhere.pem"}}};
  EXPECT_EQ(run_against([](const Request&) { return Reply{.body = R"({"jobs":[],"total":0})"}; }, {"list"},
                        nullptr, world)
                .exit_code,
            kExitOk);
}

TEST(CaFile, IsReadBeforeAnythingIsAsked) {
  const std::string why =
      "gpu-cli: cannot read a certificate from /nowhere.pem: No such file or directory (usage)\n";
  EXPECT_EQ(refusal({"--api-url", "https://127.0.0.1:1", "--ca-file", "/nowhere.pem", "list"}), why);
  const World world{.environment = {{"GPU_SCHEDULER_URL", "https://127.0.0.1:1"},
                                    {"GPU_SCHEDULER_CA_FILE", "/nowhere.pem"}}};
  EXPECT_EQ(refusal({"list"}, world), why);
}

Reply no_jobs(const Request&) { return {.body = R"({"jobs":[],"total":0})"}; }

TEST(Socket, OfThisMachinesSchedulerIsForThoseWhoNameNothing) {
  TestServer local(no_jobs);
  EXPECT_EQ(run({"list"}, {.socket = local.url()}).exit_code, kExitOk);
  ASSERT_FALSE(local.requests().empty());
  EXPECT_FALSE(local.requests().front().headers.contains("authorization"));
}

TEST(Socket, IsNotForThoseWhoNameASchedulerOrACredential) {
  TestServer local(no_jobs), other(no_jobs);
  EXPECT_EQ(run({"--api-url", other.url(), "list"}, {.socket = local.url()}).exit_code, kExitOk);
  const std::size_t asked = other.requests().size();
  EXPECT_GT(asked, 0U);
  const World by_environment{.environment = {{"GPU_SCHEDULER_URL", other.url()}}, .socket = local.url()};
  EXPECT_EQ(run({"list"}, by_environment).exit_code, kExitOk);
  EXPECT_GT(other.requests().size(), asked);
  // A token goes where it always went.
  EXPECT_NE(refusal({"--token-file", "/nowhere", "list"}, {.socket = local.url()}).find("/nowhere"),
            std::string::npos);
  EXPECT_TRUE(local.requests().empty());
}

TEST(Url, WithSlashesAtItsEndIsTheSameSchedulers) {
  TestServer server(no_jobs);
  for (const char* const end : {"", "/", "//"}) {
    EXPECT_EQ(run({"--api-url", server.url() + end, "list"}).exit_code, kExitOk) << end;
    EXPECT_TRUE(server.requests().back().target.starts_with("/v1/jobs")) << server.requests().back().target;
  }
  EXPECT_EQ(plain_url("unix:///a/b/"), "unix:///a/b");
  EXPECT_EQ(plain_url("http://h/prefix/"), "http://h/prefix");
}

TEST(Url, WithASlashAtItsEndIsTheContexts) {
  TestServer server(no_jobs);
  const std::string home = ::testing::TempDir() + "slash" + std::to_string(::getpid());
  const World world{.environment = {{"HOME", home}}};
  const std::string token = home + "/nowhere/token";
  EXPECT_EQ(run({"context", "set", "lab", "--api-url", server.url() + "/", "--token-file", token}, world).out,
            "lab is " + server.url() + ", in use\n");
  EXPECT_NE(run({"--api-url", server.url() + "/", "--context", "lab", "list"}, world).err.find(token),
            std::string::npos)
      << "the context's token is for this URL";
}

TEST(Socket, WhoNamesACertificateMeansHttps) {
  TestServer local(no_jobs);
  EXPECT_EQ(
      refusal({"--ca-file", "a.pem", "list"}, {.socket = local.url()}),
      "gpu-cli: --ca-file needs a URL that begins with https://, and not http://127.0.0.1:8080 (usage)\n");
}

TEST(Socket, ThatIsNamedAndNotThereIsNamedInTheError) {
  const Ran ran = run({"--api-url", "unix:///nowhere/api.sock", "list"});
  EXPECT_EQ(ran.exit_code, kExitUnreachable);
  EXPECT_NE(ran.err.find("no scheduler answers at unix:///nowhere/api.sock"), std::string::npos) << ran.err;
  EXPECT_NE(refusal({"--api-url", "unix://nowhere", "list"}).find("unix:///path"), std::string::npos);
}

}  // namespace
}  // namespace gpusched::cli::testing

#include "sign/authority.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/check.h"
#include "sign/tls_context.h"
#include "sign/tls_trust.h"

namespace gpusched::sign {
namespace {

class AuthorityTest : public testing::Test {
 protected:
  AuthorityTest() {
    std::string made = (std::filesystem::temp_directory_path() / "gpusched_ca_XXXXXX").string();
    CHECK(::mkdtemp(made.data()) != nullptr);
    folder_ = made + "/ca";
    server_ = folder_ + "/server.pem";
  }
  ~AuthorityTest() override { std::filesystem::remove_all(std::filesystem::path(folder_).parent_path()); }
  Authority open() const {
    Result<Authority> authority = Authority::open(folder_);
    CHECK(authority.ok());
    return std::move(*authority);
  }
  static std::string text_of(const std::string& path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  static mode_t mode_of(const std::string& path) {
    struct stat facts{};
    CHECK(::stat(path.c_str(), &facts) == 0);
    return facts.st_mode & 0777;
  }

  std::string folder_, server_;
  const std::vector<std::string> names_ = {"127.0.0.1", "::1", "host.example", "localhost"};
};

TEST_F(AuthorityTest, IsMadeOnceAndItsKeyIsItsOwnersAlone) {
  const std::string first = open().fingerprint();
  EXPECT_EQ(mode_of(folder_), 0700u);
  EXPECT_EQ(mode_of(folder_ + "/ca.key"), 0600u);
  EXPECT_EQ(text_of(folder_ + "/fingerprint"), first + "\n");
  EXPECT_EQ(open().fingerprint(), first);
  EXPECT_TRUE(TlsTrust::of_file(folder_ + "/ca.pem").ok());
  EXPECT_TRUE(parse_fingerprint(first).ok());
}

TEST_F(AuthorityTest, IssuesWhatAServerServesWith) {
  const Authority authority = open();
  ASSERT_TRUE(authority.issue(server_, names_, hours(24)).ok());
  EXPECT_EQ(mode_of(server_), 0600u);
  const auto identity = TlsIdentity::load({.certificate = server_, .key = server_});
  ASSERT_TRUE(identity.ok()) << identity.error().message;
  // Its authority's certificate is behind it, for those who know the fingerprint alone.
  EXPECT_TRUE((*identity)->certificates_pem().ends_with(text_of(folder_ + "/ca.pem")));
}

TEST_F(AuthorityTest, KnowsWhatItIssuedForTheseNamesThatIsNotOld) {
  const Authority authority = open();
  EXPECT_FALSE(authority.has_issued(server_, names_)) << "nothing";
  ASSERT_TRUE(authority.issue(server_, names_, hours(24)).ok());
  EXPECT_TRUE(authority.has_issued(server_, names_));
  EXPECT_TRUE(open().has_issued(server_, names_)) << "of an earlier start";
  EXPECT_FALSE(authority.has_issued(server_, {"localhost"})) << "for other names";
  // Valid from an hour ago: of 80 minutes 20 are left.
  ASSERT_TRUE(authority.issue(server_, names_, minutes(20)).ok());
  EXPECT_FALSE(authority.has_issued(server_, names_)) << "old";
  ASSERT_TRUE(authority.issue(server_, names_, minutes(40)).ok());
  EXPECT_TRUE(authority.has_issued(server_, names_));
}

TEST_F(AuthorityTest, KnowsNothingOfAnotherAuthoritys) {
  ASSERT_TRUE(open().issue(server_, names_, hours(24)).ok());
  std::filesystem::remove(folder_ + "/ca.key");
  EXPECT_FALSE(open().has_issued(server_, names_));
}

TEST_F(AuthorityTest, IsNotMadeAnewBesideAKeyThatIsThere) {
  const std::string first = open().fingerprint();
  std::filesystem::rename(folder_ + "/ca.pem", folder_ + "/kept.pem");
  const Result<Authority> half = Authority::open(folder_);
  ASSERT_FALSE(half.ok());
  EXPECT_NE(half.error().message.find("restore them from a backup"), std::string::npos);
  std::filesystem::rename(folder_ + "/kept.pem", folder_ + "/ca.pem");
  EXPECT_EQ(open().fingerprint(), first);
  ASSERT_EQ(::chmod((folder_ + "/ca.key").c_str(), 0640), 0);
  EXPECT_EQ(Authority::open(folder_).error().code, ErrorCode::kPermissionDenied);
}

TEST_F(AuthorityTest, IssuesAReplicasCertificateThatIsNoNodesAndNoServersName) {
  const Authority authority = open();
  const std::string path = folder_ + "/replica.pem";
  const ReplicaClaim claim{.cluster = 0xFFFF'FFFF'FFFF'FFFF, .replica = 2};
  ASSERT_TRUE(authority.issue_replica(path, claim, hours(24)).ok());
  EXPECT_EQ(mode_of(path), 0600u);
  EXPECT_TRUE(authority.has_issued_replica(path, claim));
  EXPECT_FALSE(authority.has_issued_replica(path, {.cluster = claim.cluster, .replica = 3}));
  EXPECT_FALSE(authority.has_issued_replica(path, {.cluster = 1, .replica = 2}));
  EXPECT_FALSE(authority.has_issued(path, {}));
  const std::string text = text_of(path);
  const Result<NodeClaim> node = authority.node_of(text.substr(text.find("-----BEGIN CERTIFICATE")));
  ASSERT_FALSE(node.ok());
  EXPECT_EQ(node.error().message, "the certificate names no node");
  // A server's certificate is no replica's.
  ASSERT_TRUE(authority.issue(server_, names_, hours(24)).ok());
  EXPECT_FALSE(authority.has_issued_replica(server_, claim));
}

TEST(ReplicaClaim, IsReadFromItsOwnNameOnly) {
  const ReplicaClaim claim{.cluster = 77, .replica = 3};
  EXPECT_EQ(ReplicaClaim::of_uri(claim.uri()), claim);
  for (const char* bad : {"", "urn:gpusched:replica:", "urn:gpusched:replica:77",
                          "urn:gpusched:replica:77:", "urn:gpusched:replica::3", "urn:gpusched:replica:0:3",
                          "urn:gpusched:replica:77:0", "urn:gpusched:replica:77:3 ",
                          "urn:gpusched:replica:77:03", "urn:gpusched:node:77:3",
                          "urn:gpusched:replica:77:-3", "urn:gpusched:replica:99999999999999999999:3"}) {
    EXPECT_FALSE(ReplicaClaim::of_uri(bad).has_value()) << bad;
  }
}

}  // namespace
}  // namespace gpusched::sign

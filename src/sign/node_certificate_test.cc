#include "sign/node_certificate.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "sign/api_key.h"
#include "sign/authority.h"
#include "sign/keys/order_key.h"
#include "sign/tls_trust.h"

namespace gpusched::sign {
namespace {

class NodeCertificates : public testing::Test {
 protected:
  NodeCertificates() {
    folder_ = (std::filesystem::temp_directory_path() / "gpusched_node_XXXXXX").string();
    CHECK(::mkdtemp(folder_.data()) != nullptr);
  }
  ~NodeCertificates() override { std::filesystem::remove_all(folder_); }
  Authority open(const std::string& name) const {
    Result<Authority> authority = Authority::open(folder_ + "/" + name);
    CHECK(authority.ok());
    return std::move(*authority);
  }
  static NodeRequest request_of(const std::string& key) {
    const Result<std::string> der = make_node_request(key);
    CHECK(der.ok());
    Result<NodeRequest> read = NodeRequest::read(*der);
    CHECK(read.ok());
    return std::move(*read);
  }
  /// The certificate that a node of that name gets for the key.
  static std::string issue(const Authority& authority, const std::string& key, const std::string& node,
                           int64_t valid_s = 3'600) {
    return authority.issue_node(request_of(key),
                                {.node = node, .identity = 7, .expires_at = std::time(nullptr) + valid_s});
  }
  void write(const std::string& path, const std::string& text, mode_t mode = 0600) const {
    std::ofstream(path, std::ios::binary) << text;
    CHECK(::chmod(path.c_str(), mode) == 0);
  }
  /// A request whose key is of another kind, signed by it.
  static std::string request_with(EVP_PKEY* key, const EVP_MD* digest) {
    X509_REQ* const request = X509_REQ_new();
    X509_REQ_set_pubkey(request, key);
    CHECK(X509_REQ_sign(request, key, digest) > 0);
    unsigned char* bytes = nullptr;
    const int size = i2d_X509_REQ(request, &bytes);
    std::string der(reinterpret_cast<char*>(bytes), static_cast<std::size_t>(size));
    OPENSSL_free(bytes);
    X509_REQ_free(request);
    EVP_PKEY_free(key);
    return der;
  }

  std::string folder_;
};

TEST_F(NodeCertificates, OneSaysWhoseItIs) {
  const Authority authority = open("ca");
  for (const std::string node : {"n1", "rack 3/ä:%", "host.example"}) {
    const Result<NodeClaim> claim = authority.node_of(issue(authority, make_node_key(), node));
    ASSERT_TRUE(claim.ok()) << claim.error().message;
    EXPECT_EQ(claim->node, node);
    EXPECT_EQ(claim->identity, 7u);
    EXPECT_NEAR(static_cast<double>(claim->expires_at), static_cast<double>(std::time(nullptr) + 3'600), 5);
  }
}

TEST_F(NodeCertificates, OnlyThisAuthoritysLivingOnesAreTaken) {
  const Authority authority = open("ca"), other = open("other");
  EXPECT_FALSE(authority.node_of(issue(other, make_node_key(), "n1")).ok());
  EXPECT_FALSE(authority.node_of("").ok());
  EXPECT_FALSE(authority.node_of("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").ok());
  EXPECT_FALSE(authority.node_of(std::string(1 << 20, 'x')).ok());
  const Result<NodeClaim> old = authority.node_of(issue(authority, make_node_key(), "n1", -1));
  ASSERT_FALSE(old.ok());
  EXPECT_NE(old.error().message.find("expired"), std::string::npos);
}

TEST_F(NodeCertificates, AServersIsNoNodesAndANodesIsNoServers) {
  const Authority authority = open("ca");
  ASSERT_TRUE(authority.issue(folder_ + "/server.pem", {"127.0.0.1"}, hours(1)).ok());
  std::ifstream file(folder_ + "/server.pem");
  const std::string server((std::istreambuf_iterator<char>(file)), {});
  EXPECT_FALSE(authority.node_of(server.substr(server.find("-----BEGIN CERTIFICATE"))).ok());
  // For clients alone, and for no host name.
  const std::string key = make_node_key();
  const std::string pem = issue(authority, key, "127.0.0.1");
  BIO* const text = BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size()));
  X509* const certificate = PEM_read_bio_X509(text, nullptr, nullptr, nullptr);
  EXPECT_EQ(X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0), 0);
  EXPECT_EQ(X509_check_purpose(certificate, X509_PURPOSE_SSL_CLIENT, 0), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate, "127.0.0.1", 0), 0);
  X509_free(certificate);
  BIO_free(text);
}

TEST_F(NodeCertificates, ARequestIsItsKeysOwnAndOfAKindThatIsTaken) {
  const Result<std::string> good = make_node_request(make_node_key());
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(NodeRequest::read(*good).ok());
  EXPECT_TRUE(NodeRequest::read(request_with(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"), nullptr)).ok());
  EXPECT_FALSE(NodeRequest::read(request_with(EVP_EC_gen("P-384"), EVP_sha256())).ok());
  EXPECT_FALSE(NodeRequest::read(request_with(EVP_RSA_gen(2'048), EVP_sha256())).ok());
  for (std::size_t i = 0; i < good->size(); ++i) {
    std::string changed = *good;
    changed[i] = static_cast<char>(changed[i] ^ 1);
    EXPECT_FALSE(NodeRequest::read(changed).ok()) << i;
    EXPECT_FALSE(NodeRequest::read(good->substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(NodeRequest::read(*good + "x").ok());
  EXPECT_FALSE(NodeRequest::read(std::string(NodeRequest::kBytesMax + 1, '\x30')).ok());
}

TEST_F(NodeCertificates, AFileHoldsAKeyAndItsCertificate) {
  const Authority authority = open("ca");
  const std::string path = folder_ + "/node.pem", key = make_node_key();
  const std::string certificates = issue(authority, key, "n1", 3'000);
  EXPECT_EQ(read_node_file(path).error().code, ErrorCode::kNotFound);
  const std::string order_key = OrderKey::of_seed(std::string(32, 's')).public_key();
  EXPECT_FALSE(node_file_text(make_node_key(), certificates, order_key).ok());
  EXPECT_FALSE(node_file_text(key, certificates, "").ok());
  const Result<std::string> text = node_file_text(key, certificates, order_key);
  ASSERT_TRUE(text.ok());
  write(path, *text);
  const Result<NodeFile> file = read_node_file(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  const int64_t left = file->expires_at - file->renew_at();
  EXPECT_NEAR(static_cast<double>(left), 1'100, 10);  // A third of it, with the tenth before its beginning.
  EXPECT_EQ(file->order_keys, order_key);
  // While the key changes there are two, and then the next one alone.
  const std::string next = OrderKey::of_seed(std::string(32, 't')).public_key();
  for (const std::string& keys : {order_key + next, next}) {
    const Result<std::string> changed = with_order_keys(*text, keys);
    ASSERT_TRUE(changed.ok());
    write(path, *changed);
    const Result<NodeFile> read = read_node_file(path);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->order_keys, keys);
    EXPECT_EQ(read->expires_at, file->expires_at);
  }
  for (const std::string& keys :
       {std::string(), std::string(31, 'k'), std::string(33, 'k'), std::string(160, 'k')})
    EXPECT_FALSE(with_order_keys(*text, keys).ok()) << keys.size();
  // Without the last of its parts its owner would obey whoever is believed to be the scheduler.
  write(path, text->substr(0, text->find("-----BEGIN PUBLIC KEY")));
  EXPECT_EQ(read_node_file(path).error().code, ErrorCode::kInvalidArgument);
  write(path, *text, 0644);
  EXPECT_EQ(read_node_file(path).error().code, ErrorCode::kPermissionDenied);
  write(path, key);
  EXPECT_EQ(read_node_file(path).error().code, ErrorCode::kInvalidArgument);
}

TEST(NodeClaims, NamesThatAreNoneAreRefused) {
  for (const char* const uri :
       {"", "urn:gpusched:node:", "urn:gpusched:node:7", "urn:gpusched:node:0:n1", "urn:gpusched:node:x:n1",
        "urn:gpusched:node:7:", "urn:gpusched:node:7:a b", "urn:gpusched:node:7:%4",
        "urn:gpusched:node:7:%zz", "urn:other:node:7:n1", "urn:gpusched:node:99999999999999999999999:n1"})
    EXPECT_FALSE(NodeClaim::of_uri(uri).has_value()) << uri;
  EXPECT_FALSE(NodeClaim::of_uri("urn:gpusched:node:7:" + std::string(254, 'n')).has_value());
}

TEST(NodeTokens, AreNoApiKeys) {
  const NewApiKey token = make_node_token();
  const auto parts = parse_node_token(token.text);
  ASSERT_TRUE(parts.has_value());
  EXPECT_TRUE(is_api_secret(parts->secret, token.hash));
  EXPECT_FALSE(parse_api_key(token.text).has_value());
  EXPECT_FALSE(parse_node_token(make_api_key().text).has_value());
}

}  // namespace
}  // namespace gpusched::sign

#include "sign/tls_context.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "sign/testing/certificates.h"
#include "sign/tls_trust.h"

namespace gpusched::sign {
namespace {

constexpr const char* kHere = "DNS:localhost,IP:127.0.0.1";

/// Two ends of a connection in one thread.
struct Pair {
  Pair() { CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, sockets) == 0); }
  ~Pair() {
    for (const int socket : sockets) ::close(socket);
  }
  int sockets[2];
};

struct Shaken {
  bool done = false;
  Error error = {};
  std::string version = {}, protocol = {};
};

Shaken shake(const TlsIdentity& identity, const TlsTrust& trust, const std::string& host, int client_max = 0,
             TlsUse use = TlsUse::kHttp) {
  const Pair pair;
  const auto server = identity.accept(pair.sockets[0]);
  const auto client = trust.connect(pair.sockets[1], host, use);
  if (client_max != 0) {
    SSL_set_min_proto_version(client->native(), TLS1_VERSION);
    SSL_set_max_proto_version(client->native(), client_max);
    SSL_set_security_level(client->native(), 0);
  }
  TlsStep ours = TlsStep::kWantRead, theirs = TlsStep::kWantRead;
  for (int i = 0; i < 20 && !(ours == TlsStep::kDone && theirs == TlsStep::kDone); ++i) {
    if (theirs == TlsStep::kWantRead) theirs = client->handshake();
    if (theirs == TlsStep::kBroken) return {.error = handshake_error(*client, host, use)};
    if (ours == TlsStep::kWantRead) ours = server->handshake();
  }
  const unsigned char* name = nullptr;
  unsigned size = 0;
  SSL_get0_alpn_selected(client->native(), &name, &size);
  return {.done = ours == TlsStep::kDone && theirs == TlsStep::kDone,
          .version = SSL_get_version(client->native()),
          .protocol = std::string(reinterpret_cast<const char*>(name), size)};
}

std::shared_ptr<const TlsIdentity> identity_of(const TestAuthority::Files& files, bool allow_tls12 = true) {
  auto identity =
      TlsIdentity::load({.certificate = files.certificate, .key = files.key, .allow_tls12 = allow_tls12});
  CHECK(identity.ok());
  return *identity;
}

std::shared_ptr<const TlsTrust> trust_in(const TestAuthority& authority) {
  auto trust = TlsTrust::of_file(authority.file());
  CHECK(trust.ok());
  return *trust;
}

std::string refusal(const std::string& certificate, const std::string& key) {
  const auto identity = TlsIdentity::load({.certificate = certificate, .key = key});
  return identity.ok() ? "accepted" : identity.error().message;
}

TEST(Tls, AServerWithATrustedCertificateForTheNameIsBelieved) {
  TestAuthority authority;
  const auto identity = identity_of(authority.sign("here", kHere));
  const auto trust = trust_in(authority);
  for (const char* host : {"localhost", "127.0.0.1"}) {
    const Shaken shaken = shake(*identity, *trust, host);
    EXPECT_TRUE(shaken.done) << host << ": " << shaken.error.message;
    EXPECT_EQ(shaken.version, "TLSv1.3");
    EXPECT_EQ(shaken.protocol, "http/1.1");
  }
  EXPECT_EQ(identity->subject(), "CN=here");
}

/// Without what the environment says about authorities, until its end.
class NoAuthoritiesInEnvironment {
 public:
  NoAuthoritiesInEnvironment() {
    for (const char* const name : kNames) {
      const char* const value = std::getenv(name);
      values_.push_back(value == nullptr ? std::nullopt : std::optional<std::string>(value));
      ::unsetenv(name);
    }
  }
  ~NoAuthoritiesInEnvironment() {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      if (values_[i]) ::setenv(kNames[i], values_[i]->c_str(), 1);
    }
  }

 private:
  static constexpr const char* kNames[] = {"SSL_CERT_FILE", "SSL_CERT_DIR"};
  std::vector<std::optional<std::string>> values_;
};

TEST(Tls, TheMachinesAuthoritiesAreFoundWhereOtherDistributionsKeepThem) {
  const NoAuthoritiesInEnvironment nothing_said;
  TestAuthority authority;
  const auto identity = identity_of(authority.sign("here", kHere));
  for (const std::string bundle : {"/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"}) {
    const std::string root = testing::TempDir() + "other-system-" + std::to_string(::getpid());
    const std::filesystem::path file = root + bundle;
    std::filesystem::create_directories(file.parent_path());
    EXPECT_FALSE(shake(*identity, **TlsTrust::of_system(root), "localhost").done);
    std::filesystem::copy_file(authority.file(), file);
    const Shaken shaken = shake(*identity, **TlsTrust::of_system(root), "localhost");
    EXPECT_TRUE(shaken.done) << bundle << ": " << shaken.error.message;
    ::setenv("SSL_CERT_FILE", "/nowhere", 1);  // Somebody chose whom to trust.
    EXPECT_FALSE(shake(*identity, **TlsTrust::of_system(root), "localhost").done);
    ::unsetenv("SSL_CERT_FILE");
    // Where OpenSSL's own place is, nothing is added to it.
    std::filesystem::create_directories(root + X509_get_default_cert_dir());
    EXPECT_FALSE(shake(*identity, **TlsTrust::of_system(root), "localhost").done);
    std::filesystem::remove_all(root);
  }
}

TEST(Tls, AStrangersCertificateIsRefusedWithWhatHelps) {
  TestAuthority authority, stranger;
  const Shaken shaken = shake(*identity_of(stranger.sign("here", kHere)), *trust_in(authority), "localhost");
  EXPECT_FALSE(shaken.done);
  EXPECT_EQ(shaken.error.code, ErrorCode::kUnauthenticated);
  EXPECT_NE(shaken.error.message.find("not signed by an authority that is trusted here"), std::string::npos);
  EXPECT_NE(shaken.error.message.find("--ca-file"), std::string::npos);
}

TEST(Tls, ACertificateForAnotherNameIsRefusedAndBothAreNamed) {
  TestAuthority authority;
  const auto identity = identity_of(authority.sign("there", "DNS:there.example,IP:10.0.0.5"));
  for (const char* host : {"localhost", "127.0.0.1"}) {
    const Shaken shaken = shake(*identity, *trust_in(authority), host);
    EXPECT_FALSE(shaken.done);
    EXPECT_EQ(shaken.error.code, ErrorCode::kUnauthenticated);
    EXPECT_TRUE(shaken.error.message.starts_with(
        "its certificate is for there.example, 10.0.0.5 and not for " + std::string(host)))
        << shaken.error.message;
  }
}

TEST(Tls, OneServerIsBelievedByItsOwnCertificateAndNoOtherIs) {
  TestAuthority authority;
  const TestAuthority::Files there = authority.sign("there", "DNS:there.example");
  const auto trust = TlsTrust::of_server(there.certificate);
  ASSERT_TRUE(trust.ok());
  EXPECT_TRUE(shake(*identity_of(there), **trust, "localhost").done);
  // The other one is of the same authority, and for the right name.
  EXPECT_FALSE(shake(*identity_of(authority.sign("here", kHere)), **trust, "localhost").done);
}

/// As `openssl x509 -fingerprint -sha256` prints it.
std::string fingerprint_of(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "re");
  CHECK(file != nullptr);
  X509* const certificate = PEM_read_X509(file, nullptr, nullptr, nullptr);
  std::fclose(file);
  unsigned char digest[32];
  CHECK(X509_digest(certificate, EVP_sha256(), digest, nullptr) == 1);
  X509_free(certificate);
  std::string text = "sha256:";
  for (const unsigned char byte : digest) {
    char pair[4];
    std::snprintf(pair, sizeof pair, "%02X:", byte);
    text += pair;
  }
  text.pop_back();
  return text;
}

/// The same with its authority's certificate behind it.
TestAuthority::Files with_authority(const TestAuthority& authority, TestAuthority::Files files) {
  std::ofstream(files.certificate, std::ios::app) << std::ifstream(authority.file()).rdbuf();
  return files;
}

TEST(TlsFingerprint, OfAnAuthorityIsEnoughToBelieveItsServersForTheirNames) {
  TestAuthority authority;
  const auto trust = TlsTrust::of_fingerprint(fingerprint_of(authority.file()));
  ASSERT_TRUE(trust.ok()) << trust.error().message;
  const auto here = identity_of(with_authority(authority, authority.sign("here", kHere)));
  EXPECT_TRUE(shake(*here, **trust, "localhost").done);
  EXPECT_TRUE(shake(*here, **trust, "127.0.0.1").done);
  const Shaken elsewhere = shake(*here, **trust, "there.example");
  EXPECT_FALSE(elsewhere.done);
  EXPECT_TRUE(elsewhere.error.message.starts_with("its certificate is for localhost, 127.0.0.1 and not for"))
      << elsewhere.error.message;
}

TEST(TlsFingerprint, OfAServerBelievesItUnderEveryName) {
  TestAuthority authority;
  const TestAuthority::Files there = authority.sign("there", "DNS:there.example");
  const auto trust = TlsTrust::of_fingerprint(fingerprint_of(there.certificate));
  EXPECT_TRUE(shake(*identity_of(there), **trust, "localhost").done);
  EXPECT_FALSE(shake(*identity_of(authority.sign("here", kHere)), **trust, "localhost").done);
}

TEST(TlsFingerprint, IsNoUseToAStrangerWhoShowsTheAuthorityToo) {
  TestAuthority authority, stranger;
  const auto trust = TlsTrust::of_fingerprint(fingerprint_of(authority.file()));
  const Shaken shown =
      shake(*identity_of(with_authority(authority, stranger.sign("here", kHere))), **trust, "localhost");
  EXPECT_FALSE(shown.done);
  EXPECT_EQ(shown.error.code, ErrorCode::kUnauthenticated);
  const Shaken hidden = shake(*identity_of(authority.sign("here", kHere)), **trust, "localhost");
  EXPECT_FALSE(hidden.done) << "its authority's certificate is not shown";
  EXPECT_NE(hidden.error.message.find("none of the certificates that it shows has the fingerprint"),
            std::string::npos)
      << hidden.error.message;
}

TEST(TlsFingerprint, IsTakenAsOpensslPrintsItAndNothingElse) {
  const std::string digits(64, 'a');
  EXPECT_EQ(*parse_fingerprint("sha256:" + digits), digits);
  std::string pairs = "sha256:AA";
  for (int i = 1; i < 32; ++i) pairs += ":AA";
  EXPECT_EQ(*parse_fingerprint(pairs), digits);
  for (const std::string& text :
       {digits, "sha256:" + digits + "a", "sha256:" + digits.substr(1), std::string(), "sha1:" + digits,
        "sha256:" + digits.substr(1) + "g", "sha256::" + digits})
    EXPECT_FALSE(parse_fingerprint(text).ok()) << text;
}

TEST(Tls, AnHttpServerIsToldFromAGrpcServer) {
  TestAuthority authority;
  const Shaken shaken =
      shake(*identity_of(authority.sign("here", kHere)), *trust_in(authority), "localhost", 0, TlsUse::kGrpc);
  EXPECT_FALSE(shaken.done);
  EXPECT_NE(shaken.error.message.find("is this the gRPC port"), std::string::npos) << shaken.error.message;
}

TEST(TlsIdentity, ComesAsTextWithAllItsCertificates) {
  TestAuthority authority;
  const TestAuthority::Files files = with_authority(authority, authority.sign("here", kHere));
  const auto identity = identity_of(files);
  const std::string folder = authority.folder();
  std::ofstream(folder + "/again.pem") << identity->certificates_pem();
  std::ofstream(folder + "/again.key") << identity->key_pem();
  ASSERT_EQ(::chmod((folder + "/again.key").c_str(), 0600), 0);
  const auto again = identity_of({folder + "/again.pem", folder + "/again.key"});
  EXPECT_EQ(again->certificates_pem(), identity->certificates_pem());
  const auto trust = TlsTrust::of_fingerprint(fingerprint_of(authority.file()));
  EXPECT_TRUE(shake(*again, **trust, "localhost").done);
}

TEST(Tls, OldVersionsAreRefused) {
  TestAuthority authority;
  const TestAuthority::Files files = authority.sign("here", kHere);
  const auto trust = trust_in(authority);
  EXPECT_FALSE(shake(*identity_of(files), *trust, "localhost", TLS1_1_VERSION).done);
  EXPECT_EQ(shake(*identity_of(files), *trust, "localhost", TLS1_2_VERSION).version, "TLSv1.2");
  EXPECT_FALSE(shake(*identity_of(files, false), *trust, "localhost", TLS1_2_VERSION).done);
}

TEST(TlsFiles, ThatAreMissingOrNoneAreNamed) {
  TestAuthority authority;
  const TestAuthority::Files files = authority.sign("here", kHere);
  EXPECT_EQ(
      refusal("/nowhere/a.pem", files.key),
      "cannot read the certificate /nowhere/a.pem: No such file or directory; correct the path, or make "
      "the file");
  EXPECT_TRUE(
      refusal(files.certificate, "/nowhere/a.key").starts_with("cannot read the private key /nowhere/"));
  EXPECT_NE(refusal(files.key, files.key).find("holds no usable certificate in PEM format"),
            std::string::npos);
  EXPECT_NE(refusal(files.certificate, files.certificate).find("holds no private key in PEM format"),
            std::string::npos);
  EXPECT_EQ(refusal(files.certificate, files.key), "accepted");
}

TEST(TlsFiles, OfAKeyThatIsNotTheCertificatesAreRefused) {
  TestAuthority authority;
  const TestAuthority::Files files = authority.sign("here", kHere);
  const std::string why = refusal(files.certificate, authority.sign("there", kHere).key);
  EXPECT_NE(why.find("is not the key of the certificate " + files.certificate), std::string::npos) << why;
}

TEST(TlsFiles, OfAKeyThatEverybodyCanReadAreRefused) {
  TestAuthority authority;
  const TestAuthority::Files files = authority.sign("here", kHere);
  ASSERT_EQ(::chmod(files.key.c_str(), 0640), 0);
  EXPECT_EQ(refusal(files.certificate, files.key), "accepted");
  ASSERT_EQ(::chmod(files.key.c_str(), 0644), 0);
  const std::string why = refusal(files.certificate, files.key);
  EXPECT_NE(why.find("can be read by every user of this machine"), std::string::npos) << why;
  EXPECT_NE(why.find("chmod 600"), std::string::npos) << why;
}

TEST(TlsFiles, OfACertificateThatIsNotValidNowAreRefused) {
  TestAuthority authority;
  const TestAuthority::Files old = authority.sign("old", kHere, -7'200, -60);
  const TestAuthority::Files early = authority.sign("early", kHere, 600, 7'200);
  EXPECT_NE(refusal(old.certificate, old.key).find(" expired at "), std::string::npos);
  EXPECT_NE(refusal(early.certificate, early.key).find(" is valid from "), std::string::npos);
}

TEST(TlsTrust, NeedsACertificateInItsFile) {
  TestAuthority authority;
  const auto trust = TlsTrust::of_file(authority.sign("here", kHere).key);
  ASSERT_FALSE(trust.ok());
  EXPECT_EQ(trust.error().code, ErrorCode::kInvalidArgument);
  EXPECT_FALSE(TlsTrust::of_file("/nowhere").ok());
}

TEST(TlsServer, GivesNewConnectionsTheNewIdentity) {
  TestAuthority before, after;
  TlsServer server(identity_of(before.sign("here", kHere)));
  EXPECT_TRUE(shake(*server.identity(), *trust_in(before), "localhost").done);
  server.exchange(identity_of(after.sign("here", kHere)));
  EXPECT_TRUE(shake(*server.identity(), *trust_in(after), "localhost").done);
  EXPECT_FALSE(shake(*server.identity(), *trust_in(before), "localhost").done);
}

}  // namespace
}  // namespace gpusched::sign

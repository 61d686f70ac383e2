#include "peers/peer_transport.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <thread>

#include "base/check.h"
#include "peers/link_frame.h"
#include "sign/authority.h"

namespace gpusched::peers {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr uint64_t kCluster = 7'777;
constexpr auto kPatience = std::chrono::seconds(10);

/// Keeps what a transport reports.
class Listener final : public PeerTransport::Handler {
 public:
  void received(uint64_t peer, consensus::PeerFrame frame) override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !held_; });
    frames_[peer].push_back(std::move(frame));
    changed_.notify_all();
  }
  void unreachable(uint64_t peer) override {
    const std::lock_guard lock(mutex_);
    ++unreachable_[peer];
    changed_.notify_all();
  }
  void told(uint64_t peer, PeerFacts facts) override {
    const std::lock_guard lock(mutex_);
    facts_[peer] = std::move(facts);
    changed_.notify_all();
  }
  /// Blocks `received` until it is called with false.
  void hold(bool held) {
    const std::lock_guard lock(mutex_);
    held_ = held;
    changed_.notify_all();
  }
  template <typename Condition>
  bool wait_for(const Condition& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, kPatience, condition);
  }
  bool has_frames(uint64_t peer, std::size_t count) {
    return wait_for([&] { return frames_[peer].size() >= count; });
  }
  std::map<uint64_t, std::vector<consensus::PeerFrame>> frames_;
  std::map<uint64_t, int> unreachable_;
  std::map<uint64_t, PeerFacts> facts_;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
};

template <typename Condition>
bool eventually(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// A port that was free a moment ago.
uint16_t free_port() {
  asio::io_context io;
  return tcp::acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0)).local_endpoint().port();
}

class PeerTransportTest : public testing::Test {
 protected:
  PeerTransportTest() {
    std::string made = (std::filesystem::temp_directory_path() / "gpusched_peers_XXXXXX").string();
    CHECK(::mkdtemp(made.data()) != nullptr);
    folder_ = made;
    for (uint64_t id = 1; id <= 3; ++id)
      peers_.push_back({.id = id, .host = "127.0.0.1", .port = free_port()});
  }
  ~PeerTransportTest() override { std::filesystem::remove_all(folder_); }

  /// A new certificate file of the authority in this folder of the test's.
  std::string certificate(const sign::ReplicaClaim& claim, const std::string& authority = "ca") {
    Result<sign::Authority> opened = sign::Authority::open(folder_ + "/" + authority);
    CHECK(opened.ok());
    const std::string path = folder_ + "/" + std::to_string(++files_) + ".pem";
    CHECK(opened->issue_replica(path, claim, hours(1)).ok());
    return path;
  }
  PeerTransport::Options options(uint64_t id, const std::string& authority = "ca") {
    return {.cluster = kCluster,
            .id = id,
            .address = "127.0.0.1",
            .port = peers_[id - 1].port,
            .peers = peers_,
            .certificate_file = certificate({.cluster = kCluster, .replica = id}, authority),
            .authority_file = folder_ + "/" + authority + "/ca.pem"};
  }
  static std::unique_ptr<PeerTransport> start(PeerTransport::Options options, Listener& listener) {
    Result<std::unique_ptr<PeerTransport>> started = PeerTransport::start(std::move(options), listener);
    EXPECT_TRUE(started.ok()) << started.error().message;
    return std::move(*started);
  }
  static consensus::PeerFrame frame(uint64_t from, uint64_t to, uint64_t index, std::size_t bytes = 0) {
    consensus::PeerFrame made{.cluster = kCluster, .from_store = from, .to_store = to};
    made.message = {
        .kind = consensus::MessageKind::kAppend, .to = to, .from = from, .term = 1, .index = index};
    if (bytes > 0)
      made.message.entries.push_back({.index = index + 1, .term = 1, .data = std::string(bytes, 'x')});
    return made;
  }
  static PeerStatus status_of(const PeerTransport& transport, uint64_t peer) {
    for (const PeerStatus& status : transport.statuses()) {
      if (status.id == peer) return status;
    }
    return {};
  }
  static bool connected(const PeerTransport& transport, uint64_t peer) {
    return eventually([&] { return status_of(transport, peer).connected; });
  }
  static bool fails_because(const PeerTransport& transport, uint64_t peer, const std::string& why) {
    return eventually([&] { return status_of(transport, peer).why.find(why) != std::string::npos; });
  }

  std::string folder_;
  std::vector<Peer> peers_;
  int files_ = 0;
};

TEST_F(PeerTransportTest, ThreeReplicasSendEachOtherFramesInOrder) {
  Listener listeners[4];
  std::unique_ptr<PeerTransport> transports[4];
  for (uint64_t id = 1; id <= 3; ++id) transports[id] = start(options(id), listeners[id]);
  for (uint64_t from = 1; from <= 3; ++from) {
    for (uint64_t to = 1; to <= 3; ++to) {
      if (from == to) continue;
      ASSERT_TRUE(connected(*transports[from], to)) << from << " to " << to;
      for (uint64_t index = 0; index < 500; ++index)
        transports[from]->send(frame(from, to, index, index % 7 == 0 ? 30'000 : 10));
    }
  }
  for (uint64_t to = 1; to <= 3; ++to) {
    for (uint64_t from = 1; from <= 3; ++from) {
      if (from == to) continue;
      ASSERT_TRUE(listeners[to].has_frames(from, 500)) << from << " to " << to;
      for (uint64_t index = 0; index < 500; ++index) {
        ASSERT_EQ(listeners[to].frames_[from][index], frame(from, to, index, index % 7 == 0 ? 30'000 : 10));
      }
      const PeerStatus status = status_of(*transports[to], from);
      EXPECT_TRUE(status.heard);
      EXPECT_EQ(status.frames_received, 500u);
      EXPECT_EQ(status.frames_dropped, 0u);
    }
    EXPECT_TRUE(listeners[to].frames_[to].empty());
  }
}

TEST_F(PeerTransportTest, FactsAreToldOnConnectionAndOnChange) {
  Listener first, second;
  const auto one = start(options(1), first);
  one->tell({.version = "1", .http = 8080});
  const auto two = start(options(2), second);
  ASSERT_TRUE(second.wait_for([&] { return second.facts_[1].http == 8080; }));
  one->tell({.version = "1"});
  ASSERT_TRUE(second.wait_for([&] { return second.facts_[1].http == 0; }));
  EXPECT_EQ(status_of(*two, 1).facts.version, "1");
}

TEST_F(PeerTransportTest, APeerThatComesBackIsReachedAgain) {
  Listener first, second;
  const auto one = start(options(1), first);
  one->tell({.version = "1"});
  auto two = start(options(2), second);
  ASSERT_TRUE(connected(*one, 2));
  int before = 0;  // The first attempt may come before the peer listens: that is told, too.
  ASSERT_TRUE(first.wait_for([&] { return (before = first.unreachable_[2]) <= 1; }));
  two->stop();
  ASSERT_TRUE(first.wait_for([&] { return first.unreachable_[2] == before + 1; }));
  ASSERT_TRUE(eventually([&] { return !status_of(*one, 2).connected; }));
  EXPECT_FALSE(status_of(*one, 2).why.empty());
  const uint64_t dropped = status_of(*one, 2).frames_dropped;
  one->send(frame(1, 2, 5));
  EXPECT_EQ(status_of(*one, 2).frames_dropped, dropped + 1);
  Listener again;
  two = start(options(2), again);
  ASSERT_TRUE(connected(*one, 2));
  one->send(frame(1, 2, 6));
  ASSERT_TRUE(again.has_frames(1, 1));
  EXPECT_EQ(again.frames_[1][0].message.index, 6u);
  EXPECT_EQ(again.facts_[1].version, "1");
}

TEST_F(PeerTransportTest, AnotherAuthoritysCertificateIsRefusedByBothEnds) {
  Listener first, second;
  const auto one = start(options(1), first);
  const auto two = start(options(2, "strange"), second);
  EXPECT_TRUE(fails_because(*one, 2, "not one of this cluster's authority"));
  EXPECT_TRUE(fails_because(*two, 1, "not one of this cluster's authority"));
  EXPECT_FALSE(status_of(*one, 2).connected);
}

TEST_F(PeerTransportTest, AnotherClusterIsRefused) {
  Listener first, second;
  PeerTransport::Options other = options(2);
  other.cluster = kCluster + 1;
  other.certificate_file = certificate({.cluster = kCluster + 1, .replica = 2});
  const auto one = start(options(1), first);
  const auto two = start(other, second);
  EXPECT_TRUE(fails_because(*one, 2, "another cluster"));
  EXPECT_TRUE(fails_because(*two, 1, "another cluster"));
}

TEST_F(PeerTransportTest, AWrongHostIsNamed) {
  std::swap(peers_[1].port, peers_[2].port);
  Listener first, third;
  const auto one = start(options(1), first);
  std::swap(peers_[1].port, peers_[2].port);
  const auto three = start(options(3), third);
  EXPECT_TRUE(fails_because(*one, 2, "replica 3 listens there"));
}

TEST_F(PeerTransportTest, AReplicaThatIsNoPeerIsRefusedWithASentence) {
  Listener first, third;
  PeerTransport::Options small = options(1);
  small.peers.pop_back();
  const auto one = start(small, first);
  const auto three = start(options(3), third);
  EXPECT_TRUE(fails_because(*three, 1, "replica 3 is not among this replica's replica.peers"));
}

TEST_F(PeerTransportTest, ACertificateOfAnotherReplicaDoesNotStart) {
  Listener listener;
  PeerTransport::Options wrong = options(1);
  wrong.certificate_file = certificate({.cluster = kCluster, .replica = 2});
  const auto started = PeerTransport::start(wrong, listener);
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(started.error().message.find("certificate of replica 2, and this is replica 1"),
            std::string::npos);
}

TEST_F(PeerTransportTest, ATakenPortIsNamed) {
  Listener listener;
  const auto one = start(options(1), listener);
  const auto again = PeerTransport::start(options(1), listener);
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kLocked);
}

TEST_F(PeerTransportTest, ASlowPeerCostsTheOldestFramesAndIsToldOnce) {
  Listener first, second;
  PeerTransport::Options bounded = options(1);
  bounded.queue_bytes_max = std::size_t{4} << 20;
  const auto one = start(bounded, first);
  const auto two = start(options(2), second);
  ASSERT_TRUE(connected(*one, 2));
  const int before = first.unreachable_[2];
  second.hold(true);
  for (uint64_t index = 0; index < 400; ++index) one->send(frame(1, 2, index, 100'000));
  ASSERT_TRUE(first.wait_for([&] { return first.unreachable_[2] > before; }));
  EXPECT_EQ(first.unreachable_[2], before + 1);
  const uint64_t dropped = status_of(*one, 2).frames_dropped;
  EXPECT_GT(dropped, 100u);
  EXPECT_TRUE(status_of(*one, 2).connected);
  second.hold(false);
  ASSERT_TRUE(second.has_frames(1, 400 - dropped));
  EXPECT_EQ(second.frames_[1].back().message.index, 399u);
}

/// A program that has a replica's certificate, and sends what it likes.
class RawPeer {
 public:
  RawPeer(const std::string& certificate, uint16_t port) : stream_(io_, context_of(certificate)) {
    stream_.next_layer().connect(tcp::endpoint(asio::ip::address_v4::loopback(), port));
    const timeval limit{.tv_sec = 10, .tv_usec = 0};
    ::setsockopt(stream_.next_layer().native_handle(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    stream_.handshake(asio::ssl::stream_base::client, failed_);
  }
  void write(const std::string& bytes) { asio::write(stream_, asio::buffer(bytes), failed_); }
  /// Everything until the other end closes.
  std::string read_all() {
    std::string all;
    boost::system::error_code end;
    asio::read(stream_, asio::dynamic_buffer(all), end);
    return all;
  }

 private:
  asio::ssl::context& context_of(const std::string& certificate) {
    context_.use_certificate_chain_file(certificate);
    context_.use_private_key_file(certificate, asio::ssl::context::pem);
    return context_;
  }
  asio::io_context io_;
  asio::ssl::context context_{asio::ssl::context::tls_client};
  boost::system::error_code failed_;
  asio::ssl::stream<tcp::socket> stream_;
};

class RawPeerTest : public PeerTransportTest {
 protected:
  RawPeerTest() : one_(start(options(1), listener_)) {}
  RawPeer raw(uint64_t id) { return {certificate({.cluster = kCluster, .replica = id}), peers_[0].port}; }
  Listener listener_;
  std::unique_ptr<PeerTransport> one_;
};

TEST_F(RawPeerTest, BytesThatAreNoFrameEndTheLinkOnly) {
  for (const std::string& bytes : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(2'000, '\0'),
                                   link_frame(FrameKind::kAlive), std::string("\xFF\xFF\xFF\xFF\x01", 5)}) {
    RawPeer peer = raw(2);
    peer.write(bytes);
    EXPECT_NE(peer.read_all().find("it sent "), std::string::npos);
  }
  for (const std::string& content : {std::string("no message"), std::string()}) {
    RawPeer peer = raw(2);
    peer.write(hello() + link_frame(FrameKind::kMessage, content));
    EXPECT_EQ(peer.read_all(), link_frame(FrameKind::kWelcome));
  }
  EXPECT_TRUE(listener_.frames_.empty());
  RawPeer good = raw(2);
  good.write(hello() + link_frame(FrameKind::kMessage, consensus::encode_frame(frame(2, 1, 9))));
  EXPECT_TRUE(listener_.has_frames(2, 1));
}

TEST_F(RawPeerTest, StrangersWhoSayNothingKeepNobodyOut) {
  asio::io_context io;
  std::vector<tcp::socket> strangers;
  for (int i = 0; i < 200; ++i) {
    strangers.emplace_back(io);
    strangers.back().connect(tcp::endpoint(asio::ip::address_v4::loopback(), peers_[0].port));
  }
  RawPeer good = raw(2);
  good.write(hello() + link_frame(FrameKind::kMessage, consensus::encode_frame(frame(2, 1, 9))));
  EXPECT_TRUE(listener_.has_frames(2, 1));
}

TEST_F(RawPeerTest, AnOversizedFrameEndsTheLinkBeforeItComes) {
  RawPeer peer = raw(2);
  std::string head(5, '\0');
  const auto size = static_cast<uint32_t>(kContentBytesMax + 1);
  std::memcpy(head.data(), &size, 4);
  head[4] = static_cast<char>(FrameKind::kMessage);
  peer.write(hello() + head);
  EXPECT_EQ(peer.read_all(), link_frame(FrameKind::kWelcome));
}

TEST_F(RawPeerTest, AMessageInAnothersNameEndsTheLink) {
  consensus::PeerFrame strange = frame(2, 1, 9);
  strange.cluster = kCluster + 1;
  for (const consensus::PeerFrame& sent : {frame(3, 1, 9), frame(2, 3, 9), strange}) {
    RawPeer peer = raw(2);
    peer.write(hello() + link_frame(FrameKind::kMessage, consensus::encode_frame(sent)));
    EXPECT_EQ(peer.read_all(), link_frame(FrameKind::kWelcome));
  }
  EXPECT_TRUE(listener_.frames_.empty());
}

TEST_F(RawPeerTest, ANodesCertificateAndAServersOpenNothing) {
  Result<sign::Authority> authority = sign::Authority::open(folder_ + "/ca");
  ASSERT_TRUE(authority.ok());
  const std::string server = folder_ + "/server.pem";
  ASSERT_TRUE(authority->issue(server, {"localhost"}, hours(1)).ok());
  RawPeer peer(server, peers_[0].port);
  peer.write(hello());
  EXPECT_EQ(peer.read_all().find(link_frame(FrameKind::kWelcome)), std::string::npos);
  const std::string key = sign::make_node_key();
  const Result<std::string> der = sign::make_node_request(key);
  ASSERT_TRUE(der.ok());
  const Result<sign::NodeRequest> request = sign::NodeRequest::read(*der);
  ASSERT_TRUE(request.ok());
  const std::string node = folder_ + "/node.pem";
  std::FILE* const file = std::fopen(node.c_str(), "w");
  const std::string text =
      key + authority->issue_node(*request,
                                  {.node = "n1", .identity = 1, .expires_at = std::time(nullptr) + 3'600});
  std::fwrite(text.data(), 1, text.size(), file);
  std::fclose(file);
  RawPeer other(node, peers_[0].port);
  other.write(hello());
  EXPECT_NE(other.read_all().find("is not that of a replica"), std::string::npos);
}

TEST_F(RawPeerTest, ANewLinkOfAPeerTakesTheOldOnesPlace) {
  RawPeer old = raw(2);
  old.write(hello());
  RawPeer young = raw(2);
  young.write(hello() + link_frame(FrameKind::kMessage, consensus::encode_frame(frame(2, 1, 9))));
  EXPECT_EQ(old.read_all(), link_frame(FrameKind::kWelcome));
  EXPECT_TRUE(listener_.has_frames(2, 1));
}

}  // namespace
}  // namespace gpusched::peers

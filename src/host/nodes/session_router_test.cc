#include "host/nodes/session_router.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/session_limits.h"

namespace gpusched {
namespace {

class Peer final : public SessionClient {
 public:
  void on_number(uint64_t session) override { number = session; }
  void on_output(v1::SessionOutput output) override {
    text += output.data();
    outputs.push_back(std::move(output));
  }
  uint64_t number = 0;
  std::string text;
  std::vector<v1::SessionOutput> outputs;
};

class SessionRouterTest : public ::testing::Test {
 protected:
  std::shared_ptr<Peer> open(NodeId node, JobId job = JobId{7}) {
    auto peer = std::make_shared<Peer>();
    v1::OpenSession order;
    order.mutable_key()->set_job(job.value);
    router.open(node, std::move(order), peer);
    return peer;
  }
  void write(NodeId node, uint64_t session, const std::string& data) {
    v1::SessionOutput output;
    output.set_session(session);
    output.set_data(data);
    router.on_output(node, std::move(output));
  }
  void end(NodeId node, uint64_t session, int32_t exit_code) {
    v1::SessionOutput output;
    output.set_session(session);
    output.set_ended(true);
    output.set_exit_code(exit_code);
    router.on_output(node, std::move(output));
  }
  int64_t credit_sent() const {
    int64_t sum = 0;
    for (const v1::SchedulerMessage& message : sent) sum += message.session_input().credit();
    return sum;
  }
  const NodeId n1{11}, n2{12};
  Time now{1};
  bool connected = true;
  std::vector<v1::SchedulerMessage> sent;
  SessionRouter router{[this](NodeId, const v1::SchedulerMessage& message) {
                         if (connected) sent.push_back(message);
                         return connected;
                       },
                       [this] { return now; }};
};

TEST_F(SessionRouterTest, WordsGoBothWaysUntilTheEnd) {
  const auto peer = open(n1);
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].open_session().session(), peer->number);
  v1::SessionInput input;
  input.set_data("ls\n");
  router.input(peer->number, peer.get(), input);
  EXPECT_EQ(sent.back().session_input().data(), "ls\n");
  EXPECT_EQ(sent.back().session_input().session(), peer->number);
  write(n1, peer->number, "file\n");
  end(n1, peer->number, 3);
  EXPECT_EQ(peer->text, "file\n");
  EXPECT_EQ(peer->outputs.back().exit_code(), 3);
  EXPECT_EQ(router.session_count(), 0u);
}

TEST_F(SessionRouterTest, AnAgentThatSendsFarBeyondItsCreditLosesTheSessionAndIsNotKept) {
  for (const bool attended : {true, false}) {
    const auto peer = open(n1);
    if (!attended) router.detach(peer->number, peer.get());
    const std::string piece(limits::kSessionPieceBytes, 'x');
    int64_t taken = 0;
    for (int i = 0; i < 1'000 && router.session_count() == 1; ++i, taken += std::ssize(piece))
      write(n1, peer->number, piece);
    EXPECT_EQ(router.session_count(), 0u);
    EXPECT_LE(taken, 5 * limits::kSessionCreditBytes);
    EXPECT_TRUE(sent.back().session_input().close());
    if (attended) {
      EXPECT_EQ(peer->outputs.back().code(), "session_failed");
    }
  }
}

TEST_F(SessionRouterTest, ANodeSpeaksForItsOwnSessionsOnly) {
  const auto peer = open(n1);
  write(n2, peer->number, "forged");
  end(n2, peer->number, 0);
  EXPECT_TRUE(peer->outputs.empty());
  EXPECT_EQ(router.session_count(), 1u);
}

TEST_F(SessionRouterTest, OneClientCannotSpeakForAnother) {
  const auto peer = open(n1);
  const auto other = std::make_shared<Peer>();
  v1::SessionInput input;
  input.set_data("rm -r .\n");
  sent.clear();
  router.input(peer->number, other.get(), input);
  router.close(peer->number, other.get());
  router.detach(peer->number, other.get());
  EXPECT_TRUE(sent.empty());
  EXPECT_EQ(router.session_count(), 1u);
}

TEST_F(SessionRouterTest, ADetachedSessionKeepsItsOutputAndIsTakenUpAgain) {
  const auto first = open(n1);
  write(n1, first->number, "seen ");  // It is never credited: its client goes before.
  router.detach(first->number, first.get());
  write(n1, first->number, "while ");
  write(n1, first->number, "away");
  EXPECT_EQ(first->text, "seen ");
  const auto second = std::make_shared<Peer>();
  sent.clear();
  router.attach(JobId{7}, first->number, second);
  EXPECT_EQ(second->text, "while away");
  EXPECT_EQ(second->outputs.size(), 1u);  // Pieces were joined.
  EXPECT_EQ(credit_sent(), 5);            // Else the window would shrink with each client.
  end(n1, first->number, 0);
  EXPECT_TRUE(second->outputs.back().ended());
}

TEST_F(SessionRouterTest, AnEndWhileNobodyIsThereIsToldToWhoComes) {
  const auto first = open(n1);
  router.detach(first->number, first.get());
  end(n1, first->number, 9);
  const auto second = std::make_shared<Peer>();
  router.attach(JobId{7}, first->number, second);
  ASSERT_EQ(second->outputs.size(), 1u);
  EXPECT_EQ(second->outputs[0].exit_code(), 9);
  EXPECT_EQ(router.session_count(), 0u);
}

TEST_F(SessionRouterTest, OnlyTheJobsOwnAndFreeSessionsAreTakenUp) {
  const auto first = open(n1);
  const auto attach = [&](JobId job, uint64_t number) {
    const auto peer = std::make_shared<Peer>();
    router.attach(job, number, peer);
    return peer->outputs.empty() ? std::string() : peer->outputs.back().code();
  };
  EXPECT_EQ(attach(JobId{7}, first->number), "conflict");
  EXPECT_EQ(attach(JobId{8}, first->number), "session_not_found");
  EXPECT_EQ(attach(JobId{7}, first->number + 1), "session_not_found");
}

TEST_F(SessionRouterTest, NobodyTakesUpAnothersSession) {
  const auto first = std::make_shared<Peer>();
  v1::OpenSession order;
  order.mutable_key()->set_job(7);
  router.open(n1, order, first, "person ana");
  router.detach(first->number, first.get());
  const auto attach = [&](const std::string& owner) {
    const auto peer = std::make_shared<Peer>();
    router.attach(JobId{7}, first->number, peer, owner);
    return peer->outputs.empty() ? std::string() : peer->outputs.back().code();
  };
  for (const char* const other : {"person bob", "service ana", ""})
    EXPECT_EQ(attach(other), "session_not_found") << other;
  EXPECT_EQ(attach("person ana"), "");
}

TEST_F(SessionRouterTest, WhatNobodyComesBackToIsEnded) {
  const auto peer = open(n1);
  router.detach(peer->number, peer.get());
  now = now + limits::kSessionDetachedMax - seconds(1);
  router.tick();
  EXPECT_EQ(router.session_count(), 1u);
  now = now + seconds(1);
  router.tick();
  EXPECT_EQ(router.session_count(), 0u);
  EXPECT_TRUE(sent.back().session_input().close());
}

TEST_F(SessionRouterTest, ANodeThatGoesTakesItsSessionsAndReadsAlong) {
  const auto here = open(n1);
  const auto there = open(n2);
  std::optional<Result<v1::FileChunk>> chunk;
  router.read_file(n1, v1::ReadFile(),
                   [&](Result<v1::FileChunk> answer) { chunk.emplace(std::move(answer)); });
  router.node_gone(n1);
  EXPECT_EQ(here->outputs.back().code(), "session_lost");
  EXPECT_TRUE(there->outputs.empty());
  ASSERT_TRUE(chunk.has_value());
  EXPECT_FALSE(chunk->ok());
}

TEST_F(SessionRouterTest, WithoutAConnectionTheAnswerComesAtOnce) {
  connected = false;
  EXPECT_EQ(open(n1)->outputs.back().code(), "unavailable");
  bool refused = false;
  router.read_file(n1, v1::ReadFile(), [&](const Result<v1::FileChunk>& answer) { refused = !answer.ok(); });
  EXPECT_TRUE(refused);
}

TEST_F(SessionRouterTest, ThereIsAMostOfSessions) {
  std::vector<std::shared_ptr<Peer>> peers;
  for (uint32_t i = 0; i < limits::kSessionsMax; ++i) peers.push_back(open(n1));
  EXPECT_EQ(open(n1)->outputs.back().code(), "session_limit");
  router.close(peers[0]->number, peers[0].get());
  EXPECT_NE(open(n1)->number, 0u);
}

TEST_F(SessionRouterTest, PiecesOfAFileCarryOneNumberFromItsOwnNode) {
  int answers = 0;
  uint64_t number = 0;
  const auto done = [&](Result<v1::FileChunk> chunk) {
    ASSERT_TRUE(chunk.ok());
    number = chunk->request();
    answers += 1;
  };
  router.read_file(n1, v1::ReadFile(), done);
  v1::FileChunk chunk;
  chunk.set_request(sent.back().read_file().request());
  router.on_chunk(n2, chunk);
  EXPECT_EQ(answers, 0);
  router.on_chunk(n1, chunk);
  EXPECT_EQ(answers, 1);
  v1::ReadFile next;
  next.set_request(number);
  router.read_file(n1, next, done);
  EXPECT_EQ(sent.back().read_file().request(), number);
}

}  // namespace
}  // namespace gpusched

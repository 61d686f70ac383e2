#include "node/link/order_gate.h"

#include <gtest/gtest.h>

#include "sign/keys/order_key.h"

namespace gpusched {
namespace {

const std::string kNonce(32, 'n');

sign::OrderKey key_of(char seed) { return sign::OrderKey::of_seed(std::string(32, seed)); }

v1::SchedulerMessage start_order() {
  v1::JobSpec spec;
  spec.set_user("alice");
  spec.add_command("/bin/train");
  v1::SchedulerMessage message;
  v1::StartAttempt& start = *message.mutable_start();
  start.mutable_key()->set_job(17);
  start.mutable_key()->set_attempt(1);
  start.set_spec(spec.SerializeAsString());
  start.add_devices()->set_index(2);
  return message;
}

v1::SchedulerMessage sealed(const v1::SchedulerMessage& order, uint64_t sequence = 1,
                            const std::string& node = "n1", char seed = 's',
                            const std::string& nonce = kNonce) {
  v1::SchedulerMessage message;
  v1::SignedOrder& out = *message.mutable_signed_order();
  out.set_sequence(sequence);
  out.set_order(order.SerializeAsString());
  out.set_signature(key_of(seed).sign(
      sign::order_text({.node = node, .nonce = nonce, .sequence = sequence}, {out.order()})));
  return message;
}

/// The same with another order in it, under the old signature.
v1::SchedulerMessage with_order(v1::SchedulerMessage message, const v1::SchedulerMessage& order) {
  message.mutable_signed_order()->set_order(order.SerializeAsString());
  return message;
}

OrderGate gate_of_n1() { return {key_of('s').public_key(), "n1", kNonce}; }

/// Why an order is not obeyed by a new connection; empty: it is.
std::string why_not(v1::SchedulerMessage message) {
  OrderGate gate = gate_of_n1();
  const Result<Unit> passed = gate.pass(message);
  return passed ? std::string() : passed.error().message;
}

TEST(OrderGate, PassesWhatEitherOfTwoKeysSignedWhileTheyChange) {
  OrderGate gate(key_of('s').public_key() + key_of('t').public_key(), "n1", kNonce);
  uint64_t sequence = 0;
  for (const char seed : {'s', 't', 's'}) {
    v1::SchedulerMessage message = sealed(start_order(), ++sequence, "n1", seed);
    EXPECT_TRUE(gate.pass(message).ok()) << seed;
  }
  v1::SchedulerMessage strange = sealed(start_order(), ++sequence, "n1", 'u');
  EXPECT_FALSE(gate.pass(strange).ok());
  OrderGate torn(key_of('s').public_key() + key_of('t').public_key().substr(1), "n1", kNonce);
  v1::SchedulerMessage message = sealed(start_order(), 1, "n1", 't');
  EXPECT_FALSE(torn.pass(message).ok());
}

TEST(OrderGate, PassesWhatTheSchedulerSigned) {
  OrderGate gate = gate_of_n1();
  for (const uint64_t sequence : {1, 2, 7}) {
    v1::SchedulerMessage message = sealed(start_order(), sequence);
    const Result<Unit> passed = gate.pass(message);
    ASSERT_TRUE(passed.ok()) << passed.error().message;
    EXPECT_EQ(message.SerializeAsString(), start_order().SerializeAsString());
  }
}

TEST(OrderGate, RefusesWhatIsNotSignedAndSaysWhatItWas) {
  OrderGate gate = gate_of_n1();
  v1::SchedulerMessage message = start_order();
  const Result<Unit> passed = gate.pass(message);
  ASSERT_FALSE(passed.ok());
  EXPECT_NE(passed.error().message.find("is not signed"), std::string::npos);
  EXPECT_EQ(message.start().key().job(), 17u);
  for (const int body : {2, 4, 5, 6, 8, 10, 11, 12, 13, 14, 15, 40, 60, 80, 101, 102}) {
    v1::SchedulerMessage bare;
    const auto* const field = v1::SchedulerMessage::descriptor()->FindFieldByNumber(body);
    ASSERT_NE(field, nullptr) << body;
    v1::SchedulerMessage::GetReflection()->MutableMessage(&bare, field);
    EXPECT_FALSE(why_not(bare).empty()) << field->name();
    EXPECT_TRUE(why_not(sealed(bare)).empty()) << field->name();
  }
  EXPECT_FALSE(why_not({}).empty());  // As an order of a newer scheduler looks.
}

TEST(OrderGate, GreetingsAndWhatWasHeardNeedNoSignature) {
  for (const int body : {1, 3, 7, 9, 90}) {
    v1::SchedulerMessage bare;
    const auto* const field = v1::SchedulerMessage::descriptor()->FindFieldByNumber(body);
    v1::SchedulerMessage::GetReflection()->MutableMessage(&bare, field);
    EXPECT_TRUE(why_not(bare).empty()) << field->name();
  }
}

TEST(OrderGate, RefusesAnotherKeysAndAnotherNodesAndAnotherConnections) {
  EXPECT_TRUE(why_not(sealed(start_order())).empty());
  EXPECT_FALSE(why_not(sealed(start_order(), 1, "n1", 't')).empty());
  EXPECT_FALSE(why_not(sealed(start_order(), 1, "n2")).empty());
  EXPECT_FALSE(why_not(sealed(start_order(), 1, "n1", 's', std::string(32, 'm'))).empty());
  OrderGate nobodys("", "n1", kNonce);
  v1::SchedulerMessage message = sealed(start_order());
  EXPECT_FALSE(nobodys.pass(message).ok());
}

TEST(OrderGate, RefusesAnotherUserAnotherCommandAndOtherDevices) {
  const v1::SchedulerMessage good = sealed(start_order());
  v1::JobSpec spec;
  ASSERT_TRUE(spec.ParseFromString(start_order().start().spec()));
  v1::SchedulerMessage other = start_order();
  spec.set_user("root");
  other.mutable_start()->set_spec(spec.SerializeAsString());
  EXPECT_FALSE(why_not(with_order(good, other)).empty());
  spec.set_user("alice");
  spec.set_command(0, "/bin/steal");
  other.mutable_start()->set_spec(spec.SerializeAsString());
  EXPECT_FALSE(why_not(with_order(good, other)).empty());
  other = start_order();
  other.mutable_start()->mutable_devices(0)->set_index(3);
  EXPECT_FALSE(why_not(with_order(good, other)).empty());
  // Every bit of it.
  const std::string bytes = start_order().SerializeAsString();
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    v1::SchedulerMessage flipped = good;
    std::string& order = *flipped.mutable_signed_order()->mutable_order();
    order[bit / 8] = static_cast<char>(order[bit / 8] ^ (1 << bit % 8));
    EXPECT_FALSE(why_not(flipped).empty()) << bit;
  }
  v1::SchedulerMessage longer = good;
  longer.mutable_signed_order()->mutable_order()->append(other.SerializeAsString());
  EXPECT_FALSE(why_not(longer).empty());
  v1::SchedulerMessage later = good;
  later.mutable_signed_order()->set_sequence(2);
  EXPECT_FALSE(why_not(later).empty());
}

TEST(OrderGate, ObeysAnOrderOnce) {
  OrderGate gate = gate_of_n1();
  v1::SchedulerMessage message = sealed(start_order(), 5);
  ASSERT_TRUE(gate.pass(message).ok());
  for (const uint64_t sequence : {5, 4, 0}) {
    message = sealed(start_order(), sequence);
    EXPECT_FALSE(gate.pass(message).ok()) << sequence;
  }
  message = sealed(start_order(), 6);
  EXPECT_TRUE(gate.pass(message).ok());
}

TEST(OrderGate, ASignedOrderInAnotherOneIsNone) {
  EXPECT_FALSE(why_not(sealed(sealed(start_order(), 2))).empty());
  v1::SchedulerMessage garbage = sealed(start_order());
  garbage.mutable_signed_order()->set_order("\xff\xff");
  garbage.mutable_signed_order()->set_signature(
      key_of('s').sign(sign::order_text({.node = "n1", .nonce = kNonce, .sequence = 1}, {"\xff\xff"})));
  EXPECT_FALSE(why_not(garbage).empty());
}

TEST(OrderGate, ANodeWithoutACertificateTakesWhatComes) {
  OrderGate gate;
  v1::SchedulerMessage message = start_order();
  EXPECT_TRUE(gate.pass(message).ok());
  message = sealed(start_order());
  EXPECT_FALSE(gate.pass(message).ok());
}

}  // namespace
}  // namespace gpusched

#include "api/doors/node/order_seal.h"

#include <gtest/gtest.h>

namespace gpusched::api {
namespace {

const std::string kNonce(32, 'n');

sign::OrderKey key() { return sign::OrderKey::of_seed(std::string(32, 's')); }

TEST(OrderSeals, HeadAndPartsAreOneSignedOrder) {
  OrderSeal seal(std::make_shared<const sign::OrderKey>(key()), "n1", kNonce);
  v1::SchedulerMessage own, common;
  own.mutable_start()->mutable_key()->set_job(7);
  common.mutable_start()->set_spec(std::string(70'000, 'x'));
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    for (const std::string& shared : {std::string(), common.SerializeAsString()}) {
      const std::string bytes = own.SerializeAsString();
      v1::SchedulerMessage sent;
      ASSERT_TRUE(sent.ParseFromString(seal.head(bytes, shared) + bytes + shared));
      const v1::SignedOrder& order = sent.signed_order();
      EXPECT_EQ(order.order(), bytes + shared);
      EXPECT_EQ(order.sequence(), 2 * sequence - (shared.empty() ? 1 : 0));
      const std::string text =
          sign::order_text({.node = "n1", .nonce = kNonce, .sequence = order.sequence()}, {order.order()});
      EXPECT_TRUE(sign::is_signed_by(key().public_key(), text, order.signature()));
    }
  }
}

TEST(OrderSeals, AStartAndItsPayloadAreOneOrder) {
  v1::SchedulerMessage own;
  own.mutable_start()->mutable_key()->set_job(7);
  own.mutable_start()->set_spec("spec");
  const std::string payload(70'000, '\xFF');
  v1::SchedulerMessage sent;
  ASSERT_TRUE(sent.ParseFromString(own.SerializeAsString() + payload_head(payload.size()) + payload));
  EXPECT_EQ(sent.start().payload(), payload);
  sent.mutable_start()->clear_payload();
  EXPECT_EQ(sent.SerializeAsString(), own.SerializeAsString());
}

TEST(OrderSeals, ATermBehindAnOrderIsThatOrders) {
  v1::SchedulerMessage own;
  own.mutable_start()->mutable_key()->set_job(7);
  const std::string payload(70'000, '\xFF');
  v1::SchedulerMessage sent;
  ASSERT_TRUE(sent.ParseFromString(own.SerializeAsString() + term_field(UINT64_MAX) +
                                   payload_head(payload.size()) + payload));
  EXPECT_EQ(sent.term(), UINT64_MAX);
  EXPECT_EQ(sent.start().key().job(), 7u);
  EXPECT_EQ(sent.start().payload(), payload);
  EXPECT_TRUE(term_field(0).empty());
}

TEST(OrderSeals, AllButGreetingsAndWhatWasHeardAreOrders) {
  const auto* const descriptor = v1::SchedulerMessage::descriptor();
  for (int i = 0; i < descriptor->field_count(); ++i) {
    const auto* const field = descriptor->field(i);
    if (field->containing_oneof() == nullptr) continue;
    v1::SchedulerMessage message;
    v1::SchedulerMessage::GetReflection()->MutableMessage(&message, field);
    const bool unsigned_kind =
        field->name() == "ack" || field->name() == "heartbeat_seen" || field->name() == "refused";
    EXPECT_EQ(is_order(message), !unsigned_kind) << field->name();
  }
}

}  // namespace
}  // namespace gpusched::api

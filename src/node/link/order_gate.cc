#include "node/link/order_gate.h"

#include <utility>

#include "sign/keys/order_key.h"

namespace gpusched {
namespace {

Error not_obeyed(const std::string& why) { return {.code = ErrorCode::kUnauthenticated, .message = why}; }

}  // namespace

bool needs_no_signature(const v1::SchedulerMessage& message) {
  switch (message.body_case()) {
    case v1::SchedulerMessage::kChallenge:
    case v1::SchedulerMessage::kProven:
    case v1::SchedulerMessage::kRefused:
    case v1::SchedulerMessage::kAck:
    case v1::SchedulerMessage::kHeartbeatSeen:
      return true;
    case v1::SchedulerMessage::kRegistered:
    case v1::SchedulerMessage::kStart:
    case v1::SchedulerMessage::kStartMembers:
    case v1::SchedulerMessage::kGo:
    case v1::SchedulerMessage::kStop:
    case v1::SchedulerMessage::kCheckRelease:
    case v1::SchedulerMessage::kReadLog:
    case v1::SchedulerMessage::kChange:
    case v1::SchedulerMessage::kReboot:
    case v1::SchedulerMessage::kValidate:
    case v1::SchedulerMessage::kClearFault:
    case v1::SchedulerMessage::kReadFile:
    case v1::SchedulerMessage::kOpenSession:
    case v1::SchedulerMessage::kSessionInput:
    case v1::SchedulerMessage::kEnrolled:
    case v1::SchedulerMessage::kRenewed:
    case v1::SchedulerMessage::kNotRenewed:
    case v1::SchedulerMessage::kSignedOrder:
    case v1::SchedulerMessage::BODY_NOT_SET:
      return false;
  }
  return false;
}

bool OrderGate::is_signed(const std::string& text, const std::string& signature) const {
  for (std::size_t at = 0; at < keys_.size(); at += sign::kOrderKeyBytes) {
    if (sign::is_signed_by(std::string_view(keys_).substr(at, sign::kOrderKeyBytes), text, signature))
      return true;
  }
  return false;
}

Result<Unit> OrderGate::pass(v1::SchedulerMessage& message) {
  if (!message.has_signed_order()) {
    if (!demands_signatures_ || needs_no_signature(message)) return Unit{};
    return not_obeyed("it is not signed, and this node, which has a certificate, obeys signed orders alone");
  }
  const v1::SignedOrder order = std::move(*message.mutable_signed_order());
  const bool whole = message.ParseFromString(order.order()) && !message.has_signed_order();
  if (!demands_signatures_)
    return not_obeyed("it is signed, and this node has no certificate and no key to look at that with");
  const std::string text =
      sign::order_text({.node = node_, .nonce = nonce_, .sequence = order.sequence()}, {order.order()});
  if (!is_signed(text, order.signature())) {
    return not_obeyed(
        "it is not signed, for this node and this connection, by the key that the scheduler had when the "
        "node "
        "joined; if the scheduler has lost DATA_DIR/ca/orders.key, join the node anew");
  }
  if (order.sequence() <= sequence_) return not_obeyed("it was sent before on this connection");
  sequence_ = order.sequence();
  if (!whole) return not_obeyed("it cannot be read");
  return Unit{};
}

}  // namespace gpusched

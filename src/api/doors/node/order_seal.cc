#include "api/doors/node/order_seal.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

namespace gpusched::api {
namespace {

/// The head of a field of so many bytes.
void put_head(int field, std::size_t bytes, std::string& to) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::StringOutputStream stream(&to);
  google::protobuf::io::CodedOutputStream out(&stream);
  out.WriteTag(WireFormatLite::MakeTag(field, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
  out.WriteVarint64(bytes);
}

}  // namespace

bool is_order(const v1::SchedulerMessage& message) {
  return !message.has_ack() && !message.has_heartbeat_seen() && !message.has_refused();
}

// A message that comes twice is merged from both.
std::string payload_head(std::size_t bytes) {
  std::string inside;
  put_head(v1::StartAttempt::kPayloadFieldNumber, bytes, inside);
  std::string head;
  put_head(v1::SchedulerMessage::kStartFieldNumber, inside.size() + bytes, head);
  return head + inside;
}

std::string term_field(uint64_t term) {
  v1::SchedulerMessage message;
  message.set_term(term);
  return message.SerializeAsString();
}

std::string OrderSeal::head(std::string_view own, std::string_view shared) {
  v1::SignedOrder seal;
  seal.set_sequence(++sequence_);
  seal.set_signature(
      key_->sign(sign::order_text({.node = node_, .nonce = nonce_, .sequence = sequence_}, {own, shared})));
  const std::size_t size = own.size() + shared.size();
  std::string inside = seal.SerializeAsString();
  put_head(v1::SignedOrder::kOrderFieldNumber, size, inside);
  std::string head;
  put_head(v1::SchedulerMessage::kSignedOrderFieldNumber, inside.size() + size, head);
  return head + inside;
}

}  // namespace gpusched::api

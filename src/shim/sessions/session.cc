#include "shim/sessions/session.h"

#include "base/bytes.h"

namespace gpusched::shim {
namespace {

void put_strings(ByteWriter& out, const std::vector<std::string>& values) {
  out.varint(values.size());
  for (const std::string& value : values) out.bytes(value);
}

std::vector<std::string> get_strings(ByteReader& in) {
  std::vector<std::string> values;
  const uint64_t count = in.varint();
  if (count > in.remaining()) in.fail();
  for (uint64_t i = 0; i < count && in.ok(); ++i) values.emplace_back(in.bytes());
  return values;
}

uint32_t get_u32(ByteReader& in) {
  const uint64_t value = in.varint();
  if (value > UINT32_MAX) in.fail();
  return static_cast<uint32_t>(value);
}

}  // namespace

std::string encode(const SessionRequest& request) {
  std::string bytes;
  ByteWriter out(bytes);
  out.u8(static_cast<uint8_t>(request.kind));
  out.svarint(request.target);
  out.bytes(request.title);
  out.varint(request.identity.uid);
  out.varint(request.identity.gid);
  out.varint(request.identity.groups.size());
  for (const uint32_t group : request.identity.groups) out.varint(group);
  out.bytes(request.working_directory);
  put_strings(out, request.arguments);
  put_strings(out, request.environment);
  out.u8(request.terminal ? 1 : 0);
  out.bytes(request.path);
  out.bytes(request.other_directory);
  out.varint(request.port);
  return bytes;
}

std::optional<SessionRequest> decode_session_request(std::string_view bytes) {
  ByteReader in(bytes);
  SessionRequest request;
  request.kind = static_cast<SessionRequest::Kind>(in.u8());
  request.target = in.svarint();
  request.title = in.bytes();
  request.identity.uid = get_u32(in);
  request.identity.gid = get_u32(in);
  const uint64_t groups = in.varint();
  if (groups > in.remaining()) in.fail();
  for (uint64_t i = 0; i < groups && in.ok(); ++i) request.identity.groups.push_back(get_u32(in));
  request.working_directory = in.bytes();
  request.arguments = get_strings(in);
  request.environment = get_strings(in);
  request.terminal = in.u8() != 0;
  request.path = in.bytes();
  request.other_directory = in.bytes();
  request.port = get_u32(in);
  if (!in.ok() || !in.at_end()) return std::nullopt;
  return request;
}

std::string encode(const SessionEvent& event) {
  std::string bytes;
  ByteWriter out(bytes);
  out.u8(static_cast<uint8_t>(event.kind));
  out.svarint(event.size);
  out.varint(event.mode);
  out.svarint(event.exit_code);
  out.svarint(event.signal);
  out.bytes(event.code);
  out.bytes(event.message);
  out.bytes(event.data);
  return bytes;
}

std::optional<SessionEvent> decode_session_event(std::string_view packet) {
  ByteReader in(packet);
  SessionEvent event;
  event.kind = static_cast<SessionEvent::Kind>(in.u8());
  event.size = in.svarint();
  event.mode = get_u32(in);
  event.exit_code = static_cast<int32_t>(in.svarint());
  event.signal = static_cast<int32_t>(in.svarint());
  event.code = in.bytes();
  event.message = in.bytes();
  event.data = in.bytes();
  if (!in.ok() || !in.at_end()) return std::nullopt;
  return event;
}

std::string encode(const SessionOrder& order) {
  std::string bytes;
  ByteWriter out(bytes);
  out.u8(static_cast<uint8_t>(order.kind));
  out.svarint(order.signal);
  out.svarint(order.group);
  out.svarint(order.size);
  return bytes;
}

std::optional<SessionOrder> decode_session_order(std::string_view packet) {
  ByteReader in(packet);
  SessionOrder order;
  order.kind = static_cast<SessionOrder::Kind>(in.u8());
  order.signal = static_cast<int32_t>(in.svarint());
  order.group = in.svarint();
  order.size = in.svarint();
  if (!in.ok() || !in.at_end()) return std::nullopt;
  return order;
}

}  // namespace gpusched::shim

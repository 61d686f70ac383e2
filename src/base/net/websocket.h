#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Frames of the WebSocket protocol (RFC 6455), for both ends. No extension is spoken. Functions are
/// thread-safe, a parser is not.
namespace gpusched::websocket {

enum class Opcode : uint8_t { kContinuation = 0, kText = 1, kBinary = 2, kClose = 8, kPing = 9, kPong = 10 };

/// Why a connection ends (RFC 6455, 7.4.1).
inline constexpr uint16_t kNormal = 1000;
inline constexpr uint16_t kGoingAway = 1001;
inline constexpr uint16_t kProtocolError = 1002;
inline constexpr uint16_t kPolicyViolation = 1008;
inline constexpr uint16_t kMessageTooBig = 1009;

/// One frame. Clients mask what they send, with four bytes that nobody can guess; servers do not.
std::string encode_frame(Opcode opcode, std::string_view data, std::optional<uint32_t> mask = std::nullopt);
/// The payload of a close frame; the reason is cut to what such a frame can hold.
std::string close_payload(uint16_t code, std::string_view reason);

/// Takes frames out of untrusted bytes and puts fragments together.
class Parser {
 public:
  enum class Status {
    kNeedMore,  ///< All bytes are used.
    kMessage,   ///< `opcode` and `data` hold one: text, binary, close, ping or pong.
    kBad,       ///< The connection must end, with `close_code`.
  };
  /// `masked`: frames must be, as clients' are; else they must not be. No message may be larger than
  /// `message_bytes_max`.
  Parser(bool masked, std::size_t message_bytes_max) : masked_(masked), bytes_max_(message_bytes_max) {}

  /// Parses from `bytes` and adds to `used` how many are done with. After kBad nothing more is parsed.
  Status put(std::string_view bytes, std::size_t& used);

  Opcode opcode() const { return opcode_; }
  /// The message; to be moved from.
  std::string& data() { return control_ ? control_data_ : data_; }
  uint16_t close_code() const { return close_code_; }
  std::string_view error() const { return error_; }

 private:
  Status bad(uint16_t code, std::string_view why);
  /// Looks at a header's first two bytes, and at all of it; kNeedMore when it is well.
  Status check_frame();
  Status begin_frame();
  Status end_frame();
  std::size_t header_size() const;

  const bool masked_;
  const std::size_t bytes_max_;
  std::string header_;
  std::string data_, control_data_;
  uint64_t left_ = 0;
  uint64_t frame_at_ = 0;  ///< Bytes of the frame's payload that came.
  uint32_t mask_ = 0;      ///< Mask as on the wire, first byte highest.
  Opcode opcode_ = Opcode::kText;
  Opcode message_ = Opcode::kContinuation;  ///< Opcode of the fragmented message; kContinuation: none.
  bool in_frame_ = false, control_ = false, final_ = false, delivered_ = false, bad_ = false;
  uint16_t close_code_ = 0;
  std::string_view error_;
};

/// Returns a server's Sec-WebSocket-Accept for a key.
std::string accept_key(std::string_view client_key);
/// Whether it is 16 bytes in base64, as Sec-WebSocket-Key must be.
bool is_client_key(std::string_view text);
std::string base64(std::string_view bytes);

}  // namespace gpusched::websocket

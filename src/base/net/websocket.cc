#include "base/net/websocket.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"

namespace gpusched::websocket {
namespace {

constexpr std::size_t kControlBytesMax = 125;
constexpr std::size_t kReasonBytesMax = kControlBytesMax - 2;
constexpr std::string_view kAcceptSuffix = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";  // RFC 6455, 1.3.
constexpr std::string_view kBase64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

uint8_t byte_at(std::string_view text, std::size_t at) { return static_cast<uint8_t>(text[at]); }

void append_big(std::string& out, uint64_t value, int bytes) {
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>((value >> (8 * i)) & 0xFF));
}

uint64_t read_big(std::string_view text, std::size_t at, std::size_t bytes) {
  uint64_t value = 0;
  for (std::size_t i = 0; i < bytes; ++i) value = (value << 8) | byte_at(text, at + i);
  return value;
}

/// Masks in place, and so unmasks; `at` is the place of the first byte in its frame.
void apply_mask(std::string& data, std::size_t from, uint64_t at, uint32_t mask) {
  const std::array<uint8_t, 4> key = {static_cast<uint8_t>(mask >> 24), static_cast<uint8_t>(mask >> 16),
                                      static_cast<uint8_t>(mask >> 8), static_cast<uint8_t>(mask)};
  for (std::size_t i = from; i < data.size(); ++i) {
    const uint8_t with = key[(at + (i - from)) % 4];
    data[i] = static_cast<char>(static_cast<uint8_t>(data[i]) ^ with);
  }
}

/// SHA-1 (FIPS 180-4). The handshake wants it; nothing here relies on its strength.
std::string sha1(std::string_view text) {
  std::array<uint32_t, 5> hash = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0};
  std::string padded(text);
  padded.push_back(static_cast<char>(0x80));
  while (padded.size() % 64 != 56) padded.push_back('\0');
  append_big(padded, uint64_t{text.size()} * 8, 8);
  for (std::size_t block = 0; block < padded.size(); block += 64) {
    std::array<uint32_t, 80> w{};
    for (std::size_t i = 0; i < 16; ++i) w[i] = static_cast<uint32_t>(read_big(padded, block + i * 4, 4));
    for (std::size_t i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    auto [a, b, c, d, e] = hash;
    for (std::size_t i = 0; i < 80; ++i) {
      uint32_t f = b ^ c ^ d;
      uint32_t k = i < 40 ? 0x6ED9EBA1 : 0xCA62C1D6;
      if (i < 20) {
        f = (b & c) | (~b & d);
        k = 0x5A827999;
      } else if (i >= 40 && i < 60) {
        f = (b & c) | (b & d) | (c & d);
        k = 0x8F1BBCDC;
      }
      const uint32_t next = std::rotl(a, 5) + f + e + k + w[i];
      e = d;
      d = c;
      c = std::rotl(b, 30);
      b = a;
      a = next;
    }
    hash = {hash[0] + a, hash[1] + b, hash[2] + c, hash[3] + d, hash[4] + e};
  }
  std::string out;
  for (const uint32_t word : hash) append_big(out, word, 4);
  return out;
}

}  // namespace

std::string encode_frame(Opcode opcode, std::string_view data, std::optional<uint32_t> mask) {
  const bool control = static_cast<uint8_t>(opcode) >= 8;
  CHECK(!control || data.size() <= kControlBytesMax);
  const uint8_t mask_bit = mask ? 0x80 : 0;
  std::string out;
  out.reserve(data.size() + 14);
  out.push_back(static_cast<char>(0x80 | static_cast<uint8_t>(opcode)));
  if (data.size() <= kControlBytesMax) {
    out.push_back(static_cast<char>(mask_bit | data.size()));
  } else if (data.size() <= 0xFFFF) {
    out.push_back(static_cast<char>(mask_bit | 126));
    append_big(out, data.size(), 2);
  } else {
    out.push_back(static_cast<char>(mask_bit | 127));
    append_big(out, data.size(), 8);
  }
  if (mask) append_big(out, *mask, 4);
  const std::size_t from = out.size();
  out.append(data);
  if (mask) apply_mask(out, from, 0, *mask);
  return out;
}

std::string close_payload(uint16_t code, std::string_view reason) {
  std::string out;
  append_big(out, code, 2);
  return out.append(utf8_cut(reason, kReasonBytesMax));
}

Parser::Status Parser::bad(uint16_t code, std::string_view why) {
  bad_ = true;
  close_code_ = code;
  error_ = why;
  return Status::kBad;
}

/// As far as it can be known from the bytes that are there.
std::size_t Parser::header_size() const {
  if (header_.size() < 2) return 2;
  const uint8_t length = byte_at(header_, 1) & 0x7F;
  std::size_t size = 2;
  if (length == 126) size += 2;
  if (length == 127) size += 8;
  if ((byte_at(header_, 1) & 0x80) != 0) size += 4;
  return size;
}

Parser::Status Parser::put(std::string_view bytes, std::size_t& used) {
  if (bad_) return Status::kBad;
  if (std::exchange(delivered_, false)) {
    if (!control_) data_.clear();
    control_data_.clear();
    control_ = false;
  }
  while (true) {
    if (!in_frame_) {
      while (header_.size() < header_size()) {
        if (bytes.empty()) return Status::kNeedMore;
        header_.push_back(bytes.front());
        bytes.remove_prefix(1);
        used += 1;
        // A wrong beginning is not waited on: what follows it means nothing.
        if (header_.size() == 2 && check_frame() == Status::kBad) return Status::kBad;
      }
      if (begin_frame() == Status::kBad) return Status::kBad;
      in_frame_ = true;
    }
    const std::size_t count = static_cast<std::size_t>(std::min<uint64_t>(left_, bytes.size()));
    std::string& into = control_ ? control_data_ : data_;
    const std::size_t from = into.size();
    into.append(bytes.substr(0, count));
    if (masked_) apply_mask(into, from, frame_at_, mask_);
    bytes.remove_prefix(count);
    used += count;
    left_ -= count;
    frame_at_ += count;
    if (left_ > 0) return Status::kNeedMore;
    in_frame_ = false;
    header_.clear();
    const Status ended = end_frame();
    if (ended != Status::kNeedMore) return ended;
  }
}

Parser::Status Parser::check_frame() {
  const uint8_t first = byte_at(header_, 0);
  const uint8_t second = byte_at(header_, 1);
  const uint8_t code = first & 0x0F;
  const bool final = (first & 0x80) != 0;
  const bool control = code >= 8;
  if ((first & 0x70) != 0) return bad(kProtocolError, "a reserved bit is set");
  if (code > 10 || (code > 2 && code < 8)) return bad(kProtocolError, "an unknown opcode");
  if (((second & 0x80) != 0) != masked_) {
    return bad(kProtocolError, masked_ ? "a client's frame is not masked" : "a server's frame is masked");
  }
  const uint8_t length = second & 0x7F;
  if (control && (!final || length > kControlBytesMax))
    return bad(kProtocolError, "a control frame is fragmented or too long");
  if (!control && (code == 0) != (message_ != Opcode::kContinuation)) {
    return bad(kProtocolError, code == 0 ? "a continuation frame without a message"
                                         : "a new message within a fragmented one");
  }
  return Status::kNeedMore;
}

Parser::Status Parser::begin_frame() {
  const uint8_t first = byte_at(header_, 0);
  const uint8_t length = byte_at(header_, 1) & 0x7F;
  const auto opcode = static_cast<Opcode>(first & 0x0F);
  const bool control = static_cast<uint8_t>(opcode) >= 8;
  left_ = length;
  if (length == 126) left_ = read_big(header_, 2, 2);
  if (length == 127) left_ = read_big(header_, 2, 8);
  if ((length == 126 && left_ < 126) || (length == 127 && left_ <= 0xFFFF))
    return bad(kProtocolError, "a length is not in its shortest form");
  if (!control && left_ > bytes_max_ - std::min(bytes_max_, data_.size()))
    return bad(kMessageTooBig, "the message is too large");
  if (masked_) mask_ = static_cast<uint32_t>(read_big(header_, header_.size() - 4, 4));
  frame_at_ = 0;
  final_ = (first & 0x80) != 0;
  control_ = control;
  opcode_ = opcode;
  if (!control && opcode != Opcode::kContinuation) message_ = opcode;
  return Status::kNeedMore;
}

Parser::Status Parser::end_frame() {
  if (control_) {
    if (opcode_ == Opcode::kClose && control_data_.size() == 1)
      return bad(kProtocolError, "a close frame has an incomplete status code");
    delivered_ = true;
    return Status::kMessage;
  }
  if (!final_) return Status::kNeedMore;
  opcode_ = std::exchange(message_, Opcode::kContinuation);
  delivered_ = true;
  return Status::kMessage;
}

std::string base64(std::string_view bytes) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    uint32_t word = 0;
    for (std::size_t i = 0; i < 3; ++i) word = (word << 8) | (i < count ? byte_at(bytes, at + i) : 0U);
    for (std::size_t i = 0; i < 4; ++i) {
      out.push_back(i <= count ? kBase64[(word >> (18 - 6 * i)) & 63] : '=');
    }
  }
  return out;
}

std::string accept_key(std::string_view client_key) {
  return base64(sha1(std::string(client_key).append(kAcceptSuffix)));
}

bool is_client_key(std::string_view text) {
  if (text.size() != 24 || !text.ends_with("==")) return false;
  return text.substr(0, 22).find_first_not_of(kBase64) == std::string_view::npos;
}

}  // namespace gpusched::websocket

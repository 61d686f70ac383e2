#include "backup/tar_header.h"

#include <algorithm>
#include <cstdio>

namespace gpusched::backup {
namespace {

constexpr std::size_t kPathBytes = 100;
constexpr std::size_t kSizeAt = 124;
constexpr std::size_t kSizeBytes = 12;
constexpr std::size_t kChecksumAt = 148;
constexpr std::size_t kChecksumBytes = 8;
constexpr std::size_t kTypeAt = 156;
constexpr std::size_t kMagicAt = 257;
constexpr uint64_t kOctalMax = (uint64_t{1} << 33) - 1;
constexpr char kBinarySize = '\x80';

void put(std::string& block, std::size_t at, std::string_view text) {
  std::copy(text.begin(), text.end(), block.begin() + static_cast<std::ptrdiff_t>(at));
}

std::string octal(uint64_t value, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%0*llo", digits, static_cast<unsigned long long>(value));
  return text;
}

uint64_t checksum(std::string_view block) {
  uint64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    const bool own = i >= kChecksumAt && i < kChecksumAt + kChecksumBytes;
    sum += own ? ' ' : static_cast<unsigned char>(block[i]);
  }
  return sum;
}

/// Digits up to a zero byte or a blank.
std::optional<uint64_t> parse_octal(std::string_view text) {
  text = text.substr(0, text.find_first_of(std::string_view("\0 ", 2)));
  if (text.empty()) return std::nullopt;
  uint64_t value = 0;
  for (const char digit : text) {
    if (digit < '0' || digit > '7') return std::nullopt;
    value = value * 8 + static_cast<uint64_t>(digit - '0');
  }
  return value;
}

std::optional<uint64_t> parse_size(std::string_view field) {
  if (field[0] != kBinarySize) return parse_octal(field);
  uint64_t value = 0;
  for (const char byte : field.substr(kSizeBytes - sizeof value))
    value = value << 8 | static_cast<unsigned char>(byte);
  return value <= INT64_MAX ? std::optional(value) : std::nullopt;
}

}  // namespace

Result<std::string> encode_tar_header(const TarHeader& header) {
  if (header.path.size() >= kPathBytes) {
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "the name " + header.path + " is too long for an archive: back up to a folder"};
  }
  std::string block(kTarBlock, '\0');
  put(block, 0, header.path);
  put(block, 100, "0000600");
  put(block, 108, "0000000");
  put(block, 116, "0000000");
  if (header.bytes <= kOctalMax) {
    put(block, kSizeAt, octal(header.bytes, kSizeBytes - 1));
  } else {
    block[kSizeAt] = kBinarySize;
    for (std::size_t i = 0; i < sizeof header.bytes; ++i)
      block[kSizeAt + kSizeBytes - 1 - i] = static_cast<char>(header.bytes >> (8 * i));
  }
  put(block, 136, "00000000000");
  block[kTypeAt] = '0';
  put(block, kMagicAt, std::string_view("ustar\00000", 8));
  put(block, kChecksumAt, octal(checksum(block), 6));
  block[kChecksumAt + 7] = ' ';
  return block;
}

std::optional<TarHeader> parse_tar_header(std::string_view block) {
  if (block.size() != kTarBlock || block.substr(kMagicAt, 5) != "ustar") return std::nullopt;
  if (parse_octal(block.substr(kChecksumAt, kChecksumBytes)) != checksum(block)) return std::nullopt;
  const std::optional<uint64_t> bytes = parse_size(block.substr(kSizeAt, kSizeBytes));
  if (!bytes) return std::nullopt;
  std::string_view path = block.substr(0, kPathBytes);
  path = path.substr(0, path.find('\0'));
  if (path.starts_with("./")) path.remove_prefix(2);
  const char type = block[kTypeAt];
  return TarHeader{.path = std::string(path), .bytes = *bytes, .is_file = type == '0' || type == '\0'};
}

}  // namespace gpusched::backup

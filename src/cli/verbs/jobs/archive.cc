#include "cli/verbs/jobs/archive.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace gpusched::cli {
namespace {

constexpr std::size_t kBlock = 512;
constexpr std::size_t kNameMax = 99;
constexpr std::size_t kStoredMax = 65'535;  // RFC 1951, 3.2.4.

/// The header of POSIX.1-1988's ustar.
struct Header {
  char name[100];
  char mode[8];
  char user[8];
  char group[8];
  char size[12];
  char time[12];
  char checksum[8];
  char type;
  char link[100];
  char magic[6];
  char version[2];
  char rest[247];
};
static_assert(sizeof(Header) == kBlock);

void append_little(std::string& out, uint32_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

void append_file(std::string& tar, const std::string& name, const std::string& data, int64_t seconds_now) {
  CHECK(name.size() <= kNameMax);
  Header header{};
  std::memcpy(header.name, name.data(), name.size());
  std::snprintf(header.mode, sizeof header.mode, "%07o", 0600u);
  std::snprintf(header.user, sizeof header.user, "%07o", 0u);
  std::snprintf(header.group, sizeof header.group, "%07o", 0u);
  std::snprintf(header.size, sizeof header.size, "%011llo", static_cast<unsigned long long>(data.size()));
  std::snprintf(header.time, sizeof header.time, "%011llo", static_cast<unsigned long long>(seconds_now));
  header.type = '0';
  std::memcpy(header.magic, "ustar", 6);
  std::memcpy(header.version, "00", 2);
  // The sum is taken with blanks in its own place.
  std::memset(header.checksum, ' ', sizeof header.checksum);
  unsigned sum = 0;
  const auto* const bytes = reinterpret_cast<const unsigned char*>(&header);
  for (std::size_t i = 0; i < kBlock; ++i) sum += bytes[i];
  std::snprintf(header.checksum, sizeof header.checksum, "%06o", sum);
  tar.append(reinterpret_cast<const char*>(&header), kBlock);
  tar += data;
  tar.append((kBlock - data.size() % kBlock) % kBlock, '\0');
}

std::string gzip_stored(const std::string& data) {
  std::string out("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  std::size_t at = 0;
  do {
    const std::size_t size = std::min(kStoredMax, data.size() - at);
    const bool last = at + size == data.size();
    out += last ? '\1' : '\0';
    append_little(out, static_cast<uint32_t>(size), 2);
    append_little(out, ~static_cast<uint32_t>(size), 2);
    out.append(data, at, size);
    at += size;
  } while (at < data.size());
  append_little(out, crc32_of(data), 4);
  append_little(out, static_cast<uint32_t>(data.size()), 4);
  return out;
}

}  // namespace

uint32_t crc32_of(std::string_view data) {
  static const std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < table.size(); ++i) {
      uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = (value & 1) != 0 ? value >> 1 ^ 0xEDB88320u : value >> 1;
      table[i] = value;
    }
    return table;
  }();
  uint32_t crc = 0xffffffffu;
  for (const char c : data) crc = crc >> 8 ^ kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::string make_archive(std::string_view folder, const std::vector<ArchiveFile>& files, Time when) {
  std::string tar;
  for (const ArchiveFile& file : files)
    append_file(tar, std::string(folder) + "/" + file.name, file.data, when.ns / 1'000'000'000);
  tar.append(2 * kBlock, '\0');
  return gzip_stored(tar);
}

}  // namespace gpusched::cli

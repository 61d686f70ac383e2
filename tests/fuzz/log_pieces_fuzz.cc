// rooms: base
// source: cli/verbs/jobs/log_pieces.cc
// source: client/json.cc
//
// Reads an output's stream as gpu-cli does, whatever a server sends; JSON of strangers; base64.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/net/base64.h"
#include "cli/verbs/jobs/log_pieces.h"
#include "client/json.h"

namespace {

struct Seen {
  bool good = true;
  bool any = false;
  int64_t next_offset = 0;
  int64_t skipped = 0;
  std::string bytes;

  friend bool operator==(const Seen&, const Seen&) = default;
};

Seen read_stream(std::string_view stream, std::size_t piece) {
  Seen seen;
  gpusched::cli::LogPieces pieces(
      [&](std::string_view bytes) {
        seen.bytes += bytes;
        return true;
      },
      [&](int64_t bytes) {
        CHECK(bytes > 0);
        seen.skipped = bytes;
      });
  for (std::size_t at = 0; at < stream.size() && seen.good; at += piece)
    seen.good = pieces.take(stream.substr(at, piece));
  CHECK(seen.good == !pieces.broken());
  CHECK(!pieces.stopped());
  seen.any = pieces.any();
  seen.next_offset = pieces.next_offset();
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  CHECK(read_stream(bytes, bytes.size() + 1) == read_stream(bytes, 3));
  const std::string encoded = gpusched::base64_encoded(bytes);
  CHECK(gpusched::base64_decoded(encoded) == std::string(bytes));
  if (const auto decoded = gpusched::base64_decoded(bytes))
    CHECK(gpusched::base64_encoded(*decoded) == bytes);
  // A job may write any bytes: its stream gives them back.
  const Seen own = read_stream(R"({"base64":")" + encoded + R"(","next_offset":7})" + "\n", size / 2 + 1);
  CHECK(own.good);
  CHECK(own.bytes == bytes);
  CHECK(own.next_offset == 7);
  // No byte for byte or even readable repetition: Boost.JSON writes infinity, as which it reads 1e999, as
  // 1e99999.
  if (const auto json = gpusched::Json::parse(bytes))
    CHECK(json->serialize().find("NaN") == std::string::npos || !json->is_number());
  return 0;
}

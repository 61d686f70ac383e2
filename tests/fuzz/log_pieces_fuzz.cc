// rooms: cli client base
//
// What gpu-cli makes of an output's stream, whatever a server sends; JSON of strangers; base64.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/base64.h"
#include "base/check.h"
#include "cli/log_pieces.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::string whole, cut;
  gpusched::cli::LogPieces at_once(
      [&](std::string_view piece) {
        whole += piece;
        return true;
      },
      [](int64_t) {});
  gpusched::cli::LogPieces in_parts(
      [&](std::string_view piece) {
        cut += piece;
        return true;
      },
      [](int64_t) {});
  const bool good = at_once.take(bytes);
  bool also_good = true;
  for (std::size_t at = 0; at < bytes.size() && also_good; at += 3)
    also_good = in_parts.take(bytes.substr(at, 3));
  CHECK(good == also_good);
  CHECK(whole == cut);
  CHECK(at_once.next_offset() == in_parts.next_offset());
  CHECK(gpusched::base64_decoded(gpusched::base64_encoded(bytes)) == std::string(bytes));
  if (const auto decoded = gpusched::base64_decoded(bytes))
    CHECK(gpusched::base64_encoded(*decoded) == bytes);
  return 0;
}

#include "cli/verbs/jobs/log_pieces.h"

#include "base/net/base64.h"
#include "client/json.h"

namespace gpusched::cli {
namespace {

constexpr std::size_t kPieceBytesMax = 32 << 20;

}  // namespace

bool LogPieces::take(std::string_view data) {
  while (!data.empty()) {
    const std::size_t feed = data.find('\n');
    line_ += data.substr(0, feed);
    if (feed == std::string_view::npos) {
      broken_ = line_.size() > kPieceBytesMax;
      return !broken_;
    }
    data.remove_prefix(feed + 1);
    const std::string line = std::exchange(line_, {});
    if (!line.empty() && !take_line(line)) return false;
  }
  return true;
}

bool LogPieces::take_line(std::string_view line) {
  const Result<Json> piece = Json::parse(line);
  const Json encoded = piece ? (*piece)["base64"] : Json();
  const std::optional<std::string> bytes = encoded.is_string()
                                               ? base64_decoded(encoded.text())
                                               : std::optional((piece ? *piece : Json())["text"].text());
  if (!piece || !(*piece)["next_offset"].is_number() || !bytes) {
    broken_ = true;
    return false;
  }
  if (const int64_t skipped = (*piece)["skipped"].integer(); skipped > 0) skipped_(skipped);
  any_ = true;
  next_offset_ = (*piece)["next_offset"].integer();
  if (bytes->empty()) return true;
  stopped_ = !write_(*bytes);
  return !stopped_;
}

}  // namespace gpusched::cli

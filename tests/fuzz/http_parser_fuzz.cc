// rooms: base
//
// Requests from any bytes, in pieces of any size: the same bytes give the same requests however they are cut.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/http/http_message.cc"
#include "api/http/http_parser.cc"
#include "api/http/request_rules.cc"
#include "base/check.h"

namespace api = gpusched::api;

namespace {

struct Seen {
  std::vector<std::string> requests;
  api::HttpParser::Status last = api::HttpParser::Status::kNeedMore;
};

Seen parse(std::string_view bytes, std::size_t piece) {
  api::HttpParser parser(1'024, 4'096);
  Seen seen;
  std::string waiting;
  parser.reset();
  while (!bytes.empty()) {
    waiting += bytes.substr(0, piece);
    bytes.remove_prefix(std::min(piece, bytes.size()));
    while (!waiting.empty()) {
      std::size_t used = 0;
      seen.last = parser.put(waiting, used);
      CHECK(used <= waiting.size());
      waiting.erase(0, used);
      if (seen.last == api::HttpParser::Status::kNeedMore) break;
      if (seen.last != api::HttpParser::Status::kDone) return seen;
      CHECK(parser.request().body.size() <= 4'096);
      seen.requests.push_back(parser.request().path + "?" + parser.request().query + " " +
                              parser.request().body);
      parser.reset();
    }
  }
  return seen;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Seen whole = parse(bytes, bytes.size() + 1);
  const Seen single = parse(bytes, 7);
  // A refusal may come earlier when the pieces are small, and nothing that was whole before it differs.
  for (std::size_t i = 0; i < std::min(whole.requests.size(), single.requests.size()); ++i)
    CHECK(whole.requests[i] == single.requests[i]);
  if (const auto parameters = api::parse_query(bytes)) CHECK(parameters->size() <= bytes.size() + 1);
  return 0;
}

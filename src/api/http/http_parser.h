#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "api/http/http_message.h"

namespace gpusched::api {

/// Parses HTTP/1.0 and 1.1 requests from untrusted bytes, one after the other, keeping of each what the doors
/// look at. Not thread-safe.
class HttpParser {
 public:
  enum class Status {
    kNeedMore,  ///< All bytes are used, or more are needed for the next step.
    kDone,      ///< A request is complete.
    kHeaderTooLarge,
    kBodyTooLarge,
    kBad,  ///< No HTTP; `error` says why.
  };

  /// `streams`, which may be null and must outlive it, says of which requests the body is streamed: it has no
  /// bound and is to be taken out of `request` after each `put`.
  HttpParser(uint32_t header_bytes_max, uint64_t body_bytes_max, const HttpStreams* streams = nullptr);
  ~HttpParser();
  HttpParser(HttpParser&&) noexcept;

  /// Begins the next request.
  void reset();
  /// Parses from `bytes` and adds to `used` how many are no longer needed; the rest comes again with more
  /// behind.
  Status put(std::string_view bytes, std::size_t& used);

  bool header_done() const;
  bool streams_body() const;  ///< Once the header is done.
  bool keep_alive() const;    ///< Once the header is done.
  bool version_1_0() const;   ///< Once the header is done.
  bool expects_continue() const;
  std::optional<uint64_t> content_length() const;  ///< Once the header is done; nothing when chunked.
  std::string error() const;
  /// The request; to be moved from once it is complete.
  HttpRequest& request();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gpusched::api

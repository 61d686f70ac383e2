#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace gpusched::shim {

/// Reads one answer of HTTP/1.1 or 1.0, piece by piece as it comes, by Boost.Beast's parser. Informational
/// answers (1xx) before it are skipped; a body is as long as its length says, or its chunks, or until the
/// connection ends. Lines of the head may end without a carriage return (RFC 9112, section 2.2).
class HttpAnswer {
 public:
  enum class State : uint8_t {
    kUnderWay,
    kWhole,
    kMalformed,  ///< It is no answer of HTTP.
    kTooLarge,   ///< Its body has more than `body_bytes_max`.
    kCutShort,   ///< The connection ended before it did.
  };

  explicit HttpAnswer(std::size_t body_bytes_max);
  HttpAnswer(HttpAnswer&&) noexcept;
  ~HttpAnswer();

  /// Adds received bytes. Those behind a whole answer count for nothing.
  State add(std::string_view bytes);
  /// Takes note that the connection has ended.
  State end();

  State state() const;
  /// True if nothing of an answer has come.
  bool is_empty() const;
  int status() const;                       ///< 0 until the line with the status has come.
  const std::string& status_words() const;  ///< "404 Not Found", printable.
  std::string& body();

 private:
  class Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace gpusched::shim

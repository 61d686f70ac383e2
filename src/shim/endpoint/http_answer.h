#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace gpusched::shim {

/// One answer of HTTP/1.1 or 1.0, read piece by piece as it comes. Informational answers (1xx) before it are
/// skipped; a body is as long as its length says, or its chunks, or until the connection ends.
class HttpAnswer {
 public:
  enum class State : uint8_t {
    kUnderWay,
    kWhole,
    kMalformed,  ///< It is no answer of HTTP.
    kTooLarge,   ///< Its body has more than `body_bytes_max`.
    kCutShort,   ///< The connection ended before it did.
  };

  explicit HttpAnswer(std::size_t body_bytes_max) : body_bytes_max_(body_bytes_max) {}

  /// Adds received bytes. Those behind a whole answer count for nothing.
  State add(std::string_view bytes);
  /// The connection has ended.
  State end();

  State state() const { return state_; }
  /// Nothing of an answer has come.
  bool is_empty() const { return received_ == 0; }
  int status() const { return status_; }
  const std::string& status_words() const { return status_words_; }  ///< "404 Not Found", printable.
  std::string& body() { return body_; }

 private:
  enum class Part : uint8_t { kStatus, kHeaders, kBody, kRest, kChunkSize, kChunk, kChunkEnd, kTrailers };

  bool take_line(std::string_view line);
  bool take_status(std::string_view line);
  bool take_header(std::string_view line);
  bool take_chunk_size(std::string_view line);
  void end_headers();
  void take_body(std::string_view& bytes);
  void fail(State why) { state_ = why; }

  const std::size_t body_bytes_max_;
  State state_ = State::kUnderWay;
  Part part_ = Part::kStatus;
  std::size_t received_ = 0;
  std::size_t head_bytes_ = 0;  ///< Bytes of lines that are no body.
  std::string line_;            ///< As far as it came.
  int status_ = 0;
  std::string status_words_;
  bool chunked_ = false;
  bool has_length_ = false;
  uint64_t left_ = 0;  ///< Rest of the body, or of the chunk.
  std::string body_;
};

}  // namespace gpusched::shim

// The one file of the shim that includes Boost.Beast.
#include "shim/endpoint/http_answer.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <optional>

namespace gpusched::shim {
namespace {

namespace http = boost::beast::http;
using boost::system::error_code;
using Text = boost::beast::string_view;

constexpr std::size_t kHeadBytesMax = 64 * 1024;
constexpr std::size_t kReasonBytesMax = 80;
constexpr int kLeastStatus = 100;
constexpr int kLeastFinalStatus = 200;
constexpr std::string_view kVersion = "HTTP/1.";
constexpr std::string_view kLastChunk = "0\r\n\r\n";
constexpr std::string_view kLineWithoutReason = "HTTP/1.1 200\r";

std::string printable(Text text) {
  std::string out(text.substr(0, kReasonBytesMax));
  for (char& c : out) c = c >= 0x20 && c < 0x7F ? c : '?';
  return out;
}

/// The facts that Beast finds in one answer, an informational one included.
class Reader final : public http::basic_parser<false> {
 public:
  Reader(std::string& body, std::size_t body_bytes_max) : body_(body) {
    eager(true);
    header_limit(static_cast<std::uint32_t>(2 * kHeadBytesMax));  // Ours is reached before.
    body_limit(body_bytes_max);
  }

  int status() const { return status_; }
  std::string words() const { return std::to_string(status_) + (reason_.empty() ? "" : " " + reason_); }

 private:
  void on_request_impl(http::verb, Text, Text, int, error_code&) override {}
  void on_response_impl(int code, Text reason, int, error_code& failure) override {
    status_ = code;
    reason_ = printable(reason);
    if (code < kLeastStatus) failure = http::error::bad_status;
  }
  void on_field_impl(http::field name, Text, Text value, error_code& failure) override {
    const bool known = boost::beast::iequals(value, "chunked") || boost::beast::iequals(value, "identity");
    if (name == http::field::transfer_encoding && !known) failure = http::error::bad_transfer_encoding;
  }
  void on_header_impl(error_code&) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>&, error_code&) override {}
  std::size_t on_body_impl(Text piece, error_code&) override { return take(piece); }
  void on_chunk_header_impl(std::uint64_t, Text, error_code&) override {}
  std::size_t on_chunk_body_impl(std::uint64_t, Text piece, error_code&) override { return take(piece); }
  void on_finish_impl(error_code&) override {}

  std::size_t take(Text piece) {
    body_.append(piece.data(), piece.size());
    return piece.size();
  }

  std::string& body_;
  int status_ = 0;
  std::string reason_;
};

}  // namespace

class HttpAnswer::Parts {
 public:
  explicit Parts(std::size_t body_bytes_max) : body_bytes_max_(body_bytes_max) { begin(); }

  void add(std::string_view bytes) {
    received_ += bytes.size();
    while (!bytes.empty() && state_ == State::kUnderWay) {
      if (reader_->is_header_done()) {
        add_body(bytes);
        return;
      }
      add_line(bytes);
    }
  }

  void end() {
    if (state_ != State::kUnderWay) return;
    error_code failure = http::error::partial_message;
    if (reader_->got_some()) reader_->put_eof(failure);
    state_ = failure ? State::kCutShort : State::kWhole;
  }

  State state() const { return state_; }
  bool is_empty() const { return received_ == 0; }
  int status() const { return status_; }
  const std::string& status_words() const { return status_words_; }
  std::string& body() { return body_; }

 private:
  void begin() {
    reader_.emplace(body_, body_bytes_max_);
    at_status_ = true;
  }

  /// Takes the head's next line, or what of it is there.
  void add_line(std::string_view& bytes) {
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    pending_ += piece;
    head_bytes_ += piece.size() + 1;
    const bool is_http = !at_status_ || kVersion.starts_with(pending_.substr(0, kVersion.size()));
    if (!is_http || head_bytes_ > kHeadBytesMax) {
      state_ = State::kMalformed;
      return;
    }
    if (end == std::string_view::npos) return;
    if (!pending_.ends_with('\r')) pending_ += '\r';
    // Some servers leave out the blank behind the status where they have no words for it.
    if (at_status_ && pending_.size() == kLineWithoutReason.size())
      pending_.insert(kLineWithoutReason.size() - 1, " ");
    pending_ += '\n';
    at_status_ = false;
    pending_.erase(0, parse(pending_));
  }

  void add_body(std::string_view bytes) {
    // Beast asserts that the end of chunks comes in one piece: nothing shorter is the rest of an answer.
    const bool is_short = reader_->chunked() && pending_.size() + bytes.size() < kLastChunk.size();
    if (pending_.empty() && !is_short) {
      pending_ = bytes.substr(parse(bytes));
    } else {
      pending_ += bytes;
      if (!is_short) pending_.erase(0, parse(pending_));
    }
    // A line between chunks, or what follows the last one.
    if (state_ == State::kUnderWay && pending_.size() > kHeadBytesMax) state_ = State::kMalformed;
  }

  /// Returns how many bytes were used up; the others are to come again, with more behind them.
  std::size_t parse(std::string_view bytes) {
    error_code failure;
    const std::size_t used = reader_->put(boost::asio::buffer(bytes.data(), bytes.size()), failure);
    if (failure == http::error::body_limit) {
      state_ = State::kTooLarge;
    } else if (failure && failure != http::error::need_more) {
      state_ = State::kMalformed;
    }
    const bool is_final = reader_->status() >= kLeastFinalStatus;
    if (is_final && status_ == 0) {
      status_ = reader_->status();
      status_words_ = reader_->words();
    }
    if (state_ != State::kUnderWay || !reader_->is_done()) return used;
    if (is_final) {
      state_ = State::kWhole;
    } else {
      begin();  // The answer itself comes behind it.
    }
    return used;
  }

  const std::size_t body_bytes_max_;
  State state_ = State::kUnderWay;
  std::optional<Reader> reader_;
  std::string pending_;    ///< Not used up by the parser yet.
  bool at_status_ = true;  ///< The first line has not come whole.
  std::size_t received_ = 0;
  std::size_t head_bytes_ = 0;
  int status_ = 0;
  std::string status_words_;
  std::string body_;
};

HttpAnswer::HttpAnswer(std::size_t body_bytes_max) : parts_(std::make_unique<Parts>(body_bytes_max)) {}
HttpAnswer::HttpAnswer(HttpAnswer&&) noexcept = default;
HttpAnswer::~HttpAnswer() = default;

HttpAnswer::State HttpAnswer::add(std::string_view bytes) {
  parts_->add(bytes);
  return parts_->state();
}

HttpAnswer::State HttpAnswer::end() {
  parts_->end();
  return parts_->state();
}

HttpAnswer::State HttpAnswer::state() const { return parts_->state(); }
bool HttpAnswer::is_empty() const { return parts_->is_empty(); }
int HttpAnswer::status() const { return parts_->status(); }
const std::string& HttpAnswer::status_words() const { return parts_->status_words(); }
std::string& HttpAnswer::body() { return parts_->body(); }

}  // namespace gpusched::shim

#include "shim/endpoint/http_answer.h"

#include <algorithm>
#include <charconv>

namespace gpusched::shim {
namespace {

constexpr std::size_t kHeadBytesMax = 64 * 1024;
constexpr std::size_t kReasonBytesMax = 80;

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(), [&](char x, char y) { return lower(x) == lower(y); });
}

std::string_view trimmed(std::string_view text) {
  const std::string_view blanks = " \t";
  const std::size_t from = text.find_first_not_of(blanks);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(blanks) - from + 1);
}

/// Digits alone, to their end.
bool parse_number(std::string_view text, int base, uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, base);
  return error == std::errc() && end == text.data() + text.size();
}

std::string printable(std::string_view text) {
  std::string out(text.substr(0, kReasonBytesMax));
  for (char& c : out) c = c >= 0x20 && c < 0x7F ? c : '?';
  return out;
}

}  // namespace

HttpAnswer::State HttpAnswer::add(std::string_view bytes) {
  received_ += bytes.size();
  while (!bytes.empty() && state_ == State::kUnderWay) {
    if (part_ == Part::kBody || part_ == Part::kRest || part_ == Part::kChunk) {
      take_body(bytes);
      continue;
    }
    const std::size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    head_bytes_ += piece.size() + 1;
    if (head_bytes_ > kHeadBytesMax) {
      fail(State::kMalformed);
      break;
    }
    line_ += piece;
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    if (end == std::string_view::npos) break;
    if (line_.ends_with('\r')) line_.pop_back();
    const std::string line = std::move(line_);
    line_.clear();
    if (!take_line(line) && state_ == State::kUnderWay) fail(State::kMalformed);
  }
  return state_;
}

HttpAnswer::State HttpAnswer::end() {
  if (state_ == State::kUnderWay) state_ = part_ == Part::kRest ? State::kWhole : State::kCutShort;
  return state_;
}

/// False: it is not what belongs there.
bool HttpAnswer::take_line(std::string_view line) {
  switch (part_) {
    case Part::kStatus:
      part_ = Part::kHeaders;
      return take_status(line);
    case Part::kHeaders:
      if (!line.empty()) return take_header(line);
      end_headers();
      return true;
    case Part::kChunkSize:
      return take_chunk_size(line);
    case Part::kChunkEnd:
      part_ = Part::kChunkSize;
      head_bytes_ = 0;  // Chunks may be many.
      return line.empty();
    case Part::kTrailers:
      if (line.empty()) state_ = State::kWhole;
      return true;
    case Part::kBody:
    case Part::kRest:
    case Part::kChunk:
      return false;
  }
  return false;
}

bool HttpAnswer::take_status(std::string_view line) {
  uint64_t status = 0;
  if (!line.starts_with("HTTP/1.") || line.size() < 12 || line[8] != ' ') return false;
  if (!parse_number(line.substr(9, 3), 10, status) || status < 100) return false;
  if (line.size() > 12 && line[12] != ' ') return false;
  status_ = static_cast<int>(status);
  status_words_ = printable(trimmed(line.substr(9)));
  return true;
}

bool HttpAnswer::take_header(std::string_view line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = trimmed(line.substr(colon + 1));
  if (equal_ignoring_case(name, "Transfer-Encoding")) {
    chunked_ = equal_ignoring_case(value, "chunked");
    return chunked_ || equal_ignoring_case(value, "identity");
  }
  if (!equal_ignoring_case(name, "Content-Length")) return true;
  uint64_t length = 0;
  if (!parse_number(value, 10, length) || (has_length_ && length != left_)) return false;
  has_length_ = true;
  left_ = length;
  return true;
}

void HttpAnswer::end_headers() {
  if (status_ < 200) {  // The answer itself comes behind it.
    part_ = Part::kStatus;
    has_length_ = chunked_ = false;
  } else if (status_ == 204 || status_ == 304) {
    state_ = State::kWhole;
  } else if (chunked_) {
    part_ = Part::kChunkSize;
  } else if (!has_length_) {
    part_ = Part::kRest;
  } else if (left_ > body_bytes_max_) {
    state_ = State::kTooLarge;
  } else {
    part_ = Part::kBody;
    if (left_ == 0) state_ = State::kWhole;
  }
}

bool HttpAnswer::take_chunk_size(std::string_view line) {
  uint64_t size = 0;
  if (!parse_number(trimmed(line.substr(0, line.find(';'))), 16, size)) return false;
  left_ = size;
  part_ = size == 0 ? Part::kTrailers : Part::kChunk;
  return true;
}

void HttpAnswer::take_body(std::string_view& bytes) {
  const std::string_view piece = part_ == Part::kRest ? bytes : bytes.substr(0, left_);
  if (piece.size() > body_bytes_max_ - body_.size()) return fail(State::kTooLarge);
  body_ += piece;
  bytes.remove_prefix(piece.size());
  if (part_ == Part::kRest) return;
  left_ -= piece.size();
  if (left_ > 0) return;
  if (part_ == Part::kBody) {
    state_ = State::kWhole;
  } else {
    part_ = Part::kChunkEnd;
  }
}

}  // namespace gpusched::shim

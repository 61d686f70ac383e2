#include "anticipate/rule.h"

#include <algorithm>

namespace gpusched::anticipate {
namespace {

constexpr int32_t kGpusReadMax = 1'000'000;

/// A dash continues a word: `--gpus` is not in "--gpus-quota".
bool is_word(char c) {
  if (c == '-') return true;
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// Whether a word ends or begins between the bytes before and at `at`.
bool is_edge(std::string_view text, std::size_t at) {
  return at == 0 || at >= text.size() || !is_word(text[at - 1]) || !is_word(text[at]);
}

/// A part of a phrase between stars.
struct Piece {
  std::string_view text;
  bool begins_word = false, ends_word = false;
};

/// The next place from `from` on, up to `limit`, where the piece stands with the word edges that it needs.
std::size_t find_piece(std::string_view text, const Piece& piece, std::size_t from, std::size_t limit) {
  for (std::size_t at = text.find(piece.text, from); at != std::string_view::npos && at <= limit;
       at = text.find(piece.text, at + 1)) {
    const bool begins = !piece.begins_word || is_edge(text, at);
    const bool ends = !piece.ends_word || is_edge(text, at + piece.text.size());
    if (begins && ends) return at;
  }
  return std::string_view::npos;
}

std::vector<Piece> pieces_of(std::string_view phrase) {
  std::vector<Piece> pieces;
  const std::string_view whole = phrase;
  while (!phrase.empty()) {
    const std::size_t star = phrase.find('*');
    if (star != 0) pieces.push_back({.text = phrase.substr(0, star)});
    phrase = star == std::string_view::npos ? std::string_view() : phrase.substr(star + 1);
  }
  if (pieces.empty()) return pieces;
  pieces.front().begins_word = whole.front() != '*' && is_word(whole.front());
  pieces.back().ends_word = whole.back() != '*' && is_word(whole.back());
  return pieces;
}

/// Whether the pieces follow, each in reach of the one before; the first one ended at `end`.
bool follow(std::string_view text, std::span<const Piece> pieces, std::size_t end) {
  for (const Piece& piece : pieces) {
    const std::size_t line = std::min(text.find('\n', end), text.size());
    const std::size_t at = find_piece(text.substr(0, line), piece, end, end + kGapBytesMax);
    if (at == std::string_view::npos) return false;
    end = at + piece.text.size();
  }
  return true;
}

Error wrong(const Rule& rule, std::string field, const std::string& sentence) {
  return {
      .code = ErrorCode::kInvalidArgument,
      .message = "rule " + (rule.name.empty() ? std::string("without a name") : rule.name) + ": " + sentence,
      .field = std::move(field)};
}

}  // namespace

Result<Unit> check_rule(const Rule& rule) {
  constexpr std::size_t kNameBytesMax = 64;
  if (rule.name.empty() || rule.name.size() > kNameBytesMax)
    return wrong(rule, "name", "name must have 1 to 64 bytes");
  if (rule.all.empty() && rule.any.empty())
    return wrong(rule, "any", "give at least one phrase in `all` or `any`; else it would match everything");
  for (const auto& [field, phrases] :
       {std::pair("all", &rule.all), std::pair("any", &rule.any), std::pair("none", &rule.none)}) {
    if (phrases->size() > kPhrasesMax)
      return wrong(rule, field, std::string(field) + " has more than 32 phrases");
    for (const std::string& phrase : *phrases) {
      if (phrase.size() > kPhraseBytesMax || pieces_of(phrase).empty())
        return wrong(rule, field, "a phrase must have 1 to 200 bytes besides `*`");
    }
  }
  if (rule.weight < -kWeightMax || rule.weight > kWeightMax || rule.weight == 0)
    return wrong(rule, "weight", "weight must be from -100 to 100 and not 0");
  if (rule.gpus < 1 || rule.gpus > kGpusReadMax) return wrong(rule, "gpus", "gpus must be at least 1");
  if (rule.memory_gb < 0) return wrong(rule, "memory_gb", "memory_gb must not be negative");
  return Unit{};
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

bool has_phrase(std::string_view text, std::string_view phrase) {
  constexpr int kStartsMax = 64;  // Places where the first piece may stand that are tried.
  const std::vector<Piece> pieces = pieces_of(phrase);
  if (pieces.empty()) return false;
  std::size_t at = find_piece(text, pieces.front(), 0, text.size());
  for (int start = 0; start < kStartsMax && at != std::string_view::npos; ++start) {
    if (follow(text, std::span(pieces).subspan(1), at + pieces.front().text.size())) return true;
    at = find_piece(text, pieces.front(), at + 1, text.size());
  }
  return false;
}

bool matches(const Rule& rule, Source source, std::string_view text) {
  if (!rule.sources.empty() && std::ranges::find(rule.sources, source) == rule.sources.end()) return false;
  const auto is_there = [&](const std::string& phrase) { return has_phrase(text, lower_case(phrase)); };
  return std::ranges::all_of(rule.all, is_there) &&
         (rule.any.empty() || std::ranges::any_of(rule.any, is_there)) &&
         std::ranges::none_of(rule.none, is_there);
}

int32_t gpus_of(const Rule& rule, std::string_view text) {
  for (const std::string& option : rule.gpus_from) {
    const std::string wanted = lower_case(option);
    std::size_t at = wanted.empty() ? std::string_view::npos : text.find(wanted);
    if (at == std::string_view::npos) continue;
    at += wanted.size();
    if (at >= text.size() || (text[at] != '=' && text[at] != ' ')) continue;
    int32_t number = 0;
    for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at)
      number = std::min(kGpusReadMax, number * 10 + (text[at] - '0'));
    if (number > 0) return number;
  }
  return std::max(rule.gpus, 1);
}

}  // namespace gpusched::anticipate

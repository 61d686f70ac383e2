#include "anticipate/redact.h"

#include <algorithm>
#include <array>
#include <cstddef>

namespace gpusched::anticipate {
namespace {

constexpr std::size_t kRandomBytesMin = 20;
constexpr std::size_t kKnownBytesMin = 12;

/// Parts of names of secrets.
constexpr std::array<std::string_view, 9> kSecretParts = {"password",   "passwd",     "passphrase",
                                                          "secret",     "apikey",     "accesskey",
                                                          "privatekey", "credential", "authorization"};
/// How tokens of known services begin.
constexpr std::array<std::string_view, 19> kKnownTokens = {
    "sk-",  "pk-",  "ghp_",  "gho_",  "ghu_",  "ghs_", "ghr_", "github_pat_", "glpat-", "hf_",
    "AKIA", "ASIA", "xoxb-", "xoxp-", "xoxa-", "gsk_", "AIza", "eyJ",         "npm_"};

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_lower(char c) { return c >= 'a' && c <= 'z'; }
bool is_upper(char c) { return c >= 'A' && c <= 'Z'; }
bool is_blank(char c) { return c == ' ' || c == '\n'; }
bool is_name(char c) { return is_digit(c) || is_lower(c) || is_upper(c) || c == '_' || c == '-' || c == '.'; }
bool is_token(char c) { return is_name(c) || c == '+' || c == '/' || c == '=' || c == '~'; }
bool is_quote(char c) { return c == '"' || c == '\'' || c == '`'; }

/// Whether a value behind this name is a secret. "tokens" and "tokenizer" are none: training logs have them.
bool is_secret_name(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c != '_' && c != '-' && c != '.') plain.push_back(lower(c));
  }
  const auto is_part = [&](std::string_view part) { return plain.find(part) != std::string::npos; };
  return std::ranges::any_of(kSecretParts, is_part) || plain.ends_with("token") || plain.ends_with("auth") ||
         plain.ends_with("authkey") || plain == "bearer";
}

/// Whether a name looks as if chance had made it: letters and digits that change often.
bool looks_random(std::string_view word) {
  if (word.size() < kRandomBytesMin) return false;
  std::size_t changes = 0, counted = 0;
  bool digits = false, letters = false;
  const auto kind = [](char c) { return is_digit(c) ? 1 : is_lower(c) ? 2 : is_upper(c) ? 3 : 0; };
  for (std::size_t at = 0; at < word.size(); ++at) {
    const int own = kind(word[at]);
    if (own == 0) continue;
    counted += 1;
    digits = digits || own == 1;
    letters = letters || own != 1;
    const int before = at > 0 ? kind(word[at - 1]) : 0;
    if (before != 0 && before != own) changes += 1;
  }
  return digits && letters && changes * 10 >= counted * 3;
}

bool is_path(std::string_view word) {
  return word.starts_with("/") || word.starts_with("~/") || word.starts_with("./");
}

bool is_known_token(std::string_view word) {
  return word.size() >= kKnownBytesMin &&
         std::ranges::any_of(kKnownTokens, [&](std::string_view start) { return word.starts_with(start); });
}

/// Bytes of the value that `rest` begins with: to its closing quote, or to a blank or separator.
std::size_t value_bytes(std::string_view rest) {
  if (rest.empty()) return 0;
  if (is_quote(rest.front())) {
    const std::size_t end = rest.find(rest.front(), 1);
    return end == std::string_view::npos ? rest.size() : end + 1;
  }
  std::size_t at = 0;
  while (at < rest.size() && !is_blank(rest[at]) && rest[at] != ',' && rest[at] != ';' && rest[at] != '&' &&
         !is_quote(rest[at]))
    ++at;
  return at;
}

std::size_t blanks(std::string_view rest) {
  std::size_t at = 0;
  while (at < rest.size() && rest[at] == ' ') ++at;
  return at;
}

/// Bytes between a name and its value: "=", ": ", "\": \""; for an option also a blank. 0: no value follows.
std::size_t separator_bytes(std::string_view rest, bool is_option) {
  std::size_t at = 0;
  if (at < rest.size() && is_quote(rest[at])) ++at;
  at += blanks(rest.substr(at));
  if (at < rest.size() && (rest[at] == '=' || rest[at] == ':')) {
    ++at;
    return at + blanks(rest.substr(at));
  }
  return is_option && !rest.empty() && rest.front() == ' ' ? blanks(rest) : 0;
}

/// Writes the text without its secrets, from left to right.
class Redactor {
 public:
  explicit Redactor(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      if (skip_key() || skip_address()) continue;
      if (is_token(text_[at_])) {
        word();
      } else {
        out_.push_back(text_[at_++]);
      }
    }
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return text_.substr(at_); }

  void hide(std::size_t bytes) {
    if (bytes == 0) return;
    out_.append(kRedacted);
    at_ += bytes;
  }

  /// A private key in PEM, up to its end or that of the text.
  bool skip_key() {
    constexpr std::string_view kBegin = "-----BEGIN", kEnd = "-----END";
    if (!rest().starts_with(kBegin)) return false;
    const std::size_t end = rest().find(kEnd);
    if (end == std::string_view::npos) return hide(rest().size()), true;
    const std::size_t line = rest().find('\n', end);
    hide(line == std::string_view::npos ? rest().size() : line);
    return true;
  }

  /// User and password of a URL.
  bool skip_address() {
    if (!rest().starts_with("://")) return false;
    out_.append("://");
    at_ += 3;
    const std::size_t end = std::min(rest().find_first_of("/ \n\"'?#"), rest().size());
    const std::size_t at_sign = rest().substr(0, end).rfind('@');
    if (at_sign != std::string_view::npos) hide(at_sign);
    return true;
  }

  /// A word, and its value where it is the name of a secret.
  void word() {
    std::size_t name = 0;
    while (name < rest().size() && is_name(rest()[name])) ++name;
    const std::string_view spelled = rest().substr(0, name);
    if (name > 0 && is_secret_name(spelled)) {
      const bool is_option = spelled.starts_with("-") || lower(spelled[0]) == 'b';
      const std::size_t between = separator_bytes(rest().substr(name), is_option);
      if (between > 0 && !is_harmless(rest().substr(name + between))) return hide_value(name + between);
    }
    std::size_t size = 0;
    while (size < rest().size() && is_token(rest()[size]) && !rest().substr(size).starts_with("://")) ++size;
    if (is_known_token(spelled)) return hide(name);
    // The name of an assignment is no part of its value.
    const std::size_t equals = rest().substr(0, size).find('=');
    if (equals != std::string_view::npos && equals > 0 && equals + 1 < size) size = equals + 1;
    if (equals == 0) size = 1;
    const std::string_view whole = rest().substr(0, size);
    if (is_path(whole)) return path(size);
    if (looks_random(whole)) return hide(size);
    out_.append(whole);
    at_ += size;
  }

  /// The names in a path: one that chance made says nothing of the others.
  void path(std::size_t size) {
    for (std::size_t left = size; left > 0;) {
      const std::string_view ahead = rest().substr(0, left);
      const std::size_t slash = std::min(ahead.find('/'), left);
      const std::string_view name = ahead.substr(0, slash);
      left -= name.size();
      if (looks_random(name)) {
        hide(name.size());
      } else {
        out_.append(name);
        at_ += name.size();
      }
      if (left == 0) break;
      out_ += '/';
      ++at_;
      --left;
    }
  }

  /// A short number is no secret: "pad_token=0".
  static bool is_harmless(std::string_view value) {
    constexpr std::size_t kDigitsMax = 5;
    const std::string_view word = value.substr(0, value_bytes(value));
    return word.empty() || word == kRedacted ||
           (word.size() <= kDigitsMax && std::ranges::all_of(word, is_digit));
  }

  void hide_value(std::size_t name_and_separator) {
    out_.append(rest().substr(0, name_and_separator));
    at_ += name_and_separator;
    // "Bearer", "Basic" and their like stand before the secret itself.
    for (const std::string_view scheme : {"Bearer ", "bearer ", "Basic ", "basic ", "Token ", "token "}) {
      if (!rest().starts_with(scheme)) continue;
      out_.append(scheme);
      at_ += scheme.size();
      break;
    }
    if (!rest().starts_with(kRedacted)) return hide(value_bytes(rest()));
    out_.append(kRedacted);
    at_ += kRedacted.size();
  }

  const std::string_view text_;
  std::size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string redacted(std::string_view text) { return Redactor(text).run(); }

}  // namespace gpusched::anticipate

#include "cli/verbs/support/redact.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace gpusched::cli {
namespace {

constexpr std::string_view kHidden = "(redacted)";
constexpr std::array<std::string_view, 8> kSecretWords = {"token",      "password", "passwd", "secret",
                                                          "credential", "api_key",  "apikey", "private_key"};
constexpr std::array<std::string_view, 10> kHarmlessBeginnings = {
    "CUDA_", "NCCL_", "NVIDIA_VISIBLE_",   "OMP_",    "MKL_",
    "UCX_",  "LC_",   "GPU_SCHEDULER_JOB", "MASTER_", "WORLD_"};
constexpr std::array<std::string_view, 9> kHarmless = {"PATH",  "LANG", "TZ",   "HOME",           "USER",
                                                       "SHELL", "TERM", "RANK", "LD_LIBRARY_PATH"};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-'; }

std::string without(std::string text, std::string_view known) {
  if (known.size() < 8) return text;
  for (std::size_t at = text.find(known); at != std::string::npos; at = text.find(known, at))
    text.replace(at, known.size(), kHidden);
  return text;
}

/// API keys hide wherever they stand: gpu-cli gives them nothing that names them.
std::string without_keys(std::string text) {
  constexpr std::string_view kMark = "gsk_";
  for (std::size_t at = text.find(kMark); at != std::string::npos; at = text.find(kMark, at + kMark.size())) {
    const std::size_t from = at + kMark.size();
    std::size_t end = from;
    while (end < text.size() &&
           (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.'))
      ++end;
    text.replace(from, end - from, kHidden);
  }
  return text;
}

/// The place where a secret's value begins behind a word that ends at `at`; npos: no value follows.
std::size_t value_after(std::string_view text, std::size_t at, bool is_option) {
  if (at < text.size() && (text[at] == '"' || text[at] == '\'')) ++at;  // The end of a quoted key.
  std::size_t from = at;
  while (from < text.size() && (text[from] == ' ' || text[from] == '\t')) ++from;
  const bool separated = from < text.size() && (text[from] == '=' || text[from] == ':');
  if (!separated) return is_option && from > at && from < text.size() ? from : std::string_view::npos;
  ++from;
  while (from < text.size() && (text[from] == ' ' || text[from] == '\t')) ++from;
  return from < text.size() && text[from] != '\n' ? from : std::string_view::npos;
}

std::size_t end_of_value(std::string_view text, std::size_t from) {
  if (text[from] == '"' || text[from] == '\'') {
    const std::size_t closing = text.find_first_of(std::string(1, text[from]) + "\n", from + 1);
    return closing == std::string_view::npos ? text.size() : closing + (text[closing] == '\n' ? 0 : 1);
  }
  const std::size_t end = text.find_first_of(" \t\r\n,;&\"'", from);
  return end == std::string_view::npos ? text.size() : end;
}

std::string quoted(const std::string& text) {
  JsonObjectWriter writer;
  writer.add("v", text);
  const std::string whole = writer.text();  // {"v":"..."}
  return whole.substr(5, whole.size() - 6);
}

class Printer {
 public:
  explicit Printer(std::string_view known) : known_(known) {}

  void print(const Json& json, const std::string& indent, bool is_environment) {
    if (json.is_object()) return print_object(json, indent, is_environment);
    if (json.is_array()) return print_array(json, indent);
    out_ += json.is_string() ? quoted(redacted_text(json.text(), known_)) : json.serialize();
  }
  std::string take() { return out_ + "\n"; }

 private:
  void print_object(const Json& json, const std::string& indent, bool is_environment) {
    const std::string deeper = indent + "  ";
    bool first = true;
    out_ += "{";
    for (const auto& [key, value] : json.members()) {
      out_ += (first ? "\n" : ",\n") + deeper + quoted(key) + ": ";
      first = false;
      const bool hidden = is_environment ? !is_harmless_variable(key) : names_a_secret(key);
      if (hidden && !value.is_null()) {
        out_ += quoted(std::string(kHidden));
      } else {
        print(value, deeper, key == "environment" || key == "env");
      }
    }
    out_ += first ? "}" : "\n" + indent + "}";
  }
  /// Words of a command: a secret may be the word behind its option.
  void print_array(const Json& json, const std::string& indent) {
    const std::string deeper = indent + "  ";
    bool first = true;
    bool hide_next = false;
    out_ += "[";
    for (const Json& item : json.items()) {
      out_ += (first ? "\n" : ",\n") + deeper;
      first = false;
      const std::string text = item.text();
      if (hide_next) {
        out_ += quoted(std::string(kHidden));
        hide_next = false;
        continue;
      }
      hide_next = text.starts_with("-") && text.find('=') == std::string::npos && names_a_secret(text);
      print(item, deeper, false);
    }
    out_ += first ? "]" : "\n" + indent + "]";
  }

  std::string_view known_;
  std::string out_;
};

}  // namespace

bool names_a_secret(std::string_view name) {
  const std::string plain = lower(name);
  // "token_file" and "tokens_per_second" are none; a file's path tells nothing.
  if (plain.ends_with("_file") || plain.ends_with("_path") || plain.find("tokens") != std::string::npos)
    return false;
  return std::ranges::any_of(kSecretWords,
                             [&](std::string_view word) { return plain.find(word) != std::string::npos; });
}

bool is_harmless_variable(std::string_view name) {
  if (names_a_secret(name)) return false;
  return std::ranges::find(kHarmless, name) != kHarmless.end() ||
         std::ranges::any_of(kHarmlessBeginnings,
                             [&](std::string_view beginning) { return name.starts_with(beginning); });
}

std::string redacted_text(std::string_view text, std::string_view known) {
  std::string out;
  std::size_t copied = 0;
  std::size_t at = 0;
  while (at < text.size()) {
    if (!is_word(text[at])) {
      ++at;
      continue;
    }
    const std::size_t begin = at;
    while (at < text.size() && is_word(text[at])) ++at;
    const std::string_view word = text.substr(begin, at - begin);
    const std::string plain = lower(word);
    const bool scheme = plain == "bearer" || plain == "basic";
    if (!scheme && plain != "authorization" && !names_a_secret(word)) continue;
    std::size_t from = value_after(text, at, scheme || word.starts_with("-"));
    if (from == std::string_view::npos) continue;
    const std::string_view first = text.substr(from, end_of_value(text, from) - from);
    // "Authorization: Bearer x": the scheme's own turn comes next.
    if (plain == "authorization" && (lower(first) == "bearer" || lower(first) == "basic")) continue;
    out += text.substr(copied, from - copied);
    out += kHidden;
    copied = at = end_of_value(text, from);
  }
  out += text.substr(copied);
  return without_keys(without(std::move(out), known));
}

std::string redacted_json(const Json& json, std::string_view known) {
  Printer printer(known);
  printer.print(json, "", false);
  return printer.take();
}

std::string redacted_config(std::string_view text, std::string_view known) {
  std::string out;
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    const std::string_view line = text.substr(from, end - from);
    const std::size_t colon = line.find(':');
    const std::size_t name = line.find_first_not_of(" \t-#");
    const bool secret = colon != std::string_view::npos && name < colon &&
                        names_a_secret(line.substr(name, colon - name)) &&
                        line.find_first_not_of(" \t", colon + 1) != std::string_view::npos;
    out += secret ? std::string(line.substr(0, colon + 1)) + " " + std::string(kHidden)
                  : redacted_text(line, known);
    out += '\n';
    from = end + 1;
  }
  return out;
}

}  // namespace gpusched::cli

#include "backup/manifest.h"

#include <charconv>
#include <optional>
#include <set>

#include "backup/files.h"

namespace gpusched::backup {
namespace {

constexpr std::string_view kFirstWord = "gpu-scheduler-backup";
constexpr uint64_t kFormat = 1;
constexpr std::size_t kPathBytesMax = 1024;
constexpr std::size_t kDigestDigits = 64;

Error altered() {
  return {.code = ErrorCode::kCorrupt,
          .message = "the manifest of the backup is altered or cut off: use another backup"};
}

/// Takes the text up to `end`, which goes too; nothing when there is none.
std::optional<std::string_view> take_until(std::string_view& text, char end) {
  const std::size_t at = text.find(end);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view taken = text.substr(0, at);
  text.remove_prefix(at + 1);
  return taken;
}

std::optional<uint64_t> number_of(std::string_view text) {
  uint64_t number = 0;
  const auto [stop, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure != std::errc() || stop != text.data() + text.size() || text.empty()) return std::nullopt;
  return number;
}

/// The rest of the next line, which begins with that word.
std::optional<std::string_view> take_value(std::string_view& text, std::string_view word) {
  std::optional<std::string_view> line = take_until(text, '\n');
  if (!line || take_until(*line, ' ') != word) return std::nullopt;
  return line;
}

std::optional<ManifestFile> take_file(std::string_view& text) {
  std::optional<std::string_view> line = take_value(text, "file");
  if (!line) return std::nullopt;
  const auto digest = take_until(*line, ' ');
  const auto bytes = take_until(*line, ' ');
  if (!digest || digest->size() != kDigestDigits || !bytes || !number_of(*bytes) || !is_safe_path(*line))
    return std::nullopt;
  return ManifestFile{
      .path = std::string(*line), .bytes = *number_of(*bytes), .sha256 = std::string(*digest)};
}

}  // namespace

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kPathBytesMax) return false;
  for (const char each : path) {
    if (each <= ' ' || each == '\x7f') return false;
  }
  while (true) {
    const std::size_t at = path.find('/');
    const std::string_view part = path.substr(0, at);
    if (part.empty() || part == "." || part == "..") return false;
    if (at == std::string_view::npos) return true;
    path.remove_prefix(at + 1);
  }
}

std::string encode_manifest(const Manifest& manifest) {
  std::string text = std::string(kFirstWord) + " " + std::to_string(kFormat) + "\nversion " +
                     manifest.version + "\ntaken " + manifest.taken + "\nposition " +
                     std::to_string(manifest.position) + "\n";
  for (const ManifestFile& file : manifest.files)
    text += "file " + file.sha256 + " " + std::to_string(file.bytes) + " " + file.path + "\n";
  return text + "end " + sha256_of(text) + "\n";
}

Result<Manifest> parse_manifest(std::string_view text) {
  const std::string_view whole = text;
  const auto format = take_value(text, kFirstWord);
  if (!format || !number_of(*format)) return altered();
  const auto version = take_value(text, "version");
  if (*number_of(*format) > kFormat) {
    return Error{.code = ErrorCode::kVersion,
                 .message = "the backup was made by a newer version" +
                            (version ? " (" + std::string(*version) + ")" : std::string()) +
                            ": restore it with that version"};
  }
  const auto taken = take_value(text, "taken");
  const auto position = take_value(text, "position");
  if (!version || !taken || !position || !number_of(*position)) return altered();
  Manifest manifest{.version = std::string(*version),
                    .taken = std::string(*taken),
                    .position = *number_of(*position),
                    .files = {}};
  std::set<std::string> seen;
  while (text.starts_with("file ")) {
    std::optional<ManifestFile> file = take_file(text);
    if (!file || !seen.insert(file->path).second) return altered();
    manifest.files.push_back(std::move(*file));
  }
  const std::string_view listed = whole.substr(0, whole.size() - text.size());
  const auto end = take_value(text, "end");
  if (!end || !text.empty() || *end != sha256_of(listed)) return altered();
  return manifest;
}

}  // namespace gpusched::backup

#include "backup/transfer.h"

namespace gpusched::backup {

Result<Manifest> read_manifest(const std::map<std::string, Member>& members, const std::string& source) {
  const auto found = members.find(kManifestName);
  if (found == members.end() || found->second.bytes > kManifestBytesMax) {
    return Error{.code = ErrorCode::kCorrupt,
                 .message = source + " is no backup, or was cut off: it has no MANIFEST"};
  }
  uint64_t bytes = 0;
  const Result<Descriptor> file = open_regular(found->second.file, bytes);
  if (!file.ok()) return file.error();
  std::string text;
  const Result<Unit> read = read_range(file->get(), found->second.file, found->second.offset,
                                       found->second.bytes, [&](std::string_view piece) {
                                         text += piece;
                                         return Result<Unit>(Unit{});
                                       });
  if (!read.ok()) return read.error();
  return parse_manifest(text);
}

Result<Unit> read_listed(const std::map<std::string, Member>& members, const ManifestFile& listed,
                         const TakeBytes& take) {
  const auto found = members.find(listed.path);
  const auto bad = [&](const std::string& what) {
    return Error{.code = ErrorCode::kCorrupt,
                 .message = "the file " + listed.path + " of the backup " + what + ": use another backup"};
  };
  if (found == members.end()) return bad("is missing");
  const Member& member = found->second;
  if (member.bytes != listed.bytes) return bad("has another size than its manifest says");
  uint64_t bytes = 0;
  const Result<Descriptor> file = open_regular(member.file, bytes);
  if (!file.ok()) return file.error();
  Sha256 digest;
  const Result<Unit> read =
      read_range(file->get(), member.file, member.offset, member.bytes, [&](std::string_view piece) {
        digest.add(piece);
        return take ? take(piece) : Result<Unit>(Unit{});
      });
  if (!read.ok()) return read;
  if (digest.finish() != listed.sha256) return bad("is altered");
  return Unit{};
}

Result<Manifest> verify(const std::string& source) {
  const Result<std::map<std::string, Member>> members = list_members(source);
  if (!members.ok()) return members.error();
  Result<Manifest> manifest = read_manifest(*members, source);
  if (!manifest.ok()) return manifest;
  for (const ManifestFile& listed : manifest->files) {
    const Result<Unit> read = read_listed(*members, listed, {});
    if (!read.ok()) return read.error();
  }
  return manifest;
}

Summary summary_of(const Manifest& manifest) {
  Summary summary{.version = manifest.version,
                  .taken = manifest.taken,
                  .position = manifest.position,
                  .files = manifest.files.size()};
  for (const ManifestFile& file : manifest.files) {
    summary.bytes += file.bytes;
    summary.has_history = summary.has_history || file.path == "history/history.db";
  }
  return summary;
}

}  // namespace gpusched::backup

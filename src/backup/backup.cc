#include "backup/backup.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string_view>
#include <utility>

#include "backup/container.h"
#include "backup/live_folder.h"
#include "backup/transfer.h"
#include "base/errors.h"
#include "journal/journal_inspect.h"

namespace gpusched::backup {
namespace {

constexpr std::string_view kArchiveSuffix = ".tar";

bool lies_in(const std::string& path, const std::string& folder) {
  std::error_code failed;
  const std::filesystem::path whole = std::filesystem::weakly_canonical(folder, failed);
  const std::filesystem::path other = std::filesystem::weakly_canonical(path, failed);
  return !failed &&
         std::mismatch(whole.begin(), whole.end(), other.begin(), other.end()).first == whole.end();
}

Result<std::unique_ptr<Writer>> open_writer(const BackupOptions& options) {
  if (options.destination == "-") return write_stream(options.stream);
  if (lies_in(options.destination, options.data_dir)) {
    return invalid_argument(options.destination + " lies in " + options.data_dir +
                            ": a backup that goes with its folder is none; give another place");
  }
  struct stat status{};
  if (::lstat(options.destination.c_str(), &status) == 0) {
    return Error{.code = ErrorCode::kAlreadyExists,
                 .message = options.destination + " is there already; give another name"};
  }
  if (options.destination.ends_with(kArchiveSuffix)) return write_archive(options.destination);
  return write_folder(options.destination, std::nullopt);
}

Result<ManifestFile> copy_source(const Source& source, Writer& writer, Meter& meter) {
  Sha256 digest;
  const TakeBytes take = [&](std::string_view piece) {
    digest.add(piece);
    meter.add(piece.size());
    return writer.write(piece);
  };
  Result<Unit> done = writer.begin(source.path, source.bytes);
  if (!done.ok()) return done.error();
  if (source.file.is_open()) {
    done = read_range(source.file.get(), source.path, 0, source.bytes, take);
  } else {
    done = take(source.mapping ? source.mapping->bytes() : std::string_view(source.text));
  }
  if (done.ok()) done = writer.end();
  if (!done.ok()) return done.error();
  return ManifestFile{.path = source.path, .bytes = source.bytes, .sha256 = digest.finish()};
}

Result<Unit> write_manifest(const Manifest& manifest, Writer& writer) {
  const std::string text = encode_manifest(manifest);
  Result<Unit> done = writer.begin(kManifestName, text.size());
  if (done.ok()) done = writer.write(text);
  if (done.ok()) done = writer.end();
  return done;
}

/// Reads what was written back, and the journal in a folder as a start would.
Result<Unit> prove(const Writer& writer, const std::string& destination) {
  const std::string staged = writer.staged();
  if (staged.empty()) return Unit{};
  const Result<Manifest> read = verify(staged);
  if (!read.ok()) return read.error();
  if (destination.ends_with(kArchiveSuffix)) return Unit{};
  const Result<JournalScan> scan = inspect_journal(posix_disk(), staged + "/journal", {});
  return scan.ok() ? Result<Unit>(Unit{}) : scan.error();
}

}  // namespace

Result<Summary> make_backup(const BackupOptions& options) {
  Result<std::unique_ptr<Writer>> writer = open_writer(options);
  if (!writer.ok()) return writer.error();
  const Result<LiveFolder> live = open_live_folder(options.data_dir, options.history);
  if (!live.ok()) return live.error();
  uint64_t total = 0;
  for (const Source& source : live->sources) total += source.bytes;
  Meter meter(options.progress, total);
  Manifest manifest{
      .version = options.version, .taken = options.taken, .position = live->position, .files = {}};
  for (const Source& source : live->sources) {
    Result<ManifestFile> copied = copy_source(source, **writer, meter);
    if (!copied.ok()) return copied.error();
    manifest.files.push_back(std::move(*copied));
  }
  Result<Unit> done = write_manifest(manifest, **writer);
  if (done.ok()) done = (*writer)->complete();
  if (done.ok()) done = prove(**writer, options.destination);
  if (done.ok()) done = (*writer)->finish();
  if (!done.ok()) return done.error();
  return summary_of(manifest);
}

}  // namespace gpusched::backup

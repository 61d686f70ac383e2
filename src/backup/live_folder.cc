#include "backup/live_folder.h"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "backup/manifest.h"
#include "base/errors.h"
#include "journal/journal_inspect.h"
#include "journal/snapshot_store.h"

namespace gpusched::backup {
namespace {

/// A scheduler that compacts meanwhile can spoil one reading; not so many in a row.
constexpr int kAttemptsMax = 8;
constexpr std::size_t kFilesMax = 10'000;

Source text_source(std::string path, std::string text) {
  Source source{.path = std::move(path)};
  source.bytes = text.size();
  source.text = std::move(text);
  return source;
}

Result<Source> file_source(std::string path, const std::string& name) {
  Source source{.path = std::move(path)};
  Result<Descriptor> file = open_regular(name, source.bytes);
  if (!file.ok()) return file.error();
  source.file = std::move(*file);
  return source;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// The snapshots, oldest first. One that is damaged is left out, as at a start; one that went away meanwhile
/// too.
Result<Unit> add_snapshots(const std::string& folder, LiveFolder& live, uint64_t& newest) {
  for (const uint64_t position : snapshot_positions(posix_disk(), folder)) {
    Result<Snapshot> snapshot = read_snapshot(posix_disk(), snapshot_path(folder, position));
    if (!snapshot.ok()) {
      const ErrorCode code = snapshot.error().code;
      if (code == ErrorCode::kCorrupt || code == ErrorCode::kNotFound) continue;
      return snapshot.error();
    }
    newest = std::max(newest, snapshot->info.last_position);
    Source source{.path = "snapshots/" + file_name(snapshot->path)};
    source.bytes = snapshot->mapping->bytes().size();
    source.mapping = std::move(snapshot->mapping);
    live.sources.push_back(std::move(source));
  }
  return Unit{};
}

/// The last segment with zero bytes behind its last whole record, and behind the seal of a clean end.
std::string last_segment(JournalScan& scan) {
  const SegmentScan& last = scan.segments.back().scan;
  const uint64_t end = last.tail == SegmentTail::kSealed ? last.used_end : last.end;
  std::string bytes = std::move(scan.last_bytes);
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(end), bytes.end(), '\0');
  return bytes;
}

void add_marks(const JournalScan& scan, LiveFolder& live) {
  const auto add = [&](const char* name, std::string text) {
    live.sources.push_back(text_source(std::string("journal/") + name, std::move(text)));
  };
  add(kVersionName, encode_version({.format = kJournalFormatVersion, .store_id = scan.store_id}));
  add(kTruncateName, encode_truncate_mark(std::nullopt));
  std::string marks(kCompactMarks * kMarkBytes, '\0');
  if (scan.compacted.position > 0) {
    marks.replace(compact_mark_offset(scan.compacted), kMarkBytes,
                  encode_compact_mark(scan.store_id, scan.compacted));
  }
  add(kCompactName, std::move(marks));
  const ScannedSegment& last = scan.segments.back();
  add(kReachedName, encode_reached_mark(scan.store_id, {.position = last.scan.last_position,
                                                        .segment_index = last.header.index}));
}

/// kNotFound: the scheduler removed meanwhile what is needed.
Result<Unit> add_journal(const std::string& folder, uint64_t snapshot, LiveFolder& live) {
  Result<JournalScan> scan = inspect_journal(posix_disk(), folder, {});
  if (!scan.ok()) return scan.error();
  if (scan->segments.empty() || scan->truncate_after) {
    return Error{.code = ErrorCode::kUnavailable,
                 .message = folder + " has no records yet, or is being cut back: start the scheduler first"};
  }
  if (scan->segments.front().header.first_position > snapshot + 1) {
    return Error{.code = ErrorCode::kNotFound,
                 .message = "no whole snapshot in " + folder_above(folder) +
                            "/snapshots holds what the journal has forgotten: the folder cannot be copied"};
  }
  add_marks(*scan, live);
  for (std::size_t i = 0; i + 1 < scan->segments.size(); ++i) {
    const std::string& path = scan->segments[i].path;
    Result<Source> segment = file_source("journal/" + file_name(path), path);
    if (!segment.ok()) return segment.error();
    live.sources.push_back(std::move(*segment));
  }
  live.position = scan->segments.back().scan.last_position;
  const std::string name = "journal/" + file_name(scan->segments.back().path);
  live.sources.push_back(text_source(name, last_segment(*scan)));
  return Unit{};
}

/// Files that are copied in another way, or are of no use elsewhere.
bool is_left_out(const std::string& path) {
  for (const char* folder : {"journal/", "snapshots/", "history/", "machines/", "replica/"}) {
    if (path.starts_with(folder)) return true;
  }
  return path == "ports.json" || path.ends_with(".tmp") || path.ends_with(".partial");
}

/// Token, keys, authority, audit, and what a later version may add.
Result<Unit> add_rest(const std::string& data_dir, LiveFolder& live) {
  std::error_code failed;
  std::filesystem::recursive_directory_iterator walk(data_dir, failed);
  for (; !failed && walk != std::filesystem::recursive_directory_iterator(); walk.increment(failed)) {
    const std::string path = walk->path().lexically_relative(data_dir).string();
    if (is_left_out(path) || is_left_out(path + "/")) {
      walk.disable_recursion_pending();
      continue;
    }
    if (walk->is_symlink(failed) || !walk->is_regular_file(failed)) {
      if (!walk->is_symlink(failed)) continue;
      return invalid_argument(walk->path().string() +
                              " is a symbolic link, which a backup cannot hold: put the file there");
    }
    if (!is_safe_path(path) || path == kManifestName || live.sources.size() > kFilesMax)
      return invalid_argument(walk->path().string() + " has no place in a backup: remove it from the folder");
    Result<Source> source = file_source(path, walk->path().string());
    if (!source.ok() && source.error().code == ErrorCode::kNotFound) continue;
    if (!source.ok()) return source.error();
    live.sources.push_back(std::move(*source));
  }
  if (failed)
    return Error{.code = ErrorCode::kIo, .message = "cannot read " + data_dir + ": " + failed.message()};
  return Unit{};
}

Result<LiveFolder> open_once(const std::string& data_dir) {
  LiveFolder live;
  uint64_t snapshot = 0;
  // The snapshots come first: a journal that is read later goes on behind them.
  Result<Unit> added = add_snapshots(data_dir + "/snapshots", live, snapshot);
  if (added.ok()) added = add_journal(data_dir + "/journal", snapshot, live);
  if (!added.ok()) return added.error();
  return live;
}

}  // namespace

Result<LiveFolder> open_live_folder(const std::string& data_dir, const std::vector<OtherFile>& others) {
  const Result<JournalVersion> version = read_version(posix_disk(), data_dir + "/journal");
  if (!version.ok() && version.error().code == ErrorCode::kNotFound) {
    return Error{.code = ErrorCode::kNotFound,
                 .message = data_dir + " is no data folder of a scheduler: it has no journal"};
  }
  if (!version.ok()) return version.error();
  Result<LiveFolder> live = open_once(data_dir);
  for (int attempt = 1; attempt < kAttemptsMax; ++attempt) {
    if (live.ok() || live.error().code != ErrorCode::kNotFound) break;
    live = open_once(data_dir);
  }
  if (!live.ok()) return live;
  const Result<Unit> added = add_rest(data_dir, *live);
  if (!added.ok()) return added.error();
  for (const OtherFile& other : others) {
    Result<Source> source = file_source(other.path, other.file);
    if (!source.ok()) return source.error();
    live->sources.push_back(std::move(*source));
  }
  return live;
}

}  // namespace gpusched::backup

#include "journal/file_journal.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/limits.h"

namespace gpusched {
namespace {

constexpr std::size_t kBufferBytes = 1u << 20;
/// Kept free at the end of every segment, so that a seal always fits.
constexpr uint64_t kSealBytes = record_bytes(0);

uint64_t draw_store_id() {
  std::random_device device;
  const uint64_t high = device();
  return (high << 32 | device()) | 1;
}

bool has_segments(const std::vector<std::string>& names) {
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return parse_segment_name(name).has_value(); });
}

std::string without_trailing_slash(std::string dir) {
  while (dir.size() > 1 && dir.back() == '/') dir.pop_back();
  return dir;
}

}  // namespace

Result<std::unique_ptr<FileJournal>> FileJournal::open(const std::string& dir,
                                                       const FileJournalOptions& options) {
  CHECK(options.segment_bytes >= kSegmentBytesMin);
  Disk& disk = options.disk != nullptr ? *options.disk : posix_disk();
  std::unique_ptr<FileJournal> journal(new FileJournal(without_trailing_slash(dir), options, disk));
  const Result<Unit> recovered = journal->recover();
  if (!recovered) return recovered.error();
  return journal;
}

FileJournal::FileJournal(std::string dir, const FileJournalOptions& options, Disk& disk)
    : dir_(std::move(dir)), options_(options), disk_(disk), buffer_(kBufferBytes) {}

FileJournal::~FileJournal() = default;

Result<Unit> FileJournal::append(const JournalRecord& record) {
  if (failure_) return usable();
  CHECK(!sealed_);
  CHECK(record.position == last_position_ + 1);
  CHECK(record.term >= last_term_);
  const uint64_t bytes = record_bytes(record.payload.size());
  if (record.payload.size() > payload_max()) {
    return Error{.code = ErrorCode::kTooLarge,
                 .message = "a group of " + std::to_string(record.payload.size()) +
                            " bytes is larger than a journal record may be"};
  }
  const Segment& current = segments_.back();
  if (current.end + buffered_ + bytes + kSealBytes > current.header.segment_bytes) {
    const Result<Unit> next = next_segment();
    if (!next) return next;
  }
  put(record, RecordKind::kGroup);
  last_position_ = record.position;
  last_term_ = record.term;
  return Unit{};
}

std::size_t FileJournal::payload_max() const {
  const uint64_t around = kSegmentHeaderBytes + kRecordHeaderBytes + kRecordAlignment + kSealBytes;
  const uint64_t room = options_.segment_bytes > around ? options_.segment_bytes - around : 0;
  return std::min<uint64_t>(room, limits::kGroupBytesMax);
}

Result<Unit> FileJournal::check_room(std::size_t payload_bytes) {
  if (failure_) return usable();
  const Segment& current = segments_.back();
  const uint64_t end = current.end + buffered_ + record_bytes(payload_bytes) + kSealBytes;
  return end <= current.header.segment_bytes ? Result<Unit>(Unit{}) : spares_->check_room();
}

Result<Unit> FileJournal::write_out() {
  if (failure_) return usable();
  if (buffered_ == 0) return Unit{};
  Segment& current = segments_.back();
  const Result<Unit> written = write_all(*current_, current.end, {buffer_.data(), buffered_});
  if (!written) return fail(written.error(), ErrorCode::kOutcomeUnknown);
  current.end += buffered_;
  buffered_ = 0;
  written_position_ = last_position_;
  unsynced_ = true;
  return Unit{};
}

Result<Unit> FileJournal::sync() {
  const Result<Unit> written = write_out();
  if (!written || !unsynced_) return written;
  const Result<Unit> synced = current_->fdatasync();
  if (!synced) return fail(synced.error(), ErrorCode::kOutcomeUnknown);
  unsynced_ = false;
  synced_position_ = last_position_;
  return Unit{};
}

Result<Unit> FileJournal::read_from(uint64_t position, const Visitor& visit) {
  if (failure_) return usable();
  if (position < first_position()) {
    return Error{.code = ErrorCode::kNotFound,
                 .message = "the journal starts at record " + std::to_string(first_position()) + ", record " +
                            std::to_string(position) + " was compacted away"};
  }
  std::string bytes;
  for (std::size_t i = 0; i < segments_.size(); ++i) {
    const bool last = i + 1 == segments_.size();
    const uint64_t behind = last ? written_position_ + 1 : segments_[i + 1].header.first_position;
    if (position >= behind) continue;
    const Result<Unit> loaded = read_segment(disk_, segments_[i].path, bytes);
    if (!loaded) return loaded;
    const auto from = [&](const StoredRecord& stored, uint64_t) -> Result<Unit> {
      return stored.record.position < position ? Result<Unit>(Unit{}) : visit(stored.record);
    };
    const Result<SegmentScan> scan =
        scan_segment(std::string_view(bytes).substr(0, segments_[i].end), segments_[i].header, from);
    if (!scan) return scan.error();
    if (scan->last_position + 1 != behind) {
      return damage(
          segments_[i].path, scan->end,
          "record " + std::to_string(scan->last_position + 1) + " was whole when the journal was opened");
    }
  }
  return read_buffered(position, visit);
}

Result<Unit> FileJournal::truncate_after(uint64_t position) {
  CHECK(!sealed_);
  CHECK(position + 1 >= first_position());
  CHECK(position <= last_position_);
  const Result<Unit> synced = sync();
  if (!synced) return synced;
  if (position == last_position_) return Unit{};
  // From the mark on a crash leads to the same end: the next opening finishes what it finds.
  Result<Unit> done = Unit{};
  if (compacted_.position > position + 1) done = give_up_before(position + 1);
  if (done) done = write_reached_mark({.position = position, .segment_index = 0});
  if (done) done = write_truncate_mark(position);
  if (done) done = cut_segments_after(position);
  if (done) done = write_truncate_mark(std::nullopt);
  if (!done) return fail(done.error(), ErrorCode::kOutcomeUnknown);
  return Unit{};
}

Result<Unit> FileJournal::compact_before(uint64_t position) {
  if (failure_) return usable();
  CHECK(!sealed_);
  position = std::min(position, last_position_ + 1);
  std::vector<std::string> paths;
  std::size_t count = 0;
  while (count + 1 < segments_.size() && segments_[count + 1].header.first_position <= position) {
    paths.push_back(segments_[count].path);
    count += 1;
  }
  if (position >= options_.needed_from)
    std::move(unneeded_.begin(), unneeded_.end(), std::back_inserter(paths));
  if (paths.empty()) return Unit{};
  // The mark is durable before the first file goes: whichever of them a crash or a failed removal leaves, the
  // next opening knows that none is needed.
  Result<Unit> marked = give_up_before(position);
  if (!marked && marked.error().code == ErrorCode::kStorageFull) {
    // No room for the mark: that of the oldest file does. Without it nothing is missing in between.
    const Result<Unit> removed = disk_.remove(paths.front());
    if (!removed) return removed;
    marked = give_up_before(position);
  }
  if (!marked) return marked;
  if (position >= options_.needed_from) unneeded_.clear();
  segments_.erase(segments_.begin(), segments_.begin() + static_cast<std::ptrdiff_t>(count));
  spares_->discard(std::move(paths));
  return Unit{};
}

Result<Unit> FileJournal::seal() {
  CHECK(!sealed_);
  const Result<Unit> synced = sync();
  if (!synced) return synced;
  put({.position = last_position_, .term = last_term_}, RecordKind::kSeal);
  sealed_ = true;
  return sync();
}

Result<Unit> FileJournal::recover() {
  Result<Unit> done = prepare_folder(options_.store_id);
  if (!done) return done;
  Result<JournalScan> scan = scan_all();
  if (!scan) return scan.error();
  // Where no segment is in use, only the file says which journal this is: a number that one reading got wrong
  // would be written into the first header, and every later start would take that for another journal's.
  if (scan->store_id != store_id_) return readings_differ(dir_ + "/" + kVersionName);
  done = settle_marks(*scan);
  if (!done) return done;
  if (scan->truncate_after) {
    done = finish_truncation(*scan);
    if (!done) return done;
    scan = scan_all();
    if (!scan) return scan.error();
  }
  done = reset_torn_header(*scan);
  if (done) done = settle_tail(*scan);
  if (done) done = adopt(*scan);
  if (done) done = start_spares(*scan);
  if (done) done = segments_.empty() ? next_segment() : note_reached();
  if (!done) return done;
  spares_->wait_for_reserve();
  report_.first_position = first_position();
  report_.segments = segments_.size();
  report_.passed_over = scan->passed_over;
  return Unit{};
}

/// The folder under its name, locked, and without what was never finished.
Result<Unit> FileJournal::make_folder() {
  Result<Unit> done = disk_.make_dir(dir_);
  if (done) done = disk_.sync_dir(folder_above(dir_));
  if (!done) return done;
  Result<std::unique_ptr<DiskLock>> lock = disk_.lock(dir_ + "/" + kLockName);
  if (!lock) return lock.error();
  lock_ = std::move(*lock);
  const Result<std::vector<std::string>> names = disk_.list(dir_);
  if (!names) return names.error();
  for (const std::string& name : *names) {
    // One that stays is no harm: it is made again when it is needed, or ignored.
    if (name.ends_with(kTemporarySuffix)) (void)disk_.remove(dir_ + "/" + name).ok();
  }
  return Unit{};
}

Result<Unit> FileJournal::prepare_folder(uint64_t store_id) {
  Result<Unit> done = make_folder();
  if (!done) return done;
  const Result<std::vector<std::string>> names = disk_.list(dir_);
  if (!names) return names.error();
  const Result<JournalVersion> version = read_version(disk_, dir_);
  if (!version && version.error().code != ErrorCode::kNotFound) return version.error();
  if (!version && has_segments(*names)) {
    return Error{
        .code = ErrorCode::kCorrupt,
        .message = dir_ + " has segments but no " + kVersionName + " file: restore the folder from a backup"};
  }
  if (version) {
    store_id_ = version->store_id;
  } else {
    report_.created = true;
    store_id_ = store_id != 0 ? store_id : draw_store_id();
    done = replace_file(disk_, dir_, kVersionName,
                        encode_version({.format = kJournalFormatVersion, .store_id = store_id_}));
  }
  if (done) done = open_mark(kTruncateName, kMarkBytes, truncate_mark_);
  if (done) done = open_late_mark(kCompactName, kCompactMarks * kMarkBytes, compact_mark_, *names);
  if (done) done = open_late_mark(kReachedName, kMarkBytes, reached_mark_, *names);
  // Names that a killed process left are there, and not durable.
  if (done) done = disk_.sync_dir(dir_);
  return done;
}

/// As `open_mark`, for a mark that an older version did not make: a full disk must not stop the start of its
/// folder, of which `names` are the files.
Result<Unit> FileJournal::open_late_mark(const char* name, std::size_t bytes, std::unique_ptr<DiskFile>& file,
                                         const std::vector<std::string>& names) {
  const Result<Unit> opened = open_mark(name, bytes, file);
  if (opened || opened.error().code != ErrorCode::kStorageFull) return opened;
  const bool was_there = std::binary_search(names.begin(), names.end(), name);
  return has_segments(names) && !was_there ? Result<Unit>(Unit{}) : opened;
}

/// Opens a mark for writing; makes an empty one when there is none.
Result<Unit> FileJournal::open_mark(const char* name, std::size_t bytes, std::unique_ptr<DiskFile>& file) {
  const std::string path = dir_ + "/" + name;
  Result<std::unique_ptr<DiskFile>> opened = disk_.open(path, DiskOpen::kReadWrite);
  if (!opened && opened.error().code == ErrorCode::kNotFound) {
    const Result<Unit> made = replace_file(disk_, dir_, name, std::string(bytes, '\0'));
    if (!made) return made;
    opened = disk_.open(path, DiskOpen::kReadWrite);
  }
  if (!opened) return opened.error();
  file = std::move(*opened);
  return Unit{};
}

/// Writes the marks again as they were read, before anything that relies on them: after a failed or missing
/// sync they may be in memory only, and a new life of the machine would find others.
Result<Unit> FileJournal::settle_marks(const JournalScan& scan) {
  const Result<Unit> done = write_truncate_mark(scan.truncate_after);
  if (!done || scan.compacted.generation == 0) return done;
  return write_compact_mark(scan.compacted);
}

/// Reads everything. Cutting a torn tail cannot be undone, so one is read a second time.
Result<JournalScan> FileJournal::scan_all() {
  Result<JournalScan> scan = scan_journal(disk_, dir_, {}, options_.needed_from);
  if (!scan || scan->segments.empty()) return scan;
  const ScannedSegment& last = scan->segments.back();
  if (last.scan.tail != SegmentTail::kTorn) return scan;
  std::string again;
  const Result<Unit> read = read_segment(disk_, last.path, again);
  if (!read) return read.error();
  if (again != scan->last_bytes) return readings_differ(last.path);
  return scan;
}

Result<Unit> FileJournal::finish_truncation(JournalScan& scan) {
  report_.truncation_finished = true;
  for (const std::string& path : scan.voided) {
    const Result<Unit> removed = disk_.remove(path);
    if (!removed && removed.error().code != ErrorCode::kNotFound) return removed;
  }
  Result<Unit> done = disk_.sync_dir(dir_);
  if (done) done = settle_tail(scan);
  if (done) done = write_reached_mark({.position = *scan.truncate_after, .segment_index = 0});
  if (done) done = write_truncate_mark(std::nullopt);
  return done;
}

Result<Unit> FileJournal::reset_torn_header(JournalScan& scan) {
  if (!scan.torn) return Unit{};
  Result<std::unique_ptr<DiskFile>> file = disk_.open(scan.torn->path, DiskOpen::kReadWrite);
  if (!file) return file.error();
  const Result<Unit> done = zero(**file, 0, kSegmentHeaderBytes);
  if (done) scan.prepared.push_back(*scan.torn);
  return done;
}

/// Makes durable what was read. Bytes that a killed process wrote, or whose sync failed, read well from the
/// page cache and are not on the disk, and a sync alone may have nothing left to write. So everything behind
/// the last record that is proven to be durable is written again, up to the end of the segment, and synced.
Result<Unit> FileJournal::settle_tail(JournalScan& scan) {
  if (scan.segments.empty()) return Unit{};
  // Earlier segments were synced before the last one was begun, unless the whole folder was just copied.
  for (std::size_t i = 0; i + 1 < scan.segments.size(); ++i) {
    Result<std::unique_ptr<DiskFile>> earlier = disk_.open(scan.segments[i].path, DiskOpen::kRead);
    if (!earlier) return earlier.error();
    const Result<Unit> synced = (*earlier)->fdatasync();
    if (!synced) return synced;
  }
  const ScannedSegment& last = scan.segments.back();
  report_.sealed = last.scan.tail == SegmentTail::kSealed;
  if (last.scan.tail == SegmentTail::kTorn) {
    report_.bytes_cut = last.scan.used_end - last.scan.end;
    report_.segment = last.path;
    report_.offset = last.scan.end;
    report_.reason = last.scan.reason;
  }
  std::string& bytes = scan.last_bytes;
  std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(last.scan.end), bytes.end(), '\0');
  // Behind a seal there is nothing, and before it everything is proven.
  const uint64_t from = report_.sealed ? last.scan.end : last.scan.proven_end;
  const uint64_t to = report_.sealed ? last.scan.used_end : bytes.size();
  Result<std::unique_ptr<DiskFile>> file = disk_.open(last.path, DiskOpen::kReadWrite);
  if (!file) return file.error();
  const Result<Unit> written = write_all(**file, from, std::string_view(bytes).substr(from, to - from));
  if (!written) return written;
  return (*file)->fdatasync();
}

Result<Unit> FileJournal::adopt(const JournalScan& scan) {
  segments_.clear();
  report_.records = 0;
  for (const ScannedSegment& segment : scan.segments) {
    segments_.push_back({.path = segment.path, .header = segment.header, .end = segment.scan.end});
    last_position_ = segment.scan.last_position;
    last_term_ = segment.scan.last_term;
    chain_ = segment.scan.chain;
    report_.records += segment.scan.records;
  }
  synced_position_ = last_position_;
  written_position_ = last_position_;
  report_.last_position = last_position_;
  report_.last_term = last_term_;
  return segments_.empty() ? Result<Unit>(Unit{}) : open_current();
}

Result<Unit> FileJournal::start_spares(JournalScan& scan) {
  std::deque<SpareSegment> ready;
  std::vector<std::string> unused = scan.stale;
  std::sort(scan.prepared.begin(), scan.prepared.end(),
            [](const PreparedSegment& a, const PreparedSegment& b) { return a.index < b.index; });
  for (const PreparedSegment& prepared : scan.prepared) {
    if (prepared.bytes != options_.segment_bytes) {
      unused.push_back(prepared.path);
      continue;
    }
    Result<std::unique_ptr<DiskFile>> file = disk_.open(prepared.path, DiskOpen::kReadWrite);
    if (!file) return file.error();
    ready.push_back(
        {.index = prepared.index, .path = prepared.path, .bytes = prepared.bytes, .file = std::move(*file)});
  }
  unneeded_ = scan.unneeded;
  compacted_ = scan.compacted;
  const uint64_t room = options_.segment_bytes - kSegmentHeaderBytes;
  const SpareSegments::Options options{
      .dir = dir_,
      .segment_bytes = options_.segment_bytes,
      .reserve = static_cast<uint32_t>((options_.reserve_bytes + room - 1) / room),
      .background = options_.background,
      .retry = options_.retry,
      .lock = lock_.get()};
  spares_ = std::make_unique<SpareSegments>(disk_, options, scan.next_index, std::move(ready));
  if (!unused.empty()) spares_->discard(std::move(unused));
  return Unit{};
}

Result<Unit> FileJournal::open_current() {
  Result<std::unique_ptr<DiskFile>> file = disk_.open(segments_.back().path, DiskOpen::kReadWrite);
  if (!file) return file.error();
  current_ = std::move(*file);
  return Unit{};
}

/// Goes on in a prepared segment. The order makes every crash point plain: what is in the old segment is
/// durable before the new one's header, and that before the first record behind it.
Result<Unit> FileJournal::next_segment() {
  const Result<Unit> ours = lock_->check();
  if (!ours) return fail(ours.error(), ErrorCode::kIo);
  Result<SpareSegment> spare = spares_->take();
  if (!spare) return spare.error();
  const Result<Unit> synced = sync();
  if (!synced) return synced;
  const SegmentHeader header{.store_id = store_id_,
                             .index = spare->index,
                             .first_position = last_position_ + 1,
                             .segment_bytes = spare->bytes,
                             .last_term = last_term_,
                             .chain = chain_};
  char* block = room_for(kSegmentHeaderBytes);
  encode_segment_header(header, block);
  const Result<Unit> written = write_all(*spare->file, 0, {block, kSegmentHeaderBytes});
  if (!written) return fail(written.error(), ErrorCode::kIo);
  const Result<Unit> durable = spare->file->fdatasync();
  if (!durable) return fail(durable.error(), ErrorCode::kIo);
  segments_.push_back({.path = std::move(spare->path), .header = header});
  current_ = std::move(spare->file);
  const Result<Unit> noted = note_reached();
  return noted ? noted : fail(noted.error(), ErrorCode::kIo);
}

Result<Unit> FileJournal::zero(DiskFile& file, uint64_t offset, uint64_t end) {
  const Result<Unit> written = write_zeros(file, offset, end);
  if (!written) return written;
  return file.fdatasync();
}

Result<Unit> FileJournal::write_truncate_mark(std::optional<uint64_t> position) {
  const Result<Unit> written = write_all(*truncate_mark_, 0, encode_truncate_mark(position));
  if (!written) return written;
  return truncate_mark_->fdatasync();
}

Result<Unit> FileJournal::write_compact_mark(const CompactMark& mark) {
  const Result<Unit> written =
      write_all(*compact_mark_, compact_mark_offset(mark), encode_compact_mark(store_id_, mark));
  if (!written) return written;
  return compact_mark_->fdatasync();
}

Result<Unit> FileJournal::write_reached_mark(const ReachedMark& mark) {
  if (reached_mark_ == nullptr) return Unit{};
  const Result<Unit> written = write_all(*reached_mark_, 0, encode_reached_mark(store_id_, mark));
  if (!written) return written;
  return reached_mark_->fdatasync();
}

/// Says durably that the last segment is in use, and that what is in it is durable. Where a full disk has no
/// room even for that, the older mark stays true.
Result<Unit> FileJournal::note_reached() {
  const Result<Unit> written =
      write_reached_mark({.position = last_position_, .segment_index = segments_.back().header.index});
  return !written && written.error().code == ErrorCode::kStorageFull ? Result<Unit>(Unit{}) : written;
}

/// Says durably that records before `position` are not needed.
Result<Unit> FileJournal::give_up_before(uint64_t position) {
  if (compact_mark_ == nullptr) {
    const Result<Unit> opened = open_mark(kCompactName, kCompactMarks * kMarkBytes, compact_mark_);
    if (!opened) return opened;
  }
  // Counted even when it fails: it may be on the disk all the same.
  compacted_ = {.position = position, .generation = compacted_.generation + 1};
  return write_compact_mark(compacted_);
}

Result<Unit> FileJournal::cut_segments_after(uint64_t position) {
  bool removed = false;
  while (segments_.size() > 1 && segments_.back().header.first_position > position) {
    const Result<Unit> gone = disk_.remove(segments_.back().path);
    if (!gone) return gone;
    segments_.pop_back();
    removed = true;
  }
  if (removed) {
    const Result<Unit> synced = disk_.sync_dir(dir_);
    if (!synced) return synced;
    const Result<Unit> opened = open_current();
    if (!opened) return opened;
  }
  Segment& last = segments_.back();
  std::string bytes;
  const Result<Unit> loaded = read_segment(disk_, last.path, bytes);
  if (!loaded) return loaded;
  const Result<SegmentScan> scan = scan_segment(bytes, last.header, {}, position);
  if (!scan) return scan.error();
  if (scan->last_position != position) return damage(last.path, scan->end, "a record is damaged");
  last.end = scan->end;
  last_position_ = scan->last_position;
  synced_position_ = last_position_;
  written_position_ = last_position_;
  last_term_ = scan->last_term;
  chain_ = scan->chain;
  return zero(*current_, scan->end, scan->used_end);
}

Result<Unit> FileJournal::read_buffered(uint64_t position, const Visitor& visit) {
  const Segment& current = segments_.back();
  std::size_t at = 0;
  while (at < buffered_) {
    const RecordPlace place{
        .store_id = store_id_, .segment_index = current.header.index, .offset = current.end + at};
    const auto stored = parse_record({buffer_.data() + at, buffered_ - at}, place);
    CHECK(stored.has_value());  // We encoded it ourselves.
    if (stored->record.position >= position) {
      const Result<Unit> visited = visit(stored->record);
      if (!visited) return visited;
    }
    at += stored->bytes;
  }
  return Unit{};
}

/// Room for `bytes` more behind what is buffered; grows by doubling and keeps what it has.
char* FileJournal::room_for(std::size_t bytes) {
  if (buffered_ + bytes > buffer_.size()) buffer_.resize(std::max(buffer_.size() * 2, buffered_ + bytes));
  return buffer_.data() + buffered_;
}

void FileJournal::put(const JournalRecord& record, RecordKind kind) {
  const Segment& current = segments_.back();
  const StoredRecord stored{.kind = kind,
                            .record = record,
                            .synced_position = synced_position_,
                            .previous_crc = chain_,
                            .crc = 0,
                            .bytes = 0};
  const std::size_t bytes = record_bytes(record.payload.size());
  const RecordPlace place{
      .store_id = store_id_, .segment_index = current.header.index, .offset = current.end + buffered_};
  const uint32_t crc = encode_record(stored, place, room_for(bytes));
  if (kind == RecordKind::kGroup) chain_ = crc;
  buffered_ += bytes;
}

Result<Unit> FileJournal::usable() const {
  if (!failure_) return Unit{};
  return Error{.code = ErrorCode::kIo,
               .message = "the journal failed earlier (" + failure_->message +
                          "), so it is unknown which records are durable; restart the process"};
}

Error FileJournal::fail(const Error& cause, ErrorCode code) {
  failure_ = cause;
  return {.code = code, .message = cause.message};
}

}  // namespace gpusched

#include "journal/snapshot_store.h"

#include <algorithm>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/crc32c.h"
#include "journal/raw_bytes.h"
#include "journal/record_format.h"

namespace gpusched {
namespace {

constexpr uint64_t kMagic = 0x50414E5344455347ULL;  // "GSEDSNAP"
constexpr std::size_t kHeaderBytes = 4096;
constexpr std::size_t kHeaderUsed = 64;
constexpr std::size_t kHeaderCrcAt = 60;
constexpr uint32_t kChunkBytes = 256u << 10;
constexpr uint64_t kSyncStepBytes = 16u << 20;  ///< One huge sync would hold up the journal's.
constexpr std::size_t kKept = 2;
constexpr std::size_t kNameDigits = 20;
constexpr std::string_view kSuffix = ".snap";
constexpr std::string_view kTemporary = ".tmp";

std::string name_of(uint64_t position) {
  const std::string digits = std::to_string(position);
  return std::string(kNameDigits - digits.size(), '0') + digits + std::string(kSuffix);
}

std::optional<uint64_t> position_of(const std::string& name) {
  if (name.size() != kNameDigits + kSuffix.size() || !name.ends_with(kSuffix)) return std::nullopt;
  uint64_t position = 0;
  const char* end = name.data() + kNameDigits;
  const auto parsed = std::from_chars(name.data(), end, position);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return position;
}

std::string encode_header(const SnapshotInfo& info, uint32_t trailer_crc) {
  std::string block(kHeaderBytes, '\0');
  store<uint64_t>(block.data(), 0, kMagic);
  store<uint32_t>(block.data(), 8, kSnapshotFormatVersion);
  store<uint32_t>(block.data(), 12, kChunkBytes);
  store<uint64_t>(block.data(), 16, info.last_sequence);
  store<uint64_t>(block.data(), 24, info.last_position);
  store<uint64_t>(block.data(), 32, info.state_digest);
  store<uint64_t>(block.data(), 40, info.content_bytes);
  store<uint32_t>(block.data(), 48, trailer_crc);
  store<uint64_t>(block.data(), 52, info.store_id);
  store<uint32_t>(block.data(), kHeaderCrcAt, crc32c(block.data(), kHeaderCrcAt));
  return block;
}

Error corrupt(const std::string& reason) { return {.code = ErrorCode::kCorrupt, .message = reason}; }

struct Layout {
  SnapshotInfo info;
  uint64_t chunks = 0;
  uint32_t trailer_crc = 0;
};

Result<Layout> parse_header(std::string_view block, uint64_t file_bytes) {
  if (block.size() < kHeaderBytes) return corrupt("the file is too short for a snapshot");
  if (load<uint64_t>(block, 0) != kMagic) return corrupt("the file is not a snapshot");
  if (load<uint32_t>(block, kHeaderCrcAt) != crc32c(block.data(), kHeaderCrcAt)) {
    return corrupt("the header is damaged");
  }
  const auto version = load<uint32_t>(block, 8);
  if (version > kSnapshotFormatVersion) {
    return Error{.code = ErrorCode::kVersion,
                 .message = "the snapshot has format " + std::to_string(version) +
                            ", but this program supports only up to " +
                            std::to_string(kSnapshotFormatVersion) +
                            ": start the newer version with this folder"};
  }
  if (load<uint32_t>(block, 12) != kChunkBytes || !all_zero(block.substr(kHeaderUsed))) {
    return corrupt("the header is damaged");
  }
  Layout layout;
  layout.info = {.last_sequence = load<uint64_t>(block, 16),
                 .last_position = load<uint64_t>(block, 24),
                 .state_digest = load<uint64_t>(block, 32),
                 .content_bytes = load<uint64_t>(block, 40),
                 .store_id = load<uint64_t>(block, 52)};
  layout.trailer_crc = load<uint32_t>(block, 48);
  if (layout.info.content_bytes > file_bytes) return corrupt("the file is shorter than its header says");
  layout.chunks = (layout.info.content_bytes + kChunkBytes - 1) / kChunkBytes;
  const uint64_t expected = kHeaderBytes + layout.info.content_bytes + layout.chunks * sizeof(uint32_t);
  if (file_bytes != expected) {
    return corrupt("the file has " + std::to_string(file_bytes) + " bytes, but its header says " +
                   std::to_string(expected));
  }
  return layout;
}

/// Reads by `read(offset, size)`, which returns a view that is valid until the next call, or an error.
template <typename Read>
Result<SnapshotInfo> check_snapshot(uint64_t file_bytes, Read read) {
  const Result<std::string_view> block = read(0, std::min<uint64_t>(file_bytes, kHeaderBytes));
  if (!block) return block.error();
  const Result<Layout> layout = parse_header(*block, file_bytes);
  if (!layout) return layout.error();
  const uint64_t content = layout->info.content_bytes;
  const Result<std::string_view> table = read(kHeaderBytes + content, layout->chunks * sizeof(uint32_t));
  if (!table) return table.error();
  const std::string crcs(*table);
  if (crc32c(crcs.data(), crcs.size()) != layout->trailer_crc) return corrupt("the trailer is damaged");
  for (uint64_t i = 0; i < layout->chunks; ++i) {
    const uint64_t at = i * kChunkBytes;
    const uint64_t size = std::min<uint64_t>(kChunkBytes, content - at);
    const Result<std::string_view> chunk = read(kHeaderBytes + at, size);
    if (!chunk) return chunk.error();
    if (crc32c(chunk->data(), chunk->size()) != load<uint32_t>(crcs, i * sizeof(uint32_t))) {
      return corrupt("the bytes from offset " + std::to_string(kHeaderBytes + at) + " are damaged");
    }
  }
  return layout->info;
}

}  // namespace

SnapshotWriter::SnapshotWriter(Disk& disk, std::string dir, const SnapshotInfo& info,
                               std::unique_ptr<DiskFile> file, std::string temporary)
    : disk_(disk),
      dir_(std::move(dir)),
      info_(info),
      file_(std::move(file)),
      temporary_(std::move(temporary)),
      offset_(kHeaderBytes) {
  info_.content_bytes = 0;
  chunk_.reserve(kChunkBytes);
}

SnapshotWriter::~SnapshotWriter() {
  if (!committed_) (void)disk_.remove(temporary_).ok();
}

Result<Unit> SnapshotWriter::write(std::string_view bytes) {
  CHECK(!committed_);
  if (failure_) return *failure_;
  while (!bytes.empty()) {
    const std::size_t size = std::min<std::size_t>(bytes.size(), kChunkBytes - chunk_.size());
    chunk_.append(bytes.substr(0, size));
    bytes.remove_prefix(size);
    info_.content_bytes += size;
    if (chunk_.size() < kChunkBytes) continue;
    const Result<Unit> flushed = flush_chunk();
    if (!flushed) return flushed;
  }
  return Unit{};
}

Result<Unit> SnapshotWriter::flush_chunk() {
  if (chunk_.empty()) return Unit{};
  Result<Unit> done = write_all(*file_, offset_, chunk_);
  unsynced_bytes_ += chunk_.size();
  if (done && unsynced_bytes_ >= kSyncStepBytes) {
    done = file_->fdatasync();
    unsynced_bytes_ = 0;
  }
  if (!done) {
    failure_ = done.error();
    return done;
  }
  chunk_crcs_.push_back(crc32c(chunk_.data(), chunk_.size()));
  offset_ += chunk_.size();
  chunk_.clear();
  return Unit{};
}

Result<Unit> SnapshotWriter::finish() {
  Result<Unit> done = flush_chunk();
  if (!done) return done;
  const std::string trailer(reinterpret_cast<const char*>(chunk_crcs_.data()),
                            chunk_crcs_.size() * sizeof(uint32_t));
  done = write_all(*file_, offset_, trailer);
  if (done) done = write_all(*file_, 0, encode_header(info_, crc32c(trailer.data(), trailer.size())));
  if (done) done = file_->fdatasync();
  return done;
}

Result<Unit> SnapshotWriter::prove(const SnapshotJudge& judge) {
  const Result<Snapshot> stored = read_snapshot(disk_, temporary_);
  if (!stored) return stored.error();
  if (stored->info != info_)
    return corrupt(temporary_ + ": the header that was read back differs from the one that was written");
  return judge(*stored);
}

Result<Unit> SnapshotWriter::commit(const SnapshotJudge& judge) {
  CHECK(!committed_);
  if (failure_) return *failure_;
  Result<Unit> done = finish();
  if (done) done = prove(judge);
  if (done) done = disk_.rename(temporary_, dir_ + "/" + name_of(info_.last_position));
  if (!done) {
    failure_ = done.error();
    return done;
  }
  committed_ = true;
  return disk_.sync_dir(dir_);
}

std::string_view Snapshot::content() const {
  return mapping->bytes().substr(kHeaderBytes, info.content_bytes);
}

Result<std::unique_ptr<SnapshotStore>> SnapshotStore::open(const std::string& dir, Disk* disk,
                                                           uint64_t store_id) {
  Disk& used = disk != nullptr ? *disk : posix_disk();
  Result<Unit> made = used.make_dir(dir);
  if (made) made = used.sync_dir(folder_above(dir));
  if (!made) return made.error();
  const Result<std::vector<std::string>> names = used.list(dir);
  if (!names) return names.error();
  for (const std::string& name : *names) {
    // One that stays is no harm: nobody reads it, and the next start tries again.
    if (name.ends_with(kTemporary)) (void)used.remove(dir + "/" + name).ok();
  }
  // The name of a snapshot that a killed process left is there, and not durable.
  const Result<Unit> synced = used.sync_dir(dir);
  if (!synced) return synced.error();
  return std::unique_ptr<SnapshotStore>(new SnapshotStore(used, dir, store_id));
}

uint64_t SnapshotStore::needed_from(Disk& disk, const std::string& dir) {
  const std::vector<uint64_t> positions = snapshot_positions(disk, dir);
  return positions.empty() ? 0 : positions.front() + 1;
}

Result<std::unique_ptr<SnapshotWriter>> SnapshotStore::begin(const SnapshotInfo& info) {
  const std::string temporary = dir_ + "/" + name_of(info.last_position) + std::string(kTemporary);
  Result<std::unique_ptr<DiskFile>> file = disk_.open(temporary, DiskOpen::kCreate);
  if (!file) return file.error();
  SnapshotInfo ours = info;
  ours.store_id = store_id_;
  return std::make_unique<SnapshotWriter>(disk_, dir_, ours, std::move(*file), temporary);
}

Result<Unit> SnapshotStore::commit(SnapshotWriter& writer, const SnapshotJudge& judge) {
  const Result<Unit> committed = writer.commit(judge);
  if (!committed) return committed;
  const std::string name = name_of(writer.info_.last_position);
  proven_.insert(name);
  refused_.erase(name);
  return Unit{};
}

Result<LatestSnapshot> SnapshotStore::latest(const SnapshotJudge& judge) {
  const Result<std::vector<std::string>> found = names();
  if (!found) return found.error();
  // Before any is used: a folder in which two journals' snapshots are mixed is nobody's.
  for (const std::string& name : *found) {
    const Result<Unit> ours = check_store(name);
    if (!ours) return ours.error();
  }
  LatestSnapshot latest;
  if (!found->empty()) latest.last_position = position_of(found->front()).value();
  for (const std::string& name : *found) {
    Result<Snapshot> snapshot = read_snapshot(disk_, dir_ + "/" + name);
    Result<Unit> usable = snapshot ? Result<Unit>(Unit{}) : snapshot.error();
    if (usable && snapshot->info.last_position != position_of(name))
      usable =
          corrupt("it was renamed: according to its header it is " + name_of(snapshot->info.last_position));
    if (usable && judge) usable = judge(*snapshot);
    if (usable) {
      proven_.insert(name);
      refused_.erase(name);
      latest.snapshot = std::move(*snapshot);
      return latest;
    }
    // A newer version's snapshot may stand for records that the journal has already forgotten.
    if (usable.error().code == ErrorCode::kVersion) return usable.error();
    const std::string& why = usable.error().message;
    const bool named = why.find(name) != std::string::npos;
    latest.refused.push_back(named ? why : dir_ + "/" + name + ": " + why);
    proven_.erase(name);
    refused_.insert(name);
  }
  return latest;
}

/// Looks at the header alone. One that cannot be read says nothing here.
Result<Unit> SnapshotStore::check_store(const std::string& name) const {
  if (store_id_ == 0) return Unit{};
  const std::string path = dir_ + "/" + name;
  Result<std::unique_ptr<DiskFile>> file = disk_.open(path, DiskOpen::kRead);
  if (!file) return Unit{};
  const Result<uint64_t> size = (*file)->size();
  std::string block(kHeaderBytes, '\0');
  if (!size || !read_exact(**file, 0, block.data(), block.size())) return Unit{};
  const Result<Layout> layout = parse_header(block, *size);
  if (!layout || layout->info.store_id == 0 || layout->info.store_id == store_id_) return Unit{};
  char ids[64];
  std::snprintf(ids, sizeof ids, "%016" PRIx64 ", but this journal is %016" PRIx64, layout->info.store_id,
                store_id_);
  return Error{
      .code = ErrorCode::kCorrupt,
      .message = path + " belongs to another journal, " + ids +
                 ". Nothing was changed. Put back the journal and the snapshots that belong together, "
                 "from one backup"};
}

Result<Unit> SnapshotStore::prune() {
  const Result<std::vector<std::string>> found = names();
  if (!found) return found.error();
  std::vector<std::string> superfluous;
  std::size_t proven = 0;
  for (const std::string& name : *found) {
    // The newest was just read; of the other one nobody knows what the disk made of it meanwhile.
    const bool counts = proven_.contains(name) &&
                        (proven == 0 || proven == kKept || read_snapshot(disk_, dir_ + "/" + name).ok());
    if (counts && ++proven <= kKept) continue;
    if (!counts && proven_.erase(name) > 0) refused_.insert(name);
    const bool replaced = proven > 0 && refused_.contains(name);
    if (replaced || proven >= kKept) superfluous.push_back(name);
  }
  for (const std::string& name : superfluous) {
    const Result<Unit> gone = disk_.remove(dir_ + "/" + name);
    if (!gone) return gone;
    proven_.erase(name);
    refused_.erase(name);
  }
  return superfluous.empty() ? Result<Unit>(Unit{}) : disk_.sync_dir(dir_);
}

Result<uint64_t> SnapshotStore::compactable_position() {
  const Result<std::vector<std::string>> found = names();
  if (!found) return found.error();
  std::size_t proven = 0;
  for (const std::string& name : *found) {
    if (proven_.contains(name) && ++proven == kKept) return position_of(name).value();
  }
  return uint64_t{0};
}

Result<std::vector<std::string>> SnapshotStore::names() const {
  Result<std::vector<std::string>> listed = disk_.list(dir_);
  if (!listed) return listed.error();
  std::erase_if(*listed, [](const std::string& name) { return !position_of(name).has_value(); });
  std::reverse(listed->begin(), listed->end());
  return listed;
}

std::vector<uint64_t> snapshot_positions(Disk& disk, const std::string& dir) {
  std::vector<uint64_t> positions;
  const Result<std::vector<std::string>> names = disk.list(dir);
  if (!names) return positions;
  for (const std::string& name : *names) {
    if (const std::optional<uint64_t> position = position_of(name)) positions.push_back(*position);
  }
  return positions;
}

std::string snapshot_path(const std::string& dir, uint64_t position) { return dir + "/" + name_of(position); }

Result<Snapshot> read_snapshot(Disk& disk, const std::string& path) {
  Result<std::unique_ptr<DiskFile>> file = disk.open(path, DiskOpen::kRead);
  if (!file) return file.error();
  const Result<uint64_t> size = (*file)->size();
  if (!size) return size.error();
  (*file)->drop_cached();  // Only the bytes on the disk count.
  std::string buffer;
  // Read, not mapped, for the check: a bad sector is an error here, and a signal there.
  const auto read = [&](uint64_t offset, uint64_t bytes) -> Result<std::string_view> {
    buffer.resize(bytes);
    const Result<Unit> done = read_exact(**file, offset, buffer.data(), bytes);
    if (!done) return done.error();
    return std::string_view(buffer);
  };
  const Result<SnapshotInfo> info = check_snapshot(*size, read);
  if (!info) return Error{.code = info.error().code, .message = path + ": " + info.error().message};
  Result<std::unique_ptr<DiskMapping>> mapping = disk.map(path);
  if (!mapping) return mapping.error();
  return Snapshot{.info = *info, .path = path, .mapping = std::move(*mapping)};
}

Result<SnapshotInfo> parse_snapshot(std::string_view bytes) {
  return check_snapshot(bytes.size(), [&](uint64_t offset, uint64_t size) -> Result<std::string_view> {
    return bytes.substr(offset, size);
  });
}

}  // namespace gpusched

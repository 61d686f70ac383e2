#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/result.h"
#include "codec/snapshot.h"
#include "journal/snapshot_store.h"
#include "model/state.h"

/// How a state becomes a snapshot on the disk, and when a snapshot is believed. Without threads: the
/// scheduler's and the simulation's.
namespace gpusched {

/// A state as a snapshot's bytes, on their way to the disk.
struct SnapshotImage {
  SnapshotInfo info;
  std::vector<std::string> pieces;
  uint64_t bytes = 0;
};

/// Encodes the state as it is behind journal record `position`.
SnapshotImage image_of(const State& state, uint64_t position);

/// Builds the state that a snapshot stands for and compares it with what the header says: the number of its
/// last command, and the digest, of the bytes that encoding it once more gives; `digest_of` returns that.
/// kCorrupt, kVersion.
Result<State> decode_proven(const SnapshotInfo& info, std::string_view content,
                            const std::function<Digest(const State&)>& digest_of = snapshot_digest);
/// The same for SnapshotStore::commit.
Result<Unit> prove_snapshot(const Snapshot& snapshot);

/// Writes a snapshot and proves it before anybody sees it. An error changes nothing: kCorrupt when the
/// snapshot could not be proven, which is a defect of the program or of the disk; kStorageFull and kIo when
/// it could not be written.
Result<Unit> write_image(SnapshotStore& store, const SnapshotImage& image);

}  // namespace gpusched

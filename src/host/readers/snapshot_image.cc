#include "host/readers/snapshot_image.h"

#include "base/check.h"

namespace gpusched {

SnapshotImage image_of(const State& state, uint64_t position) {
  SnapshotImage image{
      .info = {.last_sequence = state.last.sequence, .last_position = position}, .pieces = {}, .bytes = 0};
  Digest digest;
  const Result<Unit> encoded = encode_snapshot(state, [&](std::string_view piece) -> Result<Unit> {
    digest.mix(piece);
    image.bytes += piece.size();
    image.pieces.emplace_back(piece);
    return Unit{};
  });
  CHECK(encoded.ok());  // The sink never fails.
  image.info.state_digest = digest.value();
  return image;
}

Result<State> decode_proven(const SnapshotInfo& info, std::string_view content,
                            const std::function<Digest(const State&)>& digest_of) {
  Result<State> state = decode_snapshot(content);
  if (!state) return state;
  if (state->last.sequence != info.last_sequence) {
    return Error{.code = ErrorCode::kCorrupt,
                 .message = "its state ends with command " + std::to_string(state->last.sequence) +
                            ", but its header says " + std::to_string(info.last_sequence)};
  }
  if (digest_of(*state).value() != info.state_digest) {
    return Error{.code = ErrorCode::kCorrupt,
                 .message = "the digest of its decoded state differs from the one in its header"};
  }
  return state;
}

Result<Unit> prove_snapshot(const Snapshot& snapshot) {
  const Result<State> state = decode_proven(snapshot.info, snapshot.content());
  return state ? Result<Unit>(Unit{}) : state.error();
}

Result<Unit> write_image(SnapshotStore& store, const SnapshotImage& image) {
  Result<std::unique_ptr<SnapshotWriter>> writer = store.begin(image.info);
  if (!writer.ok()) return writer.error();
  for (const std::string& piece : image.pieces) {
    const Result<Unit> written = (*writer)->write(piece);
    if (!written.ok()) return written;
  }
  return store.commit(**writer, prove_snapshot);
}

}  // namespace gpusched

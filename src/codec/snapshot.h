#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "model/state.h"

namespace gpusched {

/// Writes the state flat, in one canonical order: equal states give equal bytes, whatever way they came
/// about. `sink` gets pieces of about 64 KiB; its first error ends the writing and is returned.
/// Format: docs/reference/snapshot-format.md.
Result<Unit> encode_snapshot(const State& state, const std::function<Result<Unit>(std::string_view)>& sink);

/// Builds the state, with all indexes, from a snapshot's bytes. kCorrupt or kVersion, never a crash.
Result<State> decode_snapshot(std::string_view bytes);

/// The canonical hash of the whole state: of its snapshot's bytes.
Digest snapshot_digest(const State& state);

}  // namespace gpusched

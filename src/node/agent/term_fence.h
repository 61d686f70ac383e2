#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace gpusched {

/// Keeps a node from obeying a scheduler that was the leader once: each order of replicated schedulers tells
/// its leader's term, and the data folder keeps the highest that this node obeyed, in `scheduler-term`. Not
/// thread-safe.
class TermFence {
 public:
  /// Reads what an earlier agent kept. kIo and kInvalidArgument say what to do.
  static Result<TermFence> open(const std::string& data_folder);

  /// Whether an order of this term may be obeyed; 0: it tells none. A higher term than before is kept first.
  /// kPermissionDenied, in one sentence: it is of an earlier leader, or of a scheduler without terms.
  Result<Unit> admit(uint64_t term);
  uint64_t highest() const { return highest_; }

 private:
  explicit TermFence(std::string path) : path_(std::move(path)) {}

  std::string path_;
  uint64_t highest_ = 0;
};

}  // namespace gpusched

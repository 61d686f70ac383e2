#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "base/time.h"
#include "forecast/moves.h"

namespace gpusched::api {

/// The proposals of the last answers, so that one of them can be named and carried out. Thread-safe.
class ProposedMoves {
 public:
  /// Keeps it, and gives its name: the same for the same moves of the same attempts and devices.
  std::string keep(const forecast::MoveProposal& proposal, Time now);
  /// Nothing when it is not known, or older than limits::kMoveProposalKept.
  std::optional<forecast::MoveProposal> find(const std::string& id, Time now) const;
  void forget(const std::string& id);

 private:
  struct Kept {
    std::string id;
    Time at;
    forecast::MoveProposal proposal;
  };
  mutable std::mutex mutex_;
  std::deque<Kept> kept_;  ///< Oldest first.
};

}  // namespace gpusched::api

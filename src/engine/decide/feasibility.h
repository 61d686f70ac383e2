#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/messages/rejection.h"
#include "model/state.h"

namespace gpusched::rules {

/// Answers for the jobs of one submission whether they could ever run: the same question once, and of
/// different ones no more than the engine's thread can answer in a moment. Pure; not thread-safe; `state`
/// must outlive it.
class Feasibility {
 public:
  explicit Feasibility(const State& state) : state_(state) {}

  /// Why a job of these parts could never run on the registered nodes, whatever runs there now. Nothing: it
  /// could.
  std::optional<Rejection> check(const std::vector<Part>& parts);

 private:
  std::optional<bool> could_ever_run(const std::vector<Part>& parts);

  const State& state_;
  std::map<uint64_t, bool> answers_;  ///< By a hash of the parts.
  int64_t looks_ = 0;                 ///< At nodes.
};

}  // namespace gpusched::rules

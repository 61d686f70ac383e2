#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <vector>

#include "forecast/forecast.h"

namespace gpusched::forecast {

/// One possible future of a world: attempts start, end after the run times that are likely, and their devices
/// come back. Tells of each placement, and of each promise to a job for which others are ended. Pure; not
/// thread-safe.
class Run {
 public:
  using Placed = std::function<void(JobId, Time)>;
  using Promised = std::function<void(const Promise&)>;
  /// The `number`th of `options.runs`, of which each sees another part of what is likely for a job.
  Run(World world, RunSource& source, const Options& options, uint32_t number, Placed placed,
      Promised promised = nullptr);

  enum class End : uint8_t {
    kAllStarted,  ///< No job waits any more, or `options.only` does not.
    kDry,         ///< No further event, at least within limits::kForecastHorizon.
    kWork,        ///< The work was used up.
  };
  End go(Work& work);
  Time now() const { return world_.now(); }

 private:
  enum class Kind : uint8_t { kStart, kEnd, kRelease };
  struct Coming {
    Time at;
    uint64_t order = 0;
    Kind kind = Kind::kStart;
    JobId job;
    uint32_t attempt = 0;
    uint32_t member = 0;
    NodeId node;
    uint32_t device = 0;
    uint32_t generation = 0;
    EndCause cause = EndCause::kExited;

    friend bool operator>(const Coming& a, const Coming& b) {
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };

  void begin();
  void add(Coming coming);
  bool reports(NodeId node) const;
  void expect_end(const Attempt& attempt, uint32_t member, Time started_at);
  void expect_stop(const Attempt& attempt);
  void expect_releases(const Node& node, uint64_t mask);
  Duration release_delay(Time draining_since) const;
  void carry_out(const Coming& coming);
  void look_at_events();
  void note_placed(const AttemptPlaced& placed);
  Time next();

  World world_;
  RunSource& source_;
  const Options& options_;
  const uint32_t number_;
  const Placed placed_;
  const Promised promised_;
  std::priority_queue<Coming, std::vector<Coming>, std::greater<>> coming_;
  uint64_t order_ = 0;
  bool only_started_ = false;
};

}  // namespace gpusched::forecast

#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "predict/predictor.h"

namespace gpusched::predict {

/// Learns from finished jobs, one at a time.
///
/// A prediction is the weighted set of what similar work took. Every run that is remembered of the same user,
/// and of the same name and shape by whoever else, counts by how like it is and how long ago: the newest
/// counts most, each older one a fixed share less (so a change of habits is forgotten in some dozens of
/// runs); another size, limit, name or shape multiplies its weight down, the more the farther the numbers lie
/// apart. The little weight that is missing where data is thin comes from everybody's jobs with a limit like
/// this one's, as shares of their limits.
///
/// The user's jobs that run right now count too, as runs of at least what they have run: their weight goes to
/// the longer samples (Kaplan, Meier 1958; in the form of Efron 1967). Without that, what has just finished
/// would speak for short runs only.
///
/// Costs: memory is bounded by `Options` (about 4 kB a remembered user or name); `predict` O(w log w) for at
/// most w = 2 windows + crowd + running samples, about 5 us; the rest O(log lines).
class Learned final : public Predictor {
 public:
  /// Shares are in thousandths. The defaults were chosen on one trace (docs/policies.md).
  struct Options {
    uint32_t lines_max = 8'192;      ///< Users, and as many names; the longest unused goes first.
    uint32_t window = 48;            ///< Runs remembered of each.
    uint32_t running_max = 64;       ///< Running jobs looked at of a user.
    uint32_t crowd_window = 64;      ///< Runs of everybody remembered for each half octave of limits.
    uint32_t decay_per_mille = 900;  ///< Weight of each older run of a user relative to the next newer one.
    uint32_t other_size_per_mille = 800;   ///< Weight of a run of another size.
    uint32_t size_step_per_mille = 900;    ///< Factor for each quarter octave of difference in size.
    uint32_t other_limit_per_mille = 200;  ///< The same for limits.
    uint32_t limit_step_per_mille = 840;
    uint32_t other_name_per_mille = 300;   ///< A run of another name.
    uint32_t other_shape_per_mille = 500;  ///< A run of another command.
    uint32_t other_user_per_mille = 500;   ///< Another user's run of the same name and shape.
    uint32_t crowd_per_mille = 500;        ///< All of the crowd, against the user's newest run.
    uint32_t running_per_mille = 1000;     ///< A running job, against a finished one.
  };

  Learned();
  explicit Learned(const Options& options);

  /// Basis of a prediction: as long as that is the same, so is the result of `predict` for the same facts,
  /// and for those that differ in `job` alone. Opaque.
  struct Basis {
    uint64_t user = 0;
    uint64_t name = 0;
    uint64_t crowd = 0;
    int64_t at_ms = 0;
    friend bool operator==(const Basis&, const Basis&) = default;
  };

  std::string_view name() const override { return "learned"; }
  /// Costs two look-ups; changes with time only while jobs of the user run.
  Basis basis(const JobFacts& facts, int64_t at_ms) const;
  RunTimes predict(const JobFacts& facts, int64_t at_ms) const override;
  void started(const JobFacts& facts, int64_t at_ms) override;
  void finished(const JobFacts& facts, int64_t run_ms, int64_t at_ms) override;
  void left(const JobFacts& facts) override;

 private:
  struct Past {
    uint64_t user = 0;
    uint64_t name = 0;
    uint64_t shape = 0;
    int64_t size = 0;
    int64_t limit_ms = 0;
    int64_t run_ms = 0;
    int32_t size_log = 0;
    int32_t limit_log = 0;
  };
  struct Running {
    uint64_t job = 0;
    int64_t started_ms = 0;
    Past like;
  };
  /// The newest runs, as a ring.
  struct Ring {
    std::vector<Past> runs;
    uint32_t next = 0;
  };
  struct Line {
    uint64_t key = 0;
    uint64_t used = 0;
    uint64_t changed = 0;  ///< No other change of any line or crowd has this number.
    Ring ring;
    std::vector<Running> running;
  };
  /// Everybody's newest runs, kept in the order of their shares of the limit (of their length, without a
  /// limit).
  struct Crowd {
    uint64_t changed = 0;  ///< As a line's.
    Ring ring;
    std::vector<uint32_t> shortest_first;  ///< Indexes into the ring.
  };
  /// Lines by key; the longest unused makes room.
  struct Lines {
    boost::unordered_flat_map<uint64_t, uint32_t> index;
    std::vector<Line> lines;
    std::set<std::pair<uint64_t, uint32_t>> by_use;
  };
  struct Observed {
    int64_t run_ms = 0;
    uint64_t weight = 0;
    bool goes_on = false;
  };

  static Past like_of(const JobFacts& facts, int64_t run_ms);
  static void push(Ring& ring, const Past& past, uint32_t window);
  static const Line* find(const Lines& lines, uint64_t key);
  const Line* user_of(const JobFacts& facts) const;
  const Line* named_of(const JobFacts& facts) const;
  Line& line_of(Lines& lines, uint64_t key);
  uint64_t likeness(const Past& past, const Past& wanted) const;
  void observe_ring(const Ring& ring, const Past& wanted, bool others_only,
                    std::vector<Observed>& seen) const;
  void push_crowd(const Past& past);
  void observe_crowd(const Past& wanted, std::vector<Observed>& seen) const;
  static std::vector<RunTimes::Sample> spread(std::vector<Observed>& seen, int64_t limit_ms);

  Options options_;
  std::vector<uint32_t> decay_;       ///< Weight by age, 65,536 for the newest.
  std::vector<uint32_t> size_steps_;  ///< Indexed by distance in quarter octaves.
  std::vector<uint32_t> limit_steps_;
  Lines users_;
  Lines names_;
  std::vector<Crowd> crowd_;  ///< Indexed by half octaves of the limit; 0: no limit.
  uint64_t uses_ = 0;         ///< Uses and changes.
};

}  // namespace gpusched::predict

#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <utility>

#include "api/contract/jobs.h"

namespace gpusched::api {

/// The latest changes, so that a watch that broke off can be resumed behind the last change that it was told
/// of. The oldest are given up first. Not thread-safe.
class ChangeRing {
 public:
  /// 16 bytes for each change that is kept. No more than one client may have waiting: they are looked at in
  /// one go, on the observer's thread.
  static constexpr std::size_t kKept = 100'000;

  explicit ChangeRing(std::size_t most = kKept) : most_(most) {}

  /// Everything up to this sequence number is not known. To be called before `add`.
  void begin(uint64_t sequence) { known_behind_ = newest_ = sequence; }
  /// Notices come in the order of their numbers.
  void add(const ChangeNotice& notice);
  /// The changes behind that number, as one notice without those that were forgotten. Nothing: that is not
  /// known any more, or the number is none of this cluster's yet.
  std::optional<ChangeNotice> since(uint64_t sequence) const;

 private:
  template <class Id>
  using Touched = std::deque<std::pair<uint64_t, Id>>;  // In the order of the sequence numbers.
  template <class Id>
  void note(Touched<Id>& touched, uint64_t sequence, const std::vector<Id>& ids);

  const std::size_t most_;  // Most changes kept, of each kind.
  uint64_t known_behind_ = 0;
  uint64_t newest_ = 0;
  Touched<JobId> jobs_;
  Touched<NodeId> nodes_;
};

}  // namespace gpusched::api

#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/time.h"
#include "history/record/events.h"

namespace gpusched::history {

/// A database that takes batches. What is written and the position up to which it is written are one
/// transaction: whatever ends the process, each journal record is in it once, or not yet. Not thread-safe.
class BatchStore {
 public:
  virtual ~BatchStore() = default;

  /// Position of the last journal record that is in it; 0: of none.
  virtual uint64_t position() const = 0;
  /// Writes batches behind `position()`, in their order; those at or before it are left out. An error changes
  /// nothing.
  virtual Result<Unit> write(std::span<const Batch> batches) = 0;
  /// Sets the position without writing anything else: the records between led to nothing that is kept, or
  /// the scheduler's folder is an older copy.
  virtual Result<Unit> advance(uint64_t position, Time at) = 0;
  /// Removes jobs, attempts and hours of use that ended before `before`, at most some thousands at a time.
  /// True: there is more to remove.
  virtual Result<bool> forget(Time before) = 0;
  /// Gaps that the database knows of: positions of which nothing was left.
  virtual Result<int64_t> gaps() = 0;
};

}  // namespace gpusched::history

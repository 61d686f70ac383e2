#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "host/core/interfaces.h"
#include "journal/file_journal.h"

/// The host's way to its journal: its own one, or one that several schedulers share.
namespace gpusched {

/// Makes groups durable and keeps their journal short. Thread-safe.
class JournalWriter : public GroupWriter {
 public:
  /// Keeps work from the journal although that has room; kOpen: no longer.
  virtual void hold(JournalSpace limit) = 0;
  /// How often groups were made durable, and how long that took in all.
  virtual uint64_t sync_count() const = 0;
  virtual Duration sync_time() const = 0;
  /// Why there is no room for new work; empty when there is.
  virtual std::string space_reason() const = 0;
  /// Lets the journal forget records before `position`, between two groups.
  virtual void compact_before(uint64_t position) = 0;
  /// Has another scheduler decide from now on, where there is one. No group is in flight, and none comes.
  virtual void hand_over() {}
  /// Finishes what was begun and uses the journal no more; with `seal`, marks a clean end.
  virtual Result<Unit> stop(bool seal) = 0;
};

class Standby;

/// The journal of a scheduler that is one of several: who leads them, appends to it. Thread-safe.
class SharedJournal {
 public:
  virtual ~SharedJournal() = default;
  /// Nobody appends to it before the first group of the writer.
  virtual FileJournal& journal() = 0;
  /// Term in which this scheduler leads: higher than that of any other one that led before. 0: it never led.
  virtual uint64_t term() const = 0;
  /// The state behind the journal's last record, where it was kept up to date; null: it has to be recovered.
  virtual std::shared_ptr<Standby> standby() { return nullptr; }
  /// Troubles of the other schedulers, a sentence each, for HostHealth.
  virtual std::vector<std::string> concerns() const { return {}; }
  /// `done` gets each group's result. kUnavailable: another scheduler decides from now on, and nothing was
  /// written. kLocked: the same, and the others may have agreed on the group or not. Once.
  virtual std::unique_ptr<JournalWriter> writer(std::function<void(Result<Unit>)> done) = 0;
};

}  // namespace gpusched

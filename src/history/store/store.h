#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "history/record/events.h"
#include "history/record/ledger.h"
#include "history/store/database.h"

namespace gpusched::history {

/// The one connection that writes the database and checkpoints it. What is written and the position up to
/// which it is written are one transaction: whatever ends the process, each journal record is in it once, or
/// not yet. Not thread-safe.
class Store {
 public:
  /// Opens the database, makes or migrates it. kCorrupt: it is damaged, or no database. kVersion: a newer
  /// program's. kIo, kStorageFull.
  static Result<std::unique_ptr<Store>> open(const std::string& path);

  /// Position of the last journal record that is in it; 0: of none.
  uint64_t position() const { return position_; }
  /// Whether nothing was ever written to it.
  bool is_new() const { return position_ == 0; }
  /// Writes batches behind `position()`, in their order; those at or before it are left out. An error changes
  /// nothing.
  Result<Unit> write(std::span<const Batch> batches);
  /// Sets the position without writing anything else: the records between led to nothing that is kept, or
  /// the scheduler's folder is an older copy.
  Result<Unit> advance(uint64_t position, Time at);
  /// Removes jobs, attempts and hours of use that ended before `before`, at most some thousands at a time.
  /// True: there is more to remove.
  Result<bool> forget(Time before);
  /// Writes a copy of the whole database to `path`, where no file may be.
  Result<Unit> copy_to(const std::string& path);
  /// Gives the writes so far from the log to the database file, as far as readers let it.
  Result<Unit> checkpoint();

  /// Gaps that the database knows of: positions of which nothing was left.
  Result<int64_t> gaps();
  const std::map<AttemptKey, OpenMember>& open_members() const { return ledger_.open(); }

 private:
  explicit Store(Database database) : database_(std::move(database)) {}
  Result<Unit> prepare();
  Result<Unit> load();
  Result<Unit> write_all(std::span<const Batch> batches);
  Result<Unit> write_event(const Event& event, const Batch& batch);
  Result<Unit> write_job(const JobRow& job, bool keep_known);
  Result<Unit> write_found(const JobRow& job, Usages& usages);
  Result<Unit> write_tenant(TenantId tenant, const std::string& name);
  Result<Unit> write_changes(Ledger::Changes changes);
  Result<Unit> write_closed(const ClosedMember& closed);
  Result<Unit> write_usages(const Usages& usages);
  Result<Unit> write_position(uint64_t position, Time at);

  Database database_;
  Ledger ledger_;
  uint64_t position_ = 0;
  std::map<TenantId, std::string> tenant_names_;
  Statement insert_job_, keep_job_, insert_node_, insert_attempt_, insert_running_, delete_running_,
      insert_preemption_, insert_quota_, insert_tenant_, add_hour_, add_day_, set_position_, insert_gap_,
      recorded_;
};

}  // namespace gpusched::history

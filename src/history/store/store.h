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
#include "history/store/batch_store.h"
#include "history/store/database.h"

namespace gpusched::history {

/// The one connection that writes the SQLite database and checkpoints it.
class Store final : public BatchStore {
 public:
  /// Opens the database, makes or migrates it. kCorrupt: it is damaged, or no database. kVersion: a newer
  /// program's. kIo, kStorageFull.
  static Result<std::unique_ptr<Store>> open(const std::string& path);

  uint64_t position() const override { return position_; }
  /// Whether nothing was ever written to it.
  bool is_new() const { return position_ == 0; }
  Result<Unit> write(std::span<const Batch> batches) override;
  Result<Unit> advance(uint64_t position, Time at) override;
  Result<bool> forget(Time before) override;
  /// Writes a copy of the whole database to `path`, where no file may be.
  Result<Unit> copy_to(const std::string& path);
  /// Gives the writes so far from the log to the database file, as far as readers let it.
  Result<Unit> checkpoint();

  Result<int64_t> gaps() override;
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

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "history/postgres/arrays.h"
#include "history/postgres/connection.h"
#include "history/record/events.h"
#include "history/record/ledger.h"
#include "history/store/batch_store.h"

namespace gpusched::history {

/// The one connection that writes the PostgreSQL database. Rows of many batches go in one statement a table.
/// After any error it is of no use: a new one learns from the database what became of the last transaction.
class PostgresStore final : public BatchStore {
 public:
  /// Connects, and makes or migrates the tables. `term`: of the journal's leader, who alone writes. Errors as
  /// of Connection and migrate; kLocked: a leader of a newer term writes.
  static Result<std::unique_ptr<PostgresStore>> open(const PostgresServer& server, uint64_t term,
                                                     Duration patience, const Interrupt& interrupt);

  bool is_usable() const { return is_usable_; }
  uint64_t position() const override { return position_; }
  Result<Unit> write(std::span<const Batch> batches) override;
  Result<Unit> advance(uint64_t position, Time at) override;
  Result<bool> forget(Time before) override;
  Result<int64_t> gaps() override;

 private:
  /// Rows that wait for the end of the transaction. Of those with a key, the newest.
  struct Pending {
    std::map<JobId, JobRow> jobs;
    std::map<TenantId, TenantRow> tenants;
    std::vector<Preempted> preemptions;
    std::vector<QuotaChanged> quota_changes;
  };

  PostgresStore(Connection connection, uint64_t term) : connection_(std::move(connection)), term_(term) {}
  Result<Unit> load();
  Result<Unit> write_all(std::span<const Batch> batches);
  void take_event(const Event& event);
  Result<Unit> adopt(const Adopted& adopted, const Batch& batch);
  Result<Unit> write_pending();
  Result<Unit> write_changes(Ledger::Changes changes);
  Result<Unit> write_running(const std::set<AttemptKey>& touched);
  Result<Unit> write_closed(const std::vector<ClosedMember>& closed);
  Result<Unit> write_usages(const Usages& usages);
  /// The position row goes from here to there, and nobody else has moved it.
  Result<Unit> move_position(uint64_t position, Time at);
  Result<Answer> run(const std::string& sql, const std::vector<std::string>& parameters = {});
  Result<Unit> insert(const std::string& sql, Arrays& rows);

  Connection connection_;
  const uint64_t term_;
  bool is_usable_ = true;
  Ledger ledger_;
  uint64_t position_ = 0;
  Pending pending_;
};

}  // namespace gpusched::history

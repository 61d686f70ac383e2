#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "consensus/log/log_store.h"
#include "journal/journal.h"

namespace gpusched {

/// A replica's disk in a journal: its entries, hard states, removals and snapshots are records of one chain
/// of segments, so that one sync makes all of them durable, and a torn tail takes only the last of them. The
/// order of the records is the order of what happened.
///
/// A removal is a record, too, and takes nothing off the chain: the hard states between the entries that it
/// removes hold votes, which no crash may forget. Not thread-safe: the journal's owner calls everything.
class JournalLogStore final : public consensus::LogStore {
 public:
  /// `journal` must outlive this, and nobody else appends to it.
  explicit JournalLogStore(Journal& journal) : journal_(journal) {}

  /// kCorrupt: a record is not what a replica writes.
  Result<std::optional<consensus::StoredLog>> load() override;
  Result<Unit> create(const consensus::Identity& identity, const consensus::Members& members) override;
  Result<Unit> truncate_after(uint64_t index) override;
  Result<Unit> append(const std::optional<consensus::HardState>& hard,
                      const std::vector<consensus::Entry>& entries) override;
  Result<Unit> sync() override { return journal_.sync(); }
  /// Lets the journal forget what the snapshot covers, too.
  Result<Unit> put_snapshot(const consensus::Snapshot& snapshot, const consensus::HardState& hard,
                            bool keep_suffix) override;
  /// Bytes of the largest data that an entry may have.
  std::size_t entry_bytes_max() const;

 private:
  /// Where an entry's record is.
  struct Place {
    uint64_t index = 0;
    uint64_t position = 0;
  };

  Result<Unit> put(const std::string& payload);
  Result<Unit> replay(const JournalRecord& record, std::optional<consensus::StoredLog>& log);
  void forget_places_behind(uint64_t index);
  void forget_places_up_to(uint64_t index);

  Journal& journal_;
  consensus::Identity identity_;
  uint64_t term_ = 0;         ///< Term of the newest hard state: the records' term, which never decreases.
  std::deque<Place> places_;  ///< Places of the entries behind the snapshot.
};

}  // namespace gpusched

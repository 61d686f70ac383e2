#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace gpusched::machines {

/// A machine that was asked for, or is about to be, until it is known to be gone. Times are milliseconds
/// since 1970-01-01 UTC; 0: not yet.
struct MachineRecord {
  std::string name;
  std::string pool;
  int64_t asked_ms = 0;
  int64_t ready_ms = 0;  ///< Its node was in service for the first time.
  bool ending = false;   ///< Its end was decided, for good.
  std::string why;       ///< Reason of the end, one sentence.
  int64_t price_milli =
      0;  ///< Price of an hour when it was asked for, in thousandths of the currency's unit.
};

/// Record of a pool beyond its machines.
struct PoolRecord {
  int64_t next = 1;               ///< Number in the next machine's name. Never goes back.
  int64_t spent_micro = 0;        ///< Price of machines that are gone, in millionths.
  int64_t made = 0, gone = 0;     ///< Machines, ever.
  std::vector<int64_t> boots_ms;  ///< The newest times from the request to a node in service, oldest first.
};
inline constexpr std::size_t kBootsKept = 8;

/// Record of a scheduler's machines for after it was killed. Written before a provider is called for
/// a change: what a provider may have, the record has.
struct Records {
  std::map<std::string, MachineRecord> machines;  ///< By name.
  std::map<std::string, PoolRecord> pools;        ///< By name.
};

/// Reads the file; without one, nothing is recorded yet. kCorrupt: it is not what was written; kVersion: it
/// is a newer version's; kIo.
Result<Records> load_records(const std::string& path);
/// Returns when the whole is on the disk; at any crash before, the old whole is there.
Result<Unit> save_records(const std::string& path, const Records& records);

/// The price of a machine for `ms`, in millionths of the currency's unit.
int64_t cost_micro(int64_t price_milli, int64_t ms);

}  // namespace gpusched::machines

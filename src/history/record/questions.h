#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "history/record/events.h"
#include "history/record/ledger.h"

/// Questions to the history, and their answers.
namespace gpusched::history {

/// Jobs and use that an asker may see.
struct Scope {
  bool all = false;               ///< Every tenant.
  std::vector<TenantId> tenants;  ///< Else of these.
  std::string owner;              ///< Given: only jobs of this owner, as JobRow has it.
};

/// Place between two jobs of a list that has the newest first.
struct Cursor {
  int64_t submitted_ms = INT64_MAX;
  int64_t id = INT64_MAX;
};

struct JobsQuery {
  Scope scope;
  std::optional<TenantId> tenant;
  std::optional<std::string> user;
  std::string state;  ///< "completed", "failed" or "cancelled"; empty: any.
  std::string node;   ///< Given: jobs of which an attempt was on this node.
  Time since, until;  ///< Given: submitted at or after, and before.
  int64_t limit = 50;
  Cursor before;  ///< Jobs behind this place only.
};

struct JobsPage {
  std::vector<JobRow> jobs;    ///< Newest first. A page may be short although there is more.
  std::optional<Cursor> next;  ///< Given: there may be more behind it.
};

/// Subjects by which use is added up.
enum class UsageBy : uint8_t { kTenant, kUser, kModel, kNode, kDay, kMonth };
std::optional<UsageBy> usage_by_named(std::string_view name);

struct UsageQuery {
  Scope scope;
  std::optional<TenantId> tenant;
  std::optional<std::string> user;
  std::vector<UsageBy> by;  ///< In the order of the columns; none: one sum.
  Time since, until;        ///< Given: use at or after, and before; of whole hours.
  Time now;                 ///< Use of what still runs counts up to here.
};

struct UsageRow {
  std::vector<std::string> keys;  ///< As `by` has them.
  UsageSums sums;
};
struct UsageReport {
  std::vector<UsageRow> rows;  ///< The most GPU time first; by day and month from the oldest on.
  Time since, until;           ///< The hours that it is about; not valid: no bound.
};

}  // namespace gpusched::history

// rooms: history model base
//
// The history on SQLite: events a second into a database of JOBS finished jobs (1,000,000), four events and
// two synced rows of use for each, then pages of 50 by each filter, also where nothing matches, and use over
// all time.
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"
#include "history/store/queries.h"
#include "history/store/store.h"

namespace gpusched::history {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kEventsAtOnce = 20'000;
constexpr int64_t kBegin = 1'700'000'000;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

Batch batch_of(uint64_t i) {
  const Time submitted = Time{} + seconds(kBegin + static_cast<int64_t>(i) * 30);
  JobRow row{.id = JobId{i}, .tenant = TenantId{i % 20 + 1}};
  row.tenant_name = "team-" + std::to_string(i % 20);
  row.user = "user" + std::to_string(i % 300);
  row.owner = "person " + row.user;
  row.name = "train-" + std::to_string(i % 1'000);
  row.state = i % 10 == 0 ? "failed" : "completed";
  row.reason = i % 10 == 0 ? "exit_code" : "succeeded";
  row.cause = "exited";
  row.node = "n" + std::to_string(i % 500);
  row.submitted_at = submitted;
  row.scheduled_at = submitted + seconds(60);
  row.started_at = submitted + seconds(61);
  row.ended_at = submitted + seconds(1'800);
  const AttemptKey key{.job = row.id, .attempt = 1};
  Batch batch{.position = i, .at = row.ended_at, .events = {}};
  batch.events.emplace_back(Placed{
      .job = row.id,
      .attempt = 1,
      .at = row.scheduled_at,
      .tenant = row.tenant,
      .tenant_name = row.tenant_name,
      .user = row.user,
      .members = {
          {.member = 0, .node = row.node, .model = "H100", .device_mask = uint64_t{3} << (i % 4 * 2)}}});
  batch.events.emplace_back(Started{.key = key, .at = row.started_at});
  batch.events.emplace_back(Ended{.key = key, .at = row.ended_at, .cause = EndCause::kExited});
  batch.events.emplace_back(Finished{std::move(row)});
  return batch;
}

template <typename Ask>
void print_page(const char* what, Ask ask) {
  std::vector<double> ms;
  std::size_t rows = 0;
  for (int i = 0; i < 21; ++i) {
    const Clock::time_point start = Clock::now();
    rows = ask();
    ms.push_back(seconds_since(start) * 1e3);
  }
  std::sort(ms.begin(), ms.end());
  std::printf("  %-46s %6zu rows   p50 %8.3f ms   worst %8.3f ms\n", what, rows, ms[ms.size() / 2],
              ms.back());
}

void measure_pages(Queries& queries, uint64_t jobs) {
  JobsQuery query{.scope = {.all = true, .tenants = {}, .owner = {}}};
  const auto page = [&] {
    const Result<JobsPage> answer = queries.jobs(query);
    CHECK(answer.ok());
    return answer->jobs.size();
  };
  print_page("page of 50, all", page);
  query.before = {.submitted_ms = (kBegin + static_cast<int64_t>(jobs) * 15) * 1'000, .id = INT64_MAX};
  print_page("page of 50, from the middle", page);
  query.before = {};
  query.user = "user7";
  print_page("page of 50, user", page);
  query.state = "failed";
  print_page("page of 50, user and state", page);
  query.user = "user7";
  query.state = "cancelled";
  print_page("page of 50, user and state, nothing matches", page);
  query.user = "nobody";
  query.state.clear();
  print_page("page of 50, user, nothing matches", page);
  query.user.reset();
  query.state = "cancelled";
  print_page("page of 50, state, nothing matches", page);
  query.state.clear();
  query.tenant = TenantId{77};
  print_page("page of 50, tenant, nothing matches", page);
  query.tenant = TenantId{7};
  print_page("page of 50, tenant", page);
  query.tenant.reset();
  query.node = "n77";
  print_page("page of 50, node", page);
  query.node = "none";
  print_page("page of 50, node, nothing matches", page);
  query.node.clear();
  query.until = Time{} + seconds(kBegin - 1);
  print_page("page of 50, until, nothing matches", page);
}

int run(uint64_t jobs) {
  std::string dir = (std::filesystem::temp_directory_path() / "history-bench-XXXXXX").string();
  CHECK(::mkdtemp(dir.data()) != nullptr);
  const std::string path = dir + "/history.db";
  Result<std::unique_ptr<Store>> store = Store::open(path);
  CHECK(store.ok());
  const Clock::time_point start = Clock::now();
  double slowest = 0;
  std::vector<Batch> batches;
  std::size_t events = 0;
  uint64_t written = 0;
  for (uint64_t i = 1; i <= jobs; ++i) {
    batches.push_back(batch_of(i));
    events += batches.back().events.size();
    if (events < kEventsAtOnce && i < jobs) continue;
    const Clock::time_point begun = Clock::now();
    CHECK((*store)->write(batches).ok());
    slowest = std::max(slowest, seconds_since(begun) / static_cast<double>(events));
    written += events;
    events = 0;
    batches.clear();
  }
  const double took = seconds_since(start);
  std::printf(
      "history: SQLite %s, synchronous=FULL, %llu jobs, %llu events: %.0f events/s (slowest transaction "
      "%.0f), "
      "%.1f MB\n",
      sqlite3_libversion(), static_cast<unsigned long long>(jobs), static_cast<unsigned long long>(written),
      static_cast<double>(written) / took, 1 / slowest,
      static_cast<double>(std::filesystem::file_size(path)) / 1e6);
  Result<Queries> queries = Queries::open(path);
  CHECK(queries.ok());
  measure_pages(*queries, jobs);
  const UsageQuery usage{.scope = {.all = true, .tenants = {}, .owner = {}},
                         .by = {UsageBy::kMonth, UsageBy::kTenant},
                         .now = Time{} + seconds(kBegin)};
  print_page("use by month and tenant, all time", [&] {
    const Result<UsageReport> report = queries->usage(usage);
    CHECK(report.ok());
    return report->rows.size();
  });
  std::filesystem::remove_all(dir);
  return 0;
}

}  // namespace
}  // namespace gpusched::history

int main(int argc, char** argv) {
  return gpusched::history::run(argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1'000'000);
}

#include "history/store/queries.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <span>

#include "history/store/store.h"
#include "history/testing/place.h"

namespace gpusched::history {
namespace {

using testing::Place;

constexpr Time kBegin{1'764'000'000'000'000'000};

/// A thousand jobs of two tenants, four users and three states, two by two of one time.
class QueriesTest : public ::testing::Test {
 protected:
  QueriesTest() {
    Result<std::unique_ptr<Store>> store = Store::open(place_.file());
    EXPECT_TRUE(store.ok());
    Batch batch{.position = 1, .at = kBegin, .events = {}};
    for (uint64_t i = 1; i <= kJobs; ++i) {
      const JobRow row = job(i);
      batch.events.emplace_back(
          Placed{.job = row.id,
                 .attempt = 1,
                 .at = row.submitted_at,
                 .tenant = row.tenant,
                 .tenant_name = row.tenant_name,
                 .user = row.user,
                 .members = {{.member = 0, .node = row.node, .model = "H100", .device_mask = 1}}});
      batch.events.emplace_back(
          Ended{.key = {.job = row.id, .attempt = 1}, .at = row.ended_at, .cause = EndCause::kExited});
      batch.events.emplace_back(Finished{row});
    }
    EXPECT_TRUE((*store)->write(std::span(&batch, 1)).ok());
    store_ = std::move(*store);
    Result<Queries> queries = Queries::open(place_.file());
    EXPECT_TRUE(queries.ok());
    queries_.emplace(std::move(*queries));
  }

  static JobRow job(uint64_t i) {
    JobRow row{.id = JobId{i}, .tenant = TenantId{i % 2 + 1}};
    row.tenant_name = i % 2 == 0 ? "lab" : "works";
    row.user = "user" + std::to_string(i % 4);
    row.owner = "person " + row.user;
    row.state = i % 3 == 0 ? "failed" : i % 3 == 1 ? "completed" : "cancelled";
    row.node = "n" + std::to_string(i % 5);
    row.submitted_at = kBegin + seconds(static_cast<int64_t>(i / 2));
    row.ended_at = row.submitted_at + seconds(10);
    return row;
  }

  /// The numbers of all jobs that match, page by page; each page is in order and has what was asked for.
  std::vector<uint64_t> all(JobsQuery query) {
    std::vector<uint64_t> ids;
    for (int pages = 0; pages < 1'000; ++pages) {
      const Result<JobsPage> page = queries_->jobs(query);
      EXPECT_TRUE(page.ok()) << (page.ok() ? "" : page.error().message);
      if (!page.ok()) return ids;
      EXPECT_LE(page->jobs.size(), static_cast<std::size_t>(query.limit));
      for (const JobRow& row : page->jobs) ids.push_back(row.id.value);
      if (!page->next) return ids;
      query.before = *page->next;
    }
    ADD_FAILURE() << "the pages do not end";
    return ids;
  }
  template <typename Matches>
  static std::vector<uint64_t> expected(Matches matches) {
    std::vector<uint64_t> ids;
    for (uint64_t i = kJobs; i >= 1; --i) {
      if (matches(job(i))) ids.push_back(i);
    }
    return ids;
  }
  static JobsQuery everything() { return {.scope = {.all = true, .tenants = {}, .owner = {}}, .limit = 7}; }

  static constexpr uint64_t kJobs = 1'000;
  Place place_;
  std::unique_ptr<Store> store_;
  std::optional<Queries> queries_;
};

TEST_F(QueriesTest, PagesHaveEachJobOnceNewestFirst) {
  EXPECT_EQ(all(everything()), expected([](const JobRow&) { return true; }));
}

TEST_F(QueriesTest, EachFilterAndTheirCombinationsFindWhatMatches) {
  for (int bits = 0; bits < 32; ++bits) {
    JobsQuery query = everything();
    query.limit = 50;
    if ((bits & 1) != 0) query.tenant = TenantId{1};
    if ((bits & 2) != 0) query.user = "user2";
    if ((bits & 4) != 0) query.state = "failed";
    if ((bits & 8) != 0) query.node = "n3";
    if ((bits & 16) != 0) {
      query.since = kBegin + seconds(100);
      query.until = kBegin + seconds(400);
    }
    EXPECT_EQ(all(query), expected([&](const JobRow& row) {
                return (!query.tenant || row.tenant == *query.tenant) &&
                       (!query.user || row.user == *query.user) &&
                       (query.state.empty() || row.state == query.state) &&
                       (query.node.empty() || row.node == query.node) &&
                       (!query.since.valid() || row.submitted_at >= query.since) &&
                       (!query.until.valid() || row.submitted_at < query.until);
              }))
        << bits;
  }
}

TEST_F(QueriesTest, WhoSeesSomeTenantsFindsTheirJobsAlone) {
  JobsQuery query = everything();
  query.scope = {.all = false, .tenants = {TenantId{2}}, .owner = {}};
  const auto of_lab = [](const JobRow& row) { return row.tenant == TenantId{2}; };
  EXPECT_EQ(all(query), expected(of_lab));
  query.user = "user0";
  EXPECT_EQ(all(query).size(), 0u);  // Whose jobs are the other tenant's.
  query.user.reset();
  query.node = "n1";
  EXPECT_EQ(all(query), expected([&](const JobRow& row) { return of_lab(row) && row.node == "n1"; }));
  query.node.clear();
  query.tenant = TenantId{1};
  EXPECT_TRUE(all(query).empty());
  query.tenant.reset();
  query.scope.tenants = {TenantId{1}, TenantId{2}};
  EXPECT_EQ(all(query), expected([](const JobRow&) { return true; }));
  query.scope.owner = "person user1";
  EXPECT_EQ(all(query), expected([](const JobRow& row) { return row.user == "user1"; }));
  query.scope = {};
  EXPECT_TRUE(all(query).empty());
}

TEST_F(QueriesTest, UseIsAddedUpByEachKeyWithinBoundsAndForWhoMaySeeIt) {
  UsageQuery query{
      .scope = {.all = true, .tenants = {}, .owner = {}}, .by = {UsageBy::kTenant}, .now = kBegin};
  const auto sum = [&] {
    const Result<UsageReport> report = queries_->usage(query);
    EXPECT_TRUE(report.ok()) << (report.ok() ? "" : report.error().message);
    int64_t us = 0;
    for (const UsageRow& row : report->rows) us += row.sums.gpu_us;
    return us;
  };
  const int64_t all_us = int64_t{kJobs} * 10 * 1'000'000;
  for (const UsageBy by :
       {UsageBy::kTenant, UsageBy::kUser, UsageBy::kModel, UsageBy::kNode, UsageBy::kDay, UsageBy::kMonth}) {
    query.by = {by};
    EXPECT_EQ(sum(), all_us);
  }
  query.by = {UsageBy::kMonth, UsageBy::kUser};
  const Result<UsageReport> report = queries_->usage(query);
  EXPECT_EQ(report->rows.size(), 4u);
  EXPECT_EQ(report->rows.front().keys, (std::vector<std::string>{"2025-11", "user0"}));
  query.by = {UsageBy::kTenant};
  query.scope = {.all = false, .tenants = {TenantId{2}}, .owner = {}};
  EXPECT_EQ(sum(), all_us / 2);
  query.scope.all = true;
  query.user = "user3";
  EXPECT_EQ(sum(), all_us / 4);
  query.user.reset();
  query.until = kBegin - hours(48);
  EXPECT_EQ(sum(), 0);
  query.until = {};
  query.since = kBegin - hours(48);
  EXPECT_EQ(sum(), all_us);
}

TEST_F(QueriesTest, WhatRunsCountsUpToNow) {
  Batch batch{.position = 2, .at = kBegin, .events = {}};
  batch.events.emplace_back(
      Placed{.job = JobId{5'000},
             .attempt = 1,
             .at = kBegin,
             .tenant = TenantId{2},
             .tenant_name = "lab",
             .user = "ann",
             .members = {{.member = 0, .node = "n9", .model = "A100", .device_mask = 3}}});
  ASSERT_TRUE(store_->write(std::span(&batch, 1)).ok());
  const UsageQuery query{.scope = {.all = true, .tenants = {}, .owner = {}},
                         .user = "ann",
                         .by = {UsageBy::kModel},
                         .now = kBegin + seconds(90)};
  const Result<UsageReport> report = queries_->usage(query);
  ASSERT_EQ(report->rows.size(), 1u);
  EXPECT_EQ(report->rows[0].keys[0], "A100");
  EXPECT_EQ(report->rows[0].sums.gpu_us, int64_t{2} * 90 * 1'000'000);
}

TEST_F(QueriesTest, ADamagedDatabaseIsFoundOut) {
  EXPECT_EQ(*queries_->check(), "");
  queries_.reset();
  ASSERT_TRUE(store_->copy_to(place_.file("copy.db")).ok());
  // A page in the middle of it is something else.
  const uint64_t pages = std::filesystem::file_size(place_.file("copy.db")) / 4'096;
  std::fstream file(place_.file("copy.db"), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(static_cast<std::streamoff>(pages / 2 * 4'096));
  file << std::string(4'096, 'x');
  file.close();
  Result<Queries> copy = Queries::open(place_.file("copy.db"));
  ASSERT_TRUE(copy.ok());
  const Result<std::string> found = copy->check();
  EXPECT_TRUE(!found.ok() || !found->empty());
}

}  // namespace
}  // namespace gpusched::history

#include "api/contract/errors.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "engine/messages/rejection_rows.h"

namespace gpusched::api {
namespace {

TEST(ErrorTable, EachKindStandsInItsOwnRow) {
  for (std::size_t i = 0; i < error_table().size(); ++i) {
    EXPECT_EQ(static_cast<std::size_t>(error_table()[i].kind), i);
  }
  EXPECT_EQ(error_table().back().kind, ErrorKind::kNodeRevoked);
}

TEST(ErrorTable, CodesAreUnique) {
  std::set<std::string_view> codes;
  for (const ErrorRow& row : error_table()) EXPECT_TRUE(codes.insert(row.code).second) << row.code;
}

TEST(ErrorTable, EveryRejectionIsToldByACodeOfTheTable) {
  std::set<std::string_view> names;
  for (const RejectionRow& row : rejection_rows()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_TRUE(kind_of_code(row.client_code).has_value()) << row.client_code;
    EXPECT_EQ(&row_of(row.code), &row);
    EXPECT_FALSE(describe({.code = row.code, .requested = 1}).empty()) << row.name;
  }
}

TEST(ErrorTable, TheReferencePageIsWhatTheTableSays) {
  if (std::getenv("GPUSCHED_WRITE_REFERENCE") != nullptr) {
    std::ofstream(GPUSCHED_SOURCE_DIR "/docs/reference/errors.md") << errors_markdown();
  }
  std::ifstream file(GPUSCHED_SOURCE_DIR "/docs/reference/errors.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), errors_markdown());
}

TEST(ErrorJson, HasTheFieldOnlyWhenOneIsAtFault) {
  EXPECT_EQ(error_json({ErrorKind::kNotFound, "no such path"}),
            R"({"error":"no such path","code":"not_found"})");
  EXPECT_EQ(error_json({ErrorKind::kInvalidArgument, "must be \"x\"", "name"}),
            R"({"error":"must be \"x\"","code":"invalid_argument","field":"name"})");
}

}  // namespace
}  // namespace gpusched::api

#include "api/fields/shown_row.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "api/fields/node_rows.h"
#include "api/fields/reservation_rows.h"
#include "api/fields/tenants/tenant_rows.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

template <typename Words>
void expect_words(const Descriptor& type, Words&& words, const std::set<std::string>& without = {}) {
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    const std::optional<FieldWords> found = words(field.number());
    EXPECT_EQ(found.has_value(), !without.contains(field.name())) << field.full_name();
    EXPECT_TRUE(!found || !found->meaning.empty()) << field.full_name();
  }
}

TEST(ShownRows, HaveEachFieldOfTheirMessages) {
  expect_words(*v1::Tenant::descriptor(), tenant_words, {"request_key"});
  expect_words(*v1::Reservation::descriptor(), reservation_words);
  for (const Descriptor* const type : {v1::Node::descriptor(), v1::NodeDevice::descriptor(),
                                       v1::NodeLink::descriptor(), v1::MigSlice::descriptor()})
    expect_words(*type, [&](int number) { return node_words(*type, number); });
}

/// True if a setting can be read from the message's field and written to it.
bool fits(const TenantRow& row, const FieldDescriptor& field) {
  if (std::holds_alternative<std::optional<std::string> TenantSettings::*>(row.place))
    return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  if (std::holds_alternative<std::optional<bool> TenantSettings::*>(row.place))
    return field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL;
  if (row.form == TenantForm::kFraction) return field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE;
  return field.cpp_type() == FieldDescriptor::CPPTYPE_INT64 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_INT32;
}

TEST(TenantRows, AreFieldsOfTheMessage) {
  std::set<int> seen;
  std::set<uint32_t> bits;
  for (const TenantRow& row : tenant_rows()) {
    const FieldDescriptor* const field = v1::Tenant::descriptor()->FindFieldByNumber(row.number);
    ASSERT_NE(field, nullptr) << row.name;
    EXPECT_EQ(field->name(), row.name);
    EXPECT_TRUE(fits(row, *field)) << row.name;
    EXPECT_TRUE(seen.insert(row.number).second) << row.name;
    EXPECT_TRUE(row.given == 0 || bits.insert(row.given).second) << row.name;
    EXPECT_EQ(row.is_limit, row.lifted != 0) << row.name;
    EXPECT_EQ(row.most % row.scale == 0 || row.most == INT64_MAX, true) << row.name;
  }
  for (const ShownRow<TenantView>& row : shown_tenant_rows()) {
    if (row.number == 0) continue;
    const FieldDescriptor* const field = v1::Tenant::descriptor()->FindFieldByNumber(row.number);
    ASSERT_NE(field, nullptr) << row.name;
    EXPECT_EQ(field->name(), row.name);
  }
}

void expect_page(const std::string& name, const std::string& text) {
  const std::string path = std::string(GPUSCHED_SOURCE_DIR "/docs/reference/") + name;
  if (std::getenv("GPUSCHED_WRITE_REFERENCE") != nullptr) std::ofstream(path) << text;
  std::ifstream file(path);
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), text) << path << "; GPUSCHED_WRITE_REFERENCE=1 writes it anew";
}

TEST(ShownRows, TheReferencePagesAreWhatTheRowsSay) {
  expect_page("tenant-fields.md", tenant_fields_markdown());
  expect_page("node-fields.md", node_fields_markdown());
  expect_page("reservation-fields.md", reservation_fields_markdown());
}

}  // namespace
}  // namespace gpusched::api

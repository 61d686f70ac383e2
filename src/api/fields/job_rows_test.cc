#include "api/fields/job_rows.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>
#include <sstream>

#include "api/fields/door_rows.h"
#include "api/fields/job_rules.h"
#include "api/fields/pack_spec.h"
#include "base/limits.h"
#include "gpusched/v1/scheduler.pb.h"

namespace gpusched::api {
namespace {

namespace pb = google::protobuf;
using pb::FieldDescriptor;

const pb::Descriptor& descriptor_of(JobMessage message) {
  switch (message) {
    case JobMessage::kSpec:
      return *v1::JobSpec::descriptor();
    case JobMessage::kResources:
      return *v1::Resources::descriptor();
    case JobMessage::kRetry:
      return *v1::RetryPolicy::descriptor();
    case JobMessage::kRequest:
    case JobMessage::kNone:
      return *v1::JobRequest::descriptor();
  }
  UNREACHABLE();
}

TEST(JobRows, AreFoundByTheirNamesAtTheDoor) {
  for (const JobRow& row : job_rows()) {
    if (row.door.empty()) continue;
    EXPECT_EQ(find_door_row(row.door), &row) << row.door;
  }
  for (const char* const name : {"", "no_such_field", "nam", "names", "NAME"})
    EXPECT_EQ(find_door_row(name), nullptr) << name;
}

/// A job whose field of the row is out of its bounds.
JobFields too_much_of(const JobRow& row) {
  JobFields fields;
  if (const auto* text = std::get_if<std::optional<std::string> JobFields::*>(&row.place)) {
    fields.** text = std::string(static_cast<std::size_t>(row.most) + 1, 'x');
  } else if (const auto* number = std::get_if<std::optional<int64_t> JobFields::*>(&row.place)) {
    fields.** number = row.most + 1;
  } else {
    fields.*std::get<std::optional<NumberOrWord> JobFields::*>(row.place) = row.most + 1;
  }
  return fields;
}

TEST(JobRows, AreEachHeldToTheirBounds) {
  EXPECT_FALSE(check_rows({}));
  for (const JobRow& row : job_rows()) {
    if (row.most == kNoBound) continue;
    const std::optional<ApiError> refused = check_rows(too_much_of(row));
    ASSERT_TRUE(refused) << row.name;
    EXPECT_EQ(refused->field, row.door.empty() ? row.name : row.door);
  }
}

TEST(JobRows, HaveEachFieldOfTheMessagesOnce) {
  for (const JobMessage message :
       {JobMessage::kSpec, JobMessage::kResources, JobMessage::kRetry, JobMessage::kRequest}) {
    const pb::Descriptor& type = descriptor_of(message);
    for (int i = 0; i < type.field_count(); ++i) {
      const FieldDescriptor& field = *type.field(i);
      if (field.message_type() == v1::JobSpec::descriptor() ||
          field.message_type() == v1::Resources::descriptor() ||
          field.message_type() == v1::RetryPolicy::descriptor())
        continue;
      const JobRow* const row = find_job_row(message, field.number());
      ASSERT_NE(row, nullptr) << field.full_name() << " has no row";
      EXPECT_EQ(row->name, field.name());
    }
  }
  std::set<std::pair<JobMessage, int>> seen;
  int last = 0;
  JobMessage message = JobMessage::kSpec;
  for (const JobRow& row : job_rows()) {
    if (row.message != message) last = 0;
    message = row.message;
    if (row.message == JobMessage::kNone) continue;
    EXPECT_TRUE(seen.emplace(row.message, row.number).second) << row.name;
    EXPECT_NE(descriptor_of(row.message).FindFieldByNumber(row.number), nullptr)
        << row.name << " is no field";
    EXPECT_GT(row.number, last) << row.name << ": specifications are packed in the order of their numbers";
    last = row.number;
  }
}

/// Rules for a message's field whose value is put into the place.
struct Fits {
  const FieldDescriptor& field;
  bool single(FieldDescriptor::CppType type) const {
    return !field.is_repeated() && field.cpp_type() == type;
  }
  bool operator()(std::monostate) const { return true; }
  bool operator()(std::optional<std::string> JobFields::*) const {
    return single(FieldDescriptor::CPPTYPE_STRING) || single(FieldDescriptor::CPPTYPE_ENUM);
  }
  bool operator()(std::optional<int64_t> JobFields::*) const {
    return single(FieldDescriptor::CPPTYPE_INT32) || single(FieldDescriptor::CPPTYPE_INT64) ||
           single(FieldDescriptor::CPPTYPE_UINT32);
  }
  bool operator()(std::optional<NumberOrWord> JobFields::*) const {
    return single(FieldDescriptor::CPPTYPE_INT32);
  }
  bool operator()(std::optional<bool> JobFields::*) const { return single(FieldDescriptor::CPPTYPE_BOOL); }
  bool operator()(std::optional<StringList> JobFields::*) const {
    return field.is_repeated() && !field.is_map() && field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  }
  bool maps_to(FieldDescriptor::CppType type) const {
    return field.is_map() && field.message_type()->map_value()->cpp_type() == type;
  }
  bool operator()(std::optional<StringMap> JobFields::*) const {
    return maps_to(FieldDescriptor::CPPTYPE_STRING);
  }
  bool operator()(std::optional<IntegerMap> JobFields::*) const {
    return maps_to(FieldDescriptor::CPPTYPE_INT64);
  }
  bool operator()(std::optional<Time> JobFields::*) const { return single(FieldDescriptor::CPPTYPE_MESSAGE); }
  bool operator()(std::optional<MountList> JobFields::*) const {
    return field.is_repeated() && field.message_type() == v1::Mount::descriptor();
  }
};

TEST(JobRows, HavePlacesThatFitTheirFields) {
  for (const JobRow& row : job_rows()) {
    if (row.message == JobMessage::kNone) continue;
    const FieldDescriptor& field = *descriptor_of(row.message).FindFieldByNumber(row.number);
    EXPECT_TRUE(std::visit(Fits{field}, row.place)) << field.full_name();
  }
}

TEST(JobRows, ThatCanChangeAreFieldsOfAnUpdate) {
  for (const JobRow& row : job_rows()) {
    EXPECT_TRUE(row.message == JobMessage::kSpec || !(row.shown || row.changeable)) << row.name;
    if (!row.changeable) continue;
    const FieldDescriptor* const field =
        v1::UpdateJobRequest::descriptor()->FindFieldByName(std::string(row.name));
    ASSERT_NE(field, nullptr) << row.name;
    EXPECT_EQ(field->cpp_type(), FieldDescriptor::CPPTYPE_STRING) << row.name;
    EXPECT_TRUE(field->has_presence()) << row.name << ": an empty text takes it away";
  }
}

TEST(JobRows, HaveEachNameOfTheJobsDoorOnce) {
  std::set<std::string_view> names;
  for (const JobRow& row : job_rows()) {
    EXPECT_FALSE(row.meaning.empty()) << row.name;
    if (row.door.empty()) continue;
    EXPECT_TRUE(names.insert(row.door).second) << row.door;
    EXPECT_FALSE(std::holds_alternative<std::monostate>(row.place)) << row.name << " cannot be read";
  }
  EXPECT_LT(names.size(), 96u) << "the jobs door's reader has room for as many";
}

TEST(JobRows, SayWhatIsOutOfBoundsInTheJobsDoorsUnits) {
  JobFields fields;
  fields.preempt_grace_ms = 600'001;
  EXPECT_EQ(check_rows(fields)->message, "preempt_grace_seconds must be at most 600");
  EXPECT_EQ(check_native_rows(fields)->message, "preempt_grace_ms must be from 0 to 600000");
  fields.preempt_grace_ms = 600'000;
  EXPECT_FALSE(check_rows(fields).has_value());
  fields.name = std::string(limits::kNameBytesMax + 1, 'x');
  EXPECT_EQ(check_rows(fields)->field, "name");
  fields.name.reset();
  fields.priority = limits::kPriorityMax + 1;
  EXPECT_EQ(check_rows(fields)->field, "priority");
  EXPECT_TRUE(check_row("priority", fields).has_value());
  EXPECT_FALSE(check_row("retries", fields).has_value());
}

/// Gives a field a value, in its place and in a message.
struct Fill {
  JobFields& fields;
  v1::JobSpec& spec;
  const pb::Reflection& reflection;
  const FieldDescriptor* field;
  void operator()(std::monostate) const {}
  void operator()(std::optional<std::string> JobFields::* place) const {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
      fields.*place = "never";
      return reflection.SetEnumValue(&spec, field, v1::PULL_POLICY_NEVER);
    }
    fields.*place = std::string(field->name());
    reflection.SetString(&spec, field, std::string(field->name()));
  }
  void operator()(std::optional<int64_t> JobFields::* place) const {
    fields.*place = 300;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32) return reflection.SetUInt32(&spec, field, 300);
    reflection.SetInt64(&spec, field, 300);
  }
  void operator()(std::optional<bool> JobFields::* place) const {
    fields.*place = true;
    reflection.SetBool(&spec, field, true);
  }
  void operator()(std::optional<StringList> JobFields::* place) const {
    fields.*place = StringList{"a", ""};
    reflection.AddString(&spec, field, "a");
    reflection.AddString(&spec, field, "");
  }
  void operator()(std::optional<StringMap> JobFields::* place) const {
    fields.*place = StringMap{{"a", "1"}, {"b", "2"}};
    auto& map = field->number() == v1::JobSpec::kLabelsFieldNumber ? *spec.mutable_labels()
                                                                   : *spec.mutable_environment();
    map["a"] = "1";
    map["b"] = "2";
  }
  void operator()(std::optional<IntegerMap> JobFields::* place) const {
    fields.*place = IntegerMap{{"core", -1}, {"stack", 0}};
    (*spec.mutable_limits())["core"] = -1;
    (*spec.mutable_limits())["stack"] = 0;
  }
  void operator()(std::optional<MountList> JobFields::* place) const {
    fields.*place = MountList{{.source = "/a", .target = "/b", .read_only = true}};
    v1::Mount& mount = *spec.add_mounts();
    mount.set_source("/a");
    mount.set_target("/b");
    mount.set_read_only(true);
  }
  void operator()(std::optional<NumberOrWord> JobFields::*) const { FAIL(); }
  void operator()(std::optional<Time> JobFields::*) const { FAIL(); }
};

/// Every field of a specification, as protobuf packs it, is packed the same by the rows.
TEST(JobRows, PackASpecificationAsItsMessageDoes) {
  JobFields fields;
  v1::JobSpec spec;
  const pb::Reflection& reflection = *spec.GetReflection();
  for (const JobRow& row : job_rows()) {
    if (row.message != JobMessage::kSpec) continue;
    const FieldDescriptor* const field = v1::JobSpec::descriptor()->FindFieldByNumber(row.number);
    std::visit(Fill{fields, spec, reflection, field}, row.place);
  }
  std::string packed;
  {
    pb::io::StringOutputStream out(&packed);
    pb::io::CodedOutputStream coded(&out);
    coded.SetSerializationDeterministic(true);
    spec.SerializeToCodedStream(&coded);
  }
  v1::JobSpec again;
  ASSERT_TRUE(again.ParseFromString(pack_spec(fields)));
  EXPECT_EQ(again.DebugString(), spec.DebugString());
  EXPECT_EQ(pack_spec(fields), packed);
}

TEST(JobRows, AreTheReferencePage) {
  if (std::getenv("GPUSCHED_WRITE_REFERENCE") != nullptr)
    std::ofstream(GPUSCHED_SOURCE_DIR "/docs/reference/job-fields.md") << job_fields_markdown();
  std::ifstream file(GPUSCHED_SOURCE_DIR "/docs/reference/job-fields.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), job_fields_markdown());
}

}  // namespace
}  // namespace gpusched::api

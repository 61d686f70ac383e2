#include "api/doors/jobs/jobs_json.h"

#include <array>

#include "api/doors/field_finder.h"
#include "api/doors/json_fields.h"
#include "api/fields/checks.h"
#include "api/fields/door_rows.h"
#include "api/fields/job_rows.h"
#include "api/fields/tenants/tenant_name.h"
#include "api/fields/tenants/tenant_rows.h"
#include "base/limits.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kDetailBytesMax = 1'024;

/// Where a value of JSON goes.
struct Placed {
  JobFields& job;
  DoorUnit unit;
  JsonField::Place operator()(std::monostate) const { UNREACHABLE(); }  // The jobs door has no such field.
  JsonField::Place operator()(std::optional<MountList> JobFields::*) const { UNREACHABLE(); }
  JsonField::Place operator()(std::optional<int64_t> JobFields::* place) const {
    if (unit == DoorUnit::kSame) return &(job.*place);
    return ScaledNumber{&(job.*place), scale_of(unit)};
  }
  JsonField::Place operator()(auto place) const { return &(job.*place); }
};

/// Where the jobs door's JSON puts a field of a job.
JsonField::Place place_in(const JobRow& row, JobFields& job) {
  const bool elsewhere = !std::holds_alternative<std::monostate>(row.door_place);
  return std::visit(Placed{job, row.unit}, elsewhere ? row.door_place : row.place);
}

/// Fields of a job at the jobs door. There are some eighty, of which a request has a few.
class DoorFields final : public FieldFinder {
 public:
  DoorFields(JobFields& job, std::optional<std::string>& tenant) : job_(job), tenant_(tenant) {}

  const JsonField* find(std::string_view name) override {
    if (name == kTenantField) {
      field_ = {kTenantField, &tenant_};
      return &field_;
    }
    const JobRow* const row = find_door_row(name);
    if (row == nullptr) return nullptr;
    field_ = {row->door, place_in(*row, job_), row->hint};
    return &field_;
  }

  static constexpr std::string_view kTenantField = "tenant_id";

 private:
  JobFields& job_;
  std::optional<std::string>& tenant_;
  JsonField field_;  ///< The one that was found last.
};

}  // namespace

Answer<SubmitRequest> parse_submit(std::string_view body, bool containers_possible,
                                   std::vector<std::string>* ignored) {
  JobFields job;
  std::optional<std::string> tenant;
  DoorFields fields(job, tenant);
  if (auto problem = read_json_object(body, fields, ignored)) return std::move(*problem);
  if (tenant) {
    if (auto problem = check_length(DoorFields::kTenantField, *tenant, limits::kNameBytesMax))
      return std::move(*problem);
  }
  Answer<JobRequest> checked = check_job(std::move(job), containers_possible);
  if (!checked) return checked.error();
  SubmitRequest request{.tenant = std::move(tenant).value_or("")};
  request.jobs.push_back(std::move(*checked));
  return request;
}

namespace {

/// A setting as JSON has it.
struct GivenSetting {
  std::optional<std::string> text;
  std::optional<int64_t> whole;
  std::optional<double> fraction;
  std::optional<NumberOrWord> tier;
  std::optional<bool> flag;
  bool was_null = false;
};
constexpr std::size_t kSettingsMax = 32;

/// Where JSON puts it.
JsonField::Place place_in(const TenantRow& row, GivenSetting& given) {
  if (std::holds_alternative<std::optional<std::string> TenantSettings::*>(row.place)) return &given.text;
  if (std::holds_alternative<std::optional<bool> TenantSettings::*>(row.place)) return &given.flag;
  switch (row.form) {
    case TenantForm::kWhole:
      return &given.whole;
    case TenantForm::kFraction:
      return &given.fraction;
    case TenantForm::kTier:
      return &given.tier;
  }
  UNREACHABLE();
}

std::optional<ApiError> take(const TenantRow& row, GivenSetting given, TenantSettings& settings) {
  if (given.text) return set_text(row, std::move(*given.text), settings);
  if (given.whole) return set_whole(row, *given.whole, settings);
  // Typed clients send the zero of a type for what they were not given.
  if (given.fraction && *given.fraction == 0 && row.least > 0) return std::nullopt;
  if (given.fraction) return set_fraction(row, *given.fraction, settings);
  if (given.flag) settings.*std::get<std::optional<bool> TenantSettings::*>(row.place) = given.flag;
  if (!given.tier) return std::nullopt;
  const std::string* const word = std::get_if<std::string>(&*given.tier);
  if (word != nullptr && word->empty()) return std::nullopt;
  std::optional<int64_t> tier = tier_of(*given.tier);
  if (!tier && word != nullptr) tier = parse_count(*word, limits::kPriorityMax);  // As it is shown.
  if (!tier)
    return invalid(row.name, std::string(row.name) + " must be low, medium, high, critical or a number");
  return set_whole(row, *tier, settings);
}

}  // namespace

Answer<TenantRequest> parse_tenant(std::string_view body, bool creating) {
  const std::span<const TenantRow> rows = tenant_rows();
  std::array<GivenSetting, kSettingsMax> given;
  std::array<JsonField, kSettingsMax> fields;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    fields.at(i) = {rows[i].name, place_in(rows[i], given.at(i)), "",
                    rows[i].is_limit ? &given.at(i).was_null : nullptr};
  }
  if (auto problem = read_json_object(body, std::span(fields).first(rows.size()))) return std::move(*problem);
  TenantRequest request;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (given.at(i).was_null && !creating) request.unlimited.emplace_back(rows[i].name);
    if (auto problem = take(rows[i], std::move(given.at(i)), request)) return std::move(*problem);
  }
  if (creating && !request.name) return invalid("name", "name is missing; a tenant needs one");
  if (auto problem = check_tenant_name(request)) return std::move(*problem);
  return request;
}

Answer<ConditionRequest> parse_condition(std::string_view body, std::string_view caller) {
  std::optional<std::string> condition, detail, by;
  const std::array fields = {JsonField{"condition", &condition}, JsonField{"detail", &detail},
                             JsonField{"by", &by}};
  if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  ConditionRequest request{.detail = std::move(detail).value_or(""), .by = std::move(by).value_or("")};
  if (auto problem = check_length("by", request.by, limits::kNameBytesMax)) return std::move(*problem);
  if (request.by.empty()) request.by = caller.empty() ? "operator" : caller;
  if (auto problem = check_length("detail", request.detail, kDetailBytesMax)) return std::move(*problem);
  if (condition == "ok") {
    request.condition = DeviceCondition::kOk;
  } else if (condition == "unhealthy") {
    request.condition = DeviceCondition::kUnhealthy;
  } else {
    return invalid("condition", "condition must be ok or unhealthy");
  }
  return request;
}

std::optional<ApiError> check_request_key(std::string_view key, std::string_view field) {
  if (key.size() > limits::kRequestKeyBytesMax) {
    return invalid(field, std::string(field) + " is longer than " +
                              std::to_string(limits::kRequestKeyBytesMax) + " bytes; shorten it");
  }
  for (const char c : key) {
    if (c < 0x21 || c > 0x7E) {
      return invalid(field,
                     std::string(field) + " must be printable ASCII without spaces; a UUID is a good choice");
    }
  }
  return std::nullopt;
}

}  // namespace gpusched::api

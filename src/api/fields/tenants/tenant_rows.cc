#include "api/fields/tenants/tenant_rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "api/contract/names.h"
#include "api/contract/parse.h"
#include "api/fields/checks.h"
#include "api/fields/job_rules.h"
#include "base/limits.h"
#include "engine/messages/commands.h"

namespace gpusched::api {
namespace {

using S = TenantSettings;

constexpr std::size_t kEmailBytesMax = 320;
constexpr int64_t kCountMax = int64_t{1} << 40;
constexpr int64_t kCore = 1'000;
constexpr int64_t kHour = 3'600'000;

/// A row in the making: each call says one thing more.
struct Row : TenantRow {
  constexpr Row from(int64_t lowest) const {
    Row row = *this;
    row.least = lowest;
    return row;
  }
  constexpr Row up_to(int64_t highest) const {
    Row row = *this;
    row.most = highest;
    return row;
  }
  /// Doors write it in units of so many.
  constexpr Row in(int64_t unit) const {
    Row row = *this;
    row.scale = unit;
    return row;
  }
  constexpr Row as(TenantForm how) const {
    Row row = *this;
    row.form = how;
    return row;
  }
  constexpr Row limit(uint32_t when_lifted) const {
    Row row = *this;
    row.is_limit = true;
    row.lifted = when_lifted;
    return row;
  }
  constexpr Row limit() const { return limit(given); }
};
constexpr Row setting(int number, std::string_view name, TenantPlace place, uint32_t given,
                      std::string_view meaning) {
  return {{.number = number, .name = name, .place = place, .meaning = meaning, .given = given}};
}

constexpr TenantRow kRows[] = {
    setting(2, "name", &S::name, kTenantName, "required; must not look like a tenant's id")
        .up_to(limits::kNameBytesMax),
    setting(3, "email", &S::email, kTenantEmail, "contact address").up_to(kEmailBytesMax),
    setting(4, "organization", &S::organization, kTenantOrganization, "organization that it belongs to")
        .up_to(limits::kNameBytesMax),
    setting(5, "max_gpus", &S::max_gpus, kTenantMaxGpus,
            "maximum GPUs in use by its jobs and those of its child tenants; if omitted: no limit, as for "
            "the next fields")
        .up_to(kCountMax)
        .limit(),
    setting(6, "max_gpu_memory_mb", &S::max_gpu_memory_mb, kTenantMaxGpuMemory, "maximum GPU memory in use")
        .up_to(kCountMax)
        .limit(),
    setting(7, "max_cpu_cores", &S::max_cpu_milli, kTenantMaxCpu, "maximum CPU cores in use")
        .up_to(kCountMax* kCore)
        .in(kCore)
        .limit(),
    setting(8, "max_memory_mb", &S::max_memory_mb, kTenantMaxMemory, "maximum memory in use")
        .up_to(kCountMax)
        .limit(),
    setting(9, "max_concurrent_jobs", &S::max_concurrent_jobs, kTenantMaxJobs, "maximum running jobs")
        .up_to(kCountMax)
        .limit(),
    setting(42, "max_waiting_jobs", &S::max_waiting_jobs, kTenantWaiting,
            "maximum waiting jobs, including those of child tenants; further ones are refused")
        .up_to(limits::kWaitingJobsMax)
        .limit(),
    setting(43, "soft_waiting_jobs", &S::soft_waiting_jobs, kTenantSoftWaiting,
            "number of waiting jobs above which each user's submissions are throttled")
        .up_to(limits::kWaitingJobsMax)
        .limit(),
    setting(10, "priority_tier", &S::priority_tier, kTenantPriorityTier,
            "added to each job's priority; if omitted: 500; the jobs door also accepts `low` (100), `medium` "
            "(500), `high` (1000) and `critical` (5000)")
        .up_to(limits::kPriorityMax)
        .as(TenantForm::kTier),
    setting(11, "fair_share_weight", &S::weight_milli, kTenantWeight,
            "weight in fair sharing among tenants with waiting jobs, in steps of 0.001; if omitted: 1")
        .from(1)
        .up_to(1'000'000'000)
        .in(1'000)
        .as(TenantForm::kFraction),
    setting(12, "allow_preemption", &S::allow_preemption, kTenantAllowPreemption,
            "its jobs may be preempted by jobs of higher priority"),
    setting(13, "can_preempt_others", &S::can_preempt_others, kTenantCanPreempt,
            "its jobs may preempt those of tenants that allow it"),
    setting(90, "anonymous", &S::anonymous, kTenantAnonymous,
            "callers without a credential may use it, if the scheduler admits such callers"),
    setting(30, "guaranteed_gpus", &S::guaranteed_gpus, kTenantGuaranteeGpus,
            "guaranteed GPUs, reclaimed from borrowers when needed; at most its limit, and with its siblings "
            "at most its parent's guarantee")
        .up_to(kCountMax),
    setting(31, "guaranteed_gpu_memory_mb", &S::guaranteed_gpu_memory_mb, kTenantGuaranteeGpuMemory,
            "guaranteed GPU memory")
        .up_to(kCountMax),
    setting(32, "guaranteed_cpu_cores", &S::guaranteed_cpu_milli, kTenantGuaranteeCpu, "guaranteed CPU cores")
        .up_to(int64_t{limits::kCpuCoresMax} * kCore)
        .in(kCore),
    setting(33, "guaranteed_memory_mb", &S::guaranteed_memory_mb, kTenantGuaranteeMemory, "guaranteed memory")
        .up_to(kCountMax),
    setting(34, "guaranteed_jobs", &S::guaranteed_jobs, kTenantGuaranteeJobs, "guaranteed running jobs")
        .up_to(kCountMax),
    setting(35, "max_gpu_hours", &S::gpu_ms_max, kTenantGpuTimeMax, "maximum GPU hours in each window")
        .up_to(limits::kGpuTimeMaxMs / kHour * kHour)
        .in(kHour)
        .as(TenantForm::kFraction)
        .limit(kTenantGpuTimeWindow),
    setting(36, "gpu_hours_window_seconds", &S::gpu_window_ms, kTenantGpuTimeWindow,
            "length of the window; if omitted: one week")
        .from(limits::kGpuTimeWindowMin.ms())
        .up_to(limits::kGpuTimeWindowMax.ms())
        .in(1'000),
    setting(14, "parent_id", &S::parent, 0,
            "parent tenant, by id or name; set on creation, later only as it is")
        .up_to(limits::kNameBytesMax),
};

/// A bound in the doors' units: "0.001", "1000000".
std::string bound_text(int64_t bound, int64_t scale) {
  char text[32];
  const double number = static_cast<double>(bound) / static_cast<double>(scale);
  const auto end = std::to_chars(text, text + sizeof text, number, std::chars_format::fixed).ptr;
  return {text, end};
}

#define SHOWN(number, name, door, meaning, ...) \
  shown_row<TenantView, [](const TenantView& view, auto& out) { __VA_ARGS__; }>(number, name, door, meaning)

constexpr double kMsPerHour = 3'600'000.0;

double mean_reclaim_seconds(const TenantView& view) {
  return static_cast<double>(view.reclaim_ms) / 1'000.0 /
         static_cast<double>(std::max<int64_t>(view.reclaims, 1));
}

constexpr ShownRow<TenantView> kId =
    SHOWN(1, "tenant_id", "id", "`tenant-<digits>`, or `default`", out.text(tenant_name(view.id)));

constexpr bool has_window(const TenantView& view) { return view.settings.gpu_window_ms.has_value(); }

constexpr ShownRow<TenantView> kShown[] = {
    SHOWN(37, "gpu_hours_used", "gpu_hours_used", "GPU hours used in the present window",
          out.fraction(static_cast<double>(view.gpu_ms_used) / kMsPerHour))
        .if_any(has_window),
    SHOWN(38, "gpu_hours_window_ends", "gpu_hours_window_ends", "end of the present window",
          out.time(view.gpu_window_ends))
        .if_any(has_window),
    SHOWN(39, "reclaims", "reclaims", "number of its jobs that started on reclaimed resources",
          out.number(view.reclaims)),
    SHOWN(41, "reclaim_seconds_max", "reclaim_seconds_max",
          "longest wait of these jobs for the reclaimed resources",
          out.fraction(static_cast<double>(view.reclaim_ms_max) / 1'000.0)),
    SHOWN(0, "", "reclaim_seconds_mean", "mean of these waits", out.fraction(mean_reclaim_seconds(view))),
    SHOWN(40, "reclaim_seconds_total", "", "total of these waits",
          out.fraction(static_cast<double>(view.reclaim_ms) / 1'000.0)),
    SHOWN(14, "parent_id", "parent_id", "parent tenant",
          out.text(view.parent.valid() ? tenant_name(view.parent) : ""))
        .if_any([](const TenantView& view) { return view.parent.valid(); }),
    SHOWN(44, "current_gpu_milli", "current_gpu_milli",
          "thousandths of GPUs that its jobs use as shares, in addition to `current_gpus`",
          out.number(view.current_gpu_milli))
        .if_any([](const TenantView& view) { return view.current_gpu_milli > 0; }),
    SHOWN(15, "current_gpus", "current_gpus", "GPUs in use by its jobs and those of its child tenants",
          out.number(view.current_gpus)),
    SHOWN(16, "current_gpu_memory_mb", "current_gpu_memory", "GPU memory in use by these jobs",
          out.number(view.current_gpu_memory_mb)),
    SHOWN(17, "current_cpu_milli", "current_cpu_cores",
          "CPU cores in use by these jobs; in the native API in thousandths",
          out.cores(view.current_cpu_milli)),
    SHOWN(18, "current_memory_mb", "current_memory", "memory in use by these jobs",
          out.number(view.current_memory_mb)),
    SHOWN(19, "current_jobs", "current_jobs", "number of these jobs", out.number(view.running_jobs)),
    SHOWN(20, "waiting_jobs", "waiting_jobs", "its own waiting jobs", out.number(view.waiting_jobs)),
    SHOWN(21, "total_gpu_hours", "total_gpu_hours", "GPU hours used so far by ended and running attempts",
          out.fraction(static_cast<double>(view.gpu_milliseconds) / kMsPerHour)),
    SHOWN(22, "total_jobs", "total_jobs", "all jobs that it has ever submitted", out.number(view.total_jobs)),
    SHOWN(23, "successful_jobs", "successful_jobs", "completed jobs", out.number(view.successful_jobs)),
    SHOWN(24, "failed_jobs", "failed_jobs", "failed jobs", out.number(view.failed_jobs)),
    SHOWN(0, "", "active", "always true", static_cast<void>(view), out.flag(true)),
    SHOWN(25, "created_at", "created_at", "time of its creation", out.time(view.created_at)),
    SHOWN(26, "updated_at", "updated_at", "time of the last change of a setting", out.time(view.updated_at)),
};

#undef SHOWN

/// A setting's value, by what it is.
template <typename Text, typename Number, typename Flag>
void visit_value(const TenantRow& row, const TenantSettings& settings, Text&& text, Number&& number,
                 Flag&& flag) {
  struct Visit {
    const TenantSettings& settings;
    Text& text;
    Number& number;
    Flag& flag;
    void operator()(std::optional<std::string> S::* place) const {
      if (settings.*place) text(*(settings.*place));
    }
    void operator()(std::optional<int64_t> S::* place) const {
      if (settings.*place) number(*(settings.*place));
    }
    void operator()(std::optional<bool> S::* place) const {
      if (settings.*place) flag(*(settings.*place));
    }
  };
  std::visit(Visit{settings, text, number, flag}, row.place);
}

bool is_given(const TenantRow& row, const TenantSettings& settings) {
  return std::visit([&](auto place) { return (settings.*place).has_value(); }, row.place);
}

double in_units(const TenantRow& row, int64_t kept) {
  return static_cast<double>(kept) / static_cast<double>(row.scale);
}

std::string_view type_of(const TenantRow& row) {
  if (std::holds_alternative<std::optional<std::string> S::*>(row.place)) return "text";
  if (std::holds_alternative<std::optional<bool> S::*>(row.place)) return "true or false";
  return row.form == TenantForm::kFraction ? "number" : "whole number";
}

std::string bounds_of(const TenantRow& row) {
  if (row.most == INT64_MAX) return "";
  if (type_of(row) == "text") return "at most " + std::to_string(row.most) + " bytes";
  return bound_text(row.least, row.scale) + " to " + bound_text(row.most, row.scale);
}

}  // namespace

std::span<const TenantRow> tenant_rows() { return kRows; }
std::span<const ShownRow<TenantView>> shown_tenant_rows() { return kShown; }

const TenantRow* find_tenant_row(std::string_view name) {
  for (const TenantRow& row : kRows) {
    if (row.name == name) return &row;
  }
  return nullptr;
}

std::optional<ApiError> set_text(const TenantRow& row, std::string text, TenantSettings& settings) {
  if (auto problem = check_length(row.name, text, static_cast<std::size_t>(row.most))) return problem;
  settings.*std::get<std::optional<std::string> S::*>(row.place) = std::move(text);
  return std::nullopt;
}

std::optional<ApiError> set_whole(const TenantRow& row, int64_t number, TenantSettings& settings) {
  if (auto problem = check_range(row.name, number, row.least / row.scale, row.most / row.scale))
    return problem;
  settings.*std::get<std::optional<int64_t> S::*>(row.place) = number * row.scale;
  return std::nullopt;
}

std::optional<ApiError> set_fraction(const TenantRow& row, double number, TenantSettings& settings) {
  if (!(number >= in_units(row, row.least) && number <= in_units(row, row.most))) {
    return invalid(row.name, std::string(row.name) + " must be from " + bound_text(row.least, row.scale) +
                                 " to " + bound_text(row.most, row.scale));
  }
  settings.*std::get<std::optional<int64_t> S::*>(row.place) =
      std::llround(number * static_cast<double>(row.scale));
  return std::nullopt;
}

uint32_t given_bits(const TenantRequest& request) {
  uint32_t given = 0;
  for (const TenantRow& row : kRows) {
    if (is_given(row, request)) given |= row.given;
  }
  for (const std::string& name : request.unlimited) {
    if (const TenantRow* const row = find_tenant_row(name)) given |= row->lifted;
  }
  return given;
}

void write_tenant(const TenantView& tenant, v1::Tenant& out) {
  MessageFields fields(out);
  kId.to_message(tenant, fields.at(kId.number, kId.name));
  for (const TenantRow& row : kRows) {
    MessageFields& field = fields.at(row.number, row.name);
    visit_value(
        row, tenant.settings, [&](const std::string& text) { field.text(text); },
        [&](int64_t number) {
          if (row.form == TenantForm::kFraction) return field.fraction(in_units(row, number));
          field.number(number / row.scale);
        },
        [&](bool flag) { field.flag(flag); });
  }
  write_rows(kShown, tenant, fields);
}

void write_door_tenant(const TenantView& tenant, JsonWriter& json) {
  json.begin_object();
  JsonFields fields(json, JsonFields::Unset::kNull);
  kId.to_json(tenant, fields.at(0, kId.door));
  for (const TenantRow& row : kRows) {
    if (row.is_limit && !is_given(row, tenant.settings)) json.key(row.name).null();
    JsonFields& field = fields.at(0, row.name);
    visit_value(
        row, tenant.settings, [&](const std::string& text) { field.text(text); },
        [&](int64_t number) {
          if (row.form == TenantForm::kTier) return field.text(tier_text(number));
          if (row.form == TenantForm::kFraction || number % row.scale != 0)
            return field.fraction(in_units(row, number));
          field.number(number / row.scale);
        },
        [&](bool flag) { field.flag(flag); });
  }
  write_rows(kShown, tenant, fields);
  json.end_object();
}

std::optional<FieldWords> tenant_words(int number) {
  for (const TenantRow& row : kRows) {
    if (row.number != number) continue;
    const bool text = type_of(row) == "text";
    return FieldWords{.meaning = row.meaning,
                      .bounded = row.most != INT64_MAX,
                      .least = in_units(row, row.least),
                      .most = text ? static_cast<double>(row.most) : in_units(row, row.most)};
  }
  if (number == kId.number) return FieldWords{.meaning = kId.meaning, .only_shown = true};
  for (const ShownRow<TenantView>& row : kShown) {
    // Its parent is shown in the field that sets it.
    if (row.number == number && number != 0) return FieldWords{.meaning = row.meaning, .only_shown = true};
  }
  return std::nullopt;
}

std::string tenant_fields_markdown() {
  std::string out =
      "# Fields of a tenant\n\nWhat can be set of a tenant: the field's name in the native API's `Tenant` "
      "([native REST](native-rest.md), and the same\nover gRPC) and in the jobs door's bodies "
      "([REST](rest.md)), its type and its bounds. An update changes only the\ngiven fields; over REST "
      "`null` removes a limit, over gRPC its name in `unlimited` does.\n\nThis page is generated from "
      "`src/api/fields/tenants/tenant_rows.cc`; a test compares the two.\n\n| field | type | bounds | "
      "meaning "
      "|\n|---|---|---|---|\n";
  for (const TenantRow& row : kRows) {
    out.append("| `").append(row.name).append("` | ").append(type_of(row)).append(" | ");
    out.append(bounds_of(row))
        .append(" | ")
        .append(row.meaning)
        .append(row.is_limit ? "; a limit |\n" : " |\n");
  }
  out += "\n## Read-only fields\n\n| native API | jobs door | meaning |\n|---|---|---|\n";
  out += reference_line(kId.name, kId.door, kId.meaning);
  for (const ShownRow<TenantView>& row : kShown) out += reference_line(row.name, row.door, row.meaning);
  return out;
}

}  // namespace gpusched::api

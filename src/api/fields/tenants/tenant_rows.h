#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "api/contract/errors.h"
#include "api/contract/json_writer.h"
#include "api/contract/tenants.h"
#include "api/fields/shown_row.h"
#include "gpusched/v1/scheduler.pb.h"

/// A tenant, a row a field: what can be set of it, and what is shown of it besides.
///
/// Rows of all settings, for all code that handles them alike: the readers of JSON and of messages, the
/// writers of both, the engine's list of given ones, the native API's OpenAPI document, the reference page.
namespace gpusched::api {

/// The member that holds a setting's value.
using TenantPlace =
    std::variant<std::optional<std::string> TenantSettings::*, std::optional<int64_t> TenantSettings::*,
                 std::optional<bool> TenantSettings::*>;

/// How doors write a number.
enum class TenantForm : uint8_t {
  kWhole,     ///< A whole number.
  kFraction,  ///< It may have a fraction.
  kTier,      ///< A whole number; the jobs door also takes a tier's name.
};

/// One setting. Both doors have it by the same name.
struct TenantRow {
  int number = 0;  ///< In the message Tenant.
  std::string_view name;
  TenantPlace place;
  std::string_view meaning;
  int64_t least = 0, most = INT64_MAX;  ///< Bounds of a number as kept; a text has at most so many bytes.
  TenantForm form = TenantForm::kWhole;
  int64_t scale = 1;      ///< One of the doors' is so many of what is kept.
  uint32_t given = 0;     ///< The engine's name for it in an update: a TenantField.
  bool is_limit = false;  ///< Null, or naming it in `unlimited`, lifts it.
  uint32_t lifted = 0;    ///< The engine's name for it when it is lifted.
};

/// In the order in which they are shown.
std::span<const TenantRow> tenant_rows();
/// Null when there is none.
const TenantRow* find_tenant_row(std::string_view name);

/// Puts a value as doors write it into the settings. The error is in the doors' words and units.
std::optional<ApiError> set_text(const TenantRow& row, std::string text, TenantSettings& settings);
std::optional<ApiError> set_whole(const TenantRow& row, int64_t number, TenantSettings& settings);
std::optional<ApiError> set_fraction(const TenantRow& row, double number, TenantSettings& settings);

/// The settings that are given or lifted, as the engine's TenantField bits.
uint32_t given_bits(const TenantRequest& request);

/// Rows of a tenant's shown fields beside its settings.
std::span<const ShownRow<TenantView>> shown_tenant_rows();

void write_tenant(const TenantView& tenant, v1::Tenant& out);
/// As the jobs door shows it.
void write_door_tenant(const TenantView& tenant, JsonWriter& json);

/// Words on the field of that number; nothing when it has no row.
std::optional<FieldWords> tenant_words(int number);
/// The text of docs/reference/tenant-fields.md.
std::string tenant_fields_markdown();

}  // namespace gpusched::api

#include "api/doors/allocation/user_json.h"

#include <vector>

#include "api/contract/json_writer.h"
#include "api/contract/names.h"
#include "api/doors/allocation/allocation_ids.h"
#include "api/doors/json_fields.h"
#include "api/fields/checks.h"
#include "base/limits.h"
#include "base/text.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kPasswordBytesMax = 1'024;

/// Something before and behind one '@', and no blank.
bool is_email(std::string_view text) {
  const std::size_t at = text.find('@');
  return at != std::string_view::npos && at > 0 && at + 1 < text.size() && text.rfind('@') == at &&
         text.find(' ') == std::string_view::npos && !has_control_character(text);
}

/// By its name, or by the one that clients of this door have for it: its organizations have members and
/// admins.
std::optional<Role> role_of(std::string_view word) {
  if (word == "member") return Role::kUser;
  if (word == "admin") return Role::kTenantAdmin;
  return role_named(word);
}

}  // namespace

Answer<PersonRequest> parse_user(std::string_view body, bool is_new, std::string_view cluster) {
  PersonRequest request;
  std::optional<std::string> role;
  const std::vector<JsonField> fields = {{"email", &request.email},
                                         {"password", &request.password},
                                         {"organization_id", &request.tenant},
                                         {"role", &role},
                                         {"is_active", &request.active}};
  if (auto problem = read_json_object(body, fields)) return std::move(*problem);
  if (is_new && !request.email) return invalid("email", "email is missing: the user's");
  if (request.email) {
    if (auto problem = check_length("email", *request.email, limits::kNameBytesMax))
      return std::move(*problem);
    if (!is_email(*request.email))
      return invalid("email", "email must be an address, such as ana@example.org");
  }
  if (request.password && (request.password->empty() || request.password->size() > kPasswordBytesMax))
    return invalid("password", "password must have 1 to 1024 bytes");
  if (role) {
    request.role = role_of(*role);
    if (!request.role || scope_of(*request.role) != RoleScope::kTenant)
      return invalid("role", "role must be viewer, user (or member) or tenant_admin (or admin)");
  }
  if (request.tenant) {
    const auto number = number_of_allocation_id(cluster, AllocationIdKind::kOrganization, *request.tenant);
    if (number) request.tenant = tenant_name(TenantId{*number});
  }
  return request;
}

std::string user_json(const std::string& cluster, const PersonView& person) {
  std::string out;
  JsonWriter json(out);
  json.begin_object().field("id", allocation_id(cluster, AllocationIdKind::kPerson, person.id.value));
  json.field("email", std::string_view(person.email)).key("organization_id");
  if (person.tenant.valid()) {
    json.value(allocation_id(cluster, AllocationIdKind::kOrganization, person.tenant.value));
  } else {
    json.null();
  }
  json.field("role", to_string(person.role)).key("is_active").value(person.active);
  json.field("created_at", person.created_at).field("updated_at", person.updated_at).end_object();
  return out;
}

}  // namespace gpusched::api

#pragma once

#include <string>
#include <string_view>

#include "api/contract/errors.h"
#include "api/contract/keys.h"

/// The allocation door's users: people who are recorded.
namespace gpusched::api {

/// The body of POST /users, where an email must be, and of PUT /users/{id}. An organization is named by its
/// id at this door, or as elsewhere.
Answer<PersonRequest> parse_user(std::string_view body, bool is_new, std::string_view cluster);
std::string user_json(const std::string& cluster, const PersonView& person);

}  // namespace gpusched::api

#pragma once

#include <string>

#include "base/limits.h"
#include "engine/messages/identity_commands.h"

/// For tests only: commands about identities that may be proposed, with all their fields.
namespace gpusched::testing {

inline CreateKey some_key() {
  return {.tenant = TenantId{1},
          .name = "n",
          .kind = CallerKind::kService,
          .prefix = "prefix01",
          .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
          .bindings = {{.tenant = TenantId{1}, .role = Role::kUser}},
          .unix_users = {"u"},
          .expires_at = Time{9},
          .by = "b"};
}

inline RecordPerson some_person() {
  return {.person = {},
          .given = kPersonFields,
          .tenant = TenantId{1},
          .email = "e",
          .role = Role::kViewer,
          .password = Blob("p"),
          .active = false,
          .by = "b"};
}

inline CreateNodeTicket some_ticket() {
  return {.node = "n",
          .prefix = "prefix01",
          .hash = Blob(std::string(limits::kKeyHashBytes, 'h')),
          .expires_at = Time{9},
          .by = "b"};
}

inline AdmitNode some_admission() {
  return {.ticket = NodeTicketId{1},
          .identity = {},
          .node = "n",
          .key = Blob(std::string(limits::kPublicKeyHashBytes, 'k')),
          .expires_at = Time{9}};
}

}  // namespace gpusched::testing

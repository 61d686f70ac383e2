#include <google/protobuf/timestamp.pb.h>

#include "api/contract/names.h"
#include "api/doors/native/native_rest.h"
#include "api/doors/native/native_rest_json.h"
#include "gpusched/v1/login.pb.h"

namespace gpusched::api {

void NativeRest::get_login(NativeCall& call) {
  if (call.refused()) return;
  v1::LoginInfo out;
  const std::optional<SignIn> sign_in = sign_in_ == nullptr ? std::nullopt : sign_in_();
  if (sign_in) {
    v1::LoginIssuer& issuer = *out.add_issuers();
    issuer.set_issuer(sign_in->issuer);
    issuer.set_client_id(sign_in->client_id);
    for (const std::string& scope : sign_in->scopes) issuer.add_scopes(scope);
    issuer.set_token(sign_in->sends_access_token ? "access" : "id");
  }
  call.call->send(200, native_json(out));
}

void NativeRest::who_am_i(NativeCall& call) {
  if (call.refused()) return;
  const access::Caller& caller = *call.call->caller();
  v1::WhoAmI out;
  out.set_kind(std::string(to_string(caller.kind)));
  out.set_name(caller.name);
  out.set_key_id(caller.key_id);
  for (const Binding& binding : caller.bindings) {
    v1::KeyRole& role = *out.add_roles();
    role.set_role(std::string(to_string(binding.role)));
    if (binding.tenant.valid()) role.set_tenant_id(tenant_name(binding.tenant));
  }
  for (const std::string& user : caller.unix_users) out.add_unix_users(user);
  if (caller.ends_at.valid()) out.mutable_expires_at()->set_seconds(caller.ends_at.ns / seconds(1).ns);
  out.set_uses_open_tenants(caller.uses_open_tenants);
  call.call->send(200, native_json(out));
}

}  // namespace gpusched::api

#pragma once

#include "cli/framework/verb.h"

/// One function for each command of the table in verbs.cc.
namespace gpusched::cli {

Action define_submit(Grammar& grammar);
Action define_plan(Grammar& grammar);
Action define_list(Grammar& grammar);
Action define_get(Grammar& grammar);
Action define_wait(Grammar& grammar);
Action define_cancel(Grammar& grammar);
Action define_update(Grammar& grammar);
Action define_hold(Grammar& grammar);
Action define_release(Grammar& grammar);
Action define_requeue(Grammar& grammar);
Action define_rerun(Grammar& grammar);
Action define_explain(Grammar& grammar);
Action define_logs(Grammar& grammar);

Action define_attach(Grammar& grammar);
Action define_exec(Grammar& grammar);
Action define_shell(Grammar& grammar);
Action define_run(Grammar& grammar);
Action define_copy(Grammar& grammar);
Action define_port_forward(Grammar& grammar);
Action define_jupyter(Grammar& grammar);

Action define_top(Grammar& grammar);
Action define_cluster(Grammar& grammar);
Action define_status(Grammar& grammar);
Action define_pause(Grammar& grammar);
Action define_resume(Grammar& grammar);
Action define_history(Grammar& grammar);
Action define_quality(Grammar& grammar);
Action define_move_list(Grammar& grammar);
Action define_move_apply(Grammar& grammar);
Action define_node_list(Grammar& grammar);
Action define_gpu(Grammar& grammar);
Action define_device_list(Grammar& grammar);
Action define_device_quarantine(Grammar& grammar);
Action define_device_release(Grammar& grammar);
Action define_node_show(Grammar& grammar);
Action define_node_drain(Grammar& grammar);
Action define_node_resume(Grammar& grammar);
Action define_node_reboot(Grammar& grammar);
Action define_node_label(Grammar& grammar);
Action define_node_confirm_dead(Grammar& grammar);
Action define_node_remove(Grammar& grammar);
Action define_node_revoke(Grammar& grammar);
Action define_node_identities(Grammar& grammar);
Action define_node_condition(Grammar& grammar);

Action define_service_create(Grammar& grammar);
Action define_service_list(Grammar& grammar);
Action define_service_get(Grammar& grammar);
Action define_service_scale(Grammar& grammar);
Action define_service_rollout(Grammar& grammar);
Action define_service_delete(Grammar& grammar);

Action define_reservation_create(Grammar& grammar);
Action define_reservation_list(Grammar& grammar);
Action define_reservation_cancel(Grammar& grammar);
Action define_tenant_create(Grammar& grammar);
Action define_create_tenant(Grammar& grammar);
Action define_tenant_list(Grammar& grammar);
Action define_tenant_get(Grammar& grammar);
Action define_tenant_update(Grammar& grammar);
Action define_tenant_delete(Grammar& grammar);

Action define_key_create(Grammar& grammar);
Action define_key_list(Grammar& grammar);
Action define_key_revoke(Grammar& grammar);
Action define_key_bind(Grammar& grammar);

Action define_context_use(Grammar& grammar);
Action define_context_list(Grammar& grammar);
Action define_context_set(Grammar& grammar);
Action define_context_delete(Grammar& grammar);

Action define_login(Grammar& grammar);
Action define_logout(Grammar& grammar);
Action define_whoami(Grammar& grammar);

Action define_completion(Grammar& grammar);
Action define_man(Grammar& grammar);
Action define_support_bundle(Grammar& grammar);
Action define_help(Grammar& grammar);
Action define_version(Grammar& grammar);

}  // namespace gpusched::cli

#include "cli/framework/verbs.h"

#include <algorithm>
#include <array>

#include "cli/framework/history_verbs.h"
#include "cli/framework/machine_verbs.h"

namespace gpusched::cli {
namespace {

constexpr std::string_view kJobs = "Jobs";
constexpr std::string_view kServices = "Services";
constexpr std::string_view kCluster = "Nodes and GPUs";
constexpr std::string_view kTenants = "Tenants";
constexpr std::string_view kOther = "Other";

constexpr std::array kVerbs = {
    VerbDefinition{"submit", kJobs, "Submit a job", define_submit},
    VerbDefinition{"run", kJobs, "Run a command in a new job, with its output or a terminal here",
                   define_run},
    VerbDefinition{"plan", kJobs, "Predict the outcome of a submission, without submitting", define_plan},
    VerbDefinition{"list", kJobs, "List jobs, newest first", define_list},
    VerbDefinition{"get", kJobs, "Show all details of jobs", define_get},
    VerbDefinition{"wait", kJobs, "Wait until jobs end", define_wait},
    VerbDefinition{"cancel", kJobs, "Cancel jobs", define_cancel},
    VerbDefinition{"update", kJobs, "Change the priority, time limit or name of jobs", define_update},
    VerbDefinition{"hold", kJobs, "Hold pending jobs: they do not start until released", define_hold},
    VerbDefinition{"release", kJobs, "Release held jobs", define_release},
    VerbDefinition{"requeue", kJobs, "Stop running jobs and put them back into the queue", define_requeue},
    VerbDefinition{"rerun", kJobs, "Run ended jobs again, or the failed elements of an array", define_rerun},
    VerbDefinition{"history", kJobs, "List finished jobs of all time, or show what happened to a job",
                   define_history},
    VerbDefinition{"usage", kJobs, "Add up the GPU time of users, tenants, models or months", define_usage},
    VerbDefinition{"explain", kJobs, "Explain why a job waits, and what would let it start", define_explain},
    VerbDefinition{"logs", kJobs, "Print a job's output", define_logs},
    VerbDefinition{"attach", kJobs, "Follow a running job's output until it ends", define_attach},
    VerbDefinition{"exec", kJobs, "Run a command inside a running job", define_exec},
    VerbDefinition{"shell", kJobs, "Open a shell inside a running job", define_shell},
    VerbDefinition{"cp", kJobs, "Copy a file out of a job, or into one", define_copy},
    VerbDefinition{"port-forward", kJobs, "Reach a port inside a running job from this machine",
                   define_port_forward},
    VerbDefinition{"jupyter", kJobs, "Start a notebook server in a job, and forward its port here",
                   define_jupyter},

    VerbDefinition{"service create", kServices, "Create a service: jobs that are kept running",
                   define_service_create},
    VerbDefinition{"service list", kServices, "List services", define_service_list},
    VerbDefinition{"service get", kServices, "Show a service and its replicas", define_service_get},
    VerbDefinition{"service scale", kServices, "Change the number of replicas", define_service_scale},
    VerbDefinition{"service rollout", kServices, "Replace the replicas one by one", define_service_rollout},
    VerbDefinition{"service delete", kServices, "Delete a service, and end its replicas",
                   define_service_delete},

    VerbDefinition{"top", kCluster, "Monitor GPUs and jobs live", define_top},
    VerbDefinition{"status", kCluster, "Count nodes, GPUs and jobs, and list what is wrong", define_status},
    VerbDefinition{"pause", kCluster, "Stop all starts in the cluster; running jobs continue", define_pause},
    VerbDefinition{"resume", kCluster, "Let jobs start again after a pause", define_resume},
    VerbDefinition{"cluster", kCluster, "Count nodes, GPUs and jobs", define_cluster},
    VerbDefinition{"quality", kCluster, "Show how accurate predicted run times and starts were",
                   define_quality},
    VerbDefinition{"machines", kCluster, "List machines that come from providers, and their pools",
                   define_machines},
    VerbDefinition{"move list", kCluster, "Propose moves of running jobs that would let others start",
                   define_move_list, "moves"},
    VerbDefinition{"move apply", kCluster, "Carry out a proposed move", define_move_apply},
    VerbDefinition{"node list", kCluster, "List nodes", define_node_list, "nodes"},
    VerbDefinition{"node show", kCluster, "Show all details of a node", define_node_show},
    VerbDefinition{"node drain", kCluster, "Drain nodes: no new jobs; running jobs continue",
                   define_node_drain},
    VerbDefinition{"node resume", kCluster, "Return drained nodes to service", define_node_resume},
    VerbDefinition{"node reboot", kCluster, "Reboot nodes; with --rolling one by one, without failing a job",
                   define_node_reboot},
    VerbDefinition{"node label", kCluster, "Set and remove labels on a node", define_node_label},
    VerbDefinition{"node confirm-dead", kCluster,
                   "Declare an unreachable node dead: its jobs are retried elsewhere",
                   define_node_confirm_dead},
    VerbDefinition{"node identities", kCluster, "List the nodes that have certificates",
                   define_node_identities},
    VerbDefinition{"node revoke", kCluster, "End a node's certificates and its connection",
                   define_node_revoke},
    VerbDefinition{"node remove", kCluster, "Remove a node that is gone for good", define_node_remove},
    VerbDefinition{"node condition", kCluster, "Mark a GPU unhealthy, or ok again", define_node_condition},
    VerbDefinition{"gpu", kCluster, "List GPUs: who holds which, and since when", define_gpu},
    VerbDefinition{"device list", kCluster, "List GPUs", define_device_list, "gpus"},
    VerbDefinition{"device quarantine", kCluster, "Quarantine a GPU: no new jobs; running jobs continue",
                   define_device_quarantine},
    VerbDefinition{"device release", kCluster, "Release a GPU from quarantine", define_device_release},

    VerbDefinition{"reservation create", kCluster,
                   "Reserve nodes for a tenant, or for maintenance, at a set time",
                   define_reservation_create},
    VerbDefinition{"reservation list", kCluster, "List reservations", define_reservation_list},
    VerbDefinition{"reservation cancel", kCluster, "Cancel a reservation", define_reservation_cancel},

    VerbDefinition{"tenant create", kTenants, "Create a tenant", define_tenant_create},
    VerbDefinition{"create-tenant", kTenants, "Create a tenant, in the form that existing scripts use",
                   define_create_tenant},
    VerbDefinition{"tenant list", kTenants, "List the tenants", define_tenant_list},
    VerbDefinition{"tenant get", kTenants, "Show a tenant", define_tenant_get},
    VerbDefinition{"tenant update", kTenants, "Change settings of a tenant", define_tenant_update},
    VerbDefinition{"tenant delete", kTenants, "Delete a tenant that has no jobs, and its reservations",
                   define_tenant_delete},

    VerbDefinition{"key create", kTenants, "Create an API key", define_key_create},
    VerbDefinition{"key list", kTenants, "List the API keys", define_key_list},
    VerbDefinition{"key revoke", kTenants, "Revoke an API key, for ever", define_key_revoke},
    VerbDefinition{"key bind", kTenants, "Give a role to an API key, or take one", define_key_bind},

    VerbDefinition{.path = "login",
                   .group = kOther,
                   .summary = "Log in at the scheduler's provider of identities",
                   .define = define_login,
                   .anonymous = true},
    VerbDefinition{.path = "logout",
                   .group = kOther,
                   .summary = "End the login, here and at the provider",
                   .define = define_logout,
                   .anonymous = true},
    VerbDefinition{"whoami", kOther, "Show who you are to the scheduler, and your roles", define_whoami},
    VerbDefinition{"support-bundle", kOther, "Collect diagnostics for a support request, without secrets",
                   define_support_bundle},
    VerbDefinition{.path = "context use",
                   .group = kOther,
                   .summary = "Switch to another scheduler",
                   .define = define_context_use,
                   .offline = true},
    VerbDefinition{.path = "context list",
                   .group = kOther,
                   .summary = "List contexts: named schedulers",
                   .define = define_context_list,
                   .offline = true},
    VerbDefinition{.path = "context set",
                   .group = kOther,
                   .summary = "Create or change a context",
                   .define = define_context_set,
                   .offline = true},
    VerbDefinition{.path = "context delete",
                   .group = kOther,
                   .summary = "Delete a context",
                   .define = define_context_delete,
                   .offline = true},
    VerbDefinition{.path = "completion",
                   .group = kOther,
                   .summary = "Print a shell's completion script",
                   .define = define_completion,
                   .offline = true},
    VerbDefinition{.path = "man",
                   .group = kOther,
                   .summary = "Write the manual pages to a folder",
                   .define = define_man,
                   .offline = true},
    VerbDefinition{.path = "help",
                   .group = kOther,
                   .summary = "Show help for a command",
                   .define = define_help,
                   .offline = true},
    VerbDefinition{.path = "version",
                   .group = kOther,
                   .summary = "Print the versions of gpu-cli and the scheduler",
                   .define = define_version},
};

}  // namespace

std::span<const VerbDefinition> all_verbs() { return kVerbs; }

const VerbDefinition* find_verb(std::string_view path) {
  const auto found = std::ranges::find_if(kVerbs, [&](const VerbDefinition& verb) {
    return verb.path == path || (!verb.alias.empty() && verb.alias == path);
  });
  return found == kVerbs.end() ? nullptr : &*found;
}

bool is_verb_group(std::string_view word) {
  return std::ranges::any_of(kVerbs, [&](const VerbDefinition& verb) {
    return verb.path.size() > word.size() && verb.path.starts_with(word) && verb.path[word.size()] == ' ';
  });
}

}  // namespace gpusched::cli

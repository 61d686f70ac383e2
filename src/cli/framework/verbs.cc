#include "cli/framework/verbs.h"

#include <algorithm>
#include <array>

namespace gpusched::cli {
namespace {

constexpr std::string_view kJobs = "Jobs";
constexpr std::string_view kCluster = "Nodes and GPUs";
constexpr std::string_view kTenants = "Tenants";
constexpr std::string_view kOther = "Other";

constexpr std::array kVerbs = {
    VerbDefinition{"submit", kJobs, "Submit a job", define_submit},
    VerbDefinition{"plan", kJobs, "Say what a submission would come to, without submitting", define_plan},
    VerbDefinition{"list", kJobs, "List jobs, newest first", define_list},
    VerbDefinition{"get", kJobs, "Show everything that is known about jobs", define_get},
    VerbDefinition{"wait", kJobs, "Wait until jobs have ended", define_wait},
    VerbDefinition{"cancel", kJobs, "Cancel jobs", define_cancel},
    VerbDefinition{"update", kJobs, "Change the priority, time limit or name of jobs", define_update},
    VerbDefinition{"hold", kJobs, "Keep waiting jobs from starting", define_hold},
    VerbDefinition{"release", kJobs, "Let held jobs start", define_release},
    VerbDefinition{"requeue", kJobs, "End running jobs' attempts and put the jobs back in line",
                   define_requeue},
    VerbDefinition{"explain", kJobs, "Say why a job waits, and what would start it", define_explain},
    VerbDefinition{"logs", kJobs, "Print a job's output", define_logs},
    VerbDefinition{"attach", kJobs, "Follow a running job's output until it ends", define_attach},
    VerbDefinition{"exec", kJobs, "Run a command in a running job's box", define_exec},
    VerbDefinition{"shell", kJobs, "Open a shell in a running job's box", define_shell},
    VerbDefinition{"cp", kJobs, "Copy a small file out of a job", define_copy},

    VerbDefinition{"top", kCluster, "Watch GPUs and jobs live", define_top},
    VerbDefinition{"cluster", kCluster, "Count nodes, GPUs and jobs", define_cluster},
    VerbDefinition{"quality", kCluster, "Show how good predicted run times and starts turned out to be",
                   define_quality},
    VerbDefinition{"move list", kCluster, "Show which running jobs could move so that others start",
                   define_move_list, "moves"},
    VerbDefinition{"move apply", kCluster, "Carry one of these proposals out", define_move_apply},
    VerbDefinition{"node list", kCluster, "List the nodes", define_node_list, "nodes"},
    VerbDefinition{"node show", kCluster, "Show everything that is known about a node", define_node_show},
    VerbDefinition{"node drain", kCluster, "Give nodes no new work; what runs there goes on",
                   define_node_drain},
    VerbDefinition{"node resume", kCluster, "Put drained nodes back to work", define_node_resume},
    VerbDefinition{"node reboot", kCluster, "Reboot nodes, one after the other without a failed job",
                   define_node_reboot},
    VerbDefinition{"node label", kCluster, "Set and remove labels of a node", define_node_label},
    VerbDefinition{"node confirm-dead", kCluster,
                   "Say that a silent node is certainly off: its jobs are retried elsewhere",
                   define_node_confirm_dead},
    VerbDefinition{"node remove", kCluster, "Take a node that is gone for good off the books",
                   define_node_remove},
    VerbDefinition{"node condition", kCluster, "Take a GPU out of service, or back into it",
                   define_node_condition},
    VerbDefinition{"device list", kCluster, "List the GPUs", define_device_list, "gpus"},
    VerbDefinition{"device quarantine", kCluster, "Give a GPU no new work; what runs there goes on",
                   define_device_quarantine},
    VerbDefinition{"device release", kCluster, "End a GPU's quarantine", define_device_release},

    VerbDefinition{"reservation create", kCluster,
                   "Keep nodes for a tenant, or for maintenance, at a set time", define_reservation_create},
    VerbDefinition{"reservation list", kCluster, "List the reservations", define_reservation_list},
    VerbDefinition{"reservation cancel", kCluster, "Give a reservation's nodes back",
                   define_reservation_cancel},

    VerbDefinition{"tenant create", kTenants, "Create a tenant", define_tenant_create},
    VerbDefinition{"tenant list", kTenants, "List the tenants", define_tenant_list},
    VerbDefinition{"tenant get", kTenants, "Show a tenant", define_tenant_get},
    VerbDefinition{"tenant update", kTenants, "Change what is given of a tenant", define_tenant_update},
    VerbDefinition{"tenant delete", kTenants, "Delete a tenant that has no jobs", define_tenant_delete},

    VerbDefinition{"support-bundle", kOther, "Collect what helps to help, without secrets",
                   define_support_bundle},
    VerbDefinition{.path = "context use",
                   .group = kOther,
                   .summary = "Speak to another scheduler from now on",
                   .define = define_context_use,
                   .offline = true},
    VerbDefinition{.path = "context list",
                   .group = kOther,
                   .summary = "List the schedulers that have a name",
                   .define = define_context_list,
                   .offline = true},
    VerbDefinition{.path = "context set",
                   .group = kOther,
                   .summary = "Give a scheduler a name, or change it",
                   .define = define_context_set,
                   .offline = true},
    VerbDefinition{.path = "context delete",
                   .group = kOther,
                   .summary = "Forget a scheduler's name",
                   .define = define_context_delete,
                   .offline = true},
    VerbDefinition{.path = "completion",
                   .group = kOther,
                   .summary = "Print the completion script of a shell",
                   .define = define_completion,
                   .offline = true},
    VerbDefinition{.path = "man",
                   .group = kOther,
                   .summary = "Write the manual pages into a folder",
                   .define = define_man,
                   .offline = true},
    VerbDefinition{.path = "help",
                   .group = kOther,
                   .summary = "Explain a command",
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

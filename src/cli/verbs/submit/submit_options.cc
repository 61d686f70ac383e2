#include "cli/verbs/submit/slurm.h"
#include "cli/verbs/submit/submit.h"

namespace gpusched::cli {
namespace {

void declare_gpus_and_nodes(Grammar& grammar, SubmitOptions& submit) {
  grammar.heading("GPUs and nodes");
  grammar
      .option("--name", "NAME", &submit.name,
              "Name of the job (default: that of the command or of the script file)")
      .alias("--job-name")
      .alias("-J")
      .common();
  grammar.option("--gpus", "N", &submit.gpus, "Number of GPUs").range(0, 1'000'000).alias("-G").common();
  grammar
      .option("--nodes", "N[-M]", &submit.nodes,
              "Number of nodes, allocated all at once; the command runs once on each. 2-8: as many of "
              "them as fit when the job starts")
      .alias("-N");
  grammar.option("--gpus-per-node", "N", &submit.gpus_per_node, "With --nodes: GPUs on each node")
      .range(0, 64);
  grammar
      .option("--domain", "LEVEL", &submit.domain,
              "Keep the nodes within one rack, block or zone if they fit (default: the smallest that holds "
              "them)")
      .of({"node", "rack", "block", "zone"});
  grammar.flag("--domain-required", submit.domain_required,
               "Wait until the nodes fit within one such domain, rather than spread");
  grammar
      .option("--on-node-loss", "WHAT", &submit.on_node_loss,
              "With --nodes, when a node is lost: end the whole attempt and retry it (the default), or "
              "continue on the remaining nodes while they are enough")
      .of({"end", "continue"});
  grammar.option("--gpu-model", "MODEL", &submit.gpu_model,
                 "Only this model: A100 matches NVIDIA A100-SXM4-80GB; H100,A100: either, preferably the "
                 "first");
  grammar.option("--gpu-share", "PART", &submit.gpu_share,
                 "A fraction of one GPU, such as 0.25 or 25%; other jobs may use the rest");
  grammar.option("--mig", "PROFILE", &submit.mig,
                 "A MIG slice, such as 1g.10gb, instead of --gpus and --gpu-memory");
  grammar.option("--gpu-memory", "SIZE", &submit.gpu_memory,
                 "Total memory of all GPUs, such as 80G; with --gpu-share: memory of the share (default: in "
                 "proportion)");
  grammar.option("--gpu-memory-each", "SIZE", &submit.gpu_memory_each, "Minimum memory of each GPU");
}

void declare_placement(Grammar& grammar, SubmitOptions& submit) {
  grammar.heading("Placement");
  grammar.option("-w,--nodelist", "NODE", &submit.nodelist, "Only this node").completes(Complete::kNode);
  grammar.option("-x,--exclude", "NODES", &submit.exclude, "Not these nodes, such as n1,n2 or n[3-7]");
  grammar.option("--node-label", "K=V", &submit.node_labels,
                 "Only nodes with this label; K alone: with any value; comma-separated or repeated");
  grammar.option("--without-label", "K=V", &submit.without_labels,
                 "Only nodes without this label; K alone: without any value; comma-separated or repeated");
  grammar.flag("--exclusive", submit.exclusive, "Use whole nodes: no other job runs there at the same time");
  grammar
      .option("--gpu-layout", "LAYOUT", &submit.gpu_layout,
              "Arrangement of the GPUs on a node: pack (fastest links, the default), spread over the "
              "islands, or contiguous by index")
      .of({"pack", "spread", "contiguous"});
  grammar.option("--gpu-ids", "IDS", &submit.gpu_ids,
                 "Exactly these GPUs: indexes such as 0,1, or UUIDs, which also determine the node");
  grammar
      .option("--gpu-bandwidth", "GB/S", &submit.gpu_bandwidth,
              "Minimum link bandwidth between any two of the GPUs")
      .range(0, 1'000'000);
}

void declare_limits(Grammar& grammar, SubmitOptions& submit) {
  grammar.heading("Priority and retries");
  grammar.option("--cpus", "N", &submit.cpus, "CPU cores; fractions such as 0.5 are allowed (default: 1)")
      .alias("--cpus-per-task")
      .alias("-c")
      .common();
  grammar
      .option("--mem", "SIZE", &submit.memory,
              "Memory, such as 8G; 0 or unlimited: no limit (default: in proportion to the node)")
      .common();
  grammar.option("-t,--time", "SPAN", &submit.time_limit, "Time limit, such as 90s, 2h, 1d12h or 2:00:00")
      .common();
  grammar.option("--priority", "N", &submit.priority,
                 "Priority: a number, higher starts earlier, may be negative; or low (100), medium (500), "
                 "high (1000), critical (5000)");
  grammar.option("--class", "CLASS", &submit.work_class,
                 "online or batch, on clusters with a pool for each (default: by priority)");
  grammar.option("--label", "K=V", &submit.labels, "Label of the job; may be repeated");
  grammar.option("--retries", "N", &submit.retries,
                 "Retries after a failing exit; loss of a node is retried in any case");
}

void declare_environment(Grammar& grammar, SubmitOptions& submit) {
  grammar.heading("Files, environment and user");
  grammar
      .option("--chdir", "DIR", &submit.working_directory,
              "Working directory on the node; -: the attempt's own (default: the current directory if the "
              "node has it, otherwise the attempt's own)")
      .alias("--workdir")
      .alias("-D")
      .completes(Complete::kFolder);
  grammar
      .option("-o,--output", "FILE", &submit.output,
              "Append standard output to this file on the node; %j in it is the job's id")
      .completes(Complete::kFile)
      .common();
  grammar
      .option("-e,--error", "FILE", &submit.error,
              "Append standard error to this file on the node; %j in it is the job's id")
      .completes(Complete::kFile);
  grammar.option("--input", "FILE", &submit.input, "Read standard input from this file on the node")
      .completes(Complete::kFile);
  grammar.option("--env", "K=V", &submit.environment,
                 "Environment variable; K alone: with its value in this shell; may be repeated");
  grammar.option(
      "--secret-env", "K", &submit.secrets,
      "Like --env, for a value that nobody is shown again; K alone keeps it out of the shell's history");
  grammar.option("--export", "LIST", &submit.export_list,
                 "Variables of this shell to pass on: NONE (the default), ALL, or a comma-separated list of "
                 "names and K=V; in quotes a value may have commas");
  grammar.option("--user", "USER", &submit.user,
                 "User on the node that the job runs as; -: the agent's default (default: your login name)");
  grammar.option("--umask", "MASK", &submit.umask, "File mode creation mask, such as 0027");
  grammar.option("--limit", "NAME=N", &submit.limits,
                 "Resource limit, such as nofile=65536, memlock=unlimited or core=0; may be repeated");
}

void declare_container(Grammar& grammar, SubmitOptions& submit) {
  grammar.heading("Containers");
  grammar.option("--image", "IMAGE", &submit.image,
                 "Container image to run in; without a command: the image's own");
  grammar.option("--image-digest", "DIGEST", &submit.image_digest,
                 "Run exactly this image content: sha256:...");
  grammar.option("--pull", "WHEN", &submit.pull, "When to pull the image")
      .of({"if_missing", "always", "never"});
  grammar.option("--credential", "NAME", &submit.credential,
                 "Name of the registry credential on the node, never the secret itself");
  grammar.option("--mount", "SOURCE:TARGET[:ro]", &submit.mounts,
                 "Mount this folder of the node in the container, if the node allows it; may be repeated");
  grammar.option("--container-arg", "WORD", &submit.container_arguments,
                 "Option for the container runtime, if the node allows it; may be repeated");
}

void declare_schedule(Grammar& grammar, SubmitOptions& submit) {
  grammar.heading("Schedule");
  grammar.flag("--require-feasible", submit.require_feasible,
               "Refuse the job, rather than let it wait, if no registered node could ever run it");
  grammar
      .option("-a,--array", "INDEXES", &submit.array,
              "Submit an array with one element per index: 1-100, 0-20:5 or 1,3,7-9; %50 appended: at "
              "most fifty at a time. Each element finds its index in GPU_SCHEDULER_ARRAY_INDEX")
      .common();
  grammar
      .option("--begin", "WHEN", &submit.begin,
              "Earliest start, such as +2h, 18:30, \"tomorrow 10:00\" or 2025-01-31T09:00:00Z")
      .alias("-b");
  grammar.option("--deadline", "WHEN", &submit.deadline,
                 "Give up the job if it has not started by then; WHEN as for --begin");
  grammar
      .option("--after", "KIND:JOB", &submit.after,
              "Start once JOB has completed (ok, the default KIND), ended (any) or started (start); "
              "comma-separated or repeated, all must hold")
      .completes(Complete::kJob)
      .common();
  grammar
      .option("--on-parent-failure", "WHAT", &submit.on_parent_failure,
              "When a condition of --after can no longer hold: cancel this job (the default) or let it wait")
      .of({"cancel", "wait"});
  grammar.option("--retry-on", "CAUSE", &submit.retry_on,
                 "What --retries applies to: exit_code, exit_code:75, signal, out_of_memory, over_limit "
                 "(the defaults), timeout; comma-separated or repeated");
  grammar.flag("--hold", submit.hold, "Hold the job until gpu-cli release").alias("-H");
  grammar.flag("--now", submit.now,
               "Interactive: start within seconds or give up with exit code 4; for small, short jobs, with "
               "--time");
}

void declare_preemption_and_watchdog(Grammar& grammar, SubmitOptions& submit) {
  grammar.heading("Preemption and watchdogs");
  grammar.option("--preemption-mode", "MODE", &submit.preemption_mode,
                 "When preempted: requeue (the default) or cancel");
  grammar.option("--preempt-signal", "SIGNAL", &submit.preempt_signal,
                 "Signal sent on preemption instead of SIGTERM, such as USR1: save your work, then run "
                 "gpu-agent checkpointed or touch \"$GPU_CHECKPOINT_FILE\"");
  grammar.option("--preempt-grace", "SPAN", &submit.preempt_grace,
                 "Time to save work after that signal, such as 2m; the job ends earlier once it reports "
                 "that its work is saved");
  grammar.option("--preempt-webhook", "URL", &submit.preempt_webhook,
                 "http:// URL to notify on preemption; the scheduler's configuration lists the allowed ones");
  grammar.option("--idle-after", "SPAN", &submit.idle_after,
                 "Warn when the GPUs have been idle for this long, such as 20m (default: as configured)");
  grammar.option("--idle-action", "ACTION", &submit.idle_action,
                 "What to do besides: warn (nothing more), requeue or cancel; milder than configured only "
                 "if the scheduler allows it");
  grammar.option("--hung-after", "SPAN", &submit.hung_after,
                 "Warn when the GPUs have been fully busy for this long without any output");
  grammar.option("--hung-action", "ACTION", &submit.hung_action, "What to do besides, as for --idle-action");
}

void declare_texts(Grammar& grammar, TextValues& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const TextOption& text = kTextOptions[i];
    grammar.option(text.flag, std::string(text.value), &values[i], std::string(text.help));
  }
}

void declare_waiting(Grammar& grammar, SubmitOptions& submit) {
  grammar.heading("Waiting");
  grammar.flag("--wait", submit.wait, "Wait until the job ends, and exit with its exit code").common();
  grammar
      .flag("--logs", submit.logs,
            "With --wait: print the job's output while it runs; its id goes to standard error")
      .common();
  grammar.option("--timeout", "SPAN", &submit.timeout,
                 "With --wait: stop waiting after this long, with exit code 6; the job continues");
  grammar.flag(
      "--no-retry", submit.no_retry,
      "Fail at once if the scheduler does not answer, rather than repeat the submission for a minute");
}

}  // namespace

void declare_submit_options(Grammar& grammar, SubmitOptions& submit) {
  grammar.refuses_empty_values();
  declare_gpus_and_nodes(grammar, submit);
  declare_placement(grammar, submit);
  declare_limits(grammar, submit);
  declare_environment(grammar, submit);
  declare_container(grammar, submit);
  declare_schedule(grammar, submit);
  declare_preemption_and_watchdog(grammar, submit);
  grammar.heading("Schedule");
  declare_texts(grammar, submit.texts);
  declare_waiting(grammar, submit);
  grammar.hints(slurm_hint);
}

}  // namespace gpusched::cli

#include "cli/verbs/submit/submit.h"

namespace gpusched::cli {
namespace {

void declare_texts(Grammar& grammar, TextValues& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const TextOption& text = kTextOptions[i];
    grammar.option(text.flag, std::string(text.value), &values[i], std::string(text.help));
  }
}

}  // namespace

void declare_submit_options(Grammar& grammar, SubmitOptions& submit) {
  grammar.option("--name", "NAME", &submit.name, "Name for people; else the command's or the script file's");
  grammar.option("--gpus", "N", &submit.gpus, "GPUs that it needs").range(0, 1'000'000);
  grammar.option(
      "--nodes", "N[-M]", &submit.nodes,
      "Nodes that it needs, all at once: its command runs once on each; 2-8: as many of them as fit when "
      "it starts");
  grammar.option("--gpus-per-node", "N", &submit.gpus_per_node, "With --nodes: GPUs on each").range(0, 64);
  grammar
      .option(
          "--domain", "LEVEL", &submit.domain,
          "All its nodes in one rack, block or zone, if they fit there; without: in the smallest that holds "
          "them")
      .of({"node", "rack", "block", "zone"});
  grammar.flag("--domain-required", submit.domain_required, "And let it wait until they do");
  grammar
      .option(
          "--on-node-loss", "WHAT", &submit.on_node_loss,
          "With --nodes: end (also by itself) and try all of it again, or continue with the nodes that are "
          "left while they are enough")
      .of({"end", "continue"});
  grammar.option(
      "--gpu-model", "MODEL", &submit.gpu_model,
      "Only this model: A100 fits NVIDIA A100-SXM4-80GB; H100,A100: any of them, the first if it can "
      "be had");
  grammar.option("--gpu-share", "PART", &submit.gpu_share,
                 "A part of one GPU, such as 0.25 or 25%; others may have the rest");
  grammar.option("--mig", "PROFILE", &submit.mig,
                 "A MIG slice of a GPU in MIG mode, such as 1g.10gb; instead of --gpus and --gpu-memory");
  grammar.option(
      "--gpu-memory", "SIZE", &submit.gpu_memory,
      "Memory of all its GPUs together, such as 80G; of a share: its own (else as much as of the rest)");
  grammar.option("--gpu-memory-each", "SIZE", &submit.gpu_memory_each, "Memory of each of its GPUs at least");
  grammar.option("--node-label", "K=V", &submit.node_labels,
                 "Only nodes with this label, or K alone: with any value; several with commas; repeatable");
  grammar.option("--without-label", "K=V", &submit.without_labels,
                 "Only nodes without it, or K alone: whatever its value; several with commas; repeatable");
  grammar.flag("--exclusive", submit.exclusive, "A node for itself: nobody else runs there while it does");
  grammar
      .option("--gpu-layout", "LAYOUT", &submit.gpu_layout,
              "How its GPUs lie on the node: pack (the best links, the default), spread over the islands, or "
              "contiguous by index")
      .of({"pack", "spread", "contiguous"});
  grammar.option("--gpu-ids", "IDS", &submit.gpu_ids,
                 "Exactly these GPUs: indexes such as 0,1, or UUIDs, which name the node too");
  grammar
      .option("--gpu-bandwidth", "GB/S", &submit.gpu_bandwidth,
              "Between any two of its GPUs at least so much")
      .range(0, 1'000'000);
  grammar.option("--cpus", "N", &submit.cpus, "CPU cores, also parts such as 0.5 (1)");
  grammar.option("--mem", "SIZE", &submit.memory,
                 "Memory, such as 8G; 0 or unlimited: no limit (else by its share of the node)");
  grammar.option("-t,--time", "SPAN", &submit.time_limit, "End it after so long, such as 90s, 2h or 1d12h");
  grammar.option(
      "--priority", "N", &submit.priority,
      "Higher starts earlier; may be negative; or low (100), medium (500), high (1000), critical (5000)");
  grammar.option("--class", "CLASS", &submit.work_class,
                 "online or batch, where the cluster has a pool for each; else by its priority");
  grammar.option("--label", "K=V", &submit.labels, "Label; repeatable");
  grammar.option("--retries", "N", &submit.retries,
                 "Run it again so often when it exits with a failure; lost nodes are retried in any case");
  grammar
      .option("--chdir", "DIR", &submit.working_directory,
              "Folder on the node to run in (default: where you are, if the node has it, else the attempt's "
              "own); "
              "-: the attempt's own")
      .alias("--workdir")
      .completes(Complete::kFolder);
  grammar
      .option("-o,--output", "FILE", &submit.output,
              "Append its standard output to this file on the node; %j and more as below")
      .completes(Complete::kFile);
  grammar
      .option("-e,--error", "FILE", &submit.error,
              "Append its standard error to this file on the node; %j and more as below")
      .completes(Complete::kFile);
  grammar.option("--input", "FILE", &submit.input, "Its standard input, a file on the node")
      .completes(Complete::kFile);
  grammar.option("--env", "K=V", &submit.environment,
                 "Environment variable; K alone takes the value that it has here; repeatable");
  grammar.option("--export", "LIST", &submit.export_list,
                 "What of this shell's environment goes along: NONE (the default), ALL, or names and K=V, "
                 "with commas between");
  grammar.option("--user", "USER", &submit.user,
                 "The node's user that it runs as (default: your own login name); -: the agent's default");
  grammar.option("--umask", "MASK", &submit.umask, "Such as 0027");
  grammar.option("--limit", "NAME=N", &submit.limits,
                 "Resource limit such as nofile=65536, memlock=unlimited or core=0; repeatable");
  grammar.option("--image", "IMAGE", &submit.image, "Container image to run in; without a command, its own");
  grammar.option("--image-digest", "DIGEST", &submit.image_digest, "sha256:...: run exactly this content");
  grammar.option("--pull", "WHEN", &submit.pull, "When the image is fetched")
      .of({"if_missing", "always", "never"});
  grammar.option("--credential", "NAME", &submit.credential,
                 "Name of the registry's credential on the node, never the secret");
  grammar.option("--mount", "SOURCE:TARGET[:ro]", &submit.mounts,
                 "Folder of the node to show in the container, from its allow-list; repeatable");
  grammar.option("--container-arg", "WORD", &submit.container_arguments,
                 "Option for the container runtime, from the node's allow-list; repeatable");
  grammar.flag("--require-feasible", submit.require_feasible,
               "Refuse it when no registered node could ever run it, instead of letting it wait");
  grammar.option(
      "-a,--array", "INDEXES", &submit.array,
      "Many of it, one for each index: 1-100, 0-20:5 or 1,3,7-9, and %50 behind them for at most fifty "
      "at a time; each finds its own in GPU_SCHEDULER_ARRAY_INDEX");
  grammar.option("--begin", "WHEN", &submit.begin, "Do not start it before: +2h, or 2025-01-31T09:00:00Z");
  grammar.option("--deadline", "WHEN", &submit.deadline,
                 "Give it up when it still waits then; WHEN as --begin");
  grammar
      .option(
          "--after", "KIND:JOB", &submit.after,
          "Start it once JOB completed (ok, also without KIND), ended (any) or runs (start); several with "
          "commas; repeatable, all must hold")
      .completes(Complete::kJob);
  grammar
      .option("--on-parent-failure", "WHAT", &submit.on_parent_failure,
              "When a job of --after can no longer do that: cancel this one (the default), or let it wait")
      .of({"cancel", "wait"});
  grammar.option(
      "--retry-on", "CAUSE", &submit.retry_on,
      "What --retries is for: exit_code, exit_code:75, signal, out_of_memory, over_limit (these by "
      "default), timeout; several with commas; repeatable");
  grammar.flag("--hold", submit.hold, "Do not start it before gpu-cli release");
  grammar.flag("--now", submit.now,
               "Interactive: start it within seconds, or give it up with exit code 4; small and short jobs "
               "only, with a --time");
  grammar.option("--preemption-mode", "MODE", &submit.preemption_mode,
                 "When it is ended for a job of higher priority: requeue (the default) or cancel");
  grammar.option("--preempt-signal", "SIGNAL", &submit.preempt_signal,
                 "Sent then instead of SIGTERM, such as USR1: save your work and say so by gpu-agent "
                 "checkpointed or touch \"$GPU_CHECKPOINT_FILE\"");
  grammar.option("--preempt-grace", "SPAN", &submit.preempt_grace,
                 "How long it then has, such as 2m; it ends as soon as it says that its work is saved");
  grammar.option("--preempt-webhook", "URL", &submit.preempt_webhook,
                 "An http:// URL that is told then; the scheduler's configuration lists whose may be named");
  grammar.option("--idle-after", "SPAN", &submit.idle_after,
                 "Warn when it left its GPUs unused for so long, such as 20m, instead of as configured");
  grammar.option("--idle-action", "ACTION", &submit.idle_action,
                 "What else is done then: warn (nothing), requeue or cancel; milder than configured only if "
                 "the scheduler lets it");
  grammar.option("--hung-after", "SPAN", &submit.hung_after,
                 "Warn when its GPUs were fully busy for so long without output");
  grammar.option("--hung-action", "ACTION", &submit.hung_action, "What else is done then");
  declare_texts(grammar, submit.texts);
  grammar.flag("--wait", submit.wait, "Wait for its end and exit with its exit code");
  grammar.flag("--logs", submit.logs,
               "With --wait: copy its output to ours while it runs; the id goes to standard error then");
  grammar.option("--timeout", "SPAN", &submit.timeout,
                 "With --wait: give up waiting after so long, with exit code 6; the job goes on");
}

}  // namespace gpusched::cli

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/framework/options.h"
#include "cli/framework/session.h"
#include "cli/verbs/submit/text_options.h"
#include "grammar/grammar.h"

/// The parts of gpu-cli submit.
namespace gpusched::cli {

/// Command of a submission that names no command, script or image.
inline constexpr const char* kCommandOfNone = "nvidia-smi";

/// Options of a submission. A number that was not given stays empty, so that the scheduler's default applies.
struct SubmitOptions {
  std::string tenant;        ///< Tenant of a script's #SBATCH --account; --tenant-id wins.
  bool slurm_tasks = false;  ///< A script's #SBATCH lines give a number of tasks.
  std::string name;
  std::optional<int64_t> gpus;
  std::string nodes;  ///< As written, such as "4" or "2-8".
  std::optional<int64_t> gpus_per_node;
  std::string domain;
  bool domain_required = false;
  std::string on_node_loss;
  std::string gpu_model;
  std::string nodelist, exclude;                         ///< Names of nodes, "n1,n[3-5]".
  std::vector<std::string> node_labels, without_labels;  ///< "K=V" or "K", several with commas.
  bool exclusive = false;
  std::string gpu_layout, gpu_ids;
  std::optional<int64_t> gpu_bandwidth;
  std::string gpu_memory_each;  ///< As written, such as "80G".
  std::string gpu_share;        ///< As written, such as "0.25".
  std::string mig;              ///< The profile of a MIG slice.
  std::string gpu_memory;       ///< As written, such as "80G".
  std::optional<double> cpus;
  std::string memory;
  std::string priority;    ///< A tier's name or a number.
  std::string work_class;  ///< "online" or "batch".
  std::string script;      ///< Text or path given by --script.
  std::string time_limit;
  std::string working_directory;
  std::string output, error, input;
  std::vector<std::string> environment;  ///< "K=V", or "K" for the caller's own value.
  std::vector<std::string> secrets;      ///< The same, of variables whose values nobody is shown.
  std::string export_list;               ///< "NONE", "ALL", or names and K=V with commas between.
  std::vector<std::string> labels;       ///< "K=V"
  std::optional<int64_t> retries;
  std::string user;
  std::string umask;                ///< Octal.
  std::vector<std::string> limits;  ///< "K=N"
  std::string image, image_digest, pull, credential;
  std::vector<std::string> mounts;  ///< "SOURCE:TARGET[:ro]"
  std::vector<std::string> container_arguments;
  std::string array;               ///< "1-100", "0,4,8-12:2", "0-999%50"
  std::string begin, deadline;     ///< "+1h30m" or an instant.
  std::vector<std::string> after;  ///< "ok:job-12", "any:job-12,job-13"; without a kind: ok.
  std::string on_parent_failure;
  std::vector<std::string> retry_on;
  bool hold = false;
  bool now = false;
  std::string preemption_mode;
  std::string preempt_signal, preempt_grace, preempt_webhook;
  std::string idle_after, idle_action, hung_after, hung_action;
  TextValues texts;
  bool require_feasible = false;
  bool wait = false;
  bool logs = false;
  std::string timeout;
  bool no_retry = false;
  std::vector<std::string> command;
  std::string stream;       ///< A file of submissions, or "-".
  std::string script_file;  ///< The argument SCRIPT.
  std::vector<std::string> script_arguments;
};

/// Declares the options that a script's #GPU lines may give too; `options` must outlive the grammar.
void declare_submit_options(Grammar& grammar, SubmitOptions& options);

/// Declares what else says what runs: the script and the command behind --.
void declare_submission(Grammar& grammar, SubmitOptions& options);

/// A script as it will run.
struct Script {
  std::string text;
  std::string name;    ///< Name of the job, and of its lines in messages; empty: none.
  std::string folder;  ///< Folder that it was read from, as given; empty: it was an option's text.
  std::vector<std::string> notes = {};  ///< Changes to its text, a sentence each.
};

/// Reads the script that was asked for, from a file, standard input or the option's own text.
Result<Script> read_script(const SubmitOptions& submit, const CliIo& io);

/// Result of reading a script's lines, besides options.
struct ScriptLines {
  /// Errors, a sentence each that begins with "file:line: "; empty: the script is
  /// accepted.
  std::vector<std::string> problems;
  std::vector<std::string> warnings;  ///< Directives that are left out, stand too late, or only Slurm has.
  std::string account;                ///< That of the #SBATCH lines; empty: none.
  bool asks_for_tasks = false;        ///< The #SBATCH lines give a number of tasks.
};

/// Understands the script's #GPU and #SBATCH lines: those before its first command. `grammar` gets their
/// values; #GPU lines win.
ScriptLines read_script_lines(const Script& script, const Grammar& grammar);

/// A moment as --begin and --deadline take it: a span from now on ("+2h"), or a time as `parse_local_time`
/// reads it.
struct Moment {
  int64_t after_seconds = 0;
  std::string at;  ///< RFC 3339; empty: `after_seconds` holds.
};
Result<Moment> parse_moment(const std::string& option, const std::string& text, Time now);

/// Returns the body of the request for a submission, including the options in its script.
Result<std::string> submission_body(const Session& session, SubmitOptions& submit, const Grammar& grammar);

/// Says on standard error that a submission is repeated, and why.
void say_repeating(const Session& session, const Trouble& trouble);

/// Warns on standard error if no registered node could ever run the job that was submitted with `body`. Asks
/// the scheduler for that; says nothing if it has no answer. Says that there is no node at all unless
/// `waits`: whoever waits for the job is told that soon.
void warn_if_never(Session& session, const std::string& job, const std::string& body, bool waits);

/// The body of POST /api/v1/jobs, for one job. `warnings` gets a sentence for each thing that is left out.
Result<std::string> job_body(const Options& options, const SubmitOptions& submit,
                             const std::optional<Script>& script, const CliIo& io,
                             std::vector<std::string>& warnings);

}  // namespace gpusched::cli

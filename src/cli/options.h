#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "cli/run.h"

namespace gpusched::cli {

/// What was asked for. A number that was not given stays empty, so that the scheduler's default holds.
struct SubmitOptions {
  std::string name;
  std::optional<int64_t> gpus;
  std::string gpu_model;
  std::string gpu_memory;  ///< As written, such as "80G".
  std::optional<double> cpus;
  std::string memory;
  std::optional<int64_t> priority;
  std::string image;
  std::string script;
  std::string time_limit;
  std::string working_directory;
  std::vector<std::string> environment;  ///< "K=V", or "K" for the caller's own value.
  std::vector<std::string> labels;       ///< "K=V"
  std::optional<int64_t> retries;
  bool require_feasible = false;
  bool wait = false;
  bool logs = false;
  std::vector<std::string> command;
};

struct ListOptions {
  std::string state;
  int64_t limit = 50;
  bool all = false;
};

struct LogsOptions {
  std::string job;
  bool follow = false;
  bool from_stderr = false;
  int64_t attempt = 0;  ///< 0: the latest.
};

struct TenantOptions {
  std::string id;  ///< Of get, update and delete.
  std::string name;
  std::string email;
  std::string organization;
  std::string max_gpus;  ///< A number, or "none" for no limit; so are the next four.
  std::string max_gpu_memory;
  std::string max_cpus;
  std::string max_memory;
  std::string max_jobs;
  std::string priority;  ///< A tier's name or its number.
  std::optional<double> weight;
};

struct NodeOptions {
  std::string name;
  int64_t index = 0;
  std::string condition;
  std::string detail;
};

enum class Verb {
  kSubmit,
  kList,
  kGet,
  kCancel,
  kLogs,
  kExplain,
  kNodes,
  kGpus,
  kCluster,
  kTenantCreate,
  kTenantList,
  kTenantGet,
  kTenantUpdate,
  kTenantDelete,
  kNodeConfirmDead,
  kNodeCondition,
};

struct Options {
  std::string api_url;
  std::string tenant_id;
  std::string token_file;
  bool json = false;
  Verb verb = Verb::kCluster;
  SubmitOptions submit;
  ListOptions list;
  LogsOptions logs;
  TenantOptions tenant;
  NodeOptions node;
  std::vector<std::string> jobs;  ///< Of get, cancel and explain.
};

/// There is nothing to do but to say this and end.
struct ParseEnd {
  int exit_code = kExitOk;
  std::string text;  ///< Help for standard output when `exit_code` is 0, else one sentence.
};

/// Understands a command line. Everything behind the first "--" is the job's command.
std::variant<Options, ParseEnd> parse_options(int argument_count, const char* const* arguments,
                                              const CliIo& io);

/// Every verb ("submit", "tenant create") with the long names of its options, for the test of the reference
/// page.
std::map<std::string, std::vector<std::string>> option_names();

}  // namespace gpusched::cli

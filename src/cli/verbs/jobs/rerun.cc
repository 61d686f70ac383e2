#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/framework/job_words.h"
#include "cli/framework/verbs.h"
#include "cli/verbs/jobs/job_columns.h"

namespace gpusched::cli {
namespace {

struct RerunOptions {
  std::vector<std::string> jobs;
  bool failed = false;
};

/// One job that is to run again; of an array, perhaps some of its elements.
struct Again {
  std::string job;
  std::vector<int64_t> indexes;  ///< Empty: all, or the job is no array.
};

/// Elements of one array become one array again.
std::vector<Again> grouped(const std::vector<std::string>& words) {
  std::vector<Again> all;
  for (const std::string& word : words) {
    const size_t bracket = word.find('[');
    const Result<std::vector<int64_t>> indexes =
        bracket == std::string::npos || !word.ends_with(']')
            ? Result<std::vector<int64_t>>(std::vector<int64_t>{})
            : parse_indexes(word.substr(bracket + 1, word.size() - bracket - 2));
    if (!indexes || indexes->empty()) {
      all.push_back({.job = word});
      continue;
    }
    const std::string array = word.substr(0, bracket);
    const auto same =
        std::ranges::find_if(all, [&](const Again& one) { return one.job == array && !one.indexes.empty(); });
    Again& group = same == all.end() ? all.emplace_back(Again{.job = array}) : *same;
    group.indexes.insert(group.indexes.end(), indexes->begin(), indexes->end());
  }
  return all;
}

/// "1-3,7"
std::string ranges_text(std::vector<int64_t> indexes) {
  std::ranges::sort(indexes);
  const auto repeated = std::ranges::unique(indexes);
  indexes.erase(repeated.begin(), repeated.end());
  std::string text;
  for (std::size_t begin = 0; begin < indexes.size();) {
    std::size_t end = begin + 1;
    while (end < indexes.size() && indexes[end] == indexes[end - 1] + 1) ++end;
    if (!text.empty()) text += ",";
    text += std::to_string(indexes[begin]);
    if (end - begin > 1) text += "-" + std::to_string(indexes[end - 1]);
    begin = end;
  }
  return text;
}

int rerun_jobs(Session& session, const RerunOptions& rerun) {
  int exit_code = kExitOk;
  for (const Again& again : grouped(rerun.jobs)) {
    std::string path =
        "/v1/jobs/" + url_encoded(again.job) + "/rerun?failed=" + (rerun.failed ? "true" : "false");
    if (!again.indexes.empty()) path += "&indexes=" + url_encoded(ranges_text(again.indexes));
    const Reply reply = session.post_once(path, "", random_key());
    if (!reply) {
      exit_code = session.fail(about_job(again.job, *reply.trouble));
      if (exit_code == kExitUnreachable) return exit_code;
      continue;
    }
    session.io().out(session.options().json ? json_line(reply)
                                            : reply.json["job_ids"].items().front().text() + "\n");
  }
  return exit_code;
}

}  // namespace

Action define_rerun(Grammar& grammar) {
  const auto rerun = std::make_shared<RerunOptions>();
  grammar
      .argument("JOB", &rerun->jobs,
                "Job ids; job-46[3] is an element of an array, 'job-46[10-20,30]' several")
      .completes(Complete::kJob);
  grammar.flag("--failed", rerun->failed, "Of an array: only the elements that failed");
  grammar.details(
      "Submits each job again as it was asked for, with its script, variables, resources and limits, and "
      "prints "
      "the id of the new job. What it waited for is left out: dependencies, an earliest start, a deadline. "
      "Elements of an array keep their indexes. The old job stays as it is.");
  grammar.details(
      "A job that has not ended is refused: gpu-cli requeue stops it and lets it begin again. The failed "
      "elements of an array that still runs may be run again at once. A job is known for seven days after "
      "its end.");
  grammar.example("gpu-cli rerun --failed job-46", "run the failed elements of an array again");
  grammar.example("gpu-cli rerun job-12", "run a job again");
  return [rerun](Session& session) { return rerun_jobs(session, *rerun); };
}

}  // namespace gpusched::cli

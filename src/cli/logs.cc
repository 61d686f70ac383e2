#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/verbs.h"

namespace gpusched::cli {
namespace {

constexpr Duration kPollServer = seconds(30);
constexpr Duration kPollMargin = seconds(15);  ///< The server's answer is on its way.
constexpr Duration kChangePoll = seconds(1);
constexpr Duration kAnsweredAtOnce = milliseconds(500);

std::string log_path(const std::string& job, const std::string& stream, int64_t attempt, int64_t offset,
                     bool follow) {
  std::string path = "/jobs/" + url_encoded(job) + "/logs?stream=" + stream;
  if (attempt > 0) path += "&attempt=" + std::to_string(attempt);
  if (offset > 0) path += "&offset=" + std::to_string(offset);
  if (follow) path += "&follow=true";
  return path;
}

/// What follow_logs remembers between two calls of the API.
struct Follower {
  int64_t attempt = 0;
  int64_t offset = 0;  ///< Bytes of this attempt that were written.
  bool attempt_ended = false;
  bool stopped = false;  ///< The reader wants no more.
};

}  // namespace

Reply poll_job(Session& session, const std::string& job, Duration wait) {
  const Time before = session.io().wall_now();
  Reply reply = session.get("/jobs/" + url_encoded(job) + "?wait=" + std::to_string(wait.ms() / 1'000) + "s",
                            wait + kPollMargin);
  // A server that does not wait must not be asked without a pause.
  const bool at_once = session.io().wall_now() - before < std::min(wait, kAnsweredAtOnce);
  if (reply && !is_final(reply.json) && at_once && wait.ns > 0) session.io().pause(kAnsweredAtOnce);
  return reply;
}

bool is_final(const Json& job) {
  const std::string state = job["state"].text();
  return job["final"].boolean() || state == "completed" || state == "failed" || state == "cancelled";
}

std::string json_line(const Reply& reply) {
  return reply.text.ends_with('\n') ? reply.text : reply.text + "\n";
}

Reply wait_until_final(Session& session, const std::string& job) {
  Patience patience(session.io());
  for (;;) {
    Reply reply = poll_job(session, job, kPollServer);
    if (!reply) {
      if (reply.trouble->passing && patience.wait_again()) continue;
      return reply;
    }
    if (is_final(reply.json)) return reply;
    patience.renew();
  }
}

Reply follow_logs(Session& session, const std::string& job, const std::string& stream, int64_t attempt,
                  bool one_attempt, const HttpOnData& write) {
  Follower follower{.attempt = attempt};
  Patience patience(session.io());
  const HttpOnData count = [&](std::string_view data) {
    follower.offset += static_cast<int64_t>(data.size());
    patience.renew();
    follower.stopped = !write(data);
    return !follower.stopped;
  };
  for (;;) {
    Reply record = poll_job(session, job, Duration{});
    // The job's record is asked for before its output, so that what was written until its end is not missed.
    if (!record) {
      if (record.trouble->passing && patience.wait_again()) continue;
      return record;
    }
    const int64_t attempts = record.json["attempts"].integer();
    const bool final = is_final(record.json);
    if (follower.attempt == 0) follower.attempt = std::max<int64_t>(attempts, 1);
    if (follower.attempt_ended && (final || one_attempt) && follower.attempt >= attempts) return {};
    if (follower.attempt_ended && one_attempt) return {};
    if (follower.attempt_ended && follower.attempt < attempts) {
      follower = {.attempt = follower.attempt + 1};
    } else if (follower.attempt_ended || (follower.attempt > attempts && !final)) {
      const Reply changed = poll_job(session, job, kChangePoll);
      if (!changed && !changed.trouble->passing) return changed;
      continue;
    }
    Reply reply = session.stream(log_path(job, stream, follower.attempt, follower.offset, true), count);
    if (follower.stopped) return {};
    if (reply) {
      follower.attempt_ended = true;
      continue;
    }
    const bool not_yet = reply.trouble->code == "log_not_found" && !final;
    if (not_yet) {
      const Reply changed = poll_job(session, job, kChangePoll);
      if (!changed && !changed.trouble->passing) return changed;
      continue;
    }
    if (!reply.trouble->passing || !patience.wait_again()) return reply;
  }
}

namespace {

struct LogsOptions {
  std::string job;
  bool follow = false;
  bool from_stderr = false;
  int64_t attempt = 0;  ///< 0: the latest.
};

int show_logs(Session& session, const LogsOptions& logs) {
  const std::string stream = logs.from_stderr ? "stderr" : "stdout";
  const HttpOnData write = [&](std::string_view data) {
    session.io().out(data);
    return true;
  };
  const Reply reply = logs.follow
                          ? follow_logs(session, logs.job, stream, logs.attempt, logs.attempt > 0, write)
                          : session.stream(log_path(logs.job, stream, logs.attempt, 0, false), write);
  return reply ? kExitOk : session.fail(*reply.trouble);
}

}  // namespace

Action define_logs(Grammar& grammar) {
  const auto logs = std::make_shared<LogsOptions>();
  grammar.argument("JOB", &logs->job, "Its id").completes(Complete::kJob);
  grammar.flag("-f,--follow", logs->follow,
               "Go on until the job ends, over later attempts and broken connections");
  grammar.flag("--stderr", logs->from_stderr, "Its standard error instead of its standard output");
  grammar.option("--attempt", "N", &logs->attempt, "Of this attempt alone, 1 for the first; else the latest")
      .range(1, 1'000'000'000);
  return [logs](Session& session) { return show_logs(session, *logs); };
}

}  // namespace gpusched::cli

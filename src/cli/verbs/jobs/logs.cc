#include <algorithm>
#include <memory>
#include <mutex>
#include <thread>

#include "base/limits.h"
#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/verbs/jobs/log_pieces.h"

namespace gpusched::cli {
namespace {

constexpr Duration kPollServer = seconds(30);
constexpr Duration kPollMargin = seconds(15);  ///< The server's answer is on its way.
constexpr Duration kChangePoll = seconds(1);
constexpr Duration kAnsweredAtOnce = milliseconds(500);

/// In JSON, whose offsets stay true when the node keeps or chose only a part.
std::string log_path(const std::string& job, const std::string& stream, int64_t attempt, int64_t offset,
                     bool follow, const LogChoice& choice, bool begins) {
  std::string path = "/jobs/" + url_encoded(job) + "/logs?format=json&stream=" + stream;
  if (attempt > 0) path += "&attempt=" + std::to_string(attempt);
  if (choice.member > 0) path += "&member=" + std::to_string(choice.member);
  if (offset > 0) path += "&offset=" + std::to_string(offset);
  if (follow) path += "&follow=true";
  if (!choice.grep.empty()) path += "&grep=" + url_encoded(choice.grep);
  if (choice.timestamps) path += "&timestamps=true";
  if (begins && choice.tail > 0) path += "&tail_lines=" + std::to_string(choice.tail);
  if (begins && !choice.since.empty()) path += "&since=" + url_encoded(choice.since);
  return path;
}

void tell_skipped(const LogChoice& choice, int64_t bytes) {
  if (choice.skipped) choice.skipped(bytes);
}

Trouble no_pieces() {
  return {.sentence =
              "the answer is in a format that this gpu-cli does not understand; use the gpu-cli of the "
              "scheduler's version",
          .code = "bad_answer"};
}

/// What follow_logs remembers between two calls of the API.
struct Follower {
  int64_t attempt = 0;
  int64_t offset = 0;  ///< Where to go on in this attempt's output.
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
                  bool one_attempt, const HttpOnData& write, const LogChoice& choice) {
  Follower follower{.attempt = attempt};
  Patience patience(session.io());
  LogPieces pieces(write, [&](int64_t bytes) { tell_skipped(choice, bytes); });
  const HttpOnData take = [&](std::string_view data) {
    patience.renew();
    const bool more = pieces.take(data);
    follower.stopped = pieces.stopped();
    if (pieces.any()) follower.offset = pieces.next_offset();
    return more;
  };
  bool begins = true;  // Nothing was read yet: tail and since are still to be done.
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
      pieces = LogPieces(write, [&](int64_t bytes) { tell_skipped(choice, bytes); });
      begins = false;
    } else if (follower.attempt_ended || (follower.attempt > attempts && !final)) {
      const Reply changed = poll_job(session, job, kChangePoll);
      if (!changed && !changed.trouble->passing) return changed;
      continue;
    }
    pieces.restart();
    begins = begins && !pieces.any();
    Reply reply =
        session.stream(log_path(job, stream, follower.attempt, follower.offset, true, choice, begins), take);
    if (follower.stopped) return {};
    if (pieces.broken()) return {.trouble = no_pieces()};
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
  bool both = false;
  int64_t attempt = 0;  ///< 0: the latest.
  int64_t member = 0;
  int64_t tail = 0;
  std::string since;
  std::string grep;
  bool timestamps = false;
};

/// Prints outputs, of which two may come from two threads.
class LogPrinter {
 public:
  LogPrinter(Session& session, const LogsOptions& logs) : session_(session), logs_(logs) {}

  /// `as_error`: onto our standard error.
  Reply print(Session& session, const std::string& stream, bool as_error) {
    const HttpOnData write = [&](std::string_view data) {
      const std::lock_guard lock(mutex_);
      as_error ? session_.io().err(data) : session_.io().out(data);
      return true;
    };
    const LogChoice choice{.member = logs_.member,
                           .tail = logs_.tail,
                           .since = logs_.since,
                           .grep = logs_.grep,
                           .timestamps = logs_.timestamps,
                           .skipped = [this](int64_t bytes) { say_skipped(bytes); }};
    if (logs_.follow)
      return follow_logs(session, logs_.job, stream, logs_.attempt, logs_.attempt > 0, write, choice);
    LogPieces pieces(write, choice.skipped);
    Reply reply = session.stream(log_path(logs_.job, stream, logs_.attempt, 0, false, choice, true),
                                 [&pieces](std::string_view data) { return pieces.take(data); });
    if (pieces.broken()) reply.trouble = no_pieces();
    return reply;
  }

 private:
  void say_skipped(int64_t bytes) {
    const std::lock_guard lock(mutex_);
    session_.io().err("gpu-cli: " + std::to_string(bytes) +
                      " bytes of the output are no longer kept on the node\n");
  }

  Session& session_;
  const LogsOptions& logs_;
  std::mutex mutex_;
};

int show_logs(Session& session, const LogsOptions& logs) {
  LogPrinter printer(session, logs);
  if (!logs.both) {
    const Reply reply = printer.print(session, logs.from_stderr ? "stderr" : "stdout", false);
    return reply ? kExitOk : session.fail(*reply.trouble);
  }
  Reply error_reply;
  Session second = session.fork();
  std::thread errors([&] { error_reply = printer.print(second, "stderr", true); });
  const Reply reply = printer.print(session, "stdout", false);
  errors.join();
  if (!reply) return session.fail(*reply.trouble);
  return error_reply ? kExitOk : session.fail(*error_reply.trouble);
}

}  // namespace

Action define_logs(Grammar& grammar) {
  const auto logs = std::make_shared<LogsOptions>();
  grammar.argument("JOB", &logs->job, "Job id").completes(Complete::kJob);
  grammar.flag("-f,--follow", logs->follow,
               "Follow until the job ends, across later attempts and broken connections");
  grammar.flag("--stderr", logs->from_stderr, "Standard error instead of standard output");
  grammar.flag("--both", logs->both, "Both; standard error goes to this command's standard error");
  grammar.option("--tail", "N", &logs->tail, "Only the last N lines").range(1, 1'000'000);
  grammar.option("--since", "TIME", &logs->since,
                 "Only what was written in the last 10m, 2h or 1d, or since 2026-01-31T09:00:00Z");
  grammar.option("--grep", "TEXT", &logs->grep, "Only lines that contain TEXT, filtered on the node");
  grammar.flag("-t,--timestamps", logs->timestamps,
               "Prefix each line with its time, accurate to about two seconds");
  grammar.option("--attempt", "N", &logs->attempt, "Of this attempt alone, 1 for the first; else the latest")
      .range(1, 1'000'000'000);
  grammar.option("--member", "N", &logs->member, "Member of a gang, counted from 0")
      .range(0, limits::kMembersMax);
  return [logs](Session& session) { return show_logs(session, *logs); };
}

}  // namespace gpusched::cli

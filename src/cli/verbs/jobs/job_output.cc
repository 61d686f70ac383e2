#include "cli/verbs/jobs/job_output.h"

#include <algorithm>
#include <deque>
#include <thread>

#include "cli/framework/job_words.h"
#include "cli/verbs/jobs/log_pieces.h"
#include "cli/verbs/jobs/wait_notice.h"

namespace gpusched::cli {
namespace {

constexpr std::size_t kLineBytesMax = 64 << 10;
constexpr int64_t kMembersFollowed = 32;  ///< Each takes a connection or two.
constexpr std::size_t kElementsFollowed = 8;

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
              "the answer has a format that this gpu-cli does not understand; use a gpu-cli of the "
              "scheduler's version",
          .code = "bad_answer"};
}

/// State of follow_logs between two calls of the API.
struct Follower {
  int64_t attempt = 0;
  int64_t offset = 0;  ///< Where this attempt's output goes on.
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

bool is_held(const Json& job) { return job["state"].text() == "pending" && job["held"].boolean(); }

Reply wait_until_final(Session& session, const std::string& job, Time until) {
  Patience patience(session.io());
  WaitNotice notice(session.io(), job);
  for (;;) {
    const Time now = session.io().wall_now();
    Reply reply = poll_job(session, job, std::clamp(until - now, Duration{}, notice.next_look()));
    if (!reply) {
      if (reply.trouble->passing && patience.wait_again()) continue;
      return reply;
    }
    if (is_final(reply.json) || is_held(reply.json) || now >= until) return reply;
    notice.look(reply.json);
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
    const bool held = is_held(record.json);  // Nothing more comes until somebody releases it.
    const bool final = is_final(record.json) || held;
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
        session.stream(log_path(job, stream, follower.attempt, follower.offset, !held, choice, begins), take);
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

Reply show_until_final(Session& session, const std::string& job, int64_t attempt, bool one_attempt,
                       Time until, const std::string& timeout) {
  Session second = session.fork();
  Reply shown;
  std::thread printer([&] {
    JobOutput output(second, job, {.follow = true, .attempt = attempt, .one_attempt = one_attempt});
    shown = output.print();
  });
  Reply record = wait_until_final(session, job, until);
  if (record && !is_final(record.json) && !is_held(record.json)) {
    const int code = session.fail(kExitWaitedInVain, vain_sentence(job, timeout), "timeout");
    session.io().leave(code);  // The printer waits for more output.
  }
  printer.join();
  // A job that never started has no output, which is no mistake here.
  if (record && !shown && shown.trouble->code != "log_not_found") session.fail(*shown.trouble);
  return record;
}

std::string LinePrefixer::take(std::string_view data) {
  std::string out;
  while (!data.empty()) {
    const std::size_t feed = data.find('\n');
    line_ += data.substr(0, feed);
    data.remove_prefix(feed == std::string_view::npos ? data.size() : feed + 1);
    if (feed != std::string_view::npos || line_.size() > kLineBytesMax) {
      out.append(prefix_).append(line_).append("\n");
      line_.clear();
    }
  }
  return out;
}

std::string LinePrefixer::finish() {
  if (line_.empty()) return "";
  return prefix_ + std::exchange(line_, {}) + "\n";
}

std::vector<JobOutput::Stream> JobOutput::streams() {
  int64_t members = static_cast<int64_t>(record_["members"].items().size());
  if (members == 0) {
    for (const Json& part : record_["parts"].items())
      members += std::max(part["members"].integer(), part["members_max"].integer());
  }
  int64_t first = 0;
  std::string prefix;
  if (choice_.member || members <= 1) {
    first = choice_.member.value_or(0);
    members = first + 1;
  } else {
    prefix = "[";
  }
  if (choice_.follow && members - first > kMembersFollowed) {
    session_.io().err("gpu-cli: " + job_ + " has " + std::to_string(members) + " members; the first " +
                      std::to_string(kMembersFollowed) + " are followed; use --member for the others\n");
    members = first + kMembersFollowed;
  }
  std::vector<Stream> all;
  for (int64_t member = first; member < members; ++member) {
    const std::string before =
        choice_.prefix + (prefix.empty() ? "" : prefix + std::to_string(member) + "] ");
    if (choice_.out) all.push_back({.member = member, .is_err = false, .prefix = before});
    if (choice_.err) all.push_back({.member = member, .is_err = true, .prefix = before});
  }
  return all;
}

void JobOutput::write(bool is_err, std::string_view data) {
  if (data.empty()) return;
  const std::lock_guard lock(choice_.writing == nullptr ? mutex_ : *choice_.writing);
  any_ = true;
  is_err ? session_.io().err(data) : session_.io().out(data);
}

Reply JobOutput::print_stream(Session& session, const Stream& stream) {
  LinePrefixer prefixer(stream.prefix);
  const HttpOnData take = [&](std::string_view data) {
    stream.prefix.empty() ? write(stream.is_err, data) : write(stream.is_err, prefixer.take(data));
    return true;
  };
  LogChoice lines = choice_.lines;
  lines.member = stream.member;
  lines.skipped = [this](int64_t bytes) {
    const std::lock_guard lock(choice_.writing == nullptr ? mutex_ : *choice_.writing);
    session_.io().err("gpu-cli: " + choice_.prefix + std::to_string(bytes) +
                      " bytes of the output are no longer kept on the node\n");
  };
  const std::string name = stream.is_err ? "stderr" : "stdout";
  Reply reply;
  if (choice_.follow) {
    reply = follow_logs(session, job_, name, choice_.attempt, choice_.one_attempt, take, lines);
  } else {
    LogPieces pieces(take, lines.skipped);
    reply = session.stream(log_path(job_, name, choice_.attempt, 0, false, lines, true),
                           [&pieces](std::string_view data) { return pieces.take(data); });
    if (pieces.broken()) reply.trouble = no_pieces();
  }
  write(stream.is_err, prefixer.finish());
  return reply;
}

Reply JobOutput::print_followed(const std::vector<Stream>& streams) {
  std::vector<Reply> replies(streams.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < streams.size(); ++i) {
    threads.emplace_back([this, &streams, &replies, i, own = session_.fork()]() mutable {
      replies[i] = print_stream(own, streams[i]);
    });
  }
  replies.front() = print_stream(session_, streams.front());
  for (std::thread& thread : threads) thread.join();
  for (Reply& reply : replies) {
    if (!reply) return std::move(reply);
  }
  return {};
}

Reply JobOutput::print_element(Session& session, int64_t index) {
  OutputChoice choice = choice_;
  choice.prefix = "[" + std::to_string(index) + "] ";
  if (is_held(record_)) choice.follow = false;  // Nothing more comes until somebody releases the array.
  choice.writing = &mutex_;
  JobOutput element(session, job_ + "[" + std::to_string(index) + "]", std::move(choice));
  Reply reply = element.print();
  const std::lock_guard lock(mutex_);
  any_ = any_ || element.any();
  // An element that did not start has no output, which hides no other.
  if (!reply && reply.trouble->code == "log_not_found") return {};
  return reply;
}

/// Prints the elements in their order, so that the same output always looks the same; followed, of several at
/// once.
Reply JobOutput::print_elements() {
  const std::string text = record_["array"]["indexes"].text();
  const Result<std::vector<int64_t>> indexes = parse_indexes(text);
  if (!indexes) {
    return {.trouble = Trouble{.exit_code = kExitUsage,
                               .sentence = job_ + " has too many ranges of elements (" + text +
                                           "); name one, such as " + job_ + "[3]",
                               .code = "usage"}};
  }
  std::mutex mutex;
  std::size_t next = 0;
  Reply first;
  const auto print_some = [&](Session& session) {
    for (;;) {
      std::size_t turn = 0;
      {
        const std::lock_guard lock(mutex);
        if (next == indexes->size() || first.trouble) return;
        turn = next++;
      }
      Reply reply = print_element(session, (*indexes)[turn]);
      if (reply) continue;
      const std::lock_guard lock(mutex);
      if (!first.trouble) first = std::move(reply);
    }
  };
  std::vector<std::thread> threads;
  const std::size_t others = choice_.follow ? std::min(indexes->size(), kElementsFollowed) - 1 : 0;
  for (std::size_t i = 0; i < others; ++i)
    threads.emplace_back([&print_some, own = session_.fork()]() mutable { print_some(own); });
  print_some(session_);
  for (std::thread& thread : threads) thread.join();
  return first;
}

Reply JobOutput::print() {
  Patience patience(session_.io());
  Reply record = poll_job(session_, job_, Duration{});
  while (!record && choice_.follow && record.trouble->passing && patience.wait_again())
    record = poll_job(session_, job_, Duration{});
  if (!record) return record;
  record_ = record.json;
  if (record_["array"].is_object()) return print_elements();
  const std::vector<Stream> all = streams();
  if (choice_.follow) return print_followed(all);
  // One behind the other, so that the same output always looks the same.
  Reply first;
  for (const Stream& stream : all) {
    Reply reply = print_stream(session_, stream);
    if (!reply && !first.trouble) first = std::move(reply);
  }
  return first;
}

}  // namespace gpusched::cli

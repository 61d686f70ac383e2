#include "cli/verbs/sessions/bound_job.h"

#include <signal.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/terminal/text.h"

namespace gpusched::cli {
namespace {

constexpr int kBoundSignalBase = 128;
constexpr int kCancelTries = 5;

}  // namespace

void cancel_job(Session& session, const std::string& job) {
  session.limit_calls(seconds(10));
  Reply reply;
  for (int tries = 0; tries < kCancelTries; ++tries) {
    reply = session.send("DELETE", "/jobs/" + url_encoded(job));
    if (reply || !reply.trouble->passing) break;
    session.io().pause(seconds(1));
  }
  if (reply) {
    session.io().err("gpu-cli: " + job + " is cancelled\n");
  } else if (reply.trouble->code != "job_finished") {
    session.io().err("gpu-cli: " + job + " could not be cancelled: " + printable(reply.trouble->sentence) +
                     "; cancel it with: gpu-cli cancel " + job + "\n");
  }
}

BoundJob::BoundJob(const Session& session)
    : session_(session.fork()),
      lost_(session.io().on_lost_output),
      watch_({SIGINT, SIGTERM, SIGHUP, SIGQUIT}, [this](int signal) { on_signal(signal); }) {
  ::signal(SIGPIPE, SIG_IGN);  // It would end us before we have ended the job.
  if (lost_ != nullptr) *lost_ = [this] { on_lost_output(); };
}

BoundJob::~BoundJob() {
  if (lost_ != nullptr) *lost_ = nullptr;
}

void BoundJob::take(const std::string& job) {
  int early = 0;
  {
    const std::lock_guard lock(mutex_);
    job_ = job;
    early = early_;
  }
  if (early != 0) leave(early);
}

void BoundJob::release(const std::string& how_to_return) {
  const std::lock_guard lock(mutex_);
  how_to_return_ = how_to_return;
}

void BoundJob::on_signal(int signal) {
  {
    const std::lock_guard lock(mutex_);
    if (job_.empty() && early_ == 0) {
      early_ = signal;  // The answer to the submission says which job it is that we leave.
      return;
    }
  }
  leave(signal);
}

void BoundJob::leave(int signal) {
  const CliIo& io = session_.io();
  std::optional<std::string> how_to_return;
  {
    const std::lock_guard lock(mutex_);
    how_to_return = how_to_return_;
  }
  if (job_.empty()) {
    io.err("\ngpu-cli: the scheduler has not answered: a job may have been submitted; see gpu-cli list\n");
  } else if (how_to_return) {
    io.err("\ngpu-cli: " + job_ + " continues\n" + *how_to_return);
    ::_exit(kExitOk);
  } else if (signal == SIGQUIT) {
    io.err("\ngpu-cli: detached; " + job_ + " continues\n" + ways_back(job_));
    ::_exit(kExitOk);
  } else {
    io.err("\n");
    cancel_job(session_, job_);
  }
  ::_exit(kBoundSignalBase + signal);
}

void BoundJob::on_lost_output() {
  const std::lock_guard lock(mutex_);
  if (!job_.empty() && !how_to_return_) cancel_job(session_, job_);
}

std::string submit_bound(Session& session, SubmitOptions& submit, const Grammar& grammar, BoundJob& bound,
                         int& exit_code) {
  const bool retry = await_scheduler(session, !submit.no_retry);
  const Result<std::string> body = submission_body(session, submit, grammar);
  if (!body) {
    exit_code = session.fail(kExitUsage, body.error().message, "usage");
    return "";
  }
  const Reply submitted = submit_once(session, *body, retry);
  if (!submitted) {
    exit_code = session.fail(*submitted.trouble);
    return "";
  }
  const std::string job = submitted.json["job_id"].text();
  session.io().err("gpu-cli: " + job + " submitted\n");
  bound.take(job);
  if (!submit.require_feasible && !submit.now) warn_if_never(session, job, *body, true);
  return job;
}

}  // namespace gpusched::cli

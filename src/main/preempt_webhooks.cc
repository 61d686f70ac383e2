#include "main/preempt_webhooks.h"

#include <algorithm>
#include <utility>

#include "base/job_signals.h"
#include "base/text/civil_time.h"
#include "client/http_client.h"
#include "client/json.h"
#include "gpusched/v1/types.pb.h"
#include "log/log.h"

namespace gpusched {

PreemptWebhooks::PreemptWebhooks(PreemptWebhookOptions options) : options_(std::move(options)) {
  if (!wanted()) return;
  for (int i = 0; i < kThreads; ++i) threads_.emplace_back([this] { run(); });
}

void PreemptWebhooks::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    notes_.clear();
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void PreemptWebhooks::on_changes(const Observer::View& view, const Changes& changes) {
  for (const Event& event : changes.events) {
    const auto* stop = std::get_if<StopRequested>(&event);
    if (stop != nullptr && stop->reason == StopReason::kPreempt) tell(view.state, *stop, changes.last.at);
  }
}

void PreemptWebhooks::tell(const State& state, const StopRequested& stop, Time now) {
  const Job* job = state.jobs.find(stop.job);
  if (job == nullptr) return;
  v1::JobSpec spec;
  if (!spec.ParseFromArray(job->spec.view().data(), static_cast<int>(job->spec.view().size()))) spec.Clear();
  Duration grace = options_.grace;
  if (spec.preempt_grace_ms() > 0)
    grace = std::min(milliseconds(spec.preempt_grace_ms()), options_.grace_max);
  const auto signal = parse_job_signal(spec.preempt_signal());
  const std::string id = "job-" + std::to_string(stop.job.value);
  JsonObjectWriter body;
  body.add("event", "preemption");
  body.add("job_id", id);
  body.add("name", spec.name());
  body.add("attempt", static_cast<int64_t>(stop.attempt));
  if (const Tenant* tenant = state.find_tenant(job->tenant)) body.add("tenant", tenant->name);
  if (const Node* node = state.find_node(job->node)) body.add("node_name", node->name);
  body.add("signal", signal ? signal->name : "TERM");
  body.add("mode", to_string(job->preemption_mode));
  body.add("at", utc_text(now));
  if (grace.ns > 0) {
    body.add("grace_seconds", static_cast<double>(grace.ms()) / 1'000.0);
    body.add("ends_at_latest", utc_text(now + grace));
  }
  Note note{.job = stop.job.value,
            .url = {},
            .key = "preemption-" + id + "-" + std::to_string(stop.attempt),
            .body = body.text()};
  queue(options_.url, false, note);
  queue(spec.preempt_webhook(), true, note);
}

void PreemptWebhooks::queue(const std::string& url, bool of_job, const Note& note) {
  if (url.empty()) return;
  std::optional<WebhookUrl> parsed = parse_webhook_url(url);
  // The list may have become shorter since the job was taken.
  if (!parsed || (of_job && !is_listed(*parsed, options_.hosts))) return;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (notes_.size() < kWaitingMax) {
      notes_.push_back(note);
      notes_.back().url = std::move(*parsed);
      wake_.notify_all();  // Some of them wait for their next try.
      return;
    }
  }
  log_event(LogLevel::kWarning, "scheduler", "webhook_dropped", {.id = JobId{note.job}},
            {{"why", "too many notifications are waiting"}});
}

void PreemptWebhooks::run() {
  while (true) {
    Note note;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !notes_.empty(); });
      if (stopping_) return;
      note = std::move(notes_.front());
      notes_.pop_front();
    }
    deliver(note);
  }
}

void PreemptWebhooks::deliver(const Note& note) {
  std::string trouble;
  Duration pause = options_.pause;
  for (int tries = 1;; ++tries) {
    if (post(note, trouble)) return;
    if (tries >= options_.tries) break;
    std::unique_lock lock(mutex_);
    const auto span = std::chrono::nanoseconds(pause.ns);
    if (wake_.wait_for(lock, span, [this] { return stopping_; })) return;
    pause = pause * 2;
  }
  log_event(LogLevel::kWarning, "scheduler", "webhook_failed", {.id = JobId{note.job}},
            {{"host", note.url.host}, {"tries", options_.tries}, {"why", trouble}});
}

bool PreemptWebhooks::post(const Note& note, std::string& trouble) const {
  Result<HttpClient> client = HttpClient::create(
      {.url = "http://" + note.url.host + ":" + note.url.port, .connect_timeout = options_.timeout});
  if (!client) {
    trouble = client.error().message;
    return false;
  }
  const Result<HttpAnswer> answer = client->request({.method = "POST",
                                                     .target = note.url.target,
                                                     .body = note.body,
                                                     .headers = {{"Idempotency-Key", note.key}},
                                                     .timeout = options_.timeout});
  if (!answer) {
    trouble = answer.error().message;
    return false;
  }
  if (answer->status == 429 || answer->status >= 500) {
    trouble = "the answer was " + std::to_string(answer->status);
    return false;
  }
  const bool good = answer->status >= 200 && answer->status < 300;
  log_event(good ? LogLevel::kInfo : LogLevel::kWarning, "scheduler",
            good ? "webhook_told" : "webhook_refused", {.id = JobId{note.job}},
            {{"host", note.url.host}, {"status", answer->status}});
  return true;
}

}  // namespace gpusched

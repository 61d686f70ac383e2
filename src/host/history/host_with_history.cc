#include "host/history/host_with_history.h"

#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "history/record/translate.h"
#include "host/history/history_source.h"

namespace gpusched {
namespace {

/// A history that is further behind is a concern.
constexpr Duration kLagMax = minutes(5);

/// `subject`: "history" or "database".
void add_concerns(const history::HistoryStats& stats, const std::string& subject,
                  std::vector<std::string>& concerns) {
  if (!stats.trouble.empty()) {
    concerns.push_back("the " + subject + " is not written: " + stats.trouble +
                       "; it catches up when that is over");
  } else if (stats.lag > kLagMax) {
    concerns.push_back("the " + subject + " is " + std::to_string(stats.lag.ms() / 60'000) +
                       " minutes behind; see gpu_scheduler_" + subject +
                       "_lag_seconds and docs/operate/history.md");
  }
  if (stats.gaps > 0) {
    concerns.push_back("the " + subject + " has " + std::to_string(stats.gaps) +
                       " gaps: records were gone before it had read them; see the table gaps, and "
                       "docs/operate/history.md");
  }
}

history::DescribeJob describing(std::function<std::string(const Job&)> job_name) {
  if (!job_name) return nullptr;
  return [name = std::move(job_name)](const Job& job) { return history::JobWords{.name = name(job)}; };
}

}  // namespace

HostWithHistory::HostWithHistory(std::unique_ptr<Host> host, std::string data_dir,
                                 history::HistoryOptions options,
                                 std::function<std::string(const Job&)> job_name)
    : host_(std::move(host)),
      data_dir_(std::move(data_dir)),
      options_(std::move(options)),
      describe_job_(describing(std::move(job_name))) {
  // Changes may come before the listener, between the two, and behind: it begins at the first thing that it
  // sees.
  host_->observer().add_listener(
      [this](const Observer::View& view, const Changes& changes) { tell(view, changes); });
  std::promise<void> begun;
  host_->observer().in_order([&](const Observer::View& view) {
    begin(view.position);
    begun.set_value();
  });
  begun.get_future().wait();
}

void HostWithHistory::begin(uint64_t position) {
  if (history_ != nullptr) return;
  history_ = std::make_unique<history::History>(
      options_, position, [this](uint64_t after, uint64_t until, const history::History::Sink& sink) {
        return read_history(data_dir_, describe_job_, shows_present(), after, until, sink);
      });
}

HostWithHistory::~HostWithHistory() { HostWithHistory::stop(); }

void HostWithHistory::tell(const Observer::View& view, const Changes& changes) {
  // Changes without events may be no record of their own.
  begin(changes.events.empty() ? changes.position : changes.position - 1);
  history::Batch batch{.position = changes.position, .at = changes.last.at, .events = {}};
  history::translate(view.state, changes.events, changes.last.at, describe_job_, batch.events);
  if (shows_present()) {
    const bool is_first = !std::exchange(has_told_, true);
    batch.present = history::present_of(view.state, changes.events, is_first, describe_job_);
  }
  history_->offer(std::move(batch));
}

HostHealth HostWithHistory::health() const {
  HostHealth health = host_->health();
  add_concerns(history_->stats(), "history", health.concerns);
  if (const std::optional<history::HistoryStats> database = history_->postgres_stats())
    add_concerns(*database, "database", health.concerns);
  return health;
}

void HostWithHistory::stop() {
  host_->stop();
  history_->stop();
}

}  // namespace gpusched

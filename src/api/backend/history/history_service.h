#pragma once

#include <string>

#include "api/contract/health.h"
#include "api/contract/history.h"
#include "history/history.h"
#include "host/host.h"

namespace gpusched::api {

/// The doors' questions to the host's history: what the caller may see is decided on the observer's thread,
/// the answer is made on the history's.
class HistoryService final : public HistoryBackend {
 public:
  /// Both must outlive it, and answers are given until their stop. `history`: null: none is kept.
  HistoryService(Host& host, history::History* history) : host_(host), history_(history) {}

  void list_history(const CallerPtr& caller, HistoryFilter filter, Done<history::JobsPage> done) override;
  void get_usage(const CallerPtr& caller, UsageFilter filter, Done<history::UsageReport> done) override;
  void copy_history(const CallerPtr& caller, Done<std::string> done) override;
  /// Adds how the history is; nothing when none is kept.
  void add_metrics(MetricsView& metrics) const;

 private:
  template <typename View>
  bool is_busy(const Done<View>& done) const;

  Host& host_;
  history::History* const history_;
};

}  // namespace gpusched::api

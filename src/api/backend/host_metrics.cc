// HostBackend: its numbers.
#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/backend/host_backend.h"
#include "api/contract/names.h"
#include "api/metrics/health_metrics.h"
#include "api/metrics/node_metrics.h"
#include "api/views/forecast_views.h"
#include "api/views/rights.h"

namespace gpusched::api {
namespace {

/// Guaranteed GPUs that the cluster does not have: the guarantees of the topmost tenants, less the GPUs in
/// service.
int64_t guaranteed_gpus_missing(const State& state) {
  int64_t missing = 0;
  for (const auto& [id, tenant] : state.tenants) {
    if (!tenant.deleted && !tenant.parent.valid()) missing += tenant.guarantee.gpus;
  }
  for (const Node& node : state.nodes) missing -= node.in_service() ? std::ssize(node.devices) : 0;
  return std::max<int64_t>(missing, 0);
}

/// Waiting questions for metrics at most. They have room of their own: whoever watches an overloaded
/// scheduler is answered, and is none of those who overload it.
constexpr std::size_t kMetricsWaitingMax = 32;

/// A place among those that wait, given back with the last copy; null: there is none.
std::shared_ptr<void> place_among(const std::shared_ptr<std::atomic<std::size_t>>& waiting) {
  if (waiting->fetch_add(1) < kMetricsWaitingMax)
    return std::shared_ptr<void>(nullptr, [waiting](void*) { waiting->fetch_sub(1); });
  waiting->fetch_sub(1);
  return nullptr;
}

/// Takes the names and numbers of tenants out that callers without a credential may not know of.
void keep_open_tenants(const State& state, MetricsView& metrics) {
  std::set<std::string> shown{"", "other"};
  for (const auto& [id, tenant] : state.tenants) {
    if (!is_open(tenant)) continue;
    shown.insert(tenant.name);
    shown.insert(tenant_name(id));
  }
  std::erase_if(metrics.counters, [&](const MetricsView::Counter& counter) {
    return std::ranges::any_of(counter.labels, [&](const auto& label) {
      return label.first == "tenant" && !shown.contains(label.second);
    });
  });
  for (auto* const scores : {&metrics.quality.run_times, &metrics.quality.starts})
    std::erase_if(*scores, [&](const QualityView::Score& score) { return !shown.contains(score.tenant); });
}

}  // namespace

void HostBackend::get_metrics(const CallerPtr& caller, Done<MetricsView> done) {
  if (auto refused = refuse(*caller, access::Action::kSeeMetrics, "see metrics"))
    return done(std::move(*refused));
  std::shared_ptr<void> place = place_among(metrics_waiting_);
  if (place.use_count() == 0)
    return done(ApiError{.kind = ErrorKind::kUnavailable,
                         .message = "too many requests for metrics are waiting; try again soon",
                         .retry_after = seconds(1)});
  scan_once([this, caller, place = std::move(place), counts = counts_,
             done = std::move(done)](const Observer::View& view) {
    MetricsView metrics;
    counts->fill(metrics);
    const HostStats stats = host_.stats();
    add_keeping(host_.health(), metrics);
    for (MetricsView::State& jobs : metrics.jobs) jobs.now = view.state.count(jobs.state);
    metrics.queue_size = view.state.waiting_count();
    metrics.preemptions = static_cast<int64_t>(stats.preemptions);
    add_nodes(view.state, *host_.telemetry(), metrics);
    const auto counter = [&metrics](std::string_view name, std::string_view help, uint64_t value) {
      metrics.counters.push_back(
          {.name = name, .type = "counter", .help = help, .value = static_cast<int64_t>(value)});
    };
    counter("commands_total", "Commands decided since the start.", stats.commands);
    counter("commands_rejected_total", "Commands that were refused since the start.", stats.rejected);
    counter("journal_groups_total", "Durable groups written since the start.", stats.groups);
    counter("journal_bytes_total", "Bytes of commands written since the start.", stats.payload_bytes);
    counter("cycles_total", "Slices of scheduling cycles since the start.", stats.cycles);
    counter("placements_total", "Attempts placed since the start.", stats.placements);
    metrics.quality = view_of(host_.forecasts().quality());
    add_health(view.state, metrics);
    add_sums(view.state, metrics);
    add_waiting(view.state, view.reasons, metrics);
    counts->fill_tenants(view.state, metrics);
    metrics.counters.push_back({.name = "spec_bytes",
                                .type = "gauge",
                                .help = "Bytes of the specifications of all kept jobs.",
                                .value = view.state.spec_bytes});
    metrics.counters.push_back({.name = "spec_bytes_unfinished",
                                .type = "gauge",
                                .help = "Bytes of the specifications of unfinished jobs.",
                                .value = view.state.unfinished_spec_bytes});
    metrics.counters.push_back(
        {.name = "guaranteed_gpus_missing",
         .type = "gauge",
         .help = "GPUs that are guaranteed to tenants but that no node in service has.",
         .value = guaranteed_gpus_missing(view.state)});
    if (caller->kind == access::CallerKind::kAnonymous) keep_open_tenants(view.state, metrics);
    done(std::move(metrics));
  });
}

}  // namespace gpusched::api

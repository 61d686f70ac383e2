#include "api/views/forecast_views.h"

#include <bit>
#include <charconv>

#include "api/contract/names.h"
#include "api/fields/place_words.h"
#include "base/check.h"

namespace gpusched::api {
namespace {

std::string size_flag(int64_t mb) {
  return mb % 1024 == 0 ? std::to_string(mb / 1024) + "G" : std::to_string(mb);
}

/// Names the tenant whose guarantee it is only to those who may see that tenant.
std::string lending_of(const State& state, const forecast::Change& change, bool sees_all) {
  const std::string gpus =
      std::to_string(change.lent_gpus) + (change.lent_gpus == 1 ? " GPU of " : " GPUs of ");
  const Tenant* lender = state.find_tenant(change.lender);
  if (!sees_all || lender == nullptr) return gpus + "an unused guarantee";
  return gpus + "the guarantee of tenant " + lender->name + ", which is unused";
}

std::string flags_of(const forecast::Change& change) {
  const Part& part = change.part;
  const std::string gpus = "--gpus " + std::to_string(part.gpu_count);
  switch (change.kind) {
    case forecast::ChangeKind::kShorterLimit:
      return "--time " + std::to_string(change.max_runtime.ns / minutes(1).ns) + "m";
    case forecast::ChangeKind::kLessCpu:
      return "--cpus " + std::to_string(part.cpu_milli / 1000);
    case forecast::ChangeKind::kLessMemory:
      return "--mem " + size_flag(part.memory_mb);
    case forecast::ChangeKind::kLessGpuMemory:
      return "--gpu-memory " + size_flag(part.gpu_memory_mb * part.gpu_count);
    case forecast::ChangeKind::kOtherModel:
      return "--gpu-model ''";
    case forecast::ChangeKind::kFewerGpus:
      // The memory that is asked of all its GPUs together is less with fewer.
      return part.gpu_memory_mb > 0 ? gpus + " --gpu-memory " + size_flag(part.gpu_memory_mb * part.gpu_count)
                                    : gpus;
    case forecast::ChangeKind::kFewerOfOtherModel:
      return gpus + " --gpu-model ''";
    case forecast::ChangeKind::kIdleGuarantee:
      return "";  // Nothing of the request.
  }
  UNREACHABLE();
}

double to_seconds(int64_t ms) { return static_cast<double>(ms) / 1000.0; }

/// Score of either kind, which have a `p50` and a `p90`.
QualityView::Score score_of(std::string tenant, const auto& scores) {
  return {.tenant = std::move(tenant),
          .count = scores.p50.count(),
          .p50_covered = scores.p50.covered(),
          .p90_covered = scores.p90.covered(),
          .p50_pinball_sum = to_seconds(scores.p50.pinball_sum_ms()),
          .p90_pinball_sum = to_seconds(scores.p90.pinball_sum_ms())};
}
QualityView::Score start_score_of(std::string tenant, const EtaScore::Totals& totals) {
  QualityView::Score score = score_of(std::move(tenant), totals);
  score.error_sum = to_seconds(totals.error_sum_ms);
  score.early_sum = to_seconds(totals.early_sum_ms);
  return score;
}
std::string scored_name(TenantId tenant) { return tenant.valid() ? tenant_name(tenant) : "other"; }

}  // namespace

ApiError no_forecast(const Error& error) {
  ApiError told = to_api_error(error);
  if (error.code == ErrorCode::kUnavailable) told.retry_after = seconds(5);
  return told;
}

QualityView view_of(const ForecastService::Quality& quality) {
  QualityView out;
  out.run_times.push_back(score_of("", quality.runs));
  for (const auto& [tenant, scores] : quality.runs_by_tenant)
    out.run_times.push_back(score_of(scored_name(tenant), scores));
  out.starts.push_back(start_score_of("", quality.eta));
  for (const auto& [tenant, totals] : quality.eta_by_tenant)
    out.starts.push_back(start_score_of(scored_name(tenant), totals));
  out.error_bounds.assign(EtaScore::kBounds.begin(), EtaScore::kBounds.end());
  out.error_buckets.assign(quality.eta.errors.begin(), quality.eta.errors.end());
  out.forecasts = quality.forecasts;
  out.forecast_seconds = to_seconds(quality.forecasts_took.ms());
  out.copy_seconds = to_seconds(quality.copies_took.ms());
  return out;
}

std::optional<StartEstimateView> view_of(const forecast::Forecast& made, const forecast::Estimate* estimate,
                                         const Viewer& viewer) {
  if (estimate == nullptr) return std::nullopt;
  return StartEstimateView{.made_at = made.at,
                           .p50 = estimate->p50 == kNever ? Time{} : estimate->p50,
                           .p90 = estimate->p90 == kNever ? Time{} : estimate->p90,
                           .at_latest = estimate->at_latest == kNever ? Time{} : estimate->at_latest,
                           .later_than = estimate->later_than,
                           .stuck = estimate->stuck,
                           .place = viewer.counts_all() ? estimate->place : 0,
                           .runs = made.runs};
}

ChangeView view_of(const State& state, const forecast::Change& change, bool sees_all) {
  const Part& part = change.part;
  ChangeView out{.kind = std::string(to_string(change.kind)),
                 .flags = flags_of(change),
                 .gpu_count = part.gpu_count,
                 .gpu_memory_mb = part.gpu_memory_mb * part.gpu_count,
                 .gpu_model = models_text(part.gpu_model, part.place),
                 .cpu_milli = part.cpu_milli,
                 .memory_mb = part.memory_mb,
                 .max_runtime = change.max_runtime,
                 .node_name = {},
                 .gpus = {}};
  if (change.kind == forecast::ChangeKind::kIdleGuarantee) out.flags = lending_of(state, change, sees_all);
  const MemberPlacement& member = change.start.members.front();
  const Node* node = state.find_node(member.node);
  CHECK(node != nullptr);
  out.node_name = node->name;
  for (uint64_t mask = member.device_mask; mask != 0; mask &= mask - 1)
    out.gpus.push_back(gpu_name(node->name, static_cast<uint32_t>(std::countr_zero(mask))));
  return out;
}

Evidence evidence_of(const WaitReason& reason) {
  Evidence out;
  const Part& part = reason.wanted;
  if (reason.code == WaitCode::kQueued || reason.code == WaitCode::kNoNode) return out;
  if (reason.code == WaitCode::kQuota) {
    if (!reason.tenant.valid()) return out;  // Not shown.
    return {{"quota_limit", reason.limit},
            {"quota_used", reason.current},
            {"quota_wanted", amount_of(total_of({part}), reason.resource)}};
  }
  if (part.gpu_count > 0) {
    if (part.is_share()) out.emplace_back("gpu_milli_wanted", part.gpu_milli);
    if (!part.is_share()) out.emplace_back("gpus_wanted", part.gpu_count);
    out.emplace_back("gpus_free_max", reason.gpus_free_max);
  }
  if (part.cpu_milli > 0) out.emplace_back("cpu_milli_wanted", part.cpu_milli);
  if (part.memory_mb > 0) out.emplace_back("memory_mb_wanted", part.memory_mb);
  out.emplace_back("nodes_fitting", reason.nodes_fitting);
  return out;
}

std::string_view field_name(Resource resource) {
  switch (resource) {
    case Resource::kNone:
      return "";
    case Resource::kGpus:
      return "gpus";
    case Resource::kGpuMemory:
      return "gpu_memory_mb";
    case Resource::kCpu:
      return "cpu_milli";
    case Resource::kMemory:
      return "memory_mb";
    case Resource::kJobs:
      return "jobs";
  }
  UNREACHABLE();
}

}  // namespace gpusched::api

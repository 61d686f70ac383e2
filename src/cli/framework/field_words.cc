#include "cli/framework/field_words.h"

#include <algorithm>
#include <iterator>

namespace gpusched::cli {
namespace {

constexpr FieldOption kFields[] = {
    // Fields of jobs.
    {"gpu_count", "--gpus"},
    {"gpus_per_node", "--gpus-per-node"},
    {"gpu_milli", "--gpu-share", "thousandths"},
    {"gpu_model", "--gpu-model"},
    {"gpu_models", "--gpu-model"},
    {"gpu_memory_mb", "--gpu-memory", "MB"},
    {"gpu_memory_each_mb", "--gpu-memory-each", "MB"},
    {"gpu_layout", "--gpu-layout"},
    {"gpu_ids", "--gpu-ids"},
    {"gpu_bandwidth_gbs", "--gpu-bandwidth"},
    {"mig_profile", "--mig"},
    {"nodes", "--nodes"},
    {"nodes_max", "--nodes"},
    {"domain", "--domain"},
    {"domain_required", "--domain-required"},
    {"on_node_loss", "--on-node-loss"},
    {"node_labels", "--node-label"},
    {"without_labels", "--without-label"},
    {"cpu_cores", "--cpus"},
    {"cpu_milli", "--cpus", "thousandths"},
    {"memory_mb", "--mem", "MB"},
    {"priority", "--priority"},
    {"work_class", "--class"},
    {"retries", "--retries"},
    {"exit_code_retries", "--retries"},
    {"retry_on", "--retry-on"},
    {"max_runtime_seconds", "--time", "seconds"},
    {"max_runtime_ms", "--time", "milliseconds"},
    {"name", "--name"},
    {"user", "--user"},
    {"umask", "--umask"},
    {"limits", "--limit"},
    {"labels", "--label"},
    {"environment", "--env"},
    {"working_directory", "--chdir"},
    {"stdout_path", "--output"},
    {"stderr_path", "--error"},
    {"stdin_path", "--input"},
    {"image", "--image"},
    {"image_digest", "--image-digest"},
    {"pull", "--pull"},
    {"registry_credential", "--credential"},
    {"mounts", "--mount"},
    {"container_arguments", "--container-arg"},
    {"array", "--array"},
    {"begin_at", "--begin"},
    {"begin_after_seconds", "--begin", "seconds"},
    {"begin_after_ms", "--begin", "milliseconds"},
    {"deadline", "--deadline"},
    {"deadline_after_seconds", "--deadline", "seconds"},
    {"deadline_after_ms", "--deadline", "milliseconds"},
    {"dependencies", "--after"},
    {"on_parent_failure", "--on-parent-failure"},
    {"require_feasible", "--require-feasible"},
    {"preemption_mode", "--preemption-mode"},
    {"preempt_signal", "--preempt-signal"},
    {"preempt_grace_seconds", "--preempt-grace", "seconds"},
    {"preempt_webhook", "--preempt-webhook"},
    {"idle_after_seconds", "--idle-after", "seconds"},
    {"idle_action", "--idle-action"},
    {"hung_after_seconds", "--hung-after", "seconds"},
    {"hung_action", "--hung-action"},
    {"reservation", "--reservation"},
    {"comment", "--comment"},
    {"tenant_id", "--tenant-id"},
    // Fields of tenants.
    {"max_gpus", "--max-gpus"},
    {"max_gpu_memory_mb", "--max-gpu-memory", "MB"},
    {"max_cpu_cores", "--max-cpus"},
    {"max_memory_mb", "--max-mem", "MB"},
    {"max_concurrent_jobs", "--max-jobs"},
    {"max_waiting_jobs", "--max-waiting"},
    {"soft_waiting_jobs", "--soft-waiting"},
    {"priority_tier", "--priority"},
    {"fair_share_weight", "--weight"},
    {"guaranteed_gpus", "--guarantee-gpus"},
    {"guaranteed_gpu_memory_mb", "--guarantee-gpu-memory", "MB"},
    {"guaranteed_cpu_cores", "--guarantee-cpus"},
    {"guaranteed_memory_mb", "--guarantee-mem", "MB"},
    {"guaranteed_jobs", "--guarantee-jobs"},
    {"max_gpu_hours", "--gpu-hours"},
    {"gpu_hours_window_seconds", "--gpu-hours-window", "seconds"},
    {"allow_preemption", "--allow-preemption"},
    {"can_preempt_others", "--can-preempt"},
    {"parent_id", "--parent"},
    {"email", "--email"},
    {"organization", "--organization"},
};

bool is_word_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/// The part behind "spec." and the like: the native API's names have their message before them.
std::string_view last_part(std::string_view word) {
  for (const std::string_view message : {"spec.", "resources.", "retry."}) {
    if (word.starts_with(message)) return word.substr(message.size());
  }
  return word;
}

}  // namespace

std::span<const FieldOption> field_options() { return kFields; }

std::string in_option_words(const std::string& sentence, const std::string& field) {
  std::string out;
  for (size_t begin = 0; begin < sentence.size();) {
    size_t end = begin;
    while (end < sentence.size() && is_word_character(sentence[end])) ++end;
    if (end == begin) {
      out += sentence[begin++];
      continue;
    }
    std::string_view word = std::string_view(sentence).substr(begin, end - begin);
    const std::string_view stop = word.ends_with('.') ? "." : "";  // The end of a sentence, not of a name.
    word.remove_suffix(stop.size());
    const std::string_view name = last_part(word);
    const auto* const found = std::ranges::find(kFields, name, &FieldOption::field);
    const bool is_first = begin == 0;
    const bool is_meant = name.find('_') != std::string_view::npos || (is_first && word == field);
    begin = end;
    if (found == std::end(kFields) || !is_meant) {
      out.append(word).append(stop);
      continue;
    }
    out += found->option;
    const bool bounds = is_first && std::string_view(sentence).substr(end).starts_with(" must be");
    if (bounds && !found->unit.empty()) out.append(" (in ").append(found->unit).append(")");
    out += stop;
  }
  return out;
}

bool has_fields_of_options(std::string_view method, std::string_view path) {
  if (method == "GET" || method == "DELETE" || path.find(":stream") != std::string_view::npos) return false;
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"/api/v1/jobs", "/v1/jobs", "/api/v1/tenants", "/v1/tenants"},
      [&](std::string_view start) { return path.starts_with(start); });
}

}  // namespace gpusched::cli

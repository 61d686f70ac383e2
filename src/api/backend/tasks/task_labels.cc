#include "api/backend/tasks/task_labels.h"

#include <algorithm>
#include <charconv>

#include "api/backend/tasks/task_index.h"
#include "api/contract/spec_peek.h"

namespace gpusched::api {
namespace {

constexpr int64_t kUsualMilli = 1'000;
constexpr int64_t kWholeMilli = 1'000;

int64_t number_of(const TaskLabels::Numbers& numbers, std::string_view name, int64_t usual) {
  const auto found = numbers.find(name);
  return found == numbers.end() ? usual : found->second;
}

/// Load that such tasks are to a GPU, as learned; 0: nothing is.
int64_t load_milli(std::string_view spec) {
  const std::string_view text = spec_label(spec, kTaskLoadLabel).value_or("");
  int64_t load = 0;
  std::from_chars(text.data(), text.data() + text.size(), load);
  return std::clamp<int64_t>(load, 0, kWholeMilli);
}

}  // namespace

std::optional<policy::TaskFacts> TaskLabels::read(std::string_view spec) const {
  const std::optional<std::string_view> id = spec_label(spec, kTaskIdLabel);
  if (!id || id->empty()) return std::nullopt;
  const std::string_view user = spec_label(spec, kTaskUserLabel).value_or("");
  const std::string_view type = spec_label(spec, kTaskTypeLabel).value_or("");
  return policy::TaskFacts{
      .user = user,
      .cost_milli = std::max<int64_t>(number_of(costs_, type, 1), 1) * (kWholeMilli + load_milli(spec)),
      .weight_milli = number_of(weights_milli_, user, kUsualMilli)};
}

int64_t TaskLabels::weight_milli_max() const {
  int64_t most = kUsualMilli;
  for (const auto& [user, weight] : weights_milli_) most = std::max(most, weight);
  return most;
}

}  // namespace gpusched::api

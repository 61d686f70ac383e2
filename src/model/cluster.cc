#include "model/cluster.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/limits.h"
#include "model/topology.h"

namespace gpusched {

int64_t DeviceClass::share_mb_of(const Part& part, int64_t device_mb) const {
  if (!part.is_slice()) return part.share_mb_of(device_mb);
  const mig::Table* slices = table();
  CHECK(slices != nullptr);
  const mig::Profile* profile = slices->profile(part.mig_profile);
  CHECK(profile != nullptr);
  return mig::memory_mb_of(*slices, *profile, device_mb);
}

bool DeviceClass::serves(const Part& part) const {
  if (mig != part.is_slice()) return false;
  if (mig) {
    const mig::Table* slices = table();
    if (slices == nullptr || slices->profile(part.mig_profile) == nullptr) return false;
  } else if (part.is_share() && part.share_mb_of(memory_mb) > memory_mb) {
    return false;
  }
  if (memory_mb < part.gpu_memory_mb || !gpu_model_matches(model, part.gpu_model)) return false;
  const PlaceRequest* wishes = part.wishes();
  return wishes == nullptr || wishes->gpu_models.empty() || rank_for(part) < wishes->gpu_models.size();
}

std::size_t DeviceClass::rank_for(const Part& part) const {
  const PlaceRequest* wishes = part.wishes();
  if (wishes == nullptr) return 0;
  const std::vector<std::string>& models = wishes->gpu_models;
  return static_cast<std::size_t>(
      std::find_if(models.begin(), models.end(),
                   [&](const std::string& wanted) { return gpu_model_matches(model, wanted); }) -
      models.begin());
}

int64_t Device::milli_left() const {
  int64_t left = milli_capacity;
  for (const Share& share : shares) left -= share.milli;
  return left;
}

int64_t Device::memory_mb_left() const {
  int64_t left = memory_mb;
  for (const Share& share : shares) left -= share.memory_mb;
  return left;
}

const Share* Device::share_of(const AttemptKey& key) const {
  const auto found =
      std::find_if(shares.begin(), shares.end(), [&](const Share& share) { return share.held_by == key; });
  return found == shares.end() ? nullptr : &*found;
}

bool Device::takes_shares() const {
  return (state == DeviceState::kFree || state == DeviceState::kShared) && fit() && !next_class;
}

std::vector<mig::Instance> Device::slices(const mig::Table& table) const {
  std::vector<mig::Instance> present;
  present.reserve(shares.size());
  for (const Share& share : shares) {
    const mig::Profile* profile = table.profile(share.mig_profile);
    CHECK(profile != nullptr);
    present.push_back({.profile = profile, .start = share.mig_start});
  }
  return present;
}

bool Device::has_room_for(const DeviceClass& kind, const Part& part, int32_t mig_start) const {
  if (!takes_shares() || milli_left() < part.gpu_milli) return false;
  if (memory_mb_left() < kind.share_mb_of(part, memory_mb)) return false;
  if (!part.is_slice()) return mig_start == 0;
  const mig::Table& table = *kind.table();
  return mig::fits(table, slices(table), *table.profile(part.mig_profile), mig_start);
}

const std::string* Node::label(std::string_view wanted) const {
  for (const std::vector<Label>* list : {&labels, &agent_labels}) {
    const auto found =
        std::lower_bound(list->begin(), list->end(), wanted,
                         [](const Label& one, std::string_view other) { return one.name < other; });
    if (found != list->end() && found->name == wanted) return &found->value;
  }
  return nullptr;
}

std::string domain_of(const SchedulingPolicy& policy, const Node& node, DomainLevel level) {
  if (level == DomainLevel::kNode) return std::to_string(node.id.value);
  if (level == DomainLevel::kAny || node.label(policy.domain_label(level)) == nullptr) return {};
  std::string path;
  for (const DomainLevel each : {DomainLevel::kZone, DomainLevel::kBlock, DomainLevel::kRack}) {
    const std::string* value = node.label(policy.domain_label(each));
    // No label's value has a line's end.
    path += "\n" + (value != nullptr ? *value : std::string());
    if (each == level) break;
  }
  return path;
}

int64_t members_when_empty(const std::vector<DeviceClass>& classes, const Node& node, const Part& part) {
  if (node.removed || !node.offers_features(part)) return 0;
  const PlaceRequest* wishes = part.wishes();
  if (wishes != nullptr && !place_allows(node, *wishes)) return 0;
  if (wishes != nullptr && wishes->names_devices()) return named_devices(node, *wishes) != 0 ? 1 : 0;
  int64_t members = part.one_member_per_node ? 1 : int64_t{limits::kAttemptsPerNodeMax};
  if (part.cpu_milli > 0) members = std::min(members, node.cpu_milli / part.cpu_milli);
  if (part.memory_mb > 0) members = std::min(members, node.memory_mb / part.memory_mb);
  if (part.gpu_count == 0) return members;
  std::array<int64_t, limits::kDeviceClassesMax> devices = {};
  for (const Device& device : node.devices) ++devices[device.device_class];
  int64_t by_devices = 0;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    if (devices[i] > 0 && classes[i].serves(part)) by_devices += devices[i] / part.gpu_count;
  }
  return std::min(members, by_devices);
}

namespace {

struct Used {
  int64_t ms = 0;
  int64_t rest = 0;  ///< Thousandths.
};

/// Usage in the window of `now` by then.
Used used_of(const GpuTime& gpu_time, Time now, const Amount& held) {
  if (now <= gpu_time.at) return {.ms = gpu_time.used_ms, .rest = gpu_time.rest};
  const int64_t window = now.ns / gpu_time.length.ns;
  const bool same = gpu_time.at.valid() && gpu_time.at.ns / gpu_time.length.ns == window;
  // Usage in earlier windows ended with them.
  const Time begin = same ? gpu_time.at : Time{window * gpu_time.length.ns};
  const int64_t span_ms = now.ms() - begin.ms();
  const int64_t of_shares = held.gpu_milli * span_ms + (same ? gpu_time.rest : 0);
  return {.ms = (same ? gpu_time.used_ms : 0) + held.gpus * span_ms + of_shares / kMilliPerGpu,
          .rest = of_shares % kMilliPerGpu};
}

}  // namespace

int64_t GpuTime::used_by(Time now, const Amount& held) const { return used_of(*this, now, held).ms; }

void GpuTime::settle(const Amount& held, Time now, bool keeps_rest) {
  if (!limited() || now <= at) return;
  const Used used = used_of(*this, now, held);
  used_ms = used.ms;
  rest = keeps_rest ? used.rest : 0;
  at = now;
}

}  // namespace gpusched

#include <algorithm>

#include "model/cluster.h"

namespace gpusched {

bool DeviceClass::serves(const Part& part) const {
  if (part.is_share() && part.share_mb_of(memory_mb) > memory_mb) return false;
  return memory_mb >= part.gpu_memory_mb && gpu_model_matches(model, part.gpu_model);
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

bool Device::has_room_for(const Part& part) const {
  if (state != DeviceState::kFree && state != DeviceState::kShared) return false;
  return fit() && milli_left() >= part.gpu_milli && memory_mb_left() >= part.share_mb_of(memory_mb);
}

}  // namespace gpusched

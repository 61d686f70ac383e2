#include "node/gpu/slice_keeper.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "log/log.h"

namespace gpusched {
namespace {

constexpr std::string_view kNoUuid = "-";
constexpr std::size_t kPidsTold = 8;
/// A driver may leave one out of a listing that has it.
constexpr int kMissedMax = 3;
/// A slice that an earlier agent began to make is there by then, or never.
constexpr auto kLateMax = std::chrono::seconds(30);

Error refuse(std::string message) {
  return Error{.code = ErrorCode::kUnavailable, .message = std::move(message)};
}

std::string words_of(const std::vector<int64_t>& pids) {
  std::string text;
  for (std::size_t i = 0; i < std::min(pids.size(), kPidsTold); ++i)
    text += (i == 0 ? "pid " : ", pid ") + std::to_string(pids[i]);
  return text;
}

const SliceReading* find(const std::vector<SliceReading>& slices, const std::string& profile, int32_t start) {
  const auto found = std::find_if(slices.begin(), slices.end(), [&](const SliceReading& slice) {
    return slice.start == start && slice.profile == profile;
  });
  return found == slices.end() ? nullptr : &*found;
}

}  // namespace

SliceKeeper::SliceKeeper(std::shared_ptr<GpuDriver> driver, const std::string& data_folder,
                         std::string boot_id)
    : driver_(std::move(driver)), path_(data_folder + "/mig-slices"), boot_id_(std::move(boot_id)) {
  load();
}

SliceKeeper::Place SliceKeeper::place_of(uint32_t index, const std::string& profile, int32_t start) const {
  return {.gpu = inventory().at(index).uuid, .start = start, .profile = profile};
}

void SliceKeeper::claim(uint32_t index, const std::string& profile, int32_t start) {
  if (index < inventory().size()) ours_.try_emplace(place_of(index, profile, start));
}

DeviceReading SliceKeeper::read(uint32_t index) {
  DeviceReading reading = driver_->read(index);
  if (reading.condition != v1::DEVICE_CONDITION_OK || !inventory().at(index).mig) return reading;
  const std::string problem = review(index, reading.slices);
  if (reading.mig_problem.empty()) reading.mig_problem = problem;
  return reading;
}

Result<std::vector<SliceReading>> SliceKeeper::slices(uint32_t index) {
  Result<std::vector<SliceReading>> found = driver_->slices(index);
  if (found) review(index, *found);
  return found;
}

std::string SliceKeeper::review(uint32_t index, std::vector<SliceReading>& slices) {
  std::string foreign;
  for (SliceReading& slice : slices) {
    const auto known = ours_.find(place_of(index, slice.profile, slice.start));
    slice.ours = known != ours_.end();
    if (slice.ours) {
      known->second = slice.made.uuid;
    } else {
      foreign += (foreign.empty() ? "" : ", ") + slice.profile + " at slot " + std::to_string(slice.start);
    }
  }
  // One that was there and is not any more: should it be there again, somebody else made it.
  const std::string& gpu = inventory().at(index).uuid;
  const bool all_came = std::chrono::steady_clock::now() - since_ > kLateMax;
  const std::size_t gone = std::erase_if(ours_, [&](const auto& entry) {
    if (entry.first.gpu != gpu || (!all_came && entry.second.empty())) return false;
    if (find(slices, entry.first.profile, entry.first.start) != nullptr) {
      missed_.erase(entry.first);
      return false;
    }
    return ++missed_[entry.first] >= kMissedMax && missed_.erase(entry.first) > 0;
  });
  if (gone > 0) {
    if (const Result<Unit> saved = save(); !saved)
      log_event(LogLevel::kError, "agent", "slices_not_kept", {}, {{"why", saved.error().message}});
  }
  if (foreign.empty()) return {};
  const std::string at = std::to_string(index);
  return "it has MIG instances that this agent did not create: " + foreign +
         "; destroy them (nvidia-smi mig -i " + at + " -dci; nvidia-smi mig -i " + at +
         " -dgi) or switch its MIG mode off (nvidia-smi -i " + at + " -mig 0) and restart gpu-agent";
}

Result<MadeSlice> SliceKeeper::make_slice(uint32_t index, const std::string& profile, int32_t start) {
  if (index >= inventory().size() || !inventory()[index].mig) return refuse("the GPU is not in MIG mode");
  const Result<std::vector<SliceReading>> present = slices(index);
  if (!present) return present.error();
  const Place place = place_of(index, profile, start);
  if (const SliceReading* const known = find(*present, profile, start); known != nullptr) {
    if (!known->ours) return refuse("there is a MIG instance that this agent did not create");
    if (!known->processes.empty())
      return refuse("there is already a MIG instance, in use by " + words_of(known->processes));
    if (!known->made.uuid.empty()) return known->made;
    if (const Result<Unit> gone = driver_->destroy_slice(index, profile, start); !gone) return gone.error();
  }
  ours_[place].clear();
  if (const Result<Unit> saved = save(); !saved) {
    ours_.erase(place);
    return saved.error();
  }
  Result<MadeSlice> made = driver_->make_slice(index, profile, start);
  if (made) {
    ours_[place] = made->uuid;
  } else if (const auto left = driver_->slices(index); left && find(*left, profile, start) == nullptr) {
    ours_.erase(place);
  }
  // Lost, this only makes the next agent believe that it may have been made, which is so.
  if (const Result<Unit> saved = save(); !saved)
    log_event(LogLevel::kError, "agent", "slices_not_kept", {}, {{"why", saved.error().message}});
  return made;
}

Result<Unit> SliceKeeper::destroy_slice(uint32_t index, const std::string& profile, int32_t start) {
  if (index >= inventory().size()) return Unit{};
  const Result<std::vector<SliceReading>> present = slices(index);
  if (!present) return present.error();
  const Place place = place_of(index, profile, start);
  const SliceReading* const known = find(*present, profile, start);
  if (known != nullptr) {
    if (!known->ours) return refuse("this agent did not create it");
    if (!known->processes.empty()) return refuse("in use by " + words_of(known->processes));
    if (const Result<Unit> gone = driver_->destroy_slice(index, profile, start); !gone) return gone;
  }
  if (ours_.erase(place) == 0) return Unit{};
  if (const Result<Unit> saved = save(); !saved)
    log_event(LogLevel::kError, "agent", "slices_not_kept", {}, {{"why", saved.error().message}});
  return Unit{};
}

/// "boot <id>", then a line for each: GPU, profile, first slot, uuid or "-".
void SliceKeeper::load() {
  std::ifstream file(path_);
  std::string line;
  if (!std::getline(file, line) || line != "boot " + boot_id_) return;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    Place place;
    std::string uuid;
    if (words >> place.gpu >> place.profile >> place.start >> uuid)
      ours_[place] = uuid == kNoUuid ? std::string() : uuid;
  }
}

Result<Unit> SliceKeeper::save() const {
  std::string text = "boot " + boot_id_ + '\n';
  for (const auto& [place, uuid] : ours_) {
    text += place.gpu + ' ' + place.profile + ' ' + std::to_string(place.start) + ' ';
    text += uuid.empty() ? kNoUuid : std::string_view(uuid);
    text += '\n';
  }
  const std::string fresh = path_ + ".new";
  const int file = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  const bool written = file >= 0 &&
                       write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       fdatasync(file) == 0;
  const int why = errno;
  if (file >= 0) close(file);
  if (!written) return refuse("cannot write " + fresh + ": " + std::strerror(why));
  if (std::rename(fresh.c_str(), path_.c_str()) != 0)
    return refuse("cannot write " + path_ + ": " + std::strerror(errno));
  return Unit{};
}

}  // namespace gpusched

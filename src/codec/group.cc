#include "codec/group.h"

#include "base/limits.h"
#include "codec/binary.h"
#include "codec/dump.h"

namespace gpusched {
namespace {

bool known(EndCause cause) { return cause <= EndCause::kContactLost; }
bool known(DeviceCondition condition) {
  return condition >= DeviceCondition::kOk && condition <= DeviceCondition::kMissing;
}

/// Values that no door lets pass would break counts inside the engine.
template <typename T>
bool sane(const T&) {
  return true;
}
bool sane(const AttemptEnded& command) { return known(command.outcome.cause); }
bool sane(const SetDeviceCondition& command) { return known(command.condition); }
bool sane(const Limits& limits) {
  const Amount& stored = limits.plus_one;
  return stored.gpus >= 0 && stored.gpu_memory_mb >= 0 && stored.cpu_milli >= 0 && stored.memory_mb >= 0 &&
         stored.jobs >= 0;
}
bool sane(const CreateTenant& command) { return sane(command.limits); }
bool sane(const UpdateTenant& command) { return sane(command.limits); }
bool sane(const RegisterNode& command) {
  for (const DeviceOffer& device : command.devices) {
    if (!known(device.condition) || device.memory_mb < 0) return false;
  }
  return command.cpu_milli >= 0 && command.memory_mb >= 0;
}
bool sane(const SubmitJobs& command) {
  for (const JobRequest& job : command.jobs) {
    if (job.max_runtime.ns < 0 || job.max_runtime > limits::kRuntimeMax) return false;
    if (job.retry.kill_after_lost_contact.ns < 0 || job.retry.kill_after_lost_contact > limits::kRuntimeMax)
      return false;
    if (job.priority > limits::kPriorityMax || job.priority < -limits::kPriorityMax) return false;
  }
  return command.jobs.size() <= limits::kBatchJobsMax;
}

template <std::size_t Index = 0>
bool decode_command(std::size_t index, std::string_view bytes, Command& command) {
  if constexpr (Index < std::variant_size_v<Command>) {
    if (index != Index) return decode_command<Index + 1>(index, bytes, command);
    auto& concrete = command.emplace<Index>();
    Decoder decoder(bytes);
    decoder.decode(concrete);
    return decoder.ok() && sane(concrete);
  } else {
    return false;
  }
}

}  // namespace

void GroupEncoder::begin(Time at) {
  bytes_.clear();
  count_ = 0;
  ByteWriter(bytes_).fixed64(static_cast<uint64_t>(at.ns));
}

void GroupEncoder::add(const Command& command) {
  ByteWriter writer(bytes_);
  writer.varint(command.index());
  // The command's length stands before it, in four bytes so that nothing has to move.
  const std::size_t at = bytes_.size();
  writer.fixed32(0);
  Encoder encoder(bytes_);
  std::visit([&](const auto& concrete) { encoder.encode(concrete); }, command);
  const auto size = static_cast<uint32_t>(bytes_.size() - at - 4);
  std::memcpy(bytes_.data() + at, &size, sizeof size);
  ++count_;
}

Result<CommandGroup> decode_group(std::string_view payload) {
  CommandGroup group;
  ByteReader reader(payload);
  group.at = Time{static_cast<int64_t>(reader.fixed64())};
  while (reader.ok() && !reader.at_end()) {
    const uint64_t index = reader.varint();
    const uint32_t size = reader.fixed32();
    if (!reader.ok() || size > reader.remaining()) {
      return Error{.code = ErrorCode::kCorrupt, .message = "a command's length leads out of its record"};
    }
    if (index >= std::variant_size_v<Command>) {
      return Error{
          .code = ErrorCode::kVersion,
          .message = "command type " + std::to_string(index) + " is not known: written by a newer version"};
    }
    const std::string_view bytes = reader.take(size);
    if (!decode_command(index, bytes, group.commands.emplace_back())) {
      return Error{
          .code = ErrorCode::kCorrupt,
          .message = "command " + std::to_string(group.commands.size()) + " of a record cannot be decoded"};
    }
  }
  if (!reader.ok()) return Error{.code = ErrorCode::kCorrupt, .message = "a record is too short"};
  return group;
}

std::string dump_group(const CommandGroup& group) {
  std::string out = "{\"at_ns\":" + std::to_string(group.at.ns) + ",\"commands\":[";
  bool first = true;
  for (const Command& command : group.commands) {
    if (!first) out += ',';
    first = false;
    out += "{\"type\":\"";
    out += name_of(command);
    out += "\",\"fields\":";
    std::visit([&](const auto& concrete) { dump_json(out, concrete); }, command);
    out += '}';
  }
  return out + "]}";
}

}  // namespace gpusched

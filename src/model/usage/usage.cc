#include "model/usage/usage.h"

#include <algorithm>
#include <string>

#include "base/limits.h"

namespace gpusched {

void Usage::add(const Usage& member) {
  const auto sum = [](int64_t a, int64_t b) { return std::min(a + b, limits::kUsageMax); };
  peak_memory_bytes = std::max(peak_memory_bytes, member.peak_memory_bytes);
  peak_of_process = peak_of_process || member.peak_of_process;
  cpu_time = Duration{sum(cpu_time.ns, member.cpu_time.ns)};
  gpu_busy_ms = sum(gpu_busy_ms, member.gpu_busy_ms);
  gpu_watched_ms = sum(gpu_watched_ms, member.gpu_watched_ms);
  peak_gpu_memory_mb = std::max(peak_gpu_memory_mb, member.peak_gpu_memory_mb);
}

void pack_usage(ByteWriter& writer, const AttemptUsage& usage) {
  if (!usage.total.is_known()) return;
  writer.varint(static_cast<uint64_t>(usage.total.peak_memory_bytes));
  writer.u8(usage.total.peak_of_process ? 1 : 0);
  writer.varint(static_cast<uint64_t>(usage.total.cpu_time.ns));
  writer.varint(static_cast<uint64_t>(usage.total.gpu_busy_ms));
  writer.varint(static_cast<uint64_t>(usage.total.gpu_watched_ms));
  writer.varint(usage.members_unknown);
  // Older records end here, and keep their bytes.
  if (usage.total.peak_gpu_memory_mb > 0)
    writer.varint(static_cast<uint64_t>(usage.total.peak_gpu_memory_mb));
}

Blob packed_usage(const AttemptUsage& usage) {
  std::string packed;
  ByteWriter writer(packed);
  pack_usage(writer, usage);
  return Blob(packed);
}

AttemptUsage unpack_usage(std::string_view packed) {
  AttemptUsage usage;
  ByteReader reader(packed);
  const auto amount = [&] {
    const uint64_t value = reader.varint();
    if (value > static_cast<uint64_t>(limits::kUsageMax)) reader.fail();
    return static_cast<int64_t>(value);
  };
  usage.total.peak_memory_bytes = amount();
  usage.total.peak_of_process = reader.u8() != 0;
  usage.total.cpu_time = Duration{amount()};
  usage.total.gpu_busy_ms = amount();
  usage.total.gpu_watched_ms = amount();
  usage.members_unknown = static_cast<uint32_t>(std::min(amount(), int64_t{limits::kMembersMax}));
  if (!reader.at_end()) {
    usage.total.peak_gpu_memory_mb = amount();
    if (usage.total.peak_gpu_memory_mb == 0) reader.fail();  // No form of ours.
  }
  return reader.ok() && reader.at_end() ? usage : AttemptUsage{};
}

}  // namespace gpusched

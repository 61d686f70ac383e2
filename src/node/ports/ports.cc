#include "node/ports/ports.h"

#include <algorithm>
#include <cstdint>

#include "base/utf8.h"
#include "shim/protocol.h"

namespace gpusched {
const DaemonReading* find_mps(const DeviceReading& reading) {
  const auto found = std::find_if(reading.daemons.begin(), reading.daemons.end(),
                                  [](const DaemonReading& daemon) { return daemon.program == kMpsServer; });
  return found == reading.daemons.end() ? nullptr : &*found;
}

AttemptKey from_wire(const v1::AttemptKey& key) { return {JobId{key.job()}, key.attempt(), key.member()}; }

std::vector<HeldDevice> held_devices_of(const v1::StartAttempt& order) {
  std::vector<HeldDevice> held;
  for (const v1::GrantedDevice& granted : order.devices()) {
    HeldDevice& device =
        held.emplace_back(HeldDevice{.index = granted.index(), .generation = granted.generation()});
    if (granted.share_milli() == 0) continue;
    device.share_of = from_wire(order.key());
    device.milli = granted.share_milli();
    device.memory_mb = granted.share_memory_mb();
    device.mig_profile = granted.mig_profile();
    device.mig_start = granted.mig_start();
  }
  return held;
}

v1::AttemptKey to_wire(const AttemptKey& key) {
  v1::AttemptKey wire;
  wire.set_job(key.job.value);
  wire.set_attempt(key.attempt);
  wire.set_member(key.member);
  return wire;
}

std::string to_string(const AttemptKey& key) { return shim::key_text(key); }

std::string clean_text(std::string_view text, std::size_t size_max) {
  return utf8_cleaned(utf8_cut(text, size_max));
}

void StoreImage::apply(const StoreRecord& record) {
  switch (record.kind) {
    case StoreRecord::Kind::kBoot:
      for (auto& [key, attempt] : attempts) attempt.of_earlier_boot |= record.boot_id != boot_id;
      boot_id = record.boot_id;
      epoch = record.epoch;
      return;
    case StoreRecord::Kind::kIntent:
      attempts[record.key].devices = record.devices;
      attempts[record.key].user = record.user;
      attempts[record.key].cores = record.cores;
      attempts[record.key].placed_at_ns = record.placed_at_ns;
      return;
    case StoreRecord::Kind::kDevices:
      attempts[record.key].device_uuids = record.device_uuids;
      return;
    case StoreRecord::Kind::kProlog:
      attempts[record.key].prolog = true;
      return;
    case StoreRecord::Kind::kStarted: {
      StoredAttempt& attempt = attempts[record.key];
      attempt.pid = record.pid;
      attempt.started_unix_ns = record.started_unix_ns;
      attempt.identity = record.identity;
      attempt.shim = record.shim;
      return;
    }
    case StoreRecord::Kind::kEnded:
      attempts[record.key].outcome = record.outcome;
      return;
    case StoreRecord::Kind::kAcked:
      attempts[record.key].acked = true;
      return;
    case StoreRecord::Kind::kClosed: {
      StoredAttempt& attempt = attempts[record.key];
      if (!attempt.closed) closed.push_back(record.key);
      attempt.closed = true;
      return;
    }
    case StoreRecord::Kind::kForgotten:
      attempts.erase(record.key);
      while (!closed.empty() && !attempts.contains(closed.front())) closed.pop_front();
      return;
  }
}

}  // namespace gpusched

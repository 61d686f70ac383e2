#pragma once

#include <cstdint>
#include <vector>

#include "base/fields.h"
#include "model/state.h"

/// Parts of a snapshot, for its encoder and its decoder alone: sections, each one byte of kind, a number (a
/// varint), four bytes of length, and a struct in the binary form.
namespace gpusched::snapshot {

inline constexpr uint32_t kFormat = 1;
enum class Section : uint8_t {
  kHeader = 1,
  kTenant,
  kDeviceClass,
  kNode,
  kJobClass,  ///< Precedes the first job that uses it; numbered from 0 in order of appearance.
  kJob,       ///< Ascending by id; preceded by the number of its class.
  kAttempt,
  kRequest,
  kFinished,  ///< Ids in order of their end.
  kTimer,
  kEnd,
  kArray,    ///< Precedes kEnd, although its number is higher.
  kPromise,  ///< Precedes kEnd, too.
  kSubmitter = 15,
  kBooking = 16,
  kOwner = 17,  ///< Follows the nodes, although its number is higher: one for each of State::owners.
  kKey = 18,
  kNodeTicket = 19,
  kNodeIdentity = 20,
  kPerson = 21,
};
static_assert(static_cast<uint8_t>(Section::kPromise) == 13);
inline constexpr Section kSectionLast = Section::kPerson;

struct Header {
  uint32_t format = kFormat;
  EngineConfig config;
  uint64_t sequence = 0;
  Time at;
  uint64_t digest = 0;
  uint64_t job_count = 0;
  Duration skipped;
  Time skipped_last;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "format", self.format);
    visit(2, "config", self.config);
    visit(3, "sequence", self.sequence);
    visit(4, "at", self.at);
    visit(5, "digest", self.digest);
    visit(6, "job_count", self.job_count);
    visit(7, "skipped", self.skipped);
    visit(8, "skipped_last", self.skipped_last);
  }
};

struct FinishedJobs {
  std::vector<JobId> ids;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "ids", self.ids);
  }
};

struct StoredTimer {
  Time due;
  TimerKind kind = TimerKind::kBackoffOver;
  uint64_t id = 0;
  uint32_t extra = 0;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "due", self.due);
    visit(2, "kind", self.kind);
    visit(3, "id", self.id);
    visit(4, "extra", self.extra);
  }
};

}  // namespace gpusched::snapshot

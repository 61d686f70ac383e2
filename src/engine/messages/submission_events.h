#pragma once

#include <cstdint>
#include <string>

#include "base/fields.h"
#include "base/ids.h"
#include "base/time.h"
#include "engine/messages/job_request.h"
#include "model/cluster.h"
#include "model/identity/caller_kind.h"
#include "model/job.h"

/// Events of submissions of jobs; see events.h.
namespace gpusched {

struct JobSubmitted {
  JobId job;
  TenantId tenant;
  JobRequest request;
  int64_t order_key = 0;
  Time at;
  std::string by;
  CallerKind owner_kind{};  ///< Kind of its owner, since feature level 9.
  std::string owner = {};

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "job", self.job);
    visit(2, "tenant", self.tenant);
    visit(3, "request", self.request);
    visit(4, "order_key", self.order_key);
    visit(5, "at", self.at);
    visit(6, "by", self.by);
    visit(7, "owner_kind", self.owner_kind);
    visit(8, "owner", self.owner);
  }
};

/// A user's work was let in, and this is what it has spent now.
struct Admitted {
  Boxed<Submitter> submitter;
  Time at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "submitter", self.submitter);
    visit(2, "at", self.at);
  }
};

/// The owner's number is not told here: it is the state's own.
struct RequestRemembered {
  Boxed<RememberedRequest> request;
  CallerKind owner_kind{};  ///< Kind of the key's owner, since feature level 9.
  std::string owner = {};

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "request", self.request);
    visit(2, "owner_kind", self.owner_kind);
    visit(3, "owner", self.owner);
  }
};

struct OldestRequestForgotten {
  uint32_t count = 0;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "count", self.count);
  }
};

/// There are too many remembered requests: the oldest one of the tenant that has most.
struct RequestForgotten {
  TenantId tenant;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "tenant", self.tenant);
  }
};

}  // namespace gpusched

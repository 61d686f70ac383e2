#include "api/limits/waiting_shares.h"

#include <functional>
#include <string>
#include <variant>

#include "base/queue_limits.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kJobBytes = 256;  // Beside its specification.

uint64_t holder_of(const access::Caller& caller) {
  const uint64_t holder = std::hash<std::string>()(caller.name) * 31 + static_cast<uint64_t>(caller.kind);
  return holder == 0 ? 1 : holder;
}

/// About what it takes in the journal, of those that may take much.
std::size_t bytes_of(const Command& command) {
  const auto* const submit = std::get_if<SubmitJobs>(&command);
  if (submit == nullptr) return kJobBytes;
  std::size_t bytes = 0;
  for (const gpusched::JobRequest& job : submit->jobs) bytes += kJobBytes + job.spec.view().size();
  return bytes;
}

}  // namespace

WaitingShares::WaitingShares()
    : shares_{SharedRoom<uint64_t>(limits::kRequestsWaitingMax),
              SharedRoom<uint64_t>(limits::kProposalBytesMax), SharedRoom<uint64_t>(limits::kReadsWaitingMax),
              SharedRoom<uint64_t>(limits::kScansWaitingMax)} {}

Error WaitingShares::over_share() {
  return {.code = ErrorCode::kUnavailable,
          .message =
              "this caller has as many requests waiting as one may have while others wait, too; wait "
              "until some are answered, or submit jobs in batches",
          .field = "caller"};
}

std::optional<WaitingShares::Charge> WaitingShares::charge(const access::Caller& caller,
                                                           const Command& command) {
  const Charge charge{.holder = holder_of(caller), .bytes = bytes_of(command)};
  const std::lock_guard lock(mutex_);
  if (!share(Kind::kCommands).fits(charge.holder, 1) ||
      !share(Kind::kCommandBytes).fits(charge.holder, charge.bytes)) {
    count_refused();
    return std::nullopt;
  }
  share(Kind::kCommands).take(charge.holder, 1);
  share(Kind::kCommandBytes).take(charge.holder, charge.bytes);
  return charge;
}

void WaitingShares::give_back(const Charge& charge) {
  if (charge.holder == 0) return;
  const std::lock_guard lock(mutex_);
  share(Kind::kCommands).give_back(charge.holder, 1);
  share(Kind::kCommandBytes).give_back(charge.holder, charge.bytes);
}

std::shared_ptr<void> WaitingShares::place(const access::Caller& caller, Kind kind) {
  const uint64_t holder = holder_of(caller);
  {
    const std::lock_guard lock(mutex_);
    if (!share(kind).fits(holder, 1)) {
      count_refused();
      return nullptr;
    }
    share(kind).take(holder, 1);
  }
  return {static_cast<void*>(this), [self = shared_from_this(), holder, kind](void*) {
            const std::lock_guard lock(self->mutex_);
            self->share(kind).give_back(holder, 1);
          }};
}

std::size_t WaitingShares::waiting(Kind kind) const {
  const std::lock_guard lock(mutex_);
  return shares_[static_cast<std::size_t>(kind)].used();
}

}  // namespace gpusched::api

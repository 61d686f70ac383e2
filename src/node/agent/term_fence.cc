#include "node/agent/term_fence.h"

#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>

#include "log/log.h"
#include "node/link/enroll.h"

namespace gpusched {

Result<TermFence> TermFence::open(const std::string& data_folder) {
  TermFence fence(data_folder + "/scheduler-term");
  errno = 0;
  std::ifstream in(fence.path_, std::ios::binary);
  if (!in && errno == ENOENT) return fence;
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  if (!in.is_open() || in.bad()) {
    return Error{.code = ErrorCode::kIo,
                 .message = "cannot read " + fence.path_ + ": " + std::strerror(errno)};
  }
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), fence.highest_);
  if (error == std::errc{} && std::string_view(end) == "\n") return fence;
  return Error{
      .code = ErrorCode::kInvalidArgument,
      .message = fence.path_ +
                 " holds no term of a scheduler; remove it once the schedulers' present leader is the "
                 "only one that runs"};
}

Result<Unit> TermFence::admit(uint64_t term) {
  if (term == highest_) return Unit{};
  if (term > highest_) {
    log_event(LogLevel::kInfo, "agent", "scheduler_term", {}, {{"term", term}, {"before", highest_}});
    highest_ = term;
    // On a full disk this agent remembers it, if not the next one.
    if (const Result<Unit> kept = write_private(path_, std::to_string(term) + "\n"); !kept)
      log_event(LogLevel::kWarning, "agent", "scheduler_term_not_kept", {}, {{"why", kept.error().message}});
    return Unit{};
  }
  const std::string before = "this node obeyed a leader of term " + std::to_string(highest_);
  if (term > 0) {
    return Error{.code = ErrorCode::kPermissionDenied,
                 .message = "this scheduler leads in term " + std::to_string(term) + ", and " + before +
                            ", so that it is not the leader any more"};
  }
  return Error{.code = ErrorCode::kPermissionDenied,
               .message = "this scheduler is not one of several, and " + before +
                          " of such; if it has taken their place for good, remove " + path_ +
                          " and restart gpu-agent"};
}

}  // namespace gpusched

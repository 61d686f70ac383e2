#include "shim/attempt/start_failure.h"

#include <cerrno>

namespace gpusched::shim {

std::string start_failure(const ChildPlan& plan, const StartView& request) {
  const Box& box = request.box;
  const std::string why = ": " + error_words(plan.error);
  const std::string user =
      box.user ? " as the user with uid " + std::to_string(box.user->uid) : std::string();
  switch (plan.failed) {
    case StartStep::kCgroup:
      return "cannot enter the attempt's cgroup" + why;
    case StartStep::kLimit:
      return "cannot set a resource limit" + why;
    case StartStep::kPrivateFolders:
      return "cannot mount the attempt's private /dev/shm or /tmp" + why;
    case StartStep::kUser:
      return "cannot become the user with uid " + std::to_string(box.user ? box.user->uid : 0) + why;
    case StartStep::kDirectory:
      return "cannot enter the working directory '" + std::string(request.working_directory) + "'" + user +
             why + "; give one that exists and that the job's user may enter";
    case StartStep::kInput:
      return "cannot open '" + box.stdin_path + "' for standard input" + user + why;
    case StartStep::kOutput:
      return "cannot open '" + box.stdout_path + "' for standard output" + user + why;
    case StartStep::kErrorOutput:
      return "cannot open '" + box.stderr_path + "' for standard error" + user + why;
    case StartStep::kCommand:
    case StartStep::kNone:
      break;
  }
  const std::string_view program = request.arguments.front();
  if (plan.error == ENOENT && program.find('/') == std::string_view::npos)
    return std::string(program) + " is not installed on this node";
  return "cannot start '" + std::string(program) + "'" + why;
}

}  // namespace gpusched::shim

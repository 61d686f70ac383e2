#include "api/doors/jobs/job_wait.h"

#include <mutex>

namespace gpusched::api {
namespace {

/// Changes come on the observer's thread, the timer and the client's leaving on the server's: whoever ends it
/// first answers.
struct Wait {
  std::mutex mutex;
  RestCallPtr call;  ///< Null once it is over.
  std::shared_ptr<void> watch;
  HttpTimer timer;

  /// The right to answer, once; and what is to be let go, outside the lock.
  struct Ending {
    RestCallPtr call;
    std::shared_ptr<void> watch;
    HttpTimer timer;
  };
  Ending end() {
    const std::lock_guard lock(mutex);
    return {.call = std::exchange(call, nullptr), .watch = std::exchange(watch, nullptr), .timer = timer};
  }
};

}  // namespace

void wait_for_job(JobBackend& backend, HttpServer& server, const RestCallPtr& call, JobId job,
                  const std::string& tenant, Duration wait,
                  std::function<std::string(const JobView&)> to_json) {
  const auto waiting = std::make_shared<Wait>();
  waiting->call = call;
  // The gone hook must not hold what holds the reply, or neither would ever go.
  call->on_gone([waiting] { static_cast<void>(waiting->end()); });
  {
    const std::lock_guard lock(waiting->mutex);
    waiting->timer = server.run_after(wait, [waiting, &backend, job, tenant, to_json] {
      const auto ending = waiting->end();
      if (ending.call == nullptr) return;
      backend.get_job(ending.call->caller(), job, tenant,
                      [call = ending.call, to_json](Answer<JobView> answer) {
                        if (!answer) return call->fail(answer.error());
                        call->send(200, to_json(*answer));
                      });
    });
  }
  auto watch =
      backend.watch_job(call->caller(), job, tenant, [waiting, &server, to_json](Answer<JobView> answer) {
        if (answer.ok() && !is_final(answer->state)) return;
        const auto ending = waiting->end();
        if (ending.call == nullptr) return;
        server.cancel(ending.timer);
        if (!answer) return ending.call->fail(answer.error());
        ending.call->send(200, to_json(*answer));
      });
  const std::lock_guard lock(waiting->mutex);
  if (waiting->call != nullptr) waiting->watch = std::move(watch);
}

}  // namespace gpusched::api

#include "api/doors/agent_tasks/agent_tasks_grpc.h"

#include <mutex>
#include <unordered_map>

#include "algogpu/algogpu.grpc.pb.h"
#include "api/calls/trace_jobs.h"
#include "api/contract/names.h"
#include "api/doors/agent_tasks/refused_tasks.h"
#include "api/doors/agent_tasks/task_feed.h"
#include "api/doors/agent_tasks/task_rights.h"
#include "api/grpc/grpc_call.h"
#include "api/views/rights.h"
#include "host/core/system_clock.h"

namespace gpusched::api {
namespace {

constexpr std::string_view kNotFound = "Task not found", kNothingToCancel = "task not found";

/// True if the task is at fault, not the caller or the scheduler: clients of this door are answered.
bool is_refusal(const ApiError& error) {
  switch (to_status_code(error)) {
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::ALREADY_EXISTS:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::FAILED_PRECONDITION:
      return true;
    default:
      return false;
  }
}

/// In this door's words, where it has some.
std::string refusal_text(const ApiError& error) {
  switch (error.kind) {
    case ErrorKind::kQueueFull:
    case ErrorKind::kTenantQueueFull:
      return std::string(kQueueIsFull);
    case ErrorKind::kRateExceeded:
    case ErrorKind::kDailyExceeded:
      return std::string(kInsufficientToken);
    default:
      return error.message;
  }
}

class AgentTasksService final : public GrpcService {
 public:
  AgentTasksService(Backend& backend, TaskIndex& index, GrpcThread& thread, const Doorkeeper& doorkeeper,
                    const AgentTasksOptions& options)
      : GrpcService(algogpu::GPUScheduler::service_full_name()),
        backend_(backend),
        index_(index),
        doorkeeper_(doorkeeper),
        workers_(options.workers),
        admission_(options.limits) {
    serve_unary(thread, *this, "SubmitTask", &AgentTasksService::SubmitTask, 64);
    serve_unary(thread, *this, "GetTaskStatus", &AgentTasksService::GetTaskStatus);
    serve_unary(thread, *this, "CancelTask", &AgentTasksService::CancelTask);
    serve_unary(thread, *this, "GetGPUStatus", &AgentTasksService::GetGPUStatus);
    serve_stream(thread, *this, "TaskEvents", &AgentTasksService::TaskEvents);
  }

  void SubmitTask(const GrpcCall& incoming, const algogpu::TaskRequest* request,
                  algogpu::TaskResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      if (!may_with_tasks(*caller, access::Action::kSubmitJob))
        return call.fail(not_allowed(*caller, access::Action::kSubmitJob, "submit tasks"));
      const Submission task{.name = name_of(*caller, request->task_id()),
                            .user = request->user_id(),
                            .kind = kind_of(request->task_type())};
      const TaskContent content = content_of(*request);
      Answer<SubmitRequest> parsed = read_task(*request, content, workers_, backend_.containers_possible());
      if (!parsed && parsed.error().field == "task_id") return refuse(call, parsed.error(), *response);
      const auto told = [call, response](const Answer<JobId>& outcome) {
        answer_submission(call, outcome, *response);
      };
      switch (index_.begin(task.name, content, told)) {
        case TaskIndex::Begun::kKnown:
          return answer_known(call, caller, task, response);
        case TaskIndex::Begun::kOther:
          return refuse(call, TaskIndex::other_content(), *response);
        case TaskIndex::Begun::kAfter:
          return;
        case TaskIndex::Begun::kFirst:
          break;
      }
      if (!parsed) return settle(task, parsed.error(), told);
      if (const auto why = admit(task)) {
        const bool is_full = *why == kQueueIsFull;
        return settle(
            task,
            ApiError{is_full ? ErrorKind::kTenantQueueFull : ErrorKind::kRateExceeded, std::string(*why)},
            told);
      }
      parsed->by = requester_of(call.context());
      call.note().name_user(*parsed);
      const std::string_view trace = metadata_of(call.context(), "traceparent");
      call.note().name_call(metadata_of(call.context(), "x-request-id"), trace);
      trace_jobs(*parsed, trace, call.note());
      backend_.submit(caller, std::move(*parsed), [this, call, task, told](const Answer<Submitted>& answer) {
        if (!answer) {
          const std::lock_guard lock(mutex_);
          admission_.give_back(task.name.tenant, task.user, task.kind);
        } else {
          call.note().name_jobs(*answer);
        }
        settle(task, answer ? Answer<JobId>(answer->first_job) : answer.error(), told);
      });
    });
  }

  void GetTaskStatus(const GrpcCall& incoming, const algogpu::TaskStatusRequest* request,
                     algogpu::TaskStatusResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      const std::string id = request->task_id();
      const TaskName name = name_of(*caller, id);
      response->set_task_id(id);
      response->set_status(algogpu::TASK_STATUS_FAILED);
      response->set_message(std::string(kNotFound));
      if (!may_with_tasks(*caller, access::Action::kSeeJob)) return call.finish();
      std::optional<JobId> job = index_.find(name);
      if (!job && show_refused(name, *response)) return call.finish();
      if (!job) job = index_.find_any(name.tenant, id);
      if (!job) return call.finish();
      backend_.get_job(caller, *job, {}, [call, id, response](const Answer<JobView>& answer) {
        if (answer) {
          write_task(id, *answer, *response);
        } else if (!is_refusal(answer.error())) {
          return call.fail(answer.error());
        }
        call.finish();
      });
    });
  }

  void CancelTask(const GrpcCall& incoming, const algogpu::CancelTaskRequest* request,
                  algogpu::CancelTaskResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      std::optional<JobId> job;
      if (may_with_tasks(*caller, access::Action::kSeeJob)) {
        const TaskName name = name_of(*caller, request->task_id());
        job = index_.find(name);
        if (!job) job = index_.find_any(name.tenant, name.id);
      }
      if (!job) {
        response->set_message(std::string(kNothingToCancel));
        return call.finish_refused({ErrorKind::kJobNotFound, std::string(kNothingToCancel)});
      }
      call.note().name(access::Action::kCancelJob, job_name(*job));
      const auto told = [call, job = *job, response](const Answer<Unit>& answer) {
        if (answer) {
          response->set_success(true);
          response->set_message(task_message(job, "Task cancelled"));
          return call.finish_at_flush();
        }
        const ApiError& error = answer.error();
        if (!is_refusal(error)) return call.fail(error);
        response->set_message(error.kind == ErrorKind::kJobNotFound ? std::string(kNothingToCancel)
                                                                    : error.message);
        call.finish_refused(error);
      };
      backend_.cancel(caller, *job, {}, requester_of(call.context()), told);
    });
  }

  void GetGPUStatus(const GrpcCall& incoming, const algogpu::GetGPUStatusRequest*,
                    algogpu::GPUStatusResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.list_nodes(caller, [this, call, caller, response](Answer<std::vector<NodeView>> nodes) {
        if (!nodes) return call.fail(nodes.error());
        std::vector<JobId> jobs;
        for (const NodeView& node : *nodes) {
          for (const DeviceView& device : node.devices)
            for (const JobId job : jobs_on(device)) jobs.push_back(job);
        }
        std::erase_if(jobs, [this](JobId job) { return index_.id_of(job).empty(); });
        JobFilter filter{.state = JobState::kRunning};
        // A task's id is its job's name, where the caller may know that.
        filter.details = {.message = false, .place = false, .gpus = false};
        // The walls between tenants are looked after by the list of jobs.
        backend_.get_jobs(caller, std::move(jobs), std::move(filter),
                          [call, response, nodes = std::move(*nodes)](const Answer<JobPage>& page) {
                            if (!page) return call.fail(page.error());
                            show_gpus(nodes, *page, *response);
                            call.finish();
                          });
      });
    });
  }

  void TaskEvents(const std::shared_ptr<GrpcWriter<algogpu::TaskEvent>>& writer,
                  const algogpu::TaskEventsRequest&) {
    const Answer<CallerPtr> caller = writer->caller_of(doorkeeper_);
    if (!caller) return writer->fail(caller.error());
    const auto feed = std::make_shared<TaskFeed>(writer);
    const auto watch = std::make_shared<std::shared_ptr<void>>();
    writer->on_gone([watch] { watch->reset(); });
    *watch = index_.watch(*caller, [feed](const TaskChange& change) { feed->push(change); });
    writer->begin();
  }

 private:
  struct Submission {
    TaskName name;
    std::string user;
    TaskKind kind = TaskKind::kUnspecified;
  };

  static TaskName name_of(const access::Caller& caller, const std::string& id) {
    return {.tenant = access::home_tenant(caller), .owner = owner_text(caller.kind, caller.name), .id = id};
  }
  template <typename Work>
  void guarded(const GrpcCall& call, Work&& work) {
    const Answer<CallerPtr> caller = call.caller_of(doorkeeper_);
    if (!caller) return call.fail(caller.error());
    work(call, *caller);
  }

  std::optional<std::string_view> admit(const Submission& task) {
    const int64_t others = index_.waiting(task.name.tenant) - 1;
    const std::lock_guard lock(mutex_);
    return admission_.admit(task.name.tenant, task.user, task.kind, others, steady_now(), wall_now());
  }

  /// Notes the outcome and tells it, also to those who submitted the same task meanwhile.
  void settle(const Submission& task, const Answer<JobId>& outcome, const TaskIndex::Outcome& told) {
    {
      const std::lock_guard lock(mutex_);
      if (outcome) {
        refused_.forget(task.name);
      } else if (is_refusal(outcome.error())) {
        refused_.note(task.name, {.message = refusal_text(outcome.error()), .at = wall_now()});
        index_.note_refused(task.name.tenant);
      }
    }
    index_.settle(task.name, outcome);
    told(outcome);
  }

  static void refuse(const GrpcCall& call, const ApiError& error, algogpu::TaskResponse& response) {
    response.set_message(refusal_text(error));
    response.set_status(algogpu::TASK_STATUS_REJECTED);
    call.finish_refused(error);
  }

  static void answer_submission(const GrpcCall& call, const Answer<JobId>& outcome,
                                algogpu::TaskResponse& response) {
    if (!outcome) {
      if (!is_refusal(outcome.error())) return call.fail(outcome.error());
      return refuse(call, outcome.error(), response);
    }
    response.set_accepted(true);
    response.set_message(task_message(*outcome, "Task accepted"));
    response.set_status(algogpu::TASK_STATUS_PENDING);
    call.finish_at_flush();
  }

  /// The same id again.
  void answer_known(const GrpcCall& call, const CallerPtr& caller, const Submission& task,
                    algogpu::TaskResponse* response) {
    const std::optional<JobId> job = index_.find(task.name);
    if (!job) {
      return call.fail({.kind = ErrorKind::kUnavailable,
                        .message = "the task is being forgotten; try again",
                        .retry_after = seconds(1)});
    }
    backend_.get_job(caller, *job, {}, [call, response, job = *job](const Answer<JobView>& answer) {
      if (!answer) return call.fail(answer.error());
      response->set_accepted(true);
      response->set_message(task_message(job, "Task accepted before"));
      response->set_status(to_wire(task_state_of(answer->state)));
      call.finish();
    });
  }

  /// False: none of that name was refused.
  bool show_refused(const TaskName& name, algogpu::TaskStatusResponse& response) {
    const std::lock_guard lock(mutex_);
    const RefusedTasks::Refusal* const refusal = refused_.find(name);
    if (refusal == nullptr) return false;
    response.set_status(algogpu::TASK_STATUS_REJECTED);
    response.set_message(refusal->message);
    response.set_created_at(refusal->at.ns / 1'000'000'000);
    return true;
  }

  static void show_gpus(const std::vector<NodeView>& nodes, const JobPage& page,
                        algogpu::GPUStatusResponse& response) {
    std::unordered_map<uint64_t, std::string> ids;
    for (const JobView& job : page.jobs) ids.emplace(job.id.value, job.name);
    const auto tasks_of = [&ids](const std::vector<JobId>& jobs) {
      std::vector<std::string> tasks;
      for (const JobId job : jobs) {
        const auto at = ids.find(job.value);
        if (at != ids.end() && !at->second.empty()) tasks.push_back(at->second);
      }
      return tasks;
    };
    write_gpus(nodes, tasks_of, wall_now(), response);
  }

  Backend& backend_;
  TaskIndex& index_;
  const Doorkeeper& doorkeeper_;
  const TaskWorkers workers_;
  std::mutex mutex_;  // Guards all below.
  TaskAdmission admission_;
  RefusedTasks refused_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_agent_tasks_service(Backend& backend, TaskIndex& index,
                                                        GrpcThread& thread, const Doorkeeper& doorkeeper,
                                                        const AgentTasksOptions& options) {
  return std::make_unique<AgentTasksService>(backend, index, thread, doorkeeper, options);
}

}  // namespace gpusched::api

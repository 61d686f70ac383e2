#include "api/doors/jobs/jobs_grpc.h"

#include <algorithm>
#include <chrono>

#include "api/calls/trace_jobs.h"
#include "api/contract/names.h"
#include "api/doors/jobs/estimate_pace.h"
#include "api/doors/jobs/jobs_json.h"
#include "api/doors/native/native_views.h"
#include "api/doors/pages.h"
#include "api/fields/checks.h"
#include "api/fields/tenants/tenant_rows.h"
#include "api/grpc/grpc_call.h"
#include "base/limits.h"
#include "scheduler/scheduler.grpc.pb.h"

namespace gpusched::api {
namespace {

void write_duration(Duration duration, google::protobuf::Duration& out) {
  out.set_seconds(duration.ns / 1'000'000'000);
  out.set_nanos(static_cast<int32_t>(duration.ns % 1'000'000'000));
}

int32_t clamped(int64_t number) {
  return static_cast<int32_t>(std::clamp<int64_t>(number, INT32_MIN, INT32_MAX));
}

/// The native message says the same in more words: its reader checks this one too. In proto3 a zero is "not
/// given".
Answer<SubmitRequest> read_submit_job(const ::scheduler::SubmitJobRequest& message,
                                      bool containers_possible) {
  v1::JobRequest native;
  v1::JobSpec& spec = *native.mutable_spec();
  spec.set_name(message.name());
  spec.mutable_command()->CopyFrom(message.command());
  spec.mutable_args()->CopyFrom(message.args());
  spec.set_script(message.script());
  spec.set_image(message.image());
  *spec.mutable_environment() = message.environment();
  *spec.mutable_labels() = message.labels();
  spec.set_gang_scheduling(message.gang_scheduling());
  spec.set_checkpoint_enabled(message.checkpoint_enabled());
  if (message.priority() != 0) native.set_priority(message.priority());
  v1::Resources& resources = *native.mutable_resources();
  resources.set_gpu_count(message.gpu_count());
  resources.set_gpu_memory_mb(message.gpu_memory_mb());
  if (message.memory_mb() != 0) resources.set_memory_mb(message.memory_mb());
  if (message.cpu_cores() < 0 || message.cpu_cores() > limits::kCpuCoresMax) {
    return invalid("cpu_cores", "cpu_cores must be from 0 to " + std::to_string(limits::kCpuCoresMax));
  }
  if (message.cpu_cores() != 0) resources.set_cpu_milli(message.cpu_cores() * 1'000);
  const google::protobuf::Duration& runtime = message.max_runtime();
  if (runtime.seconds() < 0 || runtime.nanos() < 0 || runtime.nanos() > 999'999'999 ||
      runtime.seconds() >= limits::kRuntimeMax.ns / 1'000'000'000) {
    return invalid("max_runtime", "max_runtime must be from 0 to one year");
  }
  native.set_max_runtime_ms(runtime.seconds() * 1'000 + runtime.nanos() / 1'000'000);
  if (message.tenant_id().size() > limits::kNameBytesMax)
    return invalid("tenant_id", "tenant_id is too long");
  Answer<JobRequest> job = read_job(native, containers_possible);
  if (!job) return job.error();
  SubmitRequest request{.tenant = message.tenant_id()};
  request.jobs.push_back(std::move(*job));
  return request;
}

void write_status(const JobView& job, ::scheduler::GetJobStatusResponse& out) {
  out.set_job_id(job_name(job.id));
  out.set_state(std::string(to_string(job.state)));
  out.set_message(job.message);
  for (const std::string& gpu : job.gpus) out.add_allocated_gpus(gpu);
  out.set_node_name(job.node_name);
  out.set_queue_position(clamped(job.queue_position));
  if (job.estimated_wait) write_duration(*job.estimated_wait, *out.mutable_estimated_wait());
  if (job.submitted_at.valid()) write_time(job.submitted_at, *out.mutable_submitted_at());
  if (job.started_at.valid()) write_time(job.started_at, *out.mutable_started_at());
  if (job.completed_at.valid()) write_time(job.completed_at, *out.mutable_completed_at());
  auto& metrics = *out.mutable_metrics();
  metrics["attempts"] = job.attempts;
  if (job.exit_code) metrics["exit_code"] = *job.exit_code;
  if (job.completed_at.valid() && job.started_at.valid()) {
    metrics["runtime_seconds"] = static_cast<double>((job.completed_at - job.started_at).ns) * 1e-9;
  }
}

void write_info(const JobView& job, ::scheduler::JobInfo& out) {
  out.set_job_id(job_name(job.id));
  out.set_name(job.name);
  out.set_state(std::string(to_string(job.state)));
  out.set_gpu_count(job.gpu_count);
  out.set_priority(job.priority);
  if (job.submitted_at.valid()) write_time(job.submitted_at, *out.mutable_submitted_at());
  if (job.started_at.valid()) write_time(job.started_at, *out.mutable_started_at());
}

void write_metrics(const MetricsView& view, const std::string& wanted, ::scheduler::GetMetricsResponse& out) {
  const auto put = [&](const std::string& name, double value) {
    if (wanted.empty() || name.find(wanted) != std::string::npos) (*out.mutable_metrics())[name] = value;
  };
  // Ended jobs are forgotten in time: of them all since the start are counted.
  for (const MetricsView::State& jobs : view.jobs)
    put("jobs_" + std::string(to_string(jobs.state)),
        static_cast<double>(is_final(jobs.state) ? jobs.total : jobs.now));
  put("queue_size", static_cast<double>(view.queue_size));
  put("preemptions", static_cast<double>(view.preemptions));
  put("scheduling_latency_count", static_cast<double>(view.latency_count));
  put("scheduling_latency_sum", view.latency_sum);
  double utilization = 0;
  for (const MetricsView::Gpu& gpu : view.gpus) {
    put("gpu_utilization." + gpu.gpu, gpu.utilization);
    utilization += gpu.utilization;
  }
  if (!view.gpus.empty()) put("gpu_utilization", utilization / static_cast<double>(view.gpus.size()));
  for (const MetricsView::Counter& counter : view.counters) {
    if (!counter.labels.empty()) continue;
    put(std::string(counter.name), static_cast<double>(counter.value));
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  write_time({std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()}, *out.mutable_timestamp());
}

void write_cluster_status(const ClusterView& cluster, const std::vector<NodeView>& nodes,
                          ::scheduler::GetClusterStatusResponse& out) {
  out.set_total_gpus(clamped(cluster.total_gpus));
  out.set_available_gpus(clamped(cluster.available_gpus));
  out.set_total_nodes(clamped(cluster.total_nodes));
  out.set_online_nodes(clamped(cluster.online_nodes));
  out.set_total_jobs(clamped(cluster.total_jobs));
  out.set_pending_jobs(clamped(cluster.pending_jobs));
  out.set_running_jobs(clamped(cluster.running_jobs));
  out.set_avg_gpu_utilization(cluster.average_gpu_utilization);
  for (const NodeView& node : nodes) {
    ::scheduler::NodeStatus& shown = *out.add_nodes();
    shown.set_node_id("node-" + std::to_string(node.id.value));
    shown.set_name(node.name);
    shown.set_total_gpus(static_cast<int32_t>(node.devices.size()));
    const bool online = node.contact == NodeState::kReady;
    const auto free = std::count_if(node.devices.begin(), node.devices.end(), [](const DeviceView& device) {
      return device.state == "free" && device.condition == "ok";
    });
    shown.set_available_gpus(online ? static_cast<int32_t>(free) : 0);
    shown.set_online(online);
    shown.set_cpu_utilization(node.cpu_utilization);
    shown.set_memory_utilization(node.memory_utilization);
  }
}

class JobsService final : public GrpcService {
 public:
  JobsService(Backend& backend, GrpcThread& thread, const Doorkeeper& doorkeeper)
      : GrpcService(::scheduler::SchedulerService::service_full_name()),
        backend_(backend),
        doorkeeper_(doorkeeper) {
    serve_unary(thread, *this, "SubmitJob", &JobsService::SubmitJob, 64);
    serve_unary(thread, *this, "CancelJob", &JobsService::CancelJob);
    serve_unary(thread, *this, "GetJobStatus", &JobsService::GetJobStatus);
    serve_unary(thread, *this, "ListJobs", &JobsService::ListJobs);
    serve_unary(thread, *this, "UpdateTenantQuota", &JobsService::UpdateTenantQuota);
    serve_unary(thread, *this, "GetMetrics", &JobsService::GetMetrics);
    serve_unary(thread, *this, "GetClusterStatus", &JobsService::GetClusterStatus);
  }

  void SubmitJob(const GrpcCall& incoming, const ::scheduler::SubmitJobRequest* request,
                 ::scheduler::SubmitJobResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      Answer<SubmitRequest> parsed = read_submit_job(*request, backend_.containers_possible());
      if (!parsed) return call.fail(parsed.error());
      parsed->by = requester_of(call.context());
      call.note().name_user(*parsed);
      const std::string_view trace = metadata_of(call.context(), "traceparent");
      call.note().name_call(metadata_of(call.context(), "x-request-id"), trace);
      trace_jobs(*parsed, trace, call.note());
      backend_.submit(caller, std::move(*parsed), [this, call, caller, response](Answer<Submitted> answer) {
        if (!answer) return call.fail(answer.error());
        response->set_job_id(job_name(answer->first_job));
        response->set_status("submitted");
        response->set_message("Job submitted successfully");
        response->set_queue_position(clamped(answer->queue_position));
        if (!pace_.take()) return call.finish_at_flush();
        // It is accepted, whether or not its wait can be looked up.
        backend_.get_job(caller, answer->first_job, {}, [call, response](const Answer<JobView>& job) {
          if (job && job->estimated_wait)
            write_duration(*job->estimated_wait, *response->mutable_estimated_wait());
          call.finish();
        });
      });
    });
  }

  void CancelJob(const GrpcCall& incoming, const ::scheduler::CancelJobRequest* request,
                 ::scheduler::CancelJobResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      const auto job = job_of(request->job_id(), call);
      if (!job) return;
      backend_.cancel(caller, *job, request->tenant_id(), requester_of(call.context()),
                      [call, response](Answer<Unit> answer) {
                        if (!answer) return call.fail(answer.error());
                        response->set_success(true);
                        response->set_message("Job cancelled successfully");
                        call.finish_at_flush();
                      });
    });
  }

  void GetJobStatus(const GrpcCall& incoming, const ::scheduler::GetJobStatusRequest* request,
                    ::scheduler::GetJobStatusResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      const auto job = job_of(request->job_id(), call);
      if (!job) return;
      backend_.get_job(caller, *job, request->tenant_id(), [call, response](Answer<JobView> answer) {
        if (!answer) return call.fail(answer.error());
        write_status(*answer, *response);
        call.finish();
      });
    });
  }

  void ListJobs(const GrpcCall& incoming, const ::scheduler::ListJobsRequest* request,
                ::scheduler::ListJobsResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      JobFilter filter{.tenant = request->tenant_id(), .offset = request->offset()};
      if (request->limit() < 0) return call.fail(invalid("limit", "limit must not be negative"));
      if (request->offset() < 0) return call.fail(invalid("offset", "offset must not be negative"));
      filter.limit = request->limit() == 0 ? kPageDefault : std::min<int64_t>(request->limit(), kPageMax);
      if (!request->state().empty()) {
        filter.state = parse_job_state(request->state());
        if (!filter.state) {
          return call.fail(
              invalid("state",
                      "state must be pending, scheduled, running, completed, failed, cancelled or "
                      "preempted"));
        }
      }
      backend_.list_jobs(caller, std::move(filter), [call, response](Answer<JobPage> page) {
        if (!page && page.error().kind == ErrorKind::kTenantNotFound) page = JobPage{.total = 0};
        if (!page) return call.fail(page.error());
        for (const JobView& job : page->jobs) write_info(job, *response->add_jobs());
        response->set_total(clamped(page->total.value_or(0)));
        call.finish();
      });
    });
  }

  void UpdateTenantQuota(const GrpcCall& incoming, const ::scheduler::UpdateTenantQuotaRequest* request,
                         ::scheduler::UpdateTenantQuotaResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      if (request->tenant_id().empty()) return call.fail(invalid("tenant_id", "tenant_id is missing"));
      TenantRequest update;
      const std::pair<std::string_view, int64_t> limits[] = {
          {"max_gpus", request->max_gpus()},
          {"max_gpu_memory_mb", request->max_gpu_memory_mb()},
          {"max_cpu_cores", request->max_cpu_cores()},
          {"max_memory_mb", request->max_memory_mb()},
          {"max_concurrent_jobs", request->max_concurrent_jobs()}};
      for (const auto& [name, limit] : limits) {  // In proto3 a zero is "not given".
        if (limit == 0) continue;
        if (const auto problem = set_whole(*find_tenant_row(name), limit, update)) return call.fail(*problem);
      }
      update.by = requester_of(call.context());
      backend_.update_tenant(caller, request->tenant_id(), std::move(update),
                             [call, response](Answer<TenantView> answer) {
                               if (!answer) return call.fail(answer.error());
                               response->set_success(true);
                               response->set_message("Tenant quota updated successfully");
                               call.finish();
                             });
    });
  }

  void GetMetrics(const GrpcCall& incoming, const ::scheduler::GetMetricsRequest* request,
                  ::scheduler::GetMetricsResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.get_metrics(caller,
                           [call, response, wanted = request->metric_type()](Answer<MetricsView> answer) {
                             if (!answer) return call.fail(answer.error());
                             write_metrics(*answer, wanted, *response);
                             call.finish();
                           });
    });
  }

  void GetClusterStatus(const GrpcCall& incoming, const ::scheduler::GetClusterStatusRequest*,
                        ::scheduler::GetClusterStatusResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.get_cluster(caller, [this, caller, call, response](Answer<ClusterView> cluster) {
        if (!cluster) return call.fail(cluster.error());
        backend_.list_nodes(caller, [call, response, cluster](Answer<std::vector<NodeView>> nodes) {
          if (!nodes) return call.fail(nodes.error());
          write_cluster_status(*cluster, *nodes, *response);
          call.finish();
        });
      });
    });
  }

 private:
  template <typename Work>
  void guarded(const GrpcCall& call, Work&& work) {
    const Answer<CallerPtr> caller = call.caller_of(doorkeeper_);
    if (!caller) return call.fail(caller.error());
    work(call, *caller);
  }

  /// The job's id; when it is none the call fails.
  static std::optional<JobId> job_of(const std::string& text, const GrpcCall& call) {
    if (text.empty()) {
      call.fail(invalid("job_id", "job_id is missing"));
      return std::nullopt;
    }
    const auto job = parse_job_id(text);
    if (!job) {
      call.fail({ErrorKind::kJobNotFound, "no such job: " + text.substr(0, 64) + "; ids look like job-12",
                 "job_id"});
    }
    return job;
  }

  Backend& backend_;
  const Doorkeeper& doorkeeper_;
  EstimatePace pace_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_jobs_service(Backend& backend, GrpcThread& thread,
                                                 const Doorkeeper& doorkeeper) {
  return std::make_unique<JobsService>(backend, thread, doorkeeper);
}

}  // namespace gpusched::api

#include "api/doors/native/native_grpc.h"

#include <algorithm>
#include <atomic>

#include "api/calls/trace_jobs.h"
#include "api/contract/names.h"
#include "api/contract/spec_peek.h"
#include "api/doors/native/keys/keys_grpc.h"
#include "api/doors/native/native_grpc_stream.h"
#include "api/doors/native/native_moves.h"
#include "api/doors/native/native_views.h"
#include "api/doors/pages.h"
#include "api/doors/session/log_relay.h"
#include "api/grpc/grpc_call.h"
#include "base/limits.h"
#include "gpusched/v1/scheduler.grpc.pb.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kDeviceDetailBytesMax = 1'024;

constexpr Duration kLogWait = seconds(10);

ApiError no_such_job(const std::string& text) {
  return {ErrorKind::kJobNotFound, "no such job: " + text.substr(0, 64) + "; ids look like job-12", "job_id"};
}

/// Reads an attempt's output piece by piece into a stream.
class LogStream : public std::enable_shared_from_this<LogStream> {
 public:
  LogStream(Backend& backend, CallerPtr caller, std::shared_ptr<GrpcWriter<v1::JobLogChunk>> writer,
            LogRequest request, bool follow)
      : backend_(backend),
        caller_(std::move(caller)),
        request_(std::move(request)),
        follow_(follow),
        writer_(std::move(writer)) {
    request_.wait = follow ? kLogWait : Duration{};
  }

  void begin() {
    writer_->on_gone([self = shared_from_this()] { self->gone_ = true; });
    read();
  }

 private:
  void read() {
    if (gone_) return;
    backend_.read_log(caller_, request_, [self = shared_from_this()](Answer<LogPiece> piece) {
      if (self->gone_) return;
      if (!piece) return self->writer_->fail(piece.error());
      self->send(std::move(*piece));
    });
  }

  void send(LogPiece piece) {
    skipped_ += piece.skipped;
    const bool over = is_end(piece, follow_);
    request_.go_on(piece);
    if (piece.data.empty()) return over ? writer_->end() : read();
    v1::JobLogChunk chunk;
    chunk.set_offset(piece.offset);
    chunk.set_next_offset(piece.next_offset);
    chunk.set_attempt(piece.attempt);
    chunk.set_skipped(std::exchange(skipped_, 0));
    chunk.set_data(std::move(piece.data));
    writer_->write(std::move(chunk), [self = shared_from_this(), over](bool alive) {
      if (!alive) return;
      if (over) return self->writer_->end();
      self->read();
    });
  }

  Backend& backend_;
  const CallerPtr caller_;
  LogRequest request_;
  const bool follow_;
  int64_t skipped_ = 0;
  std::atomic<bool> gone_{false};
  const std::shared_ptr<GrpcWriter<v1::JobLogChunk>> writer_;
};

/// The answers of several cancels, in their order.
struct CancelBatch {
  GrpcCall call;
  v1::CancelJobsResponse* response;
  BatchNote note;
  std::atomic<int> left;
  void done() {
    if (left.fetch_sub(1) != 1) return;
    note.tell([this](std::size_t i) { return response->results(static_cast<int>(i)).job_id(); });
    call.finish();
  }
};

class NativeService final : public KeysService {
 public:
  NativeService(Backend& backend, GrpcThread& thread, const Doorkeeper& doorkeeper, RunLater run_later)
      : KeysService(v1::Scheduler::service_full_name(), backend, thread, doorkeeper),
        run_later_(std::move(run_later)) {
    serve_unary(thread, *this, "SubmitJobs", &NativeService::SubmitJobs, 64);
    serve_unary(thread, *this, "CancelJobs", &NativeService::CancelJobs);
    serve_unary(thread, *this, "GetJob", &NativeService::GetJob);
    serve_unary(thread, *this, "ListJobs", &NativeService::ListJobs);
    serve_unary(thread, *this, "ExplainJob", &NativeService::ExplainJob);
    serve_unary(thread, *this, "GetJobHistory", &NativeService::GetJobHistory);
    serve_unary(thread, *this, "PlanJob", &NativeService::PlanJob);
    serve_unary(thread, *this, "UpdateJob", &NativeService::UpdateJob);
    serve_unary(thread, *this, "HoldJob", &NativeService::HoldJob);
    serve_unary(thread, *this, "ReleaseJob", &NativeService::ReleaseJob);
    serve_unary(thread, *this, "RequeueJob", &NativeService::RequeueJob);
    serve_unary(thread, *this, "CreateTenant", &NativeService::CreateTenant);
    serve_unary(thread, *this, "UpdateTenant", &NativeService::UpdateTenant);
    serve_unary(thread, *this, "DeleteTenant", &NativeService::DeleteTenant);
    serve_unary(thread, *this, "CreateReservation", &NativeService::CreateReservation);
    serve_unary(thread, *this, "ListReservations", &NativeService::ListReservations);
    serve_unary(thread, *this, "CancelReservation", &NativeService::CancelReservation);
    serve_unary(thread, *this, "GetTenant", &NativeService::GetTenant);
    serve_unary(thread, *this, "ListTenants", &NativeService::ListTenants);
    serve_unary(thread, *this, "ListNodes", &NativeService::ListNodes);
    serve_unary(thread, *this, "ConfirmNodeDead", &NativeService::ConfirmNodeDead);
    serve_unary(thread, *this, "RemoveNode", &NativeService::RemoveNode);
    serve_unary(thread, *this, "DrainNode", &NativeService::DrainNode);
    serve_unary(thread, *this, "ResumeNode", &NativeService::ResumeNode);
    serve_unary(thread, *this, "RebootNode", &NativeService::RebootNode);
    serve_unary(thread, *this, "LabelNode", &NativeService::LabelNode);
    serve_unary(thread, *this, "SetDeviceCondition", &NativeService::SetDeviceCondition);
    serve_unary(thread, *this, "GetQuality", &NativeService::GetQuality);
    serve_unary(thread, *this, "GetMoves", &NativeService::GetMoves);
    serve_unary(thread, *this, "ApplyMoves", &NativeService::ApplyMoves);
    serve_unary(thread, *this, "GetCluster", &NativeService::GetCluster);
    serve_unary(thread, *this, "PauseStarts", &NativeService::PauseStarts);
    serve_unary(thread, *this, "ResumeStarts", &NativeService::ResumeStarts);
    serve_stream(thread, *this, "WatchJob", &NativeService::WatchJob);
    serve_stream(thread, *this, "Watch", &NativeService::Watch);
    serve_stream(thread, *this, "ReadLog", &NativeService::ReadLog);
    serve_bidi<v1::SubmitJobsRequest, v1::SubmitJobsResponse>(thread, *this, "SubmitJobStream",
                                                              &NativeService::SubmitJobStream);
  }

  void SubmitJobs(const GrpcCall& incoming, const v1::SubmitJobsRequest* request,
                  v1::SubmitJobsResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      Answer<SubmitRequest> parsed = read_submit(*request, backend_.containers_possible());
      if (!parsed) return call.fail(parsed.error());
      parsed->by = requester_of(call.context());
      call.note().name_user(*parsed);
      const std::string_view trace = metadata_of(call.context(), "traceparent");
      call.note().name_call(metadata_of(call.context(), "x-request-id"), trace);
      trace_jobs(*parsed, trace, call.note());
      backend_.submit(caller, std::move(*parsed), [call, response](Answer<Submitted> answer) {
        if (!answer) return call.fail(answer.error());
        for (const JobId job : answer->jobs()) {
          response->add_job_ids(job_name(job));
        }
        call.finish_at_flush();
      });
    });
  }

  void SubmitJobStream(std::unique_ptr<SubmitStreamCall> call) {
    serve_submit_stream(backend_, doorkeeper_, method_row("SubmitJobStream"), std::move(call));
  }

  void CancelJobs(const GrpcCall& incoming, const v1::CancelJobsRequest* request,
                  v1::CancelJobsResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      const int count = request->job_ids_size();
      if (count > static_cast<int>(limits::kBatchJobsMax)) {
        return call.fail({ErrorKind::kInvalidArgument,
                          "job_ids has more than 1000 entries; send several batches", "job_ids"});
      }
      for (const std::string& id : request->job_ids()) response->add_results()->set_job_id(id);
      BatchNote noted(call.take_note(), static_cast<std::size_t>(count));
      const auto batch = std::make_shared<CancelBatch>(call, response, std::move(noted), count + 1);
      for (int i = 0; i < count; ++i) {
        v1::CancelJobsResponse::Result* result = response->mutable_results(i);
        const auto note = [result, batch, i](const ApiError& error) {
          batch->note.refused(static_cast<std::size_t>(i), error);
          result->set_code(std::string(row_of(error.kind).code));
          result->set_message(error.message);
        };
        const auto job = parse_job_id(request->job_ids(i));
        if (!job) {
          note(no_such_job(request->job_ids(i)));
          batch->done();
          continue;
        }
        backend_.cancel(caller, *job, request->tenant_id(), requester_of(call.context()),
                        [batch, note](Answer<Unit> answer) {
                          if (!answer) note(answer.error());
                          batch->done();
                        });
      }
      batch->done();
    });
  }

  void GetJob(const GrpcCall& incoming, const v1::GetJobRequest* request, v1::Job* response) {
    with_job(incoming, request, [&](const GrpcCall& call, const CallerPtr& caller, JobId job) {
      backend_.get_job(caller, job, request->tenant_id(), answer_with<JobView>(call, response, write_job));
    });
  }

  void ListJobs(const GrpcCall& incoming, const v1::ListJobsRequest* request,
                v1::ListJobsResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      Answer<JobFilter> wanted = read_jobs_wanted(*request);
      if (!wanted) return call.fail(wanted.error());
      JobFilter filter = std::move(*wanted);
      if (request->page_size() < 0) {
        return call.fail({ErrorKind::kInvalidArgument, "page_size must not be negative", "page_size"});
      }
      filter.limit =
          request->page_size() == 0 ? kPageDefault : std::min<int64_t>(request->page_size(), kPageMax);
      if (!request->page_token().empty()) {
        const auto before = parse_job_id(request->page_token());
        if (!before) {
          return call.fail(
              {ErrorKind::kInvalidArgument, "page_token is none that was given out", "page_token"});
        }
        filter.before = *before;
      }
      backend_.list_jobs(caller, std::move(filter), [call, response](Answer<JobPage> page) {
        if (!page) return call.fail(page.error());
        for (const JobView& job : page->jobs) write_job(job, *response->add_jobs());
        if (page->total) response->set_total(*page->total);
        if (page->next.valid()) response->set_next_page_token(job_name(page->next));
        call.finish();
      });
    });
  }

  void Watch(const std::shared_ptr<WatchWriter>& writer, const v1::WatchRequest& request) {
    const Answer<CallerPtr> caller = writer->caller_of(doorkeeper_);
    if (!caller) return writer->fail(caller.error());
    serve_watch(backend_, run_later_, *caller, writer, request);
  }

  void WatchJob(const std::shared_ptr<GrpcWriter<v1::Job>>& writer, const v1::GetJobRequest& request) {
    const Answer<CallerPtr> caller = writer->caller_of(doorkeeper_);
    if (!caller) return writer->fail(caller.error());
    const auto job = parse_job_id(request.job_id());
    if (!job) return writer->fail(no_such_job(request.job_id()));
    // The token is dropped on the thread that this runs on too.
    const auto watch = std::make_shared<std::shared_ptr<void>>();
    writer->on_gone([watch] { watch->reset(); });
    // The callback holds the call weakly: the backend may drop it later than the call ends.
    const auto changed = [weak = std::weak_ptr(writer)](Answer<JobView> answer) {
      const auto open = weak.lock();
      if (open == nullptr) return;
      if (!answer) return open->fail(answer.error());
      v1::Job message;
      write_job(*answer, message);
      open->write(std::move(message));
      if (is_final(answer->state)) open->end();
    };
    *watch = backend_.watch_job(*caller, *job, request.tenant_id(), changed);
  }

  void GetJobHistory(const GrpcCall& incoming, const v1::GetJobRequest* request, v1::JobHistory* response) {
    with_job(incoming, request, [&](const GrpcCall& call, const CallerPtr& caller, JobId job) {
      backend_.get_history(caller, job, request->tenant_id(),
                           answer_with<HistoryView>(call, response, write_history));
    });
  }

  void ExplainJob(const GrpcCall& incoming, const v1::GetJobRequest* request, v1::Explanation* response) {
    with_job(incoming, request, [&](const GrpcCall& call, const CallerPtr& caller, JobId job) {
      backend_.explain_job(caller, job, request->tenant_id(),
                           answer_with<ExplainView>(call, response, write_explanation));
    });
  }

  void PlanJob(const GrpcCall& incoming, const v1::SubmitJobsRequest* request, v1::PlanResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      Answer<SubmitRequest> parsed = read_submit(*request, backend_.containers_possible());
      if (!parsed) return call.fail(parsed.error());
      backend_.plan(caller, std::move(*parsed), answer_with<PlanView>(call, response, write_plan));
    });
  }

  void UpdateJob(const GrpcCall& incoming, const v1::UpdateJobRequest* request, v1::Job* response) {
    with_job(incoming, request, [&](const GrpcCall& call, const CallerPtr& caller, JobId job) {
      Answer<JobUpdate> update = read_update(*request);
      if (!update) return call.fail(update.error());
      update->by = requester_of(call.context());
      backend_.update_job(caller, job, request->tenant_id(), std::move(*update),
                          answer_with<JobView>(call, response, write_job));
    });
  }

  void HoldJob(const GrpcCall& incoming, const v1::GetJobRequest* request, v1::Job* response) {
    with_job(incoming, request, [&](const GrpcCall& call, const CallerPtr& caller, JobId job) {
      backend_.hold_job(caller, job, request->tenant_id(), true, requester_of(call.context()),
                        answer_with<JobView>(call, response, write_job));
    });
  }

  void ReleaseJob(const GrpcCall& incoming, const v1::GetJobRequest* request, v1::Job* response) {
    with_job(incoming, request, [&](const GrpcCall& call, const CallerPtr& caller, JobId job) {
      backend_.hold_job(caller, job, request->tenant_id(), false, requester_of(call.context()),
                        answer_with<JobView>(call, response, write_job));
    });
  }

  void RequeueJob(const GrpcCall& incoming, const v1::GetJobRequest* request, v1::Job* response) {
    with_job(incoming, request, [&](const GrpcCall& call, const CallerPtr& caller, JobId job) {
      backend_.requeue_job(caller, job, request->tenant_id(), requester_of(call.context()),
                           answer_with<JobView>(call, response, write_job));
    });
  }

  void ReadLog(const std::shared_ptr<GrpcWriter<v1::JobLogChunk>>& writer,
               const v1::ReadJobLogRequest& request) {
    const Answer<CallerPtr> caller = writer->caller_of(doorkeeper_);
    if (!caller) return writer->fail(caller.error());
    const auto job = parse_job_id(request.job_id());
    if (!job) return writer->fail(no_such_job(request.job_id()));
    if (request.since().seconds() < 0 || request.since().seconds() > kTimeMaxSeconds) {
      return writer->fail({ErrorKind::kInvalidArgument, "since is out of range", "since"});
    }
    LogRequest wanted{.job = *job,
                      .tenant = request.tenant_id(),
                      .attempt = request.attempt(),
                      .member = request.member(),
                      .from_stderr = request.stderr(),
                      .offset = request.offset(),
                      .tail_lines = request.tail_lines(),
                      .since = Time{request.since().seconds() * 1'000'000'000 + request.since().nanos()},
                      .grep = request.grep(),
                      .timestamps = request.timestamps()};
    if (const auto problem = check_log_request(wanted)) return writer->fail(*problem);
    std::make_shared<LogStream>(backend_, *caller, writer, std::move(wanted), request.follow())->begin();
  }

  void CreateTenant(const GrpcCall& incoming, const v1::Tenant* request, v1::Tenant* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      Answer<TenantRequest> parsed = read_tenant(*request, true);
      if (!parsed) return call.fail(parsed.error());
      parsed->by = requester_of(call.context());
      backend_.create_tenant(caller, std::move(*parsed),
                             answer_with<TenantView>(call, response, write_tenant));
    });
  }

  void UpdateTenant(const GrpcCall& incoming, const v1::UpdateTenantRequest* request, v1::Tenant* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      Answer<TenantRequest> parsed = read_tenant(request->tenant(), false);
      if (!parsed) return call.fail(parsed.error());
      for (const std::string& name : request->unlimited()) {
        const TenantRow* const row = find_tenant_row(name);
        if (row == nullptr || !row->is_limit) {
          return call.fail({ErrorKind::kInvalidArgument,
                            "unlimited has a name that is not a limit: " + name.substr(0, 64), "unlimited"});
        }
        parsed->unlimited.push_back(name);
      }
      parsed->by = requester_of(call.context());
      backend_.update_tenant(caller, request->tenant().tenant_id(), std::move(*parsed),
                             answer_with<TenantView>(call, response, write_tenant));
    });
  }

  void DeleteTenant(const GrpcCall& incoming, const v1::TenantRequest* request, v1::DeleteTenantResponse*) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.delete_tenant(caller, request->tenant_id(), requester_of(call.context()),
                             [call](Answer<Unit> answer) {
                               if (!answer) return call.fail(answer.error());
                               call.finish();
                             });
    });
  }

  void GetTenant(const GrpcCall& incoming, const v1::TenantRequest* request, v1::Tenant* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.get_tenant(caller, request->tenant_id(),
                          answer_with<TenantView>(call, response, write_tenant));
    });
  }

  void ListTenants(const GrpcCall& incoming, const v1::ListTenantsRequest* request,
                   v1::ListTenantsResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      const auto size = static_cast<int>(
          request->page_size() <= 0 ? kPageDefault : std::min<int64_t>(request->page_size(), kPageMax));
      const auto after = parse_count(request->page_token().empty() ? "0" : request->page_token(), INT64_MAX);
      if (!after) {
        return call.fail(
            {ErrorKind::kInvalidArgument, "page_token is none that was given out", "page_token"});
      }
      backend_.list_tenants(caller, [call, response, size, after](Answer<std::vector<TenantView>> answer) {
        if (!answer) return call.fail(answer.error());
        write_tenant_page(*answer, *after, size, *response);
        call.finish();
      });
    });
  }

  void ListNodes(const GrpcCall& incoming, const v1::ListNodesRequest*, v1::ListNodesResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.list_nodes(caller, [call, response](Answer<std::vector<NodeView>> answer) {
        if (!answer) return call.fail(answer.error());
        for (const NodeView& node : *answer) write_node(node, *response->add_nodes());
        call.finish();
      });
    });
  }

  void ConfirmNodeDead(const GrpcCall& incoming, const v1::NodeRequest* request, v1::Node* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.confirm_dead(caller, request->node_name(), requester_of(call.context()),
                            answer_with<NodeView>(call, response, write_node));
    });
  }

  void RemoveNode(const GrpcCall& incoming, const v1::NodeRequest* request, v1::RemoveNodeResponse*) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.remove_node(caller, request->node_name(), requester_of(call.context()),
                           [call](Answer<Unit> answer) {
                             if (!answer) return call.fail(answer.error());
                             call.finish();
                           });
    });
  }

  void DrainNode(const GrpcCall& incoming, const v1::DrainNodeRequest* request, v1::Node* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      if (auto problem = check_drain(*request)) return call.fail(*problem);
      const std::string by = request->by().empty() ? "operator" : request->by();
      backend_.drain_node(caller, request->node_name(), by, request->reason(),
                          answer_with<NodeView>(call, response, write_node));
    });
  }

  void ResumeNode(const GrpcCall& incoming, const v1::NodeRequest* request, v1::Node* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.resume_node(caller, request->node_name(), "operator",
                           answer_with<NodeView>(call, response, write_node));
    });
  }

  void RebootNode(const GrpcCall& incoming, const v1::DrainNodeRequest* request, v1::Node* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      if (auto problem = check_drain(*request)) return call.fail(*problem);
      backend_.reboot_node(caller, request->node_name(), request->reason(),
                           answer_with<NodeView>(call, response, write_node));
    });
  }

  void CreateReservation(const GrpcCall& incoming, const v1::Reservation* request,
                         v1::Reservation* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      Answer<ReservationRequest> parsed = read_reservation(*request);
      if (!parsed) return call.fail(parsed.error());
      backend_.make_reservation(caller, std::move(*parsed),
                                answer_with<ReservationView>(call, response, write_reservation));
    });
  }

  void ListReservations(const GrpcCall& incoming, const v1::ListReservationsRequest*,
                        v1::ListReservationsResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.list_reservations(caller, [call, response](Answer<std::vector<ReservationView>> answer) {
        if (!answer) return call.fail(answer.error());
        for (const ReservationView& one : *answer) write_reservation(one, *response->add_reservations());
        call.finish();
      });
    });
  }

  void CancelReservation(const GrpcCall& incoming, const v1::ReservationRequest* request,
                         v1::CancelReservationResponse*) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.cancel_reservation(caller, request->reservation(), [call](Answer<Unit> answer) {
        if (!answer) return call.fail(answer.error());
        call.finish();
      });
    });
  }

  void LabelNode(const GrpcCall& incoming, const v1::LabelNodeRequest* request, v1::Node* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      Answer<LabelChange> change = read_labels(*request);
      if (!change) return call.fail(change.error());
      backend_.label_node(caller, request->node_name(), std::move(change->set), std::move(change->remove),
                          answer_with<NodeView>(call, response, write_node));
    });
  }

  void SetDeviceCondition(const GrpcCall& incoming, const v1::SetDeviceConditionRequest* request,
                          v1::Node* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      DeviceCondition condition = DeviceCondition::kOk;
      if (request->condition() == v1::DEVICE_CONDITION_UNHEALTHY) {
        condition = DeviceCondition::kUnhealthy;
      } else if (request->condition() != v1::DEVICE_CONDITION_OK) {
        return call.fail({ErrorKind::kInvalidArgument, "condition must be OK or UNHEALTHY", "condition"});
      }
      if (request->detail().size() > kDeviceDetailBytesMax || request->by().size() > limits::kNameBytesMax) {
        return call.fail({ErrorKind::kInvalidArgument, "by or detail is too long; shorten it", "detail"});
      }
      const std::string by = request->by().empty() ? "operator" : request->by();
      backend_.set_condition(caller, request->node_name(), request->index(), condition, request->detail(), by,
                             answer_with<NodeView>(call, response, write_node));
    });
  }

  void GetQuality(const GrpcCall& incoming, const v1::GetQualityRequest* request, v1::Quality* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.get_quality(caller, request->tenant_id(),
                           answer_with<QualityView>(call, response, write_quality));
    });
  }

  void GetMoves(const GrpcCall& incoming, const v1::GetMovesRequest* request, v1::Moves* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      MovesRequest wanted{.tenant = request->tenant_id(), .moves_max = request->moves_max()};
      if (const auto problem = read_moves(request->job_id(), wanted)) return call.fail(*problem);
      backend_.get_moves(caller, std::move(wanted), answer_with<MovesView>(call, response, write_moves));
    });
  }

  void ApplyMoves(const GrpcCall& incoming, const v1::ApplyMovesRequest* request,
                  v1::MoveProposal* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      auto wanted = read_apply(*request);
      if (!wanted) return call.fail(wanted.error());
      backend_.apply_moves(caller, std::move(*wanted),
                           answer_with<MoveProposalView>(call, response, write_move_proposal));
    });
  }

  void PauseStarts(const GrpcCall& incoming, const v1::PauseStartsRequest* request, v1::Cluster* response) {
    set_pause(incoming, true, request, response);
  }
  void ResumeStarts(const GrpcCall& incoming, const v1::PauseStartsRequest* request, v1::Cluster* response) {
    set_pause(incoming, false, request, response);
  }
  void set_pause(const GrpcCall& incoming, bool paused, const v1::PauseStartsRequest* request,
                 v1::Cluster* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      if (auto problem = check_pause(*request)) return call.fail(*problem);
      const std::string by = request->by().empty() ? requester_of(call.context()) : request->by();
      backend_.pause_starts(caller, paused, by, request->reason(),
                            answer_with<ClusterView>(call, response, write_cluster));
    });
  }

  void GetCluster(const GrpcCall& incoming, const v1::GetClusterRequest*, v1::Cluster* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.get_cluster(caller, answer_with<ClusterView>(call, response, write_cluster));
    });
  }

 private:
  /// Lets a call about one job do its work when its credential is right.
  template <typename Request, typename Work>
  void with_job(const GrpcCall& incoming, const Request* request, Work&& work) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      const auto job = parse_job_id(request->job_id());
      if (!job) return call.fail(no_such_job(request->job_id()));
      work(call, caller, *job);
    });
  }

  /// Writes a good answer into the response.
  template <typename View, typename Message>
  static Done<View> answer_with(const GrpcCall& call, Message* response,
                                void (*write)(const View&, Message&)) {
    return [call, response, write](Answer<View> answer) {
      if (!answer) return call.fail(answer.error());
      write(*answer, *response);
      call.finish();
    };
  }

  const RunLater run_later_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_native_service(Backend& backend, GrpcThread& thread,
                                                   const Doorkeeper& doorkeeper, RunLater run_later) {
  return std::make_unique<NativeService>(backend, thread, doorkeeper, std::move(run_later));
}

}  // namespace gpusched::api

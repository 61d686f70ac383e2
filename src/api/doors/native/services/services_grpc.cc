#include "api/doors/native/services/services_grpc.h"

#include <string>
#include <utility>
#include <vector>

#include "api/doors/native/services/service_messages.h"
#include "api/fields/checks.h"
#include "api/grpc/call_metadata.h"
#include "api/grpc/grpc_call.h"
#include "gpusched/v1/services.grpc.pb.h"

namespace gpusched::api {
namespace {

class ServicesService final : public GrpcService {
 public:
  ServicesService(Backend& backend, GrpcThread& thread, const Doorkeeper& doorkeeper)
      : GrpcService(v1::Services::service_full_name()), backend_(backend), doorkeeper_(doorkeeper) {
    serve_unary(thread, *this, "CreateService", &ServicesService::CreateService);
    serve_unary(thread, *this, "ListServices", &ServicesService::ListServices);
    serve_unary(thread, *this, "GetService", &ServicesService::GetService);
    serve_unary(thread, *this, "ScaleService", &ServicesService::ScaleService);
    serve_unary(thread, *this, "RollOutService", &ServicesService::RollOutService);
    serve_unary(thread, *this, "DeleteService", &ServicesService::DeleteService);
  }

  void CreateService(const GrpcCall& incoming, const v1::CreateServiceRequest* request,
                     v1::Service* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      submit(call, caller, read_creation(*request, backend_.containers_possible()), response);
    });
  }

  void ListServices(const GrpcCall& incoming, const v1::ListServicesRequest* request,
                    v1::ListServicesResponse* response) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.list_services(caller, request->tenant_id(),
                             answer_with<std::vector<ServiceView>>(call, response, write_services));
    });
  }

  void GetService(const GrpcCall& incoming, const v1::ServiceRequest* request, v1::Service* response) {
    with_service(incoming, request, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.get_service(caller, request->service(), request->tenant_id(),
                           answer_with<ServiceView>(call, response, write_service));
    });
  }

  void ScaleService(const GrpcCall& incoming, const v1::ScaleServiceRequest* request, v1::Service* response) {
    with_service(incoming, request, [&](const GrpcCall& call, const CallerPtr& caller) {
      apply_scale(backend_, caller, *request, requester_of(call.context()),
                  answer_with<ServiceView>(call, response, write_service));
    });
  }

  void RollOutService(const GrpcCall& incoming, const v1::RollOutServiceRequest* request,
                      v1::Service* response) {
    with_service(incoming, request, [&](const GrpcCall& call, const CallerPtr& caller) {
      submit(call, caller, read_rollout(*request, backend_.containers_possible()), response);
    });
  }

  void DeleteService(const GrpcCall& incoming, const v1::ServiceRequest* request, v1::Service* response) {
    with_service(incoming, request, [&](const GrpcCall& call, const CallerPtr& caller) {
      backend_.delete_service(caller, request->service(), request->tenant_id(), requester_of(call.context()),
                              answer_with<ServiceView>(call, response, write_service));
    });
  }

 private:
  /// Lets the call do its work when its credential is right.
  template <typename Work>
  void guarded(const GrpcCall& call, Work&& work) {
    const Answer<CallerPtr> caller = call.caller_of(doorkeeper_);
    if (!caller) return call.fail(caller.error());
    work(call, *caller);
  }

  /// The same of a call about one service, which must name it.
  template <typename Request, typename Work>
  void with_service(const GrpcCall& incoming, const Request* request, Work&& work) {
    guarded(incoming, [&](const GrpcCall& call, const CallerPtr& caller) {
      if (request->service().empty())
        return call.fail(invalid("service", "service is missing; give the name of one"));
      work(call, caller);
    });
  }

  /// Submits the record of a service, as the caller.
  void submit(const GrpcCall& call, const CallerPtr& caller, Answer<SubmitRequest> record,
              v1::Service* response) {
    if (!record) return call.fail(record.error());
    record->by = requester_of(call.context());
    call.note().name_user(*record);
    submit_record(backend_, caller, std::move(*record),
                  answer_with<ServiceView>(call, response, write_service));
  }

  /// Writes a good answer into the response.
  template <typename View, typename Message>
  static Done<View> answer_with(const GrpcCall& call, Message* response,
                                void (*write)(const View&, Message&)) {
    return [call, response, write](const Answer<View>& answer) {
      if (!answer) return call.fail(answer.error());
      write(*answer, *response);
      call.finish();
    };
  }

  Backend& backend_;
  const Doorkeeper& doorkeeper_;
};

}  // namespace

std::unique_ptr<grpc::Service> make_services_service(Backend& backend, GrpcThread& thread,
                                                     const Doorkeeper& doorkeeper) {
  return std::make_unique<ServicesService>(backend, thread, doorkeeper);
}

}  // namespace gpusched::api

#include "api/doors/allocation/lease_list.h"

#include <memory>
#include <utility>
#include <vector>

#include "api/doors/pages.h"
#include "base/job_labels.h"

namespace gpusched::api {
namespace {

/// One list in the making. Status and health are found record by record, so that pages are asked for until
/// there are as many as are wanted.
class LeaseList : public std::enable_shared_from_this<LeaseList> {
 public:
  LeaseList(Backend& backend, RestCallPtr call, LeaseListRequest request, DeviceTable devices,
            std::function<LeaseScene(JobId, const DeviceTable&)> scene_of)
      : backend_(backend),
        call_(std::move(call)),
        request_(std::move(request)),
        devices_(std::move(devices)),
        scene_of_(std::move(scene_of)) {}

  void next(JobId before) {
    JobFilter filter;
    filter.limit = kPageMax;
    filter.before = before;
    filter.labels = {{std::string(kLeaseLabel), std::nullopt}};
    filter.details = {.name = false, .message = true, .place = false, .gpus = true};
    backend_.list_jobs(call_->caller(), std::move(filter),
                       [self = shared_from_this()](Answer<JobPage> page) { self->take(page); });
  }

 private:
  void take(const Answer<JobPage>& page) {
    if (!page) return call_->fail(page.error());
    for (const JobView& job : page->jobs) {
      if (is_full()) break;
      if (!request_.status.empty() && lease_status(job, devices_) != request_.status) continue;
      if (!request_.health.empty() && lease_health(job, devices_) != request_.health) continue;
      if (skipped_ < request_.skip) {
        skipped_ += 1;
        continue;
      }
      records_.push_back(lease_json(job, scene_of_(job.id, devices_)));
    }
    if (page->next.valid() && !is_full()) return next(page->next);
    call_->send(200, list_json(records_));
  }
  bool is_full() const { return static_cast<int64_t>(records_.size()) >= request_.limit; }

  Backend& backend_;
  const RestCallPtr call_;
  const LeaseListRequest request_;
  const DeviceTable devices_;
  const std::function<LeaseScene(JobId, const DeviceTable&)> scene_of_;
  int64_t skipped_ = 0;
  std::vector<std::string> records_;
};

}  // namespace

void list_leases(Backend& backend, const RestCallPtr& call, LeaseListRequest request, DeviceTable devices,
                 std::function<LeaseScene(JobId, const DeviceTable&)> scene_of) {
  std::make_shared<LeaseList>(backend, call, std::move(request), std::move(devices), std::move(scene_of))
      ->next(JobId{});
}

}  // namespace gpusched::api

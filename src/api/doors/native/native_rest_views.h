#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "api/contract/backend.h"
#include "api/contract/json_writer.h"

/// Jobs as the native API's JSON, written straight from what the backend shows: lists of ten thousand are
/// usual. What comes out is what write_native_json makes of the message (a test compares them).
namespace gpusched::api {

/// Which fields of gpusched.v1.Job are written: a bit for each field's number, also of the messages in it.
struct JobMask {
  uint64_t job = ~uint64_t{0};
  uint64_t spec = ~uint64_t{0};
  uint64_t resources = ~uint64_t{0};
  uint64_t retry = ~uint64_t{0};

  bool all() const;
  /// What the backend has to find out for it.
  JobDetails details() const;
};

/// "job_id,state,spec.name": empty means all.
Answer<JobMask> parse_job_mask(std::string_view fields);

void write_native_job(const JobView& job, const JobMask& mask, JsonWriter& json);
std::string native_job_json(const JobView& job, const JobMask& mask = {});
/// A ListJobsResponse.
std::string native_job_page_json(const JobPage& page, const JobMask& mask);

}  // namespace gpusched::api

#pragma once

#include <bitset>
#include <string>
#include <string_view>

#include "api/contract/jobs.h"
#include "api/contract/json_writer.h"

/// Jobs as the native API's JSON, written straight from what the backend shows: lists of ten thousand are
/// usual. The text is the same as write_native_json makes of the message (a test compares them).
namespace gpusched::api {

inline constexpr std::size_t kJobRowsMax = 128;

/// The fields of gpusched.v1.Job that are written: a bit for each row of the table of its fields.
struct JobMask {
  std::bitset<kJobRowsMax> rows = ~std::bitset<kJobRowsMax>();
  std::bitset<kJobRowsMax> spec = ~std::bitset<kJobRowsMax>();  ///< Fields of its spec, by job_rows().

  bool all() const { return rows.all() && spec.all(); }
  /// Details that the backend has to find out for it.
  JobDetails details() const;
};

/// "job_id,state,spec.name": empty means all.
Answer<JobMask> parse_job_mask(std::string_view fields);

void write_native_job(const JobView& job, const JobMask& mask, JsonWriter& json);
std::string native_job_json(const JobView& job, const JobMask& mask = {});
/// A ListJobsResponse.
std::string native_job_page_json(const JobPage& page, const JobMask& mask);

}  // namespace gpusched::api

#pragma once

#include <string>

#include "base/result.h"
#include "replay/trace/trace_job.h"

namespace gpusched::replay {

/// Reads a file in the Standard Workload Format (Chapin et al. 1999; version 2.2), plain or gzip: comments
/// after
/// `;`, then 18 numbers a line, times in seconds, -1 for "not known". Read are job (1), submit (2), run time
/// (4), processors allocated (5) and requested (8; where unknown the allocated ones), requested time (9),
/// user (12), group (13), executable (14) and queue (15); of the header MaxProcs and UnixStartTime. Jobs that
/// never ran or held no processor are counted in `skipped`.
///
/// Errors: kNotFound, kIo; kCorrupt for a line that is none of these (too few or too many fields, no number,
/// a submission before the one above it, a number out of range), with its number.
Result<Trace> read_swf(const std::string& path);

}  // namespace gpusched::replay

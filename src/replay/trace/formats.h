#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "replay/trace/trace_job.h"

namespace gpusched::replay {

/// A format of traces that can be read.
struct Format {
  std::string_view name;
  std::string_view header;  ///< Its first line, or what stands in for one.
  std::string_view units;   ///< Meaning of the columns, for people.
  Result<Trace> (*read)(const std::string& path);
};

/// All of them, in the order of their help.
std::span<const Format> formats();

/// Reads a file of the named format, plain or gzip. Jobs come in the order of their submission, and the first
/// is submitted at the trace's own zero. kInvalidArgument: no such format, with those there are; kNotFound,
/// kIo; kCorrupt: a line is broken, with its number and what is wrong with it.
Result<Trace> read_trace(std::string_view format, const std::string& path);

}  // namespace gpusched::replay

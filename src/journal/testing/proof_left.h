#pragma once

#include <cstdint>
#include <string>

#include "journal/disk/memory_disk.h"

namespace gpusched {

/// How far the journal in `dir` went, by what a start would read: the last record that any whole record,
/// wherever it stands, any header or any mark says was durable. A disk that lies may have taken the others
/// without a trace; a start that ends before this one has overlooked something.
uint64_t proof_left(const MemoryDisk& disk, const std::string& dir, uint64_t store_id);

}  // namespace gpusched

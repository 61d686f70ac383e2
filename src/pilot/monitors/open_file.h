#pragma once

#include <functional>
#include <string>

namespace gpusched::pilot {

/// Opens a file to read: a descriptor, or -1. It waits neither for the other end of a pipe nor for data.
using OpenFile = std::function<int(const std::string& path)>;
int open_to_read(const std::string& path);

}  // namespace gpusched::pilot

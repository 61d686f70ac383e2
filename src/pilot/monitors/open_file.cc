#include "pilot/monitors/open_file.h"

#include <fcntl.h>

namespace gpusched::pilot {

int open_to_read(const std::string& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

}  // namespace gpusched::pilot

#include "cli/terminal/progress.h"

#include "cli/terminal/text.h"

namespace gpusched::cli {

void Progress::show(const std::string& text) {
  if (!io_.err_is_terminal || io_.wall_now() - since_ < seconds(1)) return;
  io_.err("\r" + fitted(printable(text), io_.width - 1) + "\x1b[K");
  shown_ = true;
}

void Progress::clear() {
  if (shown_) io_.err("\r\x1b[K");
  shown_ = false;
}

}  // namespace gpusched::cli

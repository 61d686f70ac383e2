#include "model/job_array.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched {

int64_t JobArray::index_at(int64_t position) const {
  for (const IndexRange& range : ranges) {
    if (position < range.count()) return range.first + position * range.step;
    position -= range.count();
  }
  UNREACHABLE();
}

std::optional<int64_t> JobArray::position_of_index(int64_t index) const {
  int64_t before = 0;
  for (const IndexRange& range : ranges) {
    if (index >= range.first && index <= range.last) {
      if ((index - range.first) % range.step != 0) return std::nullopt;
      return before + (index - range.first) / range.step;
    }
    before += range.count();
  }
  return std::nullopt;
}

bool JobArray::is_expanded(int64_t position) const {
  return position < next || std::binary_search(early.begin(), early.end(), position);
}

int64_t JobArray::unexpanded() const {
  return closed != JobReason::kNone ? 0 : count - next - static_cast<int64_t>(early.size());
}

void JobArray::note_expanded(int64_t position) {
  CHECK(!is_expanded(position));
  if (position != next) {
    early.insert(std::lower_bound(early.begin(), early.end(), position), position);
    return;
  }
  auto done = early.begin();
  for (++next; done != early.end() && *done == next; ++done) ++next;
  early.erase(early.begin(), done);
}

}  // namespace gpusched

#include "replay/trace/swf.h"

#include <array>
#include <charconv>
#include <optional>

#include "base/limits.h"
#include "replay/trace/line_file.h"

namespace gpusched::replay {
namespace {

constexpr std::size_t kFields = 18;

std::string_view next_word(std::string_view& text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  std::size_t end = text.find_first_of(" \t", begin);
  if (end == std::string_view::npos) end = text.size();
  const std::string_view word = text.substr(begin, end - begin);
  text.remove_prefix(end);
  return word;
}

// Averages have a fraction; whole seconds are enough.
std::optional<int64_t> number_of(std::string_view word) {
  int64_t value = 0;
  const char* end = word.data() + word.size();
  const auto [rest, error] = std::from_chars(word.data(), end, value);
  if (error != std::errc()) return std::nullopt;
  if (rest == end) return value;
  if (*rest != '.') return std::nullopt;
  for (const char* digit = rest + 1; digit != end; ++digit) {
    if (*digit < '0' || *digit > '9') return std::nullopt;
  }
  return value;
}

// `; MaxProcs: 100`
void read_header(std::string_view line, std::string_view name, int64_t& value) {
  const std::size_t at = line.find(name);
  if (at == std::string_view::npos) return;
  std::string_view rest = line.substr(at + name.size());
  if (const std::optional<int64_t> number = number_of(next_word(rest)); number && *number > 0)
    value = *number;
}

uint64_t id_of(int64_t field) { return field < 0 ? 0 : static_cast<uint64_t>(field); }

}  // namespace

Result<Trace> read_swf(const std::string& path) {
  Result<LineFile> file = LineFile::open(path);
  if (!file) return file.error();
  constexpr int64_t kSecondsMax = limits::kSettingMax.ns / seconds(1).ns;
  Trace trace;
  std::string_view line;
  while (true) {
    const Result<bool> more = file->next(line);
    if (!more) return more.error();
    if (!*more) return trace;
    if (line.find_first_not_of(" \t") == std::string_view::npos) continue;
    if (line.front() == ';') {
      read_header(line, "MaxProcs:", trace.capacity);
      read_header(line, "UnixStartTime:", trace.start_unix_s);
      continue;
    }
    std::array<int64_t, kFields> field{};
    for (std::size_t i = 0; i < kFields; ++i) {
      const std::string_view word = next_word(line);
      if (word.empty()) return file->broken("has " + std::to_string(i) + " fields, a job has 18");
      const std::optional<int64_t> number = number_of(word);
      if (!number)
        return file->broken("field " + std::to_string(i + 1) + " is not a number: " + std::string(word));
      if (*number < -1)
        return file->broken("field " + std::to_string(i + 1) + " is below -1, which means unknown");
      field[i] = *number;
    }
    if (!next_word(line).empty()) return file->broken("has more than 18 fields");
    if (field[1] < 0 || field[1] > kSecondsMax || field[3] > kSecondsMax || field[8] > kSecondsMax) {
      return file->broken("a time is missing or longer than 50 years");
    }
    const int64_t size = field[7] > 0 ? field[7] : field[4];
    if (field[3] < 0 || size <= 0) {
      ++trace.skipped;
      continue;
    }
    const TraceJob job{.id = id_of(field[0]),
                       .submitted = seconds(field[1]),
                       .run = seconds(field[3]),
                       .requested = seconds(field[8] < 0 ? 0 : field[8]),
                       .size = size,
                       .user = id_of(field[11]),
                       .group = id_of(field[12]),
                       .executable = id_of(field[13]),
                       .queue = id_of(field[14])};
    if (!trace.jobs.empty() && job.submitted < trace.jobs.back().submitted) {
      return file->broken("was submitted before the job above it; sort the trace by field 2");
    }
    trace.jobs.push_back(job);
  }
}

}  // namespace gpusched::replay

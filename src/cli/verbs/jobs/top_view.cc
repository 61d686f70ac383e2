#include "cli/verbs/jobs/top_view.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/terminal/style.h"
#include "cli/terminal/table.h"
#include "cli/terminal/text.h"
#include "cli/terminal/units.h"
#include "cli/verbs/jobs/job_columns.h"
#include "cli/verbs/nodes/nodes.h"

namespace gpusched::cli {
namespace {

constexpr int kGpuWidthMin = 76;  // Two beside each other need twice that, and a gap.
constexpr int kJobRowsMin = 6;    // The jobs have so many lines even when there are many GPUs.
constexpr int kWarmCelsius = 75;
constexpr int kHotCelsius = 85;
constexpr double kNearlyFull = 0.9;

/// A line that grows piece by piece and knows its columns.
class Line {
 public:
  explicit Line(bool color) : color_(color) {}
  Line& add(std::string_view text, Style style = Style::kPlain) {
    columns_ += display_width(text);
    text_ += styled(text, style, color_);
    return *this;
  }
  /// Something whose width is known, and which has its styles already.
  Line& raw(const std::string& text, int columns) {
    text_ += text;
    columns_ += columns;
    return *this;
  }
  Line& pad(int column) {
    if (columns_ < column) text_.append(static_cast<size_t>(column - columns_), ' ');
    columns_ = std::max(columns_, column);
    return *this;
  }
  int columns() const { return columns_; }
  const std::string& text() const { return text_; }

 private:
  bool color_;
  int columns_ = 0;
  std::string text_;
};

std::string right(const std::string& text, int width) {
  const int missing = width - display_width(text);
  return (missing > 0 ? std::string(static_cast<size_t>(missing), ' ') : "") + text;
}

std::string left(const std::string& text, int width) {
  std::string cut = fitted(text, width);
  const int missing = width - display_width(cut);
  return cut + (missing > 0 ? std::string(static_cast<size_t>(missing), ' ') : "");
}

std::string clock_text(Time now) {
  const int64_t day = now.ns / 1'000'000'000 % 86'400;
  const auto two = [](int64_t number) { return (number < 10 ? "0" : "") + std::to_string(number); };
  return two(day / 3'600) + ":" + two(day / 60 % 60) + ":" + two(day % 60) + " UTC";
}

std::string head_line(const TopData& data, const ScreenSize& size, bool color, Time now,
                      const std::string& server) {
  const auto number = [&](const char* name) { return data.cluster[name].integer(); };
  Line line(color);
  line.add("gpu-cli top", Style::kTitle)
      .add("  " + fitted(server, std::max(8, size.columns - 34)), Style::kDim);
  const std::string clock = clock_text(now);
  if (line.columns() + static_cast<int>(clock.size()) + 2 <= size.columns) {
    line.pad(size.columns - static_cast<int>(clock.size())).add(clock, Style::kDim);
  }
  Line counts(color);
  const int64_t online = number("online_nodes");
  const int64_t nodes = number("total_nodes");
  counts.add("Nodes ").add(std::to_string(online) + "/" + std::to_string(nodes),
                           online < nodes ? Style::kBad : Style::kGood);
  const int64_t free = number("available_gpus");
  const int64_t gpus = number("total_gpus");
  counts.add("  GPUs ")
      .add(std::to_string(gpus - free) + "/" + std::to_string(gpus) + " held", Style::kTitle)
      .add(" ");
  const int room = std::clamp(size.columns - counts.columns() - 34, 0, 40);
  if (room >= 6 && gpus > 0) {
    counts.raw(bar(static_cast<double>(gpus - free) / static_cast<double>(gpus), room, Style::kGood, color),
               room);
  }
  counts.add("  Jobs ").add(std::to_string(number("running_jobs")) + " running", Style::kGood).add(", ");
  counts.add(std::to_string(number("pending_jobs")) + " waiting",
             number("pending_jobs") > 0 ? Style::kWarning : Style::kPlain);
  return line.text() + "\n" + counts.text() + "\n";
}

/// One device in `width` columns: name, use, memory, temperature, job.
std::string device_text(const Json& device, int name_width, int width, bool color) {
  Line line(color);
  const std::string state = device["state"].text();
  const std::string condition = device["condition"].text();
  const bool broken = state == "quarantined" || (!condition.empty() && condition != "ok");
  line.add(left(device["id"].text(), name_width)).add(" ");
  const double use = std::clamp(device["utilization_percent"].number() / 100, 0.0, 1.0);
  const int64_t all = device["memory_mb"].integer();
  const int64_t used = device["memory_used_mb"].integer();
  const double memory =
      all > 0 ? std::clamp(static_cast<double>(used) / static_cast<double>(all), 0.0, 1.0) : 0;
  const std::string amounts = right(format_size_mb(used), 6) + "/" + left(format_size_mb(all), 5);
  const int64_t celsius = device["temperature_celsius"].integer();
  const std::string job = broken              ? (condition != "ok" && !condition.empty() ? condition : state)
                          : state == "held"   ? device["held_by"].text()
                          : state == "shared" ? format_share(device["shared_milli"].integer()) + " used"
                                              : state;
  // The two bars get the rest of the width; all other columns are fixed.
  const int fixed = name_width + 1 + 5 + 1 + 12 + 1 + 5 + 1 + 10;
  const int bars = std::max(8, width - fixed - 2);
  const int use_width = bars / 2 + bars % 2;
  line.raw(bar(use, use_width, use > kNearlyFull ? Style::kGood : Style::kPlain, color), use_width);
  line.add(right(std::to_string(std::llround(use * 100)) + "%", 5)).add(" ");
  line.raw(bar(memory, bars / 2, memory > kNearlyFull ? Style::kWarning : Style::kPlain, color), bars / 2);
  line.add(amounts).add(" ");
  const Style heat = celsius >= kHotCelsius    ? Style::kBad
                     : celsius >= kWarmCelsius ? Style::kWarning
                                               : Style::kPlain;
  line.add(right(celsius > 0 ? std::to_string(celsius) + "°C" : "-", 5), heat).add(" ");
  line.add(fitted(job.empty() ? "-" : printable(job), std::max(1, width - line.columns())),
           broken            ? Style::kBad
           : state == "held" ? Style::kGood
           : state == "free" ? Style::kDim
                             : Style::kWarning);
  return line.pad(width).text();
}

/// The GPUs' part of the screen, without its title: each device once, in one or more columns.
std::vector<std::string> device_lines(const TopData& data, const ScreenSize& size, bool color) {
  std::vector<Json> all;
  int name_width = 4;
  for (const Json& node : data.nodes) {
    for (const Json& device : node_devices(node)) {
      all.push_back(device);
      name_width = std::max(name_width, display_width(device["id"].text()));
    }
  }
  name_width = std::min(name_width, 18);
  const int beside = std::max(1, (size.columns + 2) / (kGpuWidthMin + 2));
  const int width = (size.columns - (beside - 1) * 2) / beside;
  const auto count = static_cast<int>(all.size());
  const int rows = (count + beside - 1) / beside;
  std::vector<std::string> lines;
  for (int row = 0; row < rows; ++row) {
    std::string line;
    for (int column = 0; column < beside; ++column) {
      const int at = column * rows + row;  // Down first: a node's GPUs stand together.
      if (at >= count) continue;
      line += (column > 0 ? "  " : "") + device_text(all[static_cast<size_t>(at)], name_width, width, color);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

/// Nodes that are not simply working.
std::string sick_nodes_line(const TopData& data, const ScreenSize& size, bool color) {
  std::string text;
  for (const Json& node : data.nodes) {
    const std::string state = node_state_text(node);
    if (state == "ready") continue;
    text += (text.empty() ? "" : "  ") + node["name"].text() + " " + state;
    if (const std::string reason = node["state_reason"].text(); !reason.empty()) text += " (" + reason + ")";
  }
  return text.empty() ? "" : styled(fitted(printable(text), size.columns), Style::kWarning, color) + "\n";
}

std::string title_line(const std::string& title, const std::string& note, const ScreenSize& size,
                       bool color) {
  Line line(color);
  line.add(title, Style::kTitle)
      .add("  " + fitted(note, std::max(1, size.columns - display_width(title) - 2)), Style::kDim);
  return line.text() + "\n";
}

std::string_view name_of(TopControls::Sort sort) {
  switch (sort) {
    case TopControls::Sort::kId:
      return "id";
    case TopControls::Sort::kGpus:
      return "gpus";
    case TopControls::Sort::kRan:
      return "ran";
    case TopControls::Sort::kPriority:
      return "priority";
    case TopControls::Sort::kName:
      return "name";
  }
  UNREACHABLE();
}

std::vector<Json> chosen_jobs(const TopData& data, const TopControls& controls, Time now) {
  std::vector<Json> jobs;
  if (controls.show != TopControls::Show::kWaiting) jobs = data.running;
  if (controls.show != TopControls::Show::kRunning)
    jobs.insert(jobs.end(), data.waiting.begin(), data.waiting.end());
  const std::string key(name_of(controls.sort));
  const bool natural = find_job_column(key)->descends == controls.descending;
  sort_jobs(jobs, (natural ? "" : "-") + key, now);
  return jobs;
}

/// The jobs' table in so many rows.
std::string jobs_part(const TopData& data, TopControls& controls, const ScreenSize& size, int rows,
                      bool color, Time now) {
  const std::vector<Json> jobs = chosen_jobs(data, controls, now);
  const auto count = static_cast<int>(jobs.size());
  const int room = std::max(1, rows - 2);
  controls.first_job = std::clamp(controls.first_job, 0, std::max(0, count - room));
  const int last = std::min(count, controls.first_job + room);
  std::string note = "by " + std::string(name_of(controls.sort)) + (controls.descending ? " ↓" : " ↑");
  if (controls.show == TopControls::Show::kRunning) note += ", running";
  if (controls.show == TopControls::Show::kWaiting) note += ", waiting";
  if (count > room)
    note += ", " + std::to_string(controls.first_job + 1) + "-" + std::to_string(last) + " of " +
            std::to_string(count);
  std::string text = title_line("Jobs", note, size, color);
  if (jobs.empty()) return text + styled("none", Style::kDim, color) + "\n";
  const std::vector<Json> page(jobs.begin() + controls.first_job, jobs.begin() + last);
  std::vector<std::string> keys = top_job_columns();
  const bool no_users = std::ranges::all_of(page, [](const Json& job) { return job_user(job).empty(); });
  if (no_users) std::erase(keys, "user");
  return text + job_table(page, keys, now, Narrow::kDrops).render(size.columns, color);
}

std::string help_text(const ScreenSize& size, bool color) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 9> kKeys = {
      {{"q, Esc", "end"},
       {"i g r p n", "sort the jobs by id, GPUs, run time, priority or name; again: in reverse order"},
       {"s", "show all, running or waiting jobs"},
       {"b", "hide or show the bars of the GPUs"},
       {"Up Down j k", "scroll the jobs"},
       {"PageUp PageDown", "by half a screen"},
       {"< >", "scroll the GPUs if not all fit"},
       {"Home", "back to the beginning"},
       {"h, ?", "show or hide this help"}}};
  std::string text = title_line("Keys", "", size, color);
  for (const auto& [keys, meaning] : kKeys) {
    text += "  " + left(std::string(keys), 17) + fitted(meaning, std::max(1, size.columns - 19)) + "\n";
  }
  return text;
}

}  // namespace

const std::vector<std::string>& top_job_columns() {
  static const std::vector<std::string> kKeys = {"id",   "name", "state", "gpus",  "priority",
                                                 "user", "node", "ran",   "reason"};
  return kKeys;
}

std::string bar(double share, int columns, Style style, bool color) {
  static constexpr std::array<std::string_view, 8> kEighths = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int room = std::max(0, columns - 2);
  const int eighths = std::clamp(static_cast<int>(std::lround(share * room * 8)), 0, room * 8);
  std::string full;
  for (int i = 0; i < eighths / 8; ++i) full += "█";
  full += kEighths[static_cast<size_t>(eighths % 8)];
  const int used = eighths / 8 + (eighths % 8 > 0 ? 1 : 0);
  return styled("[", Style::kDim, color) + styled(full, style, color) +
         std::string(static_cast<size_t>(room - used), ' ') + styled("]", Style::kDim, color);
}

namespace {

std::optional<TopControls::Sort> sort_of_key(int key) {
  switch (key) {
    case 'i':
      return TopControls::Sort::kId;
    case 'g':
      return TopControls::Sort::kGpus;
    case 'r':
      return TopControls::Sort::kRan;
    case 'p':
      return TopControls::Sort::kPriority;
    case 'n':
      return TopControls::Sort::kName;
    default:
      return std::nullopt;
  }
}

}  // namespace

bool TopControls::on_key(int key, const ScreenSize& size) {
  if (const std::optional<Sort> wanted = sort_of_key(key)) {
    descending = sort == *wanted ? !descending : find_job_column(name_of(*wanted))->descends;
    sort = *wanted;
    return true;
  }
  const int page = std::max(1, size.rows / 2);
  switch (key) {
    case 'q':
    case 'Q':
      return false;
    case kKeyEscape:
      if (!help) return false;
      help = false;
      break;
    case 'h':
    case '?':
      help = !help;
      break;
    case 's':
      show = show == Show::kAll ? Show::kRunning : show == Show::kRunning ? Show::kWaiting : Show::kAll;
      break;
    case 'b':
      gpus = !gpus;
      break;
    case kKeyUp:
    case 'k':
      first_job -= 1;
      break;
    case kKeyDown:
    case 'j':
      first_job += 1;
      break;
    case kKeyPageUp:
      first_job -= page;
      break;
    case kKeyPageDown:
    case ' ':
      first_job += page;
      break;
    case '<':
    case ',':
      first_gpu -= page;
      break;
    case '>':
    case '.':
      first_gpu += page;
      break;
    case kKeyHome:
      first_job = first_gpu = 0;
      break;
    default:
      break;
  }
  first_job = std::max(0, first_job);
  first_gpu = std::max(0, first_gpu);
  return true;
}

std::string top_text(const TopData& data, TopControls& controls, const ScreenSize& size, bool color, Time now,
                     const std::string& server, const std::optional<std::string>& trouble) {
  std::string text = head_line(data, size, color, now, server);
  int rows = size.rows - 2;
  const std::string sick = sick_nodes_line(data, size, color);
  if (!sick.empty()) --rows;
  text += sick;
  const std::string foot =
      trouble ? styled(fitted(printable(*trouble), size.columns), Style::kBad, color)
              : styled(fitted("q quit  h keys  i g r p n sort  s states  b bars  ↑↓ jobs", size.columns),
                       Style::kDim, color);
  --rows;
  if (controls.help) {
    text += help_text(size, color);
  } else {
    if (controls.gpus) {
      const std::vector<std::string> lines = device_lines(data, size, color);
      const auto count = static_cast<int>(lines.size());
      const int room = std::clamp(rows - kJobRowsMin - 1, 0, count);
      controls.first_gpu = std::clamp(controls.first_gpu, 0, std::max(0, count - room));
      std::string note = data.nodes.empty() ? "no nodes yet; start gpu-agent on a machine to add one"
                                            : "utilization, memory, temperature, job";
      if (count > room)
        note += "; lines " + std::to_string(controls.first_gpu + 1) + "-" +
                std::to_string(controls.first_gpu + room) + " of " + std::to_string(count);
      text += title_line("GPUs", note, size, color);
      for (int i = 0; i < room; ++i) text += lines[static_cast<size_t>(controls.first_gpu + i)] + "\n";
      rows -= room + 1;
    }
    text += jobs_part(data, controls, size, rows, color, now);
  }
  // The last row is the foot's, whatever stands above.
  auto used = static_cast<int>(std::ranges::count(text, '\n'));
  while (used < size.rows - 1) {
    text += '\n';
    ++used;
  }
  return text + foot;
}

}  // namespace gpusched::cli

#include "cli/verbs/submit/slurm.h"

#include <algorithm>
#include <charconv>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include "base/text/file_pattern.h"
#include "cli/terminal/output.h"
#include "cli/terminal/units.h"
#include "cli/verbs/submit/host_list.h"
#include "grammar/job_name.h"

namespace gpusched::cli {
namespace {

using Words = std::vector<std::string>;

Error bad(std::string sentence) {
  return {.code = ErrorCode::kInvalidArgument, .message = std::move(sentence)};
}

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

Words split(std::string_view text, char separator) {
  Words parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

enum class Takes { kNothing, kValue, kMaybeValue };

/// An option of sbatch.
struct SlurmOption {
  std::string_view name;  ///< Without its dashes.
  char letter = 0;        ///< 0: none.
  Takes takes = Takes::kValue;
  /// The option here that means the same with the same value; empty: see below.
  std::string_view ours = {};
  /// Ours for a value; the error says what to write instead. Null: see below.
  Result<Words> (*read)(const std::string& value) = nullptr;
  /// Text to write instead; empty, with nothing above: it has nothing to do here.
  std::string_view instead = {};
  /// It only tunes how a job runs: it is left out, with a warning.
  bool tunes = false;
};

Result<Words> read_time(const std::string& value) {
  const std::optional<int64_t> limit = slurm_seconds(value);
  if (!limit) return bad("\"" + value + "\" is not a time that sbatch accepts; write --time=2:00:00");
  return *limit == 0 ? Words{} : Words{"--time", std::to_string(*limit) + "s"};
}

Result<Words> read_memory(const std::string& value) {
  const Result<int64_t> size = parse_size_mb(value);
  if (!size) return bad(size.error().message);
  if (*size == 0) return bad("0 means a node's whole memory to Slurm; write #GPU --exclusive, or an amount");
  return Words{"--mem", value};
}

Result<Words> read_nodes(const std::string& value) {
  return value == "1" ? Words{} : Words{"--nodes", value};
}

Result<Words> read_tasks(const std::string& value) {
  if (value == "1") return Words{};
  return bad("one process is started on each node; for a process on each of " + value +
             " nodes write #GPU --nodes " + value +
             ", for several on one let the command start them (torchrun, mpirun)");
}

Result<Words> read_path(const char* ours, const std::string& value) {
  const std::string_view unknown = unknown_file_pattern(value);
  if (unknown.empty()) return Words{ours, value};
  return bad("\"" + std::string(unknown) + "\" is not known here; the placeholders are %j %A %a %x %N %u %t");
}
Result<Words> read_output(const std::string& value) { return read_path("--output", value); }
Result<Words> read_error(const std::string& value) { return read_path("--error", value); }
Result<Words> read_input(const std::string& value) { return read_path("--input", value); }

Result<Words> read_when(const char* ours, const std::string& value) {
  // Whether it can be read does not depend on the day.
  const Time any_day{1'738'314'100'000'000'000};
  if (parse_local_time(value, any_day, TimeOfDay::kNext).valid()) return Words{ours, value};
  return bad("\"" + value + "\" is not a time here; write #GPU " + std::string(ours) +
             " +2h, 18:30, \"tomorrow 10:00\" or 2025-01-31T09:00:00");
}
Result<Words> read_begin(const std::string& value) { return read_when("--begin", value); }
Result<Words> read_deadline(const std::string& value) { return read_when("--deadline", value); }

/// "afterok:12:13,afterany:14" as --after ok:job-12,job-13 and so on.
Result<Words> read_dependency(const std::string& value) {
  constexpr std::pair<std::string_view, std::string_view> kKinds[] = {
      {"afterok", "ok"}, {"afterany", "any"}, {"after", "start"}};
  const Words parts = split_outside_brackets(value);
  if (parts.empty()) return bad("\"" + value + "\" has a bracket without its counterpart");
  Words out;
  for (const std::string& part : parts) {
    const Words words = split(part, ':');
    const auto* const kind =
        std::ranges::find(kKinds, words.front(), [](const auto& one) { return one.first; });
    if (kind == std::end(kKinds) || words.size() < 2) {
      return bad("\"" + part +
                 "\" has no equivalent; write #GPU --after ok:JOB (completed), any:JOB (ended) or start:JOB "
                 "(started), all of which must hold");
    }
    std::string jobs;
    for (std::size_t i = 1; i < words.size(); ++i) {
      const std::string job = full_job_id(words[i]);
      if (!job.starts_with("job-")) return bad("\"" + words[i] + "\" is not a job's number");
      jobs += (jobs.empty() ? "" : ",") + job;
    }
    out.insert(out.end(), {"--after", std::string(kind->second) + ":" + jobs});
  }
  return out;
}

Result<Words> read_partition(const std::string& value) {
  if (value.find(',') != std::string::npos)
    return bad("one of several partitions cannot be requested; write #GPU --node-label partition=NAME");
  return Words{"--node-label", "partition=" + value};
}

Result<Words> read_node_list(const std::string& value) {
  const Result<Words> names = expand_host_list(value);
  if (!names) return names.error();
  if (names->size() == 1) return Words{"--nodelist", value};
  return bad("one node can be named; label the nodes, and write #GPU --node-label KEY=VALUE");
}

Result<Words> read_exclusive(const std::string& value) {
  if (value.empty()) return Words{"--exclusive"};
  return bad("\"" + value + "\" is not available here; write #GPU --exclusive for whole nodes");
}

Result<Words> read_export(const std::string& value) {
  if (value == "NIL") return bad("NIL has no equivalent; write #GPU --export NONE");
  return Words{"--export", value};
}

Result<Words> read_mail(const std::string& value) {
  if (value == "NONE") return Words{};
  return bad("no mail is sent; remove the line, and wait with: gpu-cli wait JOB && mail ...");
}

Result<Words> read_open_mode(const std::string& value) {
  if (value == "append") return Words{};
  return bad("files are appended to; remove the line, or let the script empty the file");
}

constexpr SlurmOption kOptions[] = {
    {.name = "job-name", .letter = 'J', .ours = "--name"},
    {.name = "cpus-per-task", .letter = 'c', .ours = "--cpus"},
    {.name = "nodes", .letter = 'N', .read = read_nodes},
    {.name = "ntasks", .letter = 'n', .read = read_tasks},
    {.name = "ntasks-per-node", .read = read_tasks},
    {.name = "mem", .read = read_memory},
    {.name = "time", .letter = 't', .read = read_time},
    {.name = "array", .letter = 'a', .ours = "--array"},
    {.name = "dependency", .letter = 'd', .read = read_dependency},
    {.name = "output", .letter = 'o', .read = read_output},
    {.name = "error", .letter = 'e', .read = read_error},
    {.name = "input", .letter = 'i', .read = read_input},
    {.name = "open-mode", .read = read_open_mode},
    {.name = "partition", .letter = 'p', .read = read_partition},
    {.name = "comment", .ours = "--comment"},
    {.name = "reservation", .ours = "--reservation"},
    {.name = "begin", .letter = 'b', .read = read_begin},
    {.name = "deadline", .read = read_deadline},
    {.name = "chdir", .letter = 'D', .ours = "--chdir"},
    {.name = "export", .read = read_export},
    {.name = "exclusive", .takes = Takes::kMaybeValue, .read = read_exclusive},
    {.name = "hold", .letter = 'H', .takes = Takes::kNothing, .ours = "--hold"},
    {.name = "wait", .letter = 'W', .takes = Takes::kNothing, .ours = "--wait"},
    {.name = "uid", .ours = "--user"},
    {.name = "container-image", .ours = "--image"},
    // Nodes that are lost are retried in any case.
    {.name = "requeue", .takes = Takes::kNothing},
    {.name = "parsable", .takes = Takes::kNothing},
    {.name = "quiet", .letter = 'Q', .takes = Takes::kNothing},
    {.name = "verbose", .letter = 'v', .takes = Takes::kNothing},
    {.name = "mail-type", .read = read_mail},
    {.name = "mail-user", .read = read_mail},
    {.name = "no-requeue",
     .takes = Takes::kNothing,
     .instead = "a job of a lost node is retried in any case; remove the line, and write #GPU "
                "--preemption-mode cancel for a job that must not be requeued when it is preempted"},
    {.name = "qos", .letter = 'q', .instead = "write #GPU --priority low, medium or high"},
    {.name = "priority", .instead = "write #GPU --priority low, medium, high or a number (500 is medium)"},
    {.name = "nice", .takes = Takes::kMaybeValue, .instead = "write #GPU --priority low"},
    {.name = "constraint",
     .letter = 'C',
     .instead =
         "write #GPU --node-label KEY=VALUE, or --gpu-model MODEL; gpu-cli node show NODE has the labels"},
    {.name = "nodelist", .letter = 'w', .read = read_node_list},
    {.name = "exclude", .letter = 'x', .ours = "--exclude"},
    {.name = "signal",
     .instead = "no signal is sent before the time limit; to be warned of a preemption write #GPU "
                "--preempt-signal USR1 --preempt-grace 2m"},
    {.name = "container-mounts", .instead = "write #GPU --mount SOURCE:TARGET[:ro], once for each folder"},
    {.name = "no-kill",
     .letter = 'k',
     .takes = Takes::kMaybeValue,
     .instead = "write #GPU --on-node-loss continue"},
    {.name = "test-only", .takes = Takes::kNothing, .instead = "remove the line, and use gpu-cli plan"},
    {.name = "wrap", .instead = "write the command into the script"},
    {.name = "hint", .tunes = true},
    {.name = "threads-per-core", .tunes = true},
    {.name = "get-user-env", .takes = Takes::kMaybeValue, .tunes = true},
    {.name = "distribution", .letter = 'm', .tunes = true},
    {.name = "cpu-freq", .tunes = true},
    {.name = "gpu-freq", .tunes = true},
    {.name = "gpu-bind", .tunes = true},
    {.name = "mem-bind", .tunes = true},
    {.name = "gres-flags", .tunes = true},
    {.name = "ntasks-per-core", .tunes = true},
    {.name = "ntasks-per-socket", .tunes = true},
    {.name = "sockets-per-node", .tunes = true},
    {.name = "cores-per-socket", .tunes = true},
    {.name = "extra-node-info", .letter = 'B', .tunes = true},
    {.name = "acctg-freq", .tunes = true},
    {.name = "profile", .tunes = true},
    {.name = "propagate", .takes = Takes::kMaybeValue, .tunes = true},
    {.name = "switches", .tunes = true},
    {.name = "contiguous", .takes = Takes::kNothing, .tunes = true},
    {.name = "spread-job", .takes = Takes::kNothing, .tunes = true},
    {.name = "use-min-nodes", .takes = Takes::kNothing, .tunes = true},
    {.name = "wait-all-nodes", .tunes = true},
    {.name = "delay-boot", .tunes = true},
    {.name = "time-min", .tunes = true},
    {.name = "overcommit", .letter = 'O', .takes = Takes::kNothing, .tunes = true},
    {.name = "oversubscribe", .letter = 's', .takes = Takes::kNothing, .tunes = true},
    {.name = "kill-on-invalid-dep", .tunes = true},
    {.name = "ignore-pbs", .takes = Takes::kNothing, .tunes = true},
    {.name = "wckey", .tunes = true},
};

/// Those that say how much of something: they are understood together.
constexpr SlurmOption kSizeOptions[] = {{.name = "gpus", .letter = 'G'}, {.name = "gpus-per-node"},
                                        {.name = "gpus-per-task"},       {.name = "gres"},
                                        {.name = "mem-per-cpu"},         {.name = "mem-per-gpu"},
                                        {.name = "cpus-per-gpu"},        {.name = "account", .letter = 'A'}};

/// Further options of sbatch: a beginning that one of them has too is not unique.
constexpr std::string_view kFurtherNames[] = {"batch",
                                              "bb",
                                              "bbf",
                                              "cluster-constraint",
                                              "clusters",
                                              "container",
                                              "container-id",
                                              "core-spec",
                                              "export-file",
                                              "extra",
                                              "gid",
                                              "gpus-per-socket",
                                              "help",
                                              "licenses",
                                              "mcs-label",
                                              "mincpus",
                                              "network",
                                              "nodefile",
                                              "ntasks-per-gpu",
                                              "power",
                                              "prefer",
                                              "reboot",
                                              "resv-ports",
                                              "segment",
                                              "stepmgr",
                                              "thread-spec",
                                              "tmp",
                                              "tres-bind",
                                              "tres-per-task",
                                              "usage",
                                              "version"};

const SlurmOption* find_option(const std::string& name) {
  for (const std::span<const SlurmOption> options :
       {std::span<const SlurmOption>(kOptions), std::span<const SlurmOption>(kSizeOptions)}) {
    for (const SlurmOption& option : options) {
      const bool is_long = name.starts_with("--") && std::string_view(name).substr(2) == option.name;
      const bool is_short = option.letter != 0 && name == std::string("-") + option.letter;
      if (is_long || is_short) return &option;
    }
  }
  return nullptr;
}

/// The names of sbatch's options that begin like this one.
Words names_that_begin(std::string_view beginning) {
  Words names;
  const auto add = [&](std::string_view name) {
    if (name.starts_with(beginning)) names.push_back("--" + std::string(name));
  };
  for (const SlurmOption& option : kOptions) add(option.name);
  for (const SlurmOption& option : kSizeOptions) add(option.name);
  for (const std::string_view name : kFurtherNames) add(name);
  return names;
}

/// The whole name of an option, of which sbatch takes a unique beginning. Other names stay as they are.
Result<std::string> whole_name(const std::string& name) {
  if (!name.starts_with("--") || name.size() < 3 || find_option(name) != nullptr) return name;
  const Words names = names_that_begin(std::string_view(name).substr(2));
  if (names.size() == 1) return names.front();
  if (names.empty() || std::ranges::find(names, name) != names.end()) return name;
  std::string list;
  for (const std::string& one : names) list += (list.empty() ? "" : ", ") + one;
  return bad("it is the beginning of several options; write one of " + list);
}

/// "gpu:a100:2", "a100:2", "2": {count, model}; nothing when it is none.
std::optional<std::pair<std::string, std::string>> read_gpus(std::string text, bool is_gres) {
  text = text.substr(0, text.find('('));
  Words parts = split(text, ':');
  if (is_gres) {
    if (parts.front() != "gpu" && parts.front() != "gres/gpu") return std::nullopt;
    parts.erase(parts.begin());
    if (parts.empty()) return std::pair("1", "");
  }
  if (parts.size() > 2 || text.find(',') != std::string::npos || parts.front().empty()) return std::nullopt;
  if (parts.size() == 2) {
    if (!is_number(parts[1])) return std::nullopt;
    return std::pair(parts[1], parts[0]);
  }
  if (is_number(parts[0])) return std::pair(parts[0], "");
  return is_gres ? std::optional(std::pair("1", parts[0])) : std::nullopt;
}

/// "gpu:a100_3g.40gb:1" and "3g.40gb": {profile, model}; nothing when no MIG profile is in it.
std::optional<std::pair<std::string, std::string>> read_slice(const std::string& model) {
  const std::size_t line = model.rfind('_');
  const std::string profile = line == std::string::npos ? model : model.substr(line + 1);
  const std::size_t point = profile.find("g.");
  const bool is_profile = point != std::string::npos && is_number(profile.substr(0, point)) &&
                          profile.find("gb") != std::string::npos &&
                          is_number(profile.substr(point + 2, profile.find("gb") - point - 2));
  if (!is_profile) return std::nullopt;
  std::string name = line == std::string::npos ? "" : model.substr(0, line);
  if (name.starts_with("nvidia_")) name.erase(0, 7);
  return std::pair(profile, name.substr(0, name.find_first_of("_-")));
}

std::string no_equal(const std::string& place, const std::string& name, std::string_view instead) {
  return place + "#SBATCH " + name + ": " + std::string(instead);
}

/// A relative path belongs to the folder that --chdir names.
std::string in_folder(const std::string& folder, const std::string& path) {
  return folder.empty() || path.starts_with('/') ? path : folder + "/" + path;
}

}  // namespace

std::optional<int64_t> slurm_seconds(const std::string& text) {
  std::string lower;
  for (const char c : text) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (lower == "unlimited" || lower == "infinite" || lower == "0") return 0;
  const std::size_t dash = text.find('-');
  const bool has_days = dash != std::string::npos;
  int64_t numbers[4] = {};
  std::size_t count = 0;
  const auto add = [&](const std::string& word) {
    if (!is_number(word) || word.size() > 7 || count >= 4) return false;
    numbers[count++] = std::stoll(word);
    return true;
  };
  if (has_days && !add(text.substr(0, dash))) return std::nullopt;
  for (const std::string& word : split(has_days ? text.substr(dash + 1) : text, ':')) {
    if (!add(word)) return std::nullopt;
  }
  const int64_t days = has_days ? numbers[0] * 86'400 : 0;
  const int64_t* const clock = numbers + (has_days ? 1 : 0);
  const std::size_t parts = count - (has_days ? 1 : 0);
  if (parts == 0 || parts > 3) return std::nullopt;
  if (has_days || parts == 3) return days + clock[0] * 3'600 + clock[1] * 60 + clock[2];
  return clock[0] * 60 + clock[1];
}

void SlurmRequest::take(const Words& words, const std::string& place) {
  for (std::size_t at = 0; at < words.size(); ++at) {
    const std::string& word = words[at];
    const bool is_long = word.starts_with("--");
    if (!word.starts_with('-') || word.size() < 2) {
      problems_.push_back(
          place + "\"" + word +
          "\" in a #SBATCH line is not an option; write #GPU lines with the options of gpu-cli submit");
      return;
    }
    const std::size_t equals = is_long ? word.find('=') : 2;
    const std::string given = word.substr(0, equals);
    const Result<std::string> name = whole_name(given);
    const SlurmOption* const option = name ? find_option(*name) : nullptr;
    if (option == nullptr) {
      problems_.push_back(no_equal(place, given,
                                   name ? "it has no equivalent here; remove the line, or write a #GPU line "
                                          "with what you need (gpu-cli submit --help)"
                                        : name.error().message));
      return;  // Whether the next word is its value is not known.
    }
    std::optional<std::string> value;
    if (is_long && equals != std::string::npos) value = word.substr(equals + 1);
    if (!is_long && word.size() > 2) value = word.substr(word[2] == '=' ? 3 : 2);
    if (!value && option->takes == Takes::kValue) {
      if (at + 1 >= words.size()) {
        problems_.push_back(no_equal(place, *name, "it needs a value"));
        return;
      }
      value = words[++at];
    }
    if (value && value->empty()) {
      problems_.push_back(no_equal(place, *name, "its value is empty; give one, or remove the option"));
      continue;
    }
    if (const Result<Unit> taken = take_option(*name, value, place); !taken)
      problems_.push_back(taken.error().message);
  }
}

Result<Unit> SlurmRequest::take_option(const std::string& name, const std::optional<std::string>& value,
                                       const std::string& place) {
  const SlurmOption& option = *find_option(name);
  const std::string text = value.value_or("");
  if (option.name == "account") {
    account_ = text;
    return Unit{};
  }
  if (option.tunes) {
    warnings_.push_back(place + "#SBATCH " + name + " is left out: it only tunes how a job runs");
    return Unit{};
  }
  if (option.name.starts_with("gpus") || option.name == "gres") return take_gpus(name, text, place);
  if (option.name.starts_with("mem-per") || option.name == "cpus-per-gpu")
    return take_each(name, text, place);
  if (!option.instead.empty()) return bad(no_equal(place, name, option.instead));
  if (option.name == "chdir") folder_ = text;
  if (option.name.starts_with("ntasks")) asks_for_tasks_ = true;
  if (option.name == "cpus-per-task") cpus_ = text;
  if (option.name == "mem") memory_place_ = place;
  Words ours;
  if (option.read != nullptr) {
    Result<Words> read = option.read(text);
    if (!read) return bad(no_equal(place, name, read.error().message));
    ours = std::move(*read);
  } else if (!option.ours.empty()) {
    ours.emplace_back(option.ours);
    if (option.takes == Takes::kValue) ours.push_back(text);
  }
  if (option.name == "output") {
    output_ = text;
  } else if (option.name == "error") {
    error_ = text;
  } else if (option.name == "nodes") {
    nodes_ = ours.empty() ? "" : ours.back();
  } else {
    words_.insert(words_.end(), ours.begin(), ours.end());
  }
  return Unit{};
}

Result<Unit> SlurmRequest::take_gpus(const std::string& name, const std::string& text,
                                     const std::string& place) {
  const auto read = read_gpus(text, name == "--gres");
  if (!read) {
    return bad(no_equal(place, name,
                        "\"" + text + "\" is not one number of GPUs; write #GPU --gpus 2 --gpu-model a100"));
  }
  const Gpus gpus{.place = place, .option = name, .count = read->first, .model = read->second};
  if (read_slice(gpus.model) && gpus.count != "1")
    return bad(no_equal(place, name, "a job has one MIG slice; write --gres=gpu:" + gpus.model + ":1"));
  (name == "--gpus" || name == "-G" ? all_ : each_node_) = gpus;
  return Unit{};
}

Result<Unit> SlurmRequest::take_each(const std::string& name, const std::string& text,
                                     const std::string& place) {
  Each each{.place = place, .option = name, .amount = 0};
  if (name == "--cpus-per-gpu") {
    if (!is_number(text) || text.size() > 6)
      return bad(no_equal(place, name, "\"" + text + "\" is not a number"));
    each.amount = std::stoll(text);
    cpus_each_ = each;
    return Unit{};
  }
  const Result<int64_t> size = parse_size_mb(text);
  if (!size) return bad(no_equal(place, name, size.error().message));
  each.amount = *size;
  if (each.amount == 0)
    return bad(no_equal(place, name, "0 means a node's whole memory to Slurm; write #GPU --exclusive"));
  memory_each_ = each;
  return Unit{};
}

/// --gpus, --gpus-per-node or --mig.
Result<Words> SlurmRequest::gpu_words() const {
  if (!all_ && !each_node_) return Words{};
  const bool gang = !nodes_.empty();
  const Gpus& gpus = each_node_ ? *each_node_ : *all_;
  if (all_ && (each_node_ || gang) && !(each_node_ && !gang && all_->count == each_node_->count)) {
    return bad(no_equal(all_->place, all_->option,
                        "with several nodes, or beside another number of GPUs, it is not clear how many each "
                        "node gets; write --gpus-per-node alone"));
  }
  if (const auto slice = read_slice(gpus.model)) {
    Words out = {"--mig", slice->first};
    if (!slice->second.empty()) out.insert(out.end(), {"--gpu-model", slice->second});
    return out;
  }
  Words out = {gang ? "--gpus-per-node" : "--gpus", gpus.count};
  if (!gpus.model.empty()) out.insert(out.end(), {"--gpu-model", gpus.model});
  return out;
}

/// --cpus and --mem of what is asked for each GPU or CPU.
Result<Words> SlurmRequest::size_words(const Given& given) const {
  Words out;
  const Gpus* const asked = each_node_ ? &*each_node_ : all_ ? &*all_ : nullptr;
  const std::string gpus = !given.gpu_count.empty() ? given.gpu_count : asked == nullptr ? "0" : asked->count;
  const auto of_gpus = [&](const Each& each) -> Result<int64_t> {
    if (!is_number(gpus) || gpus.size() > 6 || std::stoll(gpus) == 0)
      return bad(
          no_equal(each.place, each.option, "the script asks for no GPUs; write the amount of the job"));
    return each.amount * std::stoll(gpus);
  };
  std::string cpus = given.cpus.empty() ? cpus_ : given.cpus;
  if (cpus_each_ && given.cpus.empty()) {
    if (!cpus_.empty())
      return bad(no_equal(cpus_each_->place, cpus_each_->option, "the script gives --cpus-per-task too"));
    const Result<int64_t> all = of_gpus(*cpus_each_);
    if (!all) return all.error();
    cpus = std::to_string(*all);
    out.insert(out.end(), {"--cpus", cpus});
  }
  if (!memory_each_ || given.memory) return out;
  if (!memory_place_.empty())
    return bad(no_equal(memory_each_->place, memory_each_->option, "the script gives --mem too"));
  int64_t memory_mb = memory_each_->amount * (is_number(cpus) && cpus.size() <= 6 ? std::stoll(cpus) : 1);
  if (memory_each_->option == "--mem-per-gpu") {
    const Result<int64_t> all = of_gpus(*memory_each_);
    if (!all) return all.error();
    memory_mb = *all;
  }
  out.insert(out.end(), {"--mem", std::to_string(memory_mb) + "M"});
  return out;
}

Result<Words> SlurmRequest::words(const Given& given) const {
  Words out = words_;
  if (!nodes_.empty()) out.insert(out.end(), {"--nodes", nodes_});
  if (!given.gpus) {
    const Result<Words> gpus = gpu_words();
    if (!gpus) return gpus.error();
    out.insert(out.end(), gpus->begin(), gpus->end());
  }
  const Result<Words> sizes = size_words(given);
  if (!sizes) return sizes.error();
  out.insert(out.end(), sizes->begin(), sizes->end());
  const std::string output = in_folder(folder_, output_);
  if (!output_.empty() && !given.output) out.insert(out.end(), {"--output", output});
  // Without a file of its own, standard error goes to the same one.
  const std::string error =
      error_.empty() ? (output_.empty() || given.output ? "" : output) : in_folder(folder_, error_);
  if (!error.empty() && !given.error) out.insert(out.end(), {"--error", error});
  return out;
}

std::string slurm_hint(const std::string& name, const std::string& value) {
  const SlurmOption* const option = find_option(name);
  if (option == nullptr) return "";
  if (option->name == "account") return "write: --tenant-id " + (value.empty() ? "TENANT" : value);
  SlurmRequest request;
  Words given = {name};
  if (option->takes == Takes::kValue) given.push_back(value);
  const bool is_missing = value.empty() && option->takes == Takes::kValue;
  if (!is_missing) request.take(given, "");
  if (!is_missing && request.problems().empty()) {
    const Result<Words> ours = request.words({});
    if (!ours || ours->empty()) return "leave it out: it has no effect here";
    std::string line;
    for (const std::string& word : *ours) line += (line.empty() ? "" : " ") + word;
    return "write: " + line;
  }
  std::string sentence = is_missing ? "" : request.problems().front();
  if (const std::size_t colon = sentence.find(": ");
      sentence.starts_with("#SBATCH ") && colon != std::string::npos)
    sentence.erase(0, colon + 2);
  const auto replace_all = [&](std::string_view old, std::string_view with) {
    for (std::size_t at = 0; (at = sentence.find(old, at)) != std::string::npos; at += with.size())
      sentence.replace(at, old.size(), with);
  };
  replace_all("#GPU ", "");
  replace_all("remove the line", "leave it out");
  return sentence;
}

}  // namespace gpusched::cli

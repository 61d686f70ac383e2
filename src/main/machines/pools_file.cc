#include "main/machines/pools_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <random>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "config/yaml_problem.h"
#include "machines/drivers/command_provider.h"
#include "machines/drivers/local_provider.h"
#include "machines/drivers/slurm_provider.h"
#include "ops/machine.h"
#include "ops/trusted_path.h"

namespace gpusched {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;
constexpr std::size_t kPoolsMax = 64;
constexpr std::size_t kListMax = 64;
constexpr std::size_t kPoolNameMax = 40;
constexpr int64_t kMachinesMax = 1'000;
constexpr int64_t kGpusMax = 64;
constexpr double kPriceMax = 1e6;
constexpr int64_t kDaySeconds = 86'400;

using Members = std::map<std::string, YAML::Node>;

/// Machines are named as the pool with a number behind it, and names of nodes and hosts are of such letters.
bool is_pool_name(std::string_view name) {
  return !name.empty() && name.size() <= kPoolNameMax && name.front() >= 'a' && name.front() <= 'z' &&
         std::ranges::all_of(
             name, [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

class PoolsReader {
 public:
  explicit PoolsReader(std::string path) : path_(std::move(path)) {}

  void read(const YAML::Node& root);
  const std::string& problems() const { return problems_; }
  void problem(const std::string& sentence) { problems_ += (problems_.empty() ? "" : "\n") + sentence; }
  PoolsFile take() { return std::move(out_); }

 private:
  void problem(const YAML::Node& at, const std::string& sentence) {
    problem(path_ + ":" + std::to_string(at.Mark().line + 1) + ": " + sentence);
  }
  Members members(const YAML::Node& entry, const std::string& what, std::initializer_list<const char*> known);
  std::string text(const Members& from, const char* name, const YAML::Node& entry, bool needed);
  int64_t number(const Members& from, const char* name, int64_t fallback, int64_t min, int64_t max);
  int64_t price(const Members& from, const char* name);
  std::vector<std::string> words(const Members& from, const char* name);
  std::vector<std::string> program(const Members& from, const char* name, const YAML::Node& entry,
                                   bool needed);
  std::map<std::string, std::string> texts(const Members& from, const char* name);
  void read_pool(const YAML::Node& entry);
  void read_shape(const YAML::Node& entry, provision::MachineShape& shape);
  void read_driver(const Members& found, const YAML::Node& entry, PoolEntry& out);

  const std::string path_;
  std::string problems_;
  PoolsFile out_;
};

Members PoolsReader::members(const YAML::Node& entry, const std::string& what,
                             std::initializer_list<const char*> known) {
  Members found;
  std::string names;
  for (const char* const name : known) names += (names.empty() ? "" : ", ") + std::string(name);
  if (!entry.IsMap()) {
    problem(entry, what + " is no map with the keys " + names);
    return found;
  }
  for (const auto& pair : entry) {
    const std::string key = pair.first.IsScalar() ? pair.first.Scalar() : "(not a name)";
    if (std::ranges::find(known, key) == known.end()) {
      problem(pair.first, what + " has no key " + key + "; the known ones are " + names);
    } else if (!found.emplace(key, pair.second).second) {
      problem(pair.first, what + " has " + key + " twice");
    }
  }
  return found;
}

std::string PoolsReader::text(const Members& from, const char* name, const YAML::Node& entry, bool needed) {
  const auto found = from.find(name);
  if (found == from.end()) {
    if (needed) problem(entry, std::string("it needs a `") + name + ":`");
    return {};
  }
  const bool is_text = found->second.IsScalar() && !found->second.Scalar().empty();
  if (is_text && found->second.Scalar().size() <= limits::kNameBytesMax &&
      !has_control_character(found->second.Scalar()))
    return found->second.Scalar();
  problem(found->second, std::string("`") + name + ":` is no text of 1 to " +
                             std::to_string(limits::kNameBytesMax) + " bytes");
  return {};
}

int64_t PoolsReader::number(const Members& from, const char* name, int64_t fallback, int64_t min,
                            int64_t max) {
  const auto found = from.find(name);
  if (found == from.end()) return fallback;
  int64_t value = 0;
  const std::string& scalar = found->second.IsScalar() ? found->second.Scalar() : std::string();
  const char* const end = scalar.data() + scalar.size();
  const auto [stop, error] = std::from_chars(scalar.data(), end, value);
  if (!scalar.empty() && error == std::errc{} && stop == end && value >= min && value <= max) return value;
  problem(found->second, std::string("`") + name + ":` is no whole number from " + std::to_string(min) +
                             " to " + std::to_string(max));
  return fallback;
}

/// In thousandths.
int64_t PoolsReader::price(const Members& from, const char* name) {
  const auto found = from.find(name);
  if (found == from.end()) return 0;
  double value = 0;
  const std::string scalar = found->second.IsScalar() ? found->second.Scalar() : std::string();
  const char* const end = scalar.data() + scalar.size();
  const auto [stop, error] = std::from_chars(scalar.data(), end, value);
  if (!scalar.empty() && error == std::errc{} && stop == end && value >= 0 && value <= kPriceMax)
    return std::llround(value * 1'000);
  problem(found->second, std::string("`") + name + ":` is no number from 0 to 1000000");
  return 0;
}

std::vector<std::string> PoolsReader::words(const Members& from, const char* name) {
  std::vector<std::string> out;
  const auto found = from.find(name);
  if (found == from.end()) return out;
  if (!found->second.IsSequence() || found->second.size() > kListMax) {
    problem(found->second,
            std::string("`") + name + ":` is no list of at most " + std::to_string(kListMax) + " words");
    return out;
  }
  for (const YAML::Node& each : found->second) {
    if (each.IsScalar()) {
      out.push_back(each.Scalar());
    } else {
      problem(each, std::string("`") + name + ":` has an entry that is no word");
    }
  }
  return out;
}

std::map<std::string, std::string> PoolsReader::texts(const Members& from, const char* name) {
  std::map<std::string, std::string> out;
  const auto found = from.find(name);
  if (found == from.end()) return out;
  if (!found->second.IsMap() || found->second.size() > kListMax) {
    problem(found->second,
            std::string("`") + name + ":` is no map of at most " + std::to_string(kListMax) + " texts");
    return out;
  }
  for (const auto& pair : found->second) {
    const bool good = pair.first.IsScalar() && pair.second.IsScalar() && !pair.first.Scalar().empty() &&
                      pair.first.Scalar().size() <= limits::kNameBytesMax &&
                      pair.second.Scalar().size() <= limits::kNameBytesMax &&
                      !has_control_character(pair.first.Scalar()) &&
                      !has_control_character(pair.second.Scalar());
    if (!good || !out.emplace(pair.first.Scalar(), pair.second.Scalar()).second)
      problem(pair.first, std::string("`") + name + ":` has an entry that is no text, or one twice");
  }
  return out;
}

void PoolsReader::read_shape(const YAML::Node& entry, provision::MachineShape& shape) {
  const Members found =
      members(entry, "`machine:`",
              {"gpus", "gpu_model", "gpu_memory_mb", "cpu_cores", "memory_mb", "features", "labels"});
  if (!entry.IsMap()) return;
  shape.gpus = static_cast<int32_t>(number(found, "gpus", 0, 0, kGpusMax));
  shape.gpu_model = text(found, "gpu_model", entry, shape.gpus > 0);
  shape.gpu_memory_mb = number(found, "gpu_memory_mb", 0, 0, limits::kMegabytesMax);
  if (shape.gpus > 0 && shape.gpu_memory_mb == 0) problem(entry, "it needs a `gpu_memory_mb:`");
  shape.cpu_milli = number(found, "cpu_cores", 0, 1, limits::kCpuCoresMax) * 1'000;
  shape.memory_mb = number(found, "memory_mb", 0, 1, limits::kMegabytesMax);
  for (const char* const name : {"cpu_cores", "memory_mb"}) {
    if (!found.contains(name)) problem(entry, std::string("it needs a `") + name + ":`");
  }
  shape.features = words(found, "features");
  std::ranges::sort(shape.features);
  for (const auto& [name, value] : texts(found, "labels")) {
    if (name == provision::kPoolLabel) {
      problem(found.at("labels"), "the label `pool` is the pool's name, and is set by itself");
    } else {
      shape.labels.push_back({.name = name, .value = value});
    }
  }
}

/// Keys of a pool that one or two drivers have.
struct DriverKey {
  const char* key;
  std::string_view driver, other = {};
};
constexpr DriverKey kDriverKeys[] = {
    {"command", "command"},       {"settings", "command"}, {"timeout_seconds", "command", "slurm"},
    {"resume", "slurm"},          {"suspend", "slurm"},    {"resume_fail", "slurm"},
    {"suspend_seconds", "slurm"}, {"delay_ms", "local"},   {"agent_options", "local"},
    {"folder", "local"}};

std::vector<std::string> PoolsReader::program(const Members& from, const char* name, const YAML::Node& entry,
                                              bool needed) {
  std::vector<std::string> out = words(from, name);
  const bool is_path = !out.empty() && out.front().starts_with('/');
  if (!is_path && (needed || from.contains(name)))
    problem(entry, std::string("it needs a `") + name + ":`, such as [/usr/local/bin/machines, --region, a]");
  return out;
}

void PoolsReader::read_driver(const Members& found, const YAML::Node& entry, PoolEntry& out) {
  out.driver = text(found, "driver", entry, true);
  if (out.driver != "command" && out.driver != "slurm" && out.driver != "local") {
    if (!out.driver.empty()) problem(found.at("driver"), "`driver:` is neither command, slurm nor local");
    return;
  }
  for (const DriverKey& row : kDriverKeys) {
    if (!found.contains(row.key) || out.driver == row.driver || out.driver == row.other) continue;
    const std::string other = row.other.empty() ? "" : " and " + std::string(row.other);
    problem(found.at(row.key),
            std::string("`") + row.key + ":` is for the driver " + std::string(row.driver) + other);
  }
  out.command = program(found, "command", entry, out.driver == "command");
  out.resume = program(found, "resume", entry, out.driver == "slurm");
  out.suspend = program(found, "suspend", entry, out.driver == "slurm");
  out.resume_fail = program(found, "resume_fail", entry, false);
  out.suspend_time = seconds(number(found, "suspend_seconds", 30, 0, kDaySeconds));
  out.timeout = seconds(number(found, "timeout_seconds", 120, 1, 3'600));
  out.settings = texts(found, "settings");
  out.delay = milliseconds(number(found, "delay_ms", 0, 0, kDaySeconds * 1'000));
  out.agent_options = words(found, "agent_options");
  out.folder = text(found, "folder", entry, false);
  if (!out.folder.empty() && !out.folder.starts_with('/'))
    problem(found.at("folder"), "`folder:` is no path from the root, such as /var/lib/gpu-machines");
}

void PoolsReader::read_pool(const YAML::Node& entry) {
  const Members found =
      members(entry, "a pool",
              {"name",         "driver",          "machine",         "region",        "minimum",
               "maximum",      "price_per_hour",  "budget_per_hour", "boot_seconds",  "boot_limit_seconds",
               "idle_seconds", "requests_max",    "poll_seconds",    "sweep_seconds", "calls_per_minute",
               "command",      "timeout_seconds", "settings",        "resume",        "suspend",
               "resume_fail",  "suspend_seconds", "delay_ms",        "agent_options", "folder"});
  if (!entry.IsMap()) return;
  PoolEntry out;
  provision::Pool& pool = out.pool;
  pool.name = text(found, "name", entry, true);
  if (!pool.name.empty() && !is_pool_name(pool.name))
    problem(found.at("name"),
            "a pool's name is up to 40 lower-case letters, digits and -, and begins with a letter");
  if (std::ranges::any_of(out_.pools, [&](const PoolEntry& other) { return other.pool.name == pool.name; }))
    problem(entry, "there is another pool " + pool.name);
  if (found.contains("machine")) {
    read_shape(found.at("machine"), pool.shape);
  } else {
    problem(entry, "it needs a `machine:`");
  }
  if (const std::string region = text(found, "region", entry, false); !region.empty()) {
    std::vector<Label>& labels = pool.shape.labels;
    if (std::ranges::find(labels, provision::kRegionLabel, &Label::name) != labels.end())
      problem(found.at("region"), "`region:` is the label `region`, which `machine:` has, too: keep one");
    labels.push_back({.name = std::string(provision::kRegionLabel), .value = region});
    std::ranges::sort(labels, {}, &Label::name);
  }
  if (!found.contains("maximum")) problem(entry, "it needs a `maximum:`");
  pool.maximum = number(found, "maximum", 0, 0, kMachinesMax);
  pool.minimum = number(found, "minimum", 0, 0, kMachinesMax);
  if (pool.minimum > pool.maximum) problem(entry, "`minimum:` is above `maximum:`");
  pool.price_milli = price(found, "price_per_hour");
  pool.budget_milli = price(found, "budget_per_hour");
  if (pool.budget_milli > 0 && pool.price_milli == 0)
    problem(entry, "`budget_per_hour:` limits nothing without a `price_per_hour:`");
  pool.boot = seconds(number(found, "boot_seconds", 240, 1, kDaySeconds));
  pool.boot_limit = seconds(number(found, "boot_limit_seconds", 1'200, 1, kDaySeconds));
  pool.idle_after = seconds(number(found, "idle_seconds", 600, 1, 30 * kDaySeconds));
  pool.requests_max = number(found, "requests_max", 10, 1, kMachinesMax);
  out.poll = seconds(number(found, "poll_seconds", 10, 1, 3'600));
  out.sweep = seconds(number(found, "sweep_seconds", 60, 1, kDaySeconds));
  out.calls_per_minute = number(found, "calls_per_minute", 60, 1, 6'000);
  read_driver(found, entry, out);
  out_.pools.push_back(std::move(out));
}

void PoolsReader::read(const YAML::Node& root) {
  const Members found = members(root, "the file", {"pools", "every_ms", "pause_seconds"});
  if (!root.IsMap()) return;
  out_.every = milliseconds(number(found, "every_ms", 1'000, 50, 60'000));
  out_.pool_pause = seconds(number(found, "pause_seconds", 30, 1, 3'600));
  if (!found.contains("pools") || !found.at("pools").IsSequence() || found.at("pools").size() == 0 ||
      found.at("pools").size() > kPoolsMax)
    return problem(path_ + ": it needs `pools:`, a list of 1 to " + std::to_string(kPoolsMax) + " pools");
  for (const YAML::Node& entry : found.at("pools")) read_pool(entry);
}

}  // namespace

Result<PoolsFile> parse_pools_file(const std::string& path, const std::string& text) {
  PoolsReader reader(path);
  try {
    reader.read(YAML::Load(text));
  } catch (const YAML::Exception& failure) {
    reader.problem(yaml_problem(path, text, failure.mark.line, failure.msg));
  }
  if (!reader.problems().empty())
    return Error{.code = ErrorCode::kInvalidArgument, .message = reader.problems()};
  return reader.take();
}

Result<PoolsFile> load_pools_file(const std::string& path) {
  const std::string setting = "machines.pools_file: ";
  if (!ops::exists(path))
    return Error{.code = ErrorCode::kNotFound, .message = setting + "there is no file " + path};
  if (const std::optional<std::string> others = ops::changeable_by_others(path))
    return Error{.code = ErrorCode::kPermissionDenied, .message = setting + *others};
  const std::optional<std::string> text = ops::read_text(path, kFileBytesMax + 1);
  if (!text) return Error{.code = ErrorCode::kIo, .message = setting + "cannot read " + path};
  if (text->size() > kFileBytesMax)
    return Error{.code = ErrorCode::kTooLarge, .message = setting + path + " is larger than 1 MiB"};
  return parse_pools_file(path, *text);
}

Result<std::unique_ptr<machines::Machines>> open_machines(const PoolsFile& file, const PoolsPlace& place) {
  machines::MachinesOptions options{.record_file = place.data_dir + "/machines.json",
                                    .every = file.every,
                                    .pool_pause = file.pool_pause,
                                    .pool_pause_most = std::max(minutes(15), file.pool_pause),
                                    .seed = std::random_device{}()};
  for (const PoolEntry& entry : file.pools) {
    machines::PoolSetup setup{.pool = entry.pool,
                              .driver = entry.driver,
                              .poll = entry.poll,
                              .sweep = entry.sweep,
                              .calls_per_minute = entry.calls_per_minute};
    if (entry.driver == "command") {
      setup.provider = std::make_shared<machines::CommandProvider>(
          machines::CommandProviderOptions{.command = entry.command,
                                           .timeout = entry.timeout,
                                           .owner = place.owner,
                                           .settings = entry.settings});
    } else if (entry.driver == "slurm") {
      setup.provider = std::make_shared<machines::SlurmProvider>(
          machines::SlurmProviderOptions{.resume = entry.resume,
                                         .suspend = entry.suspend,
                                         .resume_fail = entry.resume_fail,
                                         .timeout = entry.timeout,
                                         .suspend_time = entry.suspend_time,
                                         .folder = place.data_dir + "/machines-slurm"});
    } else {
      const auto agent = [program = place.agent, options = entry.agent_options] {
        std::vector<std::string> words = program();
        words.insert(words.end(), options.begin(), options.end());
        return words;
      };
      setup.provider = std::make_shared<machines::LocalProvider>(machines::LocalProviderOptions{
          .folder = entry.folder.empty() ? place.data_dir + "/machines" : entry.folder,
          .agent = agent,
          .delay = entry.delay});
    }
    options.pools.push_back(std::move(setup));
  }
  return machines::Machines::open(std::move(options));
}

}  // namespace gpusched

#include "main/cluster_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <set>

#include "base/limits.h"
#include "config/keys.h"
#include "config/yaml_problem.h"
#include "log/line.h"

namespace gpusched {
namespace {

enum class Kind { kText, kLimit, kAmount, kHours, kTier, kWeight, kFlag };
struct Field {
  std::string_view name;
  Kind kind;
  int64_t max = 0;
};
constexpr Field kFields[] = {
    {"email", Kind::kText},
    {"organization", Kind::kText},
    {"max_gpus", Kind::kLimit, limits::kGpusPerJobMax},
    {"max_gpu_memory_mb", Kind::kLimit, limits::kMegabytesMax},
    {"max_cpu_cores", Kind::kLimit, limits::kCpuCoresMax},
    {"max_memory_mb", Kind::kLimit, limits::kMegabytesMax},
    {"max_concurrent_jobs", Kind::kLimit, 100'000'000},
    {"max_waiting_jobs", Kind::kLimit, limits::kWaitingJobsMax},
    {"soft_waiting_jobs", Kind::kLimit, limits::kWaitingJobsMax},
    {"guaranteed_gpus", Kind::kAmount, limits::kGpusPerJobMax},
    {"guaranteed_gpu_memory_mb", Kind::kAmount, limits::kMegabytesMax},
    {"guaranteed_cpu_cores", Kind::kAmount, limits::kCpuCoresMax},
    {"guaranteed_memory_mb", Kind::kAmount, limits::kMegabytesMax},
    {"guaranteed_jobs", Kind::kAmount, 100'000'000},
    {"max_gpu_hours", Kind::kHours},
    {"gpu_hours_window_seconds", Kind::kAmount, limits::kGpuTimeWindowMax.ms() / 1'000},
    {"priority_tier", Kind::kTier, limits::kPriorityMax},
    {"fair_share_weight", Kind::kWeight},
    {"allow_preemption", Kind::kFlag},
    {"can_preempt_others", Kind::kFlag},
    {"anonymous", Kind::kFlag},
};
struct Tier {
  std::string_view name;
  int64_t value;
};
constexpr Tier kTiers[] = {{"low", 100}, {"medium", 500}, {"high", 1000}, {"critical", 5000}};
constexpr double kWeightMax = 1e6;

const Field* find_field(std::string_view name) {
  const auto* const found = std::ranges::find(kFields, name, &Field::name);
  return found == std::end(kFields) ? nullptr : found;
}

std::string json_string(std::string_view text) {
  std::string out;
  append_json_string(out, text);
  return out;
}

template <typename Number>
bool parse_number(const std::string& text, Number& out) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  return error == std::errc{} && stop == end;
}

/// A weight as the API keeps it, in thousandths.
std::string weight_text(double weight) {
  const int64_t milli = std::llround(weight * 1'000);
  std::string text = std::to_string(milli / 1'000) + ".";
  const std::string rest = std::to_string(milli % 1'000 + 1'000).substr(1);
  return text + rest;
}

class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  void read(const YAML::Node& root);
  const std::string& problems() const { return problems_; }
  ClusterFile take() { return std::move(out_); }
  void problem(const std::string& sentence) { problems_ += (problems_.empty() ? "" : "\n") + sentence; }
  void problem(const YAML::Mark& mark, const std::string& sentence) {
    problems_ += (problems_.empty() ? "" : "\n") + at(mark) + ": " + sentence;
  }

 private:
  std::string at(const YAML::Mark& mark) const { return path_ + ":" + std::to_string(mark.line + 1); }
  void read_tenants(const YAML::Node& list);
  void read_tenant(const YAML::Node& entry);
  void read_value(ClusterTenant& tenant, const Field& field, const YAML::Node& key, const YAML::Node& value);
  bool read_scalar(const Field& field, const std::string& text, std::string& json) const;
  void read_nodes(const YAML::Node& list);
  void read_labels(ClusterNode& node, const YAML::Node& labels);
  void order_tenants();

  const std::string path_;
  std::string problems_;
  ClusterFile out_;
};

std::string expectation(const Field& field) {
  switch (field.kind) {
    case Kind::kText:
      return "a text";
    case Kind::kLimit:
      return "a whole number up to " + std::to_string(field.max) + ", or null for no limit";
    case Kind::kAmount:
      return "a whole number up to " + std::to_string(field.max);
    case Kind::kHours:
      return "a number of hours, or null for no limit";
    case Kind::kTier:
      return "low, medium, high, critical or a whole number";
    case Kind::kWeight:
      return "a number above 0";
    case Kind::kFlag:
      return "true or false";
  }
  UNREACHABLE();
}

bool Reader::read_scalar(const Field& field, const std::string& text, std::string& json) const {
  int64_t number = 0;
  double weight = 0;
  switch (field.kind) {
    case Kind::kText:
      json = json_string(text);
      return text.size() <= limits::kNameBytesMax;
    case Kind::kTier:
      for (const Tier& tier : kTiers) {
        if (text == tier.name) return json = std::to_string(tier.value), true;
      }
      [[fallthrough]];
    case Kind::kAmount:
    case Kind::kLimit:
      if (!parse_number(text, number) || number < 0 || number > field.max) return false;
      json = std::to_string(number);
      return true;
    case Kind::kWeight:
      if (!parse_number(text, weight) || !(weight >= 0.001) || weight > kWeightMax) return false;
      json = weight_text(weight);
      return true;
    case Kind::kHours:
      if (!parse_number(text, weight) || !(weight >= 0) || weight > 1e9) return false;
      json = weight_text(weight);
      return true;
    case Kind::kFlag:
      json = text;
      return text == "true" || text == "false";
  }
  UNREACHABLE();
}

void Reader::read_value(ClusterTenant& tenant, const Field& field, const YAML::Node& key,
                        const YAML::Node& value) {
  ClusterValue read;
  if (value.IsNull() && (field.kind == Kind::kLimit || field.kind == Kind::kHours)) {
    read.lifted = true;
  } else if (!value.IsScalar() || !read_scalar(field, value.Scalar(), read.json)) {
    problem(key.Mark(),
            "tenant " + tenant.name + ": " + std::string(field.name) + " must be " + expectation(field));
    return;
  }
  if (!tenant.values.emplace(field.name, read).second)
    problem(key.Mark(),
            "tenant " + tenant.name + ": " + std::string(field.name) + " is given twice; keep one");
}

void Reader::read_tenant(const YAML::Node& entry) {
  const bool named = entry.IsMap() && entry["name"] && entry["name"].IsScalar();
  if (!named || entry["name"].Scalar().empty() || entry["name"].Scalar().size() > limits::kNameBytesMax)
    return problem(entry.Mark(), "a tenant needs a `name:` of 1 to 253 bytes");
  ClusterTenant tenant{.name = entry["name"].Scalar(), .parent = {}, .values = {}, .where = at(entry.Mark())};
  if (std::ranges::find(out_.tenants, tenant.name, &ClusterTenant::name) != out_.tenants.end())
    problem(entry.Mark(), "tenant " + tenant.name + " is given twice; merge the two entries");
  for (const auto& pair : entry) {
    const std::string key = pair.first.IsScalar() ? pair.first.Scalar() : "(not a name)";
    if (key == "name") continue;
    if (key == "parent") {
      tenant.parent = pair.second.IsScalar() ? pair.second.Scalar() : "";
      continue;
    }
    if (const Field* const field = find_field(key); field != nullptr) {
      read_value(tenant, *field, pair.first, pair.second);
      continue;
    }
    std::string_view nearest = "parent";
    for (const Field& field : kFields) {
      if (edit_distance(key, field.name) < edit_distance(key, nearest)) nearest = field.name;
    }
    problem(pair.first.Mark(), "tenant " + tenant.name + ": this version has no `" + key +
                                   "`; did you mean " + std::string(nearest) + "?");
  }
  out_.tenants.push_back(std::move(tenant));
}

void Reader::read_tenants(const YAML::Node& list) {
  if (list.IsNull()) return;
  if (!list.IsSequence()) return problem(list.Mark(), "tenants must be a list of `- name: ...`");
  for (const YAML::Node& entry : list) read_tenant(entry);
}

void Reader::read_labels(ClusterNode& node, const YAML::Node& labels) {
  if (!labels.IsMap())
    return problem(labels.Mark(), "node " + node.name + ": labels must be `name: value` pairs");
  for (const auto& pair : labels) {
    const std::string key = pair.first.IsScalar() ? pair.first.Scalar() : "";
    const bool fits = pair.second.IsNull() ||
                      (pair.second.IsScalar() && pair.second.Scalar().size() <= limits::kLabelBytesMax);
    if (key.empty() || key.size() > limits::kLabelBytesMax || !fits) {
      problem(pair.first.Mark(), "node " + node.name + ": a label is a name and a value of at most " +
                                     std::to_string(limits::kLabelBytesMax) + " bytes, or null to remove it");
      continue;
    }
    node.labels[key] = pair.second.IsNull() ? std::nullopt : std::optional(pair.second.Scalar());
  }
}

void Reader::read_nodes(const YAML::Node& list) {
  if (list.IsNull()) return;
  if (!list.IsSequence()) return problem(list.Mark(), "nodes must be a list of `- name: ...`");
  for (const YAML::Node& entry : list) {
    if (!entry.IsMap() || !entry["name"] || !entry["name"].IsScalar() || entry["name"].Scalar().empty()) {
      problem(entry.Mark(), "a node needs a `name:`");
      continue;
    }
    ClusterNode node{.name = entry["name"].Scalar(), .labels = {}, .where = at(entry.Mark())};
    if (std::ranges::find(out_.nodes, node.name, &ClusterNode::name) != out_.nodes.end())
      problem(entry.Mark(), "node " + node.name + " is given twice; merge the two entries");
    for (const auto& pair : entry) {
      const std::string key = pair.first.IsScalar() ? pair.first.Scalar() : "(not a name)";
      if (key == "labels") read_labels(node, pair.second);
      if (key != "labels" && key != "name")
        problem(pair.first.Mark(),
                "node " + node.name + ": this version sets no `" + key + "` of a node, only labels");
    }
    out_.nodes.push_back(std::move(node));
  }
}

/// Parents first; a circle is a problem.
void Reader::order_tenants() {
  std::vector<ClusterTenant> ordered;
  std::set<std::string> placed;
  std::vector<ClusterTenant> waiting = std::move(out_.tenants);
  std::set<std::string> named;
  for (const ClusterTenant& tenant : waiting) named.insert(tenant.name);
  while (!waiting.empty()) {
    std::vector<ClusterTenant> later;
    for (ClusterTenant& tenant : waiting) {
      const bool ready =
          tenant.parent.empty() || !named.contains(tenant.parent) || placed.contains(tenant.parent);
      if (!ready) {
        later.push_back(std::move(tenant));
        continue;
      }
      placed.insert(tenant.name);
      ordered.push_back(std::move(tenant));
    }
    if (later.size() == waiting.size()) {
      problems_ += (problems_.empty() ? "" : "\n") + later.front().where + ": tenant " + later.front().name +
                   " is its own ancestor; correct the `parent:` of one of them";
      break;
    }
    waiting = std::move(later);
  }
  out_.tenants = std::move(ordered);
}

void Reader::read(const YAML::Node& root) {
  if (root.IsNull()) return;
  if (!root.IsMap()) return problem(root.Mark(), "expected the sections `tenants:` and `nodes:`");
  for (const auto& pair : root) {
    const std::string key = pair.first.IsScalar() ? pair.first.Scalar() : "(not a name)";
    if (key == "tenants") {
      read_tenants(pair.second);
    } else if (key == "nodes") {
      read_nodes(pair.second);
    } else if (key == "pools" || key == "queues" || key == "partitions") {
      problem(pair.first.Mark(),
              "this version does not support " + key +
                  "; label nodes instead, or remove the section. Nothing in the file was applied");
    } else {
      problem(pair.first.Mark(), "unknown section " + key + "; the known sections are tenants and nodes");
    }
  }
  order_tenants();
}

std::string yaml_text(const std::string& text) {
  const bool plain =
      !text.empty() &&
      text.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./@") ==
          std::string::npos &&
      std::isalpha(static_cast<unsigned char>(text[0])) != 0;
  static const std::set<std::string> kWords = {"true", "false", "null", "yes",  "no",    "on",   "off",  "y",
                                               "n",    "Null",  "NULL", "True", "False", "TRUE", "FALSE"};
  return plain && !kWords.contains(text) ? text : json_string(text);
}

}  // namespace

Result<ClusterFile> parse_cluster_file(const std::string& path, const std::string& text) {
  Reader reader(path);
  try {
    reader.read(YAML::Load(text));
  } catch (const YAML::Exception& failure) {
    reader.problem(yaml_problem(path, text, failure.mark.line, failure.msg));
  }
  if (!reader.problems().empty())
    return Error{.code = ErrorCode::kInvalidArgument, .message = reader.problems()};
  return reader.take();
}

ClusterFile cluster_of(const Json& tenants, const Json& nodes) {
  ClusterFile cluster;
  std::map<std::string, std::string> name_of;
  for (const Json& tenant : tenants["tenants"].items()) name_of[tenant["id"].text()] = tenant["name"].text();
  for (const Json& tenant : tenants["tenants"].items()) {
    ClusterTenant read{
        .name = tenant["name"].text(), .parent = name_of[tenant["parent_id"].text()], .values = {}};
    for (const Field& field : kFields) {
      const Json value = tenant[field.name];
      ClusterValue& out = read.values[std::string(field.name)];
      out.lifted = (field.kind == Kind::kLimit || field.kind == Kind::kHours) && value.is_null();
      if (field.kind == Kind::kWeight || (field.kind == Kind::kHours && !out.lifted)) {
        out.json = weight_text(value.number());
      } else if (field.kind == Kind::kAmount && value.is_null()) {
        read.values.erase(std::string(field.name));
      } else if (field.kind == Kind::kTier && value.is_string()) {
        const auto* const tier = std::ranges::find(kTiers, value.text(), &Tier::name);
        out.json = tier != std::end(kTiers) ? std::to_string(tier->value) : value.text();
      } else if (!out.lifted) {
        out.json = value.is_null() ? "\"\"" : value.serialize();
      }
    }
    cluster.tenants.push_back(std::move(read));
  }
  for (const Json& node : nodes["nodes"].items()) {
    ClusterNode read{.name = node["name"].text(), .labels = {}};
    for (const auto& [name, value] : node["labels"].members()) read.labels[name] = value.text();
    cluster.nodes.push_back(std::move(read));
  }
  std::ranges::sort(cluster.nodes, {}, &ClusterNode::name);
  return cluster;
}

std::string print_cluster_file(const ClusterFile& cluster) {
  std::string out =
      "# Desired state for `gpu-scheduler admin apply -f FILE`. Omitted keys are left unchanged; null means "
      "no limit.\n"
      "tenants:\n";
  for (const ClusterTenant& tenant : cluster.tenants) {
    out += "  - name: " + yaml_text(tenant.name) + "\n";
    if (!tenant.parent.empty()) out += "    parent: " + yaml_text(tenant.parent) + "\n";
    for (const Field& field : kFields) {
      const auto found = tenant.values.find(std::string(field.name));
      if (found == tenant.values.end() || found->second.json == "\"\"") continue;
      out += "    " + std::string(field.name) + ": " + (found->second.lifted ? "null" : found->second.json) +
             "\n";
    }
  }
  out += "nodes:\n";
  for (const ClusterNode& node : cluster.nodes) {
    out += "  - name: " + yaml_text(node.name) + "\n    labels: {";
    std::string labels;
    for (const auto& [name, value] : node.labels)
      labels += (labels.empty() ? "" : ", ") + yaml_text(name) + ": " + yaml_text(value.value_or(""));
    out += labels + "}\n";
  }
  return out;
}

}  // namespace gpusched

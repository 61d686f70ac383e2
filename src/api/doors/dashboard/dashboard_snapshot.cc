#include "api/doors/dashboard/dashboard_snapshot.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "api/contract/json_writer.h"
#include "api/contract/names.h"

namespace gpusched::api {
namespace {

/// Words that repeat, by their numbers.
class Words {
 public:
  int64_t number_of(const std::string& word) {
    const auto [at, is_new] = numbers_.try_emplace(word, static_cast<int64_t>(words_.size()));
    if (is_new) words_.push_back(word);
    return at->second;
  }
  void write(JsonWriter& json) const {
    json.begin_array();
    for (const std::string& word : words_) json.value(word);
    json.end_array();
  }

 private:
  std::unordered_map<std::string, int64_t> numbers_;
  std::vector<std::string> words_;
};

void write_facts(const DashboardFacts& facts, JsonWriter& json) {
  json.field("version", facts.version).field("sign_in", facts.has_sign_in);
}

void write_caller(const access::Caller& caller, JsonWriter& json) {
  json.key("caller").begin_object();
  json.field("kind", to_string(caller.kind)).field("name", caller.name);
  json.field("session", caller.session != 0).field("ends_at", caller.ends_at);
  json.key("roles").begin_array();
  for (const Binding& binding : caller.bindings) {
    json.begin_object().field("role", to_string(binding.role));
    if (binding.tenant.valid()) json.field("tenant_id", tenant_name(binding.tenant));
    json.end_object();
  }
  json.end_array().end_object();
}

void write_cluster(const ClusterView& cluster, JsonWriter& json) {
  json.begin_object();
  json.field("sequence", cluster.sequence).field("name", cluster.name);
  json.field("total_nodes", cluster.total_nodes).field("online_nodes", cluster.online_nodes);
  json.field("total_gpus", cluster.total_gpus).field("available_gpus", cluster.available_gpus);
  json.field("total_jobs", cluster.total_jobs);
  json.field("running_jobs", cluster.running_jobs).field("pending_jobs", cluster.pending_jobs);
  json.field("average_gpu_utilization", cluster.average_gpu_utilization);
  json.field("paused_since", cluster.paused_since);
  json.field("paused_by", cluster.paused_by).field("pause_reason", cluster.pause_reason);
  json.end_object();
}

/// Holders of a device by the numbers of their jobs, and of their tenants' words.
void write_holders(const DeviceView& device, Words& words, JsonWriter& json) {
  json.begin_array();
  for (const HolderView& holder : device.holders) {
    json.begin_array().value(job_name(holder.job)).value(words.number_of(tenant_name(holder.tenant)));
    json.value(holder.milli).end_array();
  }
  json.end_array();
}

void write_device(const DeviceView& device, Words& words, JsonWriter& json) {
  json.begin_array();
  json.value(device.index).value(words.number_of(device.model));
  json.value(words.number_of(device.state)).value(words.number_of(device.condition));
  json.value(device.utilization_percent).value(device.temperature_celsius);
  json.value(device.memory_used_mb).value(device.memory_mb).value(device.milli_used);
  write_holders(device, words, json);
  json.end_array();
}

}  // namespace

const JobMask& listed_fields() {
  static const JobMask kMask = *parse_job_mask(kListedFields);
  return kMask;
}

std::string compact_nodes_json(const std::vector<NodeView>& nodes) {
  std::string out;
  JsonWriter json(out);
  Words words;
  json.begin_object().key("nodes").begin_array();
  for (const NodeView& node : nodes) {
    json.begin_array().value(node.name).value(words.number_of(node.state));
    json.value(words.number_of(std::string(contact_name(node.contact)))).begin_array();
    for (const DeviceView& device : node.devices) write_device(device, words, json);
    json.end_array();
    json.value(node.cpu_milli).value(node.cpu_milli_free).value(node.memory_mb).value(node.memory_mb_free);
    json.value(node.attempts).value(node.state_reason).value(node.suspect).end_array();
  }
  json.end_array().key("words");
  words.write(json);
  json.end_object();
  return out;
}

std::string line_json(const JobPage& page) {
  std::string out = native_job_page_json(page, listed_fields());
  out.pop_back();  // The object goes on.
  out += ",\"starts_in_s\":";
  JsonWriter json(out);
  json.begin_object();
  for (const JobView& job : page.jobs) {
    if (job.estimated_wait) json.field(job_name(job.id), job.estimated_wait->ms() / 1000);
  }
  json.end_object();
  out += '}';
  return out;
}

namespace {

/// One snapshot in the making. Its parts are asked for one after the other.
class Snapshot : public std::enable_shared_from_this<Snapshot> {
 public:
  Snapshot(Backend& backend, CallerPtr caller, std::function<void(std::string)> done)
      : backend_(backend), caller_(std::move(caller)), done_(std::move(done)) {}

  void begin(const DashboardFacts& facts) {
    json_.begin_object();
    write_facts(facts, json_);
    write_caller(*caller_, json_);
    backend_.get_cluster(caller_, [self = shared_from_this()](const Answer<ClusterView>& answer) {
      self->add("cluster", answer, [&](const ClusterView& cluster) { write_cluster(cluster, self->json_); });
      self->ask_nodes();
    });
  }

 private:
  void ask_nodes() {
    backend_.list_nodes(caller_, [self = shared_from_this()](const Answer<std::vector<NodeView>>& answer) {
      self->add("nodes", answer,
                [&](const std::vector<NodeView>& nodes) { self->put(compact_nodes_json(nodes)); });
      self->ask_tenants();
    });
  }
  void ask_tenants() {
    backend_.list_tenants(caller_,
                          [self = shared_from_this()](const Answer<std::vector<TenantView>>& answer) {
                            self->add("tenants", answer, [&](const std::vector<TenantView>& tenants) {
                              self->json_.begin_object();
                              for (const TenantView& tenant : tenants)
                                self->json_.field(tenant_name(tenant.id), tenant.settings.name.value_or(""));
                              self->json_.end_object();
                            });
                            self->ask_line();
                          });
  }
  void ask_line() {
    const JobFilter filter{.state = JobState::kPending,
                           .limit = kSnapshotJobs,
                           .in_line = true,
                           .details = listed_fields().details()};
    backend_.list_jobs(caller_, filter, [self = shared_from_this()](const Answer<JobPage>& answer) {
      self->add("line", answer, [&](const JobPage& page) { self->put(line_json(page)); });
      self->finish();
    });
  }
  void finish() {
    json_.key("problems").begin_object();
    for (const auto& [name, message] : problems_) json_.field(name, message);
    json_.end_object().end_object();
    done_(std::move(out_));
  }

  template <typename View, typename Write>
  void add(std::string_view name, const Answer<View>& answer, const Write& write) {
    json_.key(name);
    if (answer) return write(*answer);
    json_.null();
    problems_.emplace_back(name, answer.error().message);
  }
  /// A value that is JSON already.
  void put(const std::string& value) { json_.raw(value); }

  Backend& backend_;
  const CallerPtr caller_;
  const std::function<void(std::string)> done_;
  std::string out_;
  JsonWriter json_{out_};
  std::vector<std::pair<std::string_view, std::string>> problems_;
};

}  // namespace

void make_snapshot(Backend& backend, const CallerPtr& caller, const DashboardFacts& facts,
                   std::function<void(std::string json)> done) {
  std::make_shared<Snapshot>(backend, caller, std::move(done))->begin(facts);
}

std::string refused_snapshot(const DashboardFacts& facts, const ApiError& error) {
  std::string out;
  JsonWriter json(out);
  json.begin_object();
  write_facts(facts, json);
  json.key("caller").null();
  json.key("refused").begin_object();
  json.field("code", row_of(error.kind).code).field("message", error.message).end_object();
  json.end_object();
  return out;
}

}  // namespace gpusched::api

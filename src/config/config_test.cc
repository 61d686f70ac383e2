#include "config/config.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "config/keys.h"

namespace gpusched {
namespace {

/// A YAML file that is gone after the test.
class ConfigFile {
 public:
  explicit ConfigFile(const std::string& text) : path_(::testing::TempDir() + "gpusched_config_XXXXXX") {
    const int fd = ::mkstemp(path_.data());
    EXPECT_GE(fd, 0);
    EXPECT_EQ(::write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    ::close(fd);
  }
  ConfigFile(const ConfigFile&) = delete;
  ConfigFile& operator=(const ConfigFile&) = delete;
  ~ConfigFile() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<LoadedConfig> load(const std::string& yaml, std::map<std::string, std::string> environment = {}) {
  const ConfigFile file(yaml);
  return load_config({.path = file.path(), .environment = std::move(environment)});
}

/// The problem that `yaml` is refused with, without the file's name: "3: unknown key ...".
std::string refusal(const std::string& yaml, std::map<std::string, std::string> environment = {}) {
  const ConfigFile file(yaml);
  const Result<LoadedConfig> loaded =
      load_config({.path = file.path(), .environment = std::move(environment)});
  if (loaded.ok()) return "accepted";
  EXPECT_EQ(loaded.error().code, ErrorCode::kInvalidArgument);
  std::string message = loaded.error().message;
  const std::string prefix = file.path() + ":";
  for (size_t at = message.find(prefix); at != std::string::npos; at = message.find(prefix)) {
    message.erase(at, prefix.size());
  }
  return message;
}

TEST(ConfigDefaults, AreTheDocumentedPortsAndLimits) {
  const Result<LoadedConfig> loaded = load_config({});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->values.api.http_port, 8080);
  EXPECT_EQ(loaded->values.api.grpc_port, 9090);
  EXPECT_EQ(loaded->values.metrics.port, 9091);
  EXPECT_EQ(loaded->values.api.address, "127.0.0.1");
  EXPECT_EQ(loaded->values.scheduler.max_queue_size, 1'000'000);
  EXPECT_EQ(loaded->values.scheduler.aging_per_hour, 10);
  EXPECT_EQ(loaded->values.scheduler.node_lease_ms, 15'000);
  EXPECT_EQ(loaded->values.scheduler.drain_limit_seconds, 60);
  EXPECT_TRUE(loaded->origins.empty());
}

TEST(ConfigText, ATabInTheIndentationIsNamedWithItsLine) {
  const std::string sentence =
      ": the line is indented with a tab, but YAML allows only spaces; replace the tab with spaces";
  EXPECT_EQ(refusal("api:\n\thttp_port: 1\n"), "2" + sentence);
  EXPECT_EQ(refusal("api:\n  http_port: 1\n\tgrpc_port: 2\n"), "3" + sentence);
  EXPECT_EQ(refusal("api:\n  http_port: 1\n  \tgrpc_port: 2\nlog:\n"), "3" + sentence);
  EXPECT_EQ(refusal("\tapi:\n  http_port: 1\n"), "1" + sentence);
  // A tab elsewhere is no trouble, and none that is not at fault is blamed.
  EXPECT_EQ(refusal("api: # a comment\t\n  http_port:\t1\n\n"), "accepted");
  EXPECT_EQ(refusal("\t# only this\napi: {http_port: 1}}\n").find(sentence), std::string::npos);
}

TEST(ConfigWhole, AHeartbeatThatWouldCostTheLeaseIsRefused) {
  const std::string refused = refusal("agent: {heartbeat_interval_ms: 5001}\n");
  EXPECT_NE(refused.find(
                "agent.heartbeat_interval_ms is 5001, more than a third of scheduler.node_lease_ms (15000)"),
            std::string::npos)
      << refused;
  EXPECT_NE(refused.find("set it to at most 5000, or the lease to at least 15003"), std::string::npos)
      << refused;
  EXPECT_EQ(refusal("agent: {heartbeat_interval_ms: 5000}\n"), "accepted");
  EXPECT_EQ(refusal("agent: {heartbeat_interval_ms: 20000}\nscheduler: {node_lease_ms: 60000}\n"),
            "accepted");
  // An interval that nobody wrote follows the lease.
  EXPECT_EQ(refusal("scheduler: {node_lease_ms: 3000}\n"), "accepted");
  EXPECT_NE(
      refusal("scheduler: {node_lease_ms: 3000}\n", {{"GPU_SCHEDULER_AGENT_HEARTBEAT_INTERVAL_MS", "2000"}}),
      "accepted");
}

TEST(ConfigWhole, WeightsOfUsersAreReadByTheirLastEqualsSign) {
  const auto weights = parse_user_weights({"chat-bot=2.5", "a=b=0.01"});
  ASSERT_TRUE(weights.has_value());
  EXPECT_EQ(*weights, (std::map<std::string, int64_t>{{"chat-bot", 2'500}, {"a=b", 10}}));
  for (const char* wrong :
       {"chat-bot", "=2", "chat-bot=", "chat-bot=0", "chat-bot=11", "chat-bot=2x", "chat-bot=nan"})
    EXPECT_FALSE(parse_user_weights({wrong}).has_value()) << wrong;
  EXPECT_FALSE(parse_user_weights({"chat-bot=1", "chat-bot=2"}).has_value());
  EXPECT_NE(refusal("tasks: {user_weights: [chat-bot=0]}\n").find("expected, for example, chat-bot=2.5"),
            std::string::npos);
}

TEST(ConfigKeys, AreUniqueAndEachDefaultIsAllowed) {
  std::set<std::string> names;
  std::set<std::string> variables;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_TRUE(names.insert(key.full_name()).second) << key.full_name();
    EXPECT_TRUE(variables.insert(key.environment()).second) << key.environment();
    EXPECT_TRUE(key.meaning.ends_with('.')) << key.full_name();
    std::string value = config_value_text(key, Config{});
    if (value.starts_with('[')) continue;
    if (value.starts_with('"')) value = value.substr(1, value.size() - 2);
    const Result<LoadedConfig> loaded = load_config({.environment = {{key.environment(), value}}});
    EXPECT_TRUE(loaded.ok()) << (loaded.ok() ? "" : loaded.error().message);
  }
}

TEST(ConfigKeys, EachWritesItsOwnValueOnly) {
  Config config;
  std::set<const void*> places;
  for (const ConfigKey& key : config_keys()) {
    const void* const place = std::visit([](auto* value) -> const void* { return value; }, key.slot(config));
    EXPECT_TRUE(places.insert(place).second) << key.full_name();
  }
}

TEST(ConfigFileValues, OfEveryTypeAreRead) {
  const Result<LoadedConfig> loaded = load(
      "scheduler:\n  max_queue_size: 5\n  thermal_threshold: 80.5\n"
      "api:\n  cors_enabled: yes\n  cors_origins: [\"https://a\", \"https://b\"]\n  address: \"::1\"\n");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->values.scheduler.max_queue_size, 5);
  EXPECT_EQ(loaded->values.scheduler.thermal_threshold, 80.5);
  EXPECT_TRUE(loaded->values.api.cors_enabled);
  EXPECT_EQ(loaded->values.api.cors_origins, (std::vector<std::string>{"https://a", "https://b"}));
  EXPECT_EQ(loaded->values.api.address, "::1");
}

TEST(ConfigFileValues, MayLeaveEverythingOut) {
  EXPECT_TRUE(load("").ok());
  EXPECT_TRUE(load("# only a comment\n").ok());
  EXPECT_TRUE(load("api:\n").ok());
}

TEST(ConfigFileValues, AcceptTheKeysOfOtherSchedulersThatHaveNoEffect) {
  const Result<LoadedConfig> loaded = load(
      "database:\n  host: db\n  password: secret\nredis:\n  db: 3\nkubernetes:\n  in_cluster: true\n"
      "  namespace: gpus\n");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->values.database.host, "db");
  EXPECT_EQ(loaded->values.redis.db, 3);
  EXPECT_EQ(loaded->values.kubernetes.name_space, "gpus");
}

/// Every key of a scheduler whose file starts this one unmodified.
constexpr const char* kForeignFile = R"(environment: development
scheduler: {scheduling_interval_ms: 1000, max_queue_size: 10000, enable_preemption: true, default_priority: 100,
  enable_gang_scheduling: true, enable_thermal_aware: true, thermal_threshold: 75.0}
agent: {node_id: "", heartbeat_interval_ms: 5000, metrics_interval_ms: 10000, health_check_interval_ms: 30000,
  dcgm_enabled: false, dcgm_host_port: "localhost:5555", container_runtime: docker}
database: {host: localhost, port: 5433, user: postgres, password: "gpu123", database: gpu_scheduler,
  sslmode: disable, max_open_conns: 25, max_idle_conns: 5, conn_max_lifetime_mins: 30}
redis: {host: localhost, port: 6379, password: "", db: 0, pool_size: 10, min_idle_conns: 2}
kubernetes: {in_cluster: false, kubeconfig_path: ~/.kube/config, namespace: gpu-system}
api: {grpc_port: 9090, http_port: 8080, enable_tls: false, tls_cert_path: "", tls_key_path: "",
  cors_enabled: true, cors_origins: "*", rate_limit_rps: 100}
metrics: {enabled: true, port: 9091, path: /metrics, namespace: gpu_scheduler}
telemetry: {tracing_enabled: false, jaeger_endpoint: "http://localhost:14268/api/traces",
  profiling_enabled: false, profiling_port: 6060}
)";

TEST(ConfigForeignFile, IsAcceptedAndWhatHasNoEffectIsNamed) {
  const Result<LoadedConfig> loaded = load(kForeignFile);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->values.environment, "development");
  EXPECT_EQ(loaded->values.telemetry.profiling_port, 6060);
  const std::string named = keys_without_effect(*loaded);
  for (const char* key :
       {"environment", "scheduler.scheduling_interval_ms", "agent.node_id", "agent.health_check_interval_ms",
        "agent.dcgm_host_port", "database.max_open_conns", "database.max_idle_conns", "redis.pool_size",
        "redis.min_idle_conns", "telemetry.tracing_enabled", "telemetry.jaeger_endpoint",
        "telemetry.profiling_enabled", "telemetry.profiling_port"}) {
    EXPECT_NE((", " + named + ",").find(std::string(", ") + key + ","), std::string::npos) << key;
  }
  EXPECT_EQ(named.find("scheduler.max_queue_size"), std::string::npos);
  EXPECT_EQ(named.find("database.host"), std::string::npos);
  EXPECT_EQ(named.find("database.conn_max_lifetime_mins"), std::string::npos);
  EXPECT_EQ(named.find("api.cors_origins"), std::string::npos);
  EXPECT_EQ(keys_without_effect(*load("api: {http_port: 1}\n")), "");
}

TEST(ConfigForeignFile, KeysWithoutEffectTakeAnyValue) {
  const Result<LoadedConfig> loaded = load(
      "environment:\ndatabase: {max_open_conns: often, max_idle_conns: {a: 1}}\nredis: {db: [1]}\n"
      "agent: {metrics_interval_ms: 1}\n");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->values.database.max_open_conns, 10);
  EXPECT_EQ(loaded->values.agent.metrics_interval_ms, 5'000);
  EXPECT_EQ(keys_without_effect(*loaded),
            "environment, agent.metrics_interval_ms, database.max_open_conns, database.max_idle_conns, "
            "redis.db");
}

TEST(ConfigForeignFile, MisspeltKeysOfItAreRefusedToo) {
  EXPECT_EQ(refusal("telemetry: {tracing_enable: true}\n"),
            "1: unknown key telemetry.tracing_enable; did you mean telemetry.tracing_enabled?");
  EXPECT_EQ(refusal("enviroment: x\n"), "1: unknown key enviroment; did you mean environment?");
  EXPECT_EQ(refusal("environment: x\nenvironment: y\n"), "2: environment is given twice; keep one");
}

TEST(ConfigEnvironment, SetsTheKeyBesideTheSections) {
  const Result<LoadedConfig> loaded = load("environment: a\n", {{"GPU_SCHEDULER_ENVIRONMENT", "b"}});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->values.environment, "b");
  EXPECT_NE(print_config(*loaded).find(
                "\nenvironment: \"b\"  # environment variable GPU_SCHEDULER_ENVIRONMENT; no effect\n"),
            std::string::npos);
}

TEST(ConfigRefuses, AnUnknownKeyAndNamesTheNearest) {
  EXPECT_EQ(refusal("api:\n  address: localhost\n  htpp_port: 1\n"),
            "3: unknown key api.htpp_port; did you mean api.http_port?");
}

TEST(ConfigRefuses, AnUnknownSectionAndNamesTheNearestKey) {
  EXPECT_EQ(refusal("scheduller:\n  max_queue_size: 1\n"),
            "2: unknown key scheduller.max_queue_size; did you mean scheduler.max_queue_size?");
}

TEST(ConfigRefuses, AKeyOutsideItsSection) {
  EXPECT_EQ(refusal("http_port: 1\n"), "1: unknown key http_port; did you mean api.http_port?");
  EXPECT_EQ(refusal("scheduler:\n  http_port: 1\n"),
            "2: unknown key scheduler.http_port; did you mean api.http_port?");
}

TEST(ConfigRefuses, AKeyThatIsLikeNoOther) {
  EXPECT_EQ(refusal("api:\n  zzzzzzzzzzzz: 1\n"),
            "2: unknown key api.zzzzzzzzzzzz; docs/reference/configuration.md lists the known keys");
}

TEST(ConfigRefuses, AValueOfTheWrongType) {
  EXPECT_EQ(refusal("api:\n  http_port: often\n"),
            "2: api.http_port is \"often\"; expected an integer from 0 to 65535");
  EXPECT_EQ(refusal("api:\n  http_port: 80.5\n"),
            "2: api.http_port is \"80.5\"; expected an integer from 0 to 65535");
  EXPECT_EQ(refusal("api:\n  http_port:\n"), "2: api.http_port is \"\"; expected an integer from 0 to 65535");
  EXPECT_EQ(refusal("api:\n  http_port: [1]\n"),
            "2: api.http_port is a list; expected an integer from 0 to 65535");
  EXPECT_EQ(refusal("api:\n  http_port: {a: 1}\n"),
            "2: api.http_port is a group of keys; expected an integer from 0 to 65535");
  EXPECT_EQ(refusal("metrics:\n  enabled: maybe\n"),
            "2: metrics.enabled is \"maybe\"; expected true or false");
  EXPECT_EQ(refusal("log:\n  level: loud\n"),
            "2: log.level is \"loud\"; expected one of debug, info, warning, error");
  EXPECT_EQ(refusal("api: 8080\n"), "1: api is a section; put its keys below it");
  EXPECT_EQ(refusal("- api\n"), "1: expected sections such as `api:` with keys below them");
}

TEST(ConfigRefuses, ANumberOutOfRange) {
  EXPECT_EQ(refusal("api:\n  http_port: 65536\n"),
            "2: api.http_port is \"65536\"; expected an integer from 0 to 65535");
  EXPECT_EQ(
      refusal("scheduler:\n  max_queue_size: 99999999999999999999\n"),
      "2: scheduler.max_queue_size is \"99999999999999999999\"; expected an integer from 1 to 100000000");
  EXPECT_EQ(refusal("scheduler:\n  thermal_threshold: nan\n"),
            "2: scheduler.thermal_threshold is \"nan\"; expected a number from 0 to 200, or auto");
}

TEST(ConfigRefuses, AKeyOrSectionGivenTwice) {
  EXPECT_EQ(refusal("api:\n  http_port: 1\n  http_port: 2\n"), "3: api.http_port is given twice; keep one");
  EXPECT_EQ(refusal("api:\n  http_port: 1\nlog:\napi:\n  grpc_port: 2\n"),
            "4: section api is given twice; merge the two entries");
}

TEST(ConfigRefuses, TextThatIsNotYaml) {
  EXPECT_TRUE(refusal("api:\n  http_port: [1\n").find("not valid YAML") != std::string::npos);
  EXPECT_TRUE(refusal("log: {}\napi: {http_port: 1}}\n").starts_with("2: not valid YAML"));
}

TEST(ConfigRefuses, TlsWithoutBothOfItsFiles) {
  const std::string why =
      " is empty; name the files of the certificate and of its private key, or neither of them for a "
      "certificate of the scheduler's own authority";
  EXPECT_EQ(refusal("api:\n  enable_tls: true\n"), "accepted");
  EXPECT_EQ(refusal("api:\n  enable_tls: true\n  tls_key_path: b\n"),
            "api.enable_tls is true and api.tls_cert_path" + why);
  EXPECT_EQ(refusal("api:\n  enable_tls: true\n  tls_cert_path: a\n"),
            "api.enable_tls is true and api.tls_key_path" + why);
  EXPECT_EQ(refusal("api:\n  enable_tls: true\n  tls_cert_path: a\n  tls_key_path: b\n"), "accepted");
  EXPECT_EQ(refusal("api:\n  enable_tls: false\n"), "accepted");
}

TEST(ConfigRefuses, LevelsThatDoNotRise) {
  const std::string why =
      "; expected at most 16 GPU-seconds, each a positive integer greater than the one before";
  EXPECT_EQ(refusal("scheduler:\n  attained_levels: [600, 600]\n"),
            "scheduler.attained_levels is [600, 600]" + why);
  EXPECT_EQ(refusal("scheduler:\n  attained_levels: [600, 60]\n"),
            "scheduler.attained_levels is [600, 60]" + why);
  EXPECT_EQ(refusal("scheduler:\n  attained_levels: [0, 60]\n"),
            "scheduler.attained_levels is [0, 60]" + why);
  EXPECT_EQ(refusal("scheduler:\n  attained_levels: [1h]\n"), "scheduler.attained_levels is [1h]" + why);
}

TEST(ConfigFileValues, LevelsAreGpuSeconds) {
  const Result<LoadedConfig> loaded =
      load("scheduler:\n  job_order: least_attained\n  attained_levels: [60, 600]\n");
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->values.attained_gpu_seconds(), (std::vector<int64_t>{60, 600}));
  EXPECT_EQ(Config().attained_gpu_seconds(), (std::vector<int64_t>{3'600, 36'000}));
}

TEST(ConfigRefuses, AnOrderThatDoesNotExist) {
  EXPECT_EQ(refusal("scheduler:\n  job_order: longest\n").substr(0, 40),
            "2: scheduler.job_order is \"longest\"; exp");
}

TEST(ConfigRefuses, OnePortForTwoListeners) {
  EXPECT_EQ(refusal("api:\n  http_port: 9091\n"),
            "api.http_port and metrics.port are both 9091; give them different ports");
  EXPECT_EQ(refusal("tasks:\n  grpc_port: 9090\n"),
            "api.grpc_port and tasks.grpc_port are both 9090; give them different ports");
  EXPECT_EQ(refusal("api:\n  http_port: 9091\nmetrics:\n  enabled: false\n"), "accepted");
  EXPECT_EQ(refusal("api:\n  http_port: 0\n  grpc_port: 0\nmetrics:\n  port: 0\n"), "accepted");
}

std::string with_peers(const std::string& peers, const std::string& id = "2") {
  return "replica: {id: " + id + ", peers: [" + peers + "]}\n";
}

TEST(ConfigReplicas, AreThreeOrFiveWithThisOneAmongThem) {
  const std::string three = "1=a.example:7080, 2=10.0.0.2:7080, '3=[fd00::3]:7080'";
  EXPECT_EQ(refusal(with_peers(three)), "accepted");
  EXPECT_EQ(refusal(with_peers(three + ", 4=d:1, 5=e:1")), "accepted");
  EXPECT_EQ(refusal(with_peers("2=a:1")), "replica.peers lists 1 schedulers; list three or five, or none");
  EXPECT_EQ(refusal(with_peers(three + ", 4=d:1")),
            "replica.peers lists 4 schedulers; an even number survives no more failures than one fewer: list "
            "three or five");
  EXPECT_EQ(refusal(with_peers(three + ", 4=d:1, 5=e:1, 6=f:1, 7=g:1")),
            "replica.peers lists 7 schedulers; list three or five");
  EXPECT_EQ(
      refusal(with_peers("1=a:1, 2=b:1, 2=c:1")),
      "replica.peers has the entry \"2=c:1\", and another one with the id 2; give each scheduler an id of "
      "its own");
  EXPECT_EQ(refusal(with_peers("1=a:1, 2=b:1, 3=a:1")),
            "replica.peers has the entry \"3=a:1\", and another one with that host and port; each scheduler "
            "needs its own");
  EXPECT_EQ(refusal(with_peers(three, "9")),
            "replica.peers has no entry of this scheduler, whose replica.id is 9; add it, or correct "
            "replica.id");
  EXPECT_EQ(
      refusal("replica: {id: 1}\n"),
      "replica.id is 1, and replica.peers is empty; list all schedulers of the cluster there, or remove "
      "replica.id");
  for (const char* bad : {"a:1", "0=a:1", "-1=a:1", "1=a", "1=a:0", "1=a:65536", "1=:1", "1=a b:1", "x=a:1",
                          "1=fd00::3:7080", "1=[10.0.0.1]:1", "1=a:1x", "1=http://a:1"}) {
    EXPECT_NE(refusal(with_peers("'" + std::string(bad) + "', 2=b:1, 3=c:1"))
                  .find("expected id=host:port, such as 1=scheduler-1.example:7080"),
              std::string::npos)
        << bad;
  }
}

TEST(ConfigReplicas, NeedFixedPortsAndLetNobodyInByAddress) {
  const std::string peers = with_peers("1=a:7080, 2=b:7080, 3=c:7080");
  EXPECT_NE(refusal(peers + "api: {http_port: 0}\n").find("api.http_port is 0"), std::string::npos);
  EXPECT_NE(refusal(peers + "metrics: {port: 7080}\n").find("are both 7080"), std::string::npos);
  EXPECT_NE(refusal(peers + "api: {anonymous_networks: [10.1.0.0/16]}\n").find("api.anonymous_networks lets"),
            std::string::npos);
}

TEST(ConfigReplicas, DemandACredentialFromEverybody) {
  const Result<LoadedConfig> loaded =
      load_config({.environment = {{"GPU_SCHEDULER_REPLICA_ID", "3"},
                                   {"GPU_SCHEDULER_REPLICA_PEERS", "1=a:1,2=b:1,3=[fd00::3]:7080"},
                                   {"GPU_SCHEDULER_API_TOKEN_REQUIRED", "false"}}});
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_TRUE(loaded->values.api.token_required);
  EXPECT_EQ(loaded->origins.at("api.token_required"), "replica.peers");
  const Result<std::vector<ReplicaPeer>> peers = replica_peers(loaded->values);
  ASSERT_TRUE(peers.ok());
  EXPECT_EQ(peers->back(), (ReplicaPeer{.id = 3, .host = "fd00::3", .port = 7080}));
  EXPECT_TRUE(replica_peers(Config{})->empty());
}

TEST(ConfigRefuses, AnEndpointThatIsNotTheNodesOwn) {
  const std::string local = "tasks:\n  llm_endpoint: http://127.0.0.1:8000/v1/completions\n";
  EXPECT_EQ(refusal(local), "accepted");
  EXPECT_EQ(refusal("tasks:\n  llm_endpoint: http://10.0.0.7:8000/v1\n"),
            "tasks.llm_endpoint names 10.0.0.7, which is not the node itself; use 127.0.0.1, or list the "
            "address in "
            "tasks.endpoint_hosts");
  EXPECT_EQ(
      refusal("tasks:\n  llm_endpoint: http://10.0.0.7:8000/v1\n  endpoint_hosts: [\"10.0.0.7:8000\"]\n"),
      "accepted");
  EXPECT_EQ(refusal("tasks:\n  other_endpoint: http://model.example.com/v1\n"),
            "tasks.other_endpoint is not a URL with an IP address or localhost, such as "
            "http://127.0.0.1:8000/v1/completions");
  EXPECT_EQ(refusal(local + "  llm_command: cat\n"),
            "tasks.llm_endpoint and tasks.llm_command are both set; remove one of them");
  EXPECT_EQ(refusal(local + "  endpoint_health_path: health\n"),
            "tasks.endpoint_health_path is not a path such as /health; leave it empty for no checks");
  EXPECT_EQ(
      refusal(local + "  endpoint_hosts: [\"10.0.0.7/v1\"]\n"),
      "tasks.endpoint_hosts has an entry that is neither an IP address nor address:port; write, for example, "
      "10.0.0.7:8000");
}

TEST(ConfigRefuses, NetworksThatLetStrangersIn) {
  EXPECT_EQ(refusal("api: {anonymous_networks: [10.1.0.0/16, fd00::/8, 192.0.2.7]}\n"), "accepted");
  for (const char* text : {"0.0.0.0/0", "::/0", "8.8.8.0/24", "10.0.0.0/7", "2a00::/16"}) {
    const std::string yaml = "api:\n  anonymous_networks: [\"10.1.0.0/16\", \"" + std::string(text) + "\"]\n";
    EXPECT_NE(refusal(yaml).find("api.anonymous_public_networks"), std::string::npos) << text;
    EXPECT_EQ(refusal(yaml + "  anonymous_public_networks: true\n"), "accepted") << text;
  }
  for (const char* text : {"10.1.2.3/16", "10.1.0.0/33", "localhost", "10.1.0.0-10.1.0.9", "*"}) {
    const std::string told = refusal("api: {anonymous_networks: [\"" + std::string(text) + "\"]}\n");
    EXPECT_NE(told.find(text), std::string::npos) << told;
  }
}

TEST(ConfigRefuses, NetworksWithoutACredentialWhereEveryCallNeedsOne) {
  const std::string networks = "api: {anonymous_networks: [10.1.0.0/16]}\n";
  EXPECT_NE(
      refusal(networks, {{"GPU_SCHEDULER_API_TOKEN_REQUIRED", "true"}}).find("api.token_required is true"),
      std::string::npos);
  EXPECT_NE(refusal(networks, {{"GPU_SCHEDULER_AGENT_ACCEPT_OLD_HANDSHAKE", "true"}})
                .find("agent.accept_old_handshake is true"),
            std::string::npos);
  EXPECT_EQ(refusal("api: {anonymous_may: [create_tenant, set_quota, priority_critical]}\n"), "accepted");
  EXPECT_NE(refusal("api: {anonymous_may: [drain_node]}\n").find("drain_node"), std::string::npos);
}

TEST(ConfigCompatible, OpensTheDoorsThatNobodySet) {
  const Result<LoadedConfig> plain = load("doors: {compatible: false}\n");
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(
      plain->values.tasks.grpc_port + plain->values.tasks.http_port + plain->values.doors.allocation_port, 0);
  EXPECT_EQ(plain->values.scheduler.pool_online_percent, 0);
  const Result<LoadedConfig> all = load("doors: {compatible: true}\n");
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->values.tasks.grpc_port, 50'051);
  EXPECT_EQ(all->values.tasks.http_port, 8'081);
  EXPECT_EQ(all->values.doors.allocation_port, 8'000);
  EXPECT_EQ(all->values.scheduler.pool_online_percent, 70);
  EXPECT_EQ(all->values.scheduler.pool_batch_percent, 30);
  EXPECT_EQ(all->values.scheduler.pool_mode, "strict");
  EXPECT_NE(print_config(*all).find("grpc_port: 50051  # doors.compatible"), std::string::npos);
  const Result<LoadedConfig> some =
      load("doors: {compatible: true, allocation_port: 0}\nscheduler: {pool_batch_percent: 10}\n",
           {{"GPU_SCHEDULER_TASKS_HTTP_PORT", "8181"}});
  ASSERT_TRUE(some.ok());
  EXPECT_EQ(some->values.tasks.http_port, 8'181);
  EXPECT_EQ(some->values.doors.allocation_port, 0);
  EXPECT_EQ(some->values.scheduler.pool_online_percent, 0);
  EXPECT_EQ(some->values.scheduler.pool_batch_percent, 10);
}

TEST(ConfigTasks, CoresAreOneNumberOrOneForEachType) {
  using Cores = std::map<std::string, int64_t>;
  EXPECT_EQ(parse_task_cpu({}),
            (Cores{{"diffusion", 200}, {"embedding", 100}, {"llm", 200}, {"other", 100}}));
  EXPECT_EQ(parse_task_cpu({"llm=1500"}),
            (Cores{{"diffusion", 200}, {"embedding", 100}, {"llm", 1'500}, {"other", 100}}));
  EXPECT_EQ(parse_task_cpu({"0", "llm=1"}),
            (Cores{{"diffusion", 0}, {"embedding", 0}, {"llm", 1}, {"other", 0}}));
  for (const char* text : {"", "x", "llm", "llm=", "llm=-1", "lm=1", "=1", "llm=1=2", "1000000001", "1.5"})
    EXPECT_FALSE(parse_task_cpu({text}).has_value()) << text;
  EXPECT_FALSE(parse_task_cpu({"llm=1", "llm=1"}).has_value());
  EXPECT_FALSE(parse_task_cpu({"1", "2"}).has_value());
}

TEST(ConfigRefuses, EveryProblemAtOnce) {
  EXPECT_EQ(
      refusal("api:\n  http_port: x\nlog:\n  levl: info\n", {{"GPU_SCHEDULER_LOG_LEVEL", "loud"}}),
      "2: api.http_port is \"x\"; expected an integer from 0 to 65535\n"
      "4: unknown key log.levl; did you mean log.level?\n"
      "environment variable GPU_SCHEDULER_LOG_LEVEL: log.level is \"loud\"; expected one of debug, info, "
      "warning, error");
}

TEST(ConfigRefuses, AFileThatIsNotThere) {
  const Result<LoadedConfig> loaded = load_config({.path = "/nowhere/scheduler.yaml"});
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kNotFound);
  EXPECT_NE(loaded.error().message.find("/nowhere/scheduler.yaml"), std::string::npos);
}

TEST(ConfigRefuses, AFileThatIsTooLarge) {
  const ConfigFile file(std::string((1 << 20) + 1, '#'));
  const Result<LoadedConfig> loaded = load_config({.path = file.path()});
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kTooLarge);
}

TEST(ConfigRefuses, ASecretWithoutShowingIt) {
  EXPECT_EQ(refusal("redis:\n  password: {hidden: 1}\n").find("hidden"), std::string::npos);
}

TEST(ConfigEnvironment, WinsOverTheFile) {
  const Result<LoadedConfig> loaded = load("api:\n  http_port: 1\n", {{"GPU_SCHEDULER_API_HTTP_PORT", "2"}});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->values.api.http_port, 2);
  EXPECT_EQ(loaded->origins.at("api.http_port"), "environment variable GPU_SCHEDULER_API_HTTP_PORT");
}

TEST(ConfigEnvironment, WritesAListWithCommas) {
  const Result<LoadedConfig> loaded =
      load_config({.environment = {{"GPU_SCHEDULER_API_CORS_ORIGINS", "a, b,,c"}}});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->values.api.cors_origins, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(ConfigEnvironment, RefusesAnUnknownKeyOfAKnownSection) {
  EXPECT_EQ(refusal("", {{"GPU_SCHEDULER_API_HTP_PORT", "2"}}),
            "environment variable GPU_SCHEDULER_API_HTP_PORT: unknown key api.htp_port; did you mean "
            "GPU_SCHEDULER_API_HTTP_PORT?");
}

TEST(ConfigEnvironment, LeavesOtherVariablesAlone) {
  EXPECT_TRUE(load_config({.environment = {{"GPU_SCHEDULER_URL", "x"},
                                           {"GPU_SCHEDULER_SOMETHING_ELSE", "x"},
                                           {"PATH", "/bin"}}})
                  .ok());
}

TEST(ConfigOverrides, WinOverTheEnvironment) {
  const Result<LoadedConfig> loaded =
      load_config({.environment = {{"GPU_SCHEDULER_API_HTTP_PORT", "2"}},
                   .overrides = {{.key = "api.http_port", .value = "3", .from = "--http-port"}}});
  ASSERT_TRUE(loaded.ok());
  EXPECT_EQ(loaded->values.api.http_port, 3);
  EXPECT_EQ(loaded->origins.at("api.http_port"), "--http-port");
}

TEST(PrintConfig, SaysWhereEachValueComesFromAndMasksPasswords) {
  const ConfigFile file("log:\n  level: debug\nredis:\n  password: hunter2\n");
  const Result<LoadedConfig> loaded =
      load_config({.path = file.path(), .environment = {{"GPU_SCHEDULER_API_HTTP_PORT", "2"}}});
  ASSERT_TRUE(loaded.ok());
  const std::string printed = print_config(*loaded);
  EXPECT_NE(printed.find("  http_port: 2  # environment variable GPU_SCHEDULER_API_HTTP_PORT\n"),
            std::string::npos);
  EXPECT_NE(printed.find("  level: \"debug\"  # " + file.path() + ":2\n"), std::string::npos);
  EXPECT_NE(printed.find("  grpc_port: 9090  # default\n"), std::string::npos);
  EXPECT_NE(printed.find("  password: \"********\"  # " + file.path() + ":4; no effect\n"),
            std::string::npos);
  EXPECT_EQ(printed.find("hunter2"), std::string::npos);
}

TEST(PrintConfig, CanBeReadAgainWithTheSameValues) {
  LoadedConfig odd;
  odd.values.api.cors_origins = {"a", "with \"quotes\" and \\", "tab\there"};
  odd.values.scheduler.thermal_threshold = 79.25;
  odd.values.log.path = "/var/log/über: #1";
  const Result<LoadedConfig> again = load(print_config(odd));
  ASSERT_TRUE(again.ok()) << again.error().message;
  for (const ConfigKey& key : config_keys()) {
    EXPECT_EQ(config_value_text(key, again->values), config_value_text(key, odd.values)) << key.full_name();
  }
}

TEST(PrintConfig, WhatTheMachineIsToFindIsWrittenAndReadAsAuto) {
  const Result<LoadedConfig> loaded = load("scheduler:\n  thermal_threshold: auto\n");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->values.scheduler.thermal_threshold, -1);
  EXPECT_NE(print_config(*loaded).find("  thermal_threshold: auto  #"), std::string::npos);
  EXPECT_EQ(load(print_config(*loaded))->values.scheduler.thermal_threshold, -1);
}

TEST(ConfigChanges, NameOldAndNewAndHideSecrets) {
  Config before;
  before.redis.password = "hunter2";
  Config after = before;
  EXPECT_TRUE(config_changes(before, after).empty());
  after.scheduler.max_queue_size = 5;
  after.log.level = "debug";
  after.redis.password = "hunter3";
  const std::vector<ConfigChange> changes = config_changes(before, after);
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[0].key->full_name(), "scheduler.max_queue_size");
  EXPECT_EQ(changes[0].before, "1000000");
  EXPECT_EQ(changes[0].after, "5");
  EXPECT_TRUE(changes[0].key->live);
  EXPECT_EQ(changes[1].before, "\"info\"");
  EXPECT_EQ(changes[1].after, "\"debug\"");
  EXPECT_EQ(changes[2].key->full_name(), "redis.password");
  EXPECT_EQ(changes[2].before, kConfigMask);
  EXPECT_EQ(changes[2].after, kConfigMask);
  EXPECT_FALSE(find_config_key("api", "http_port")->live);
}

TEST(EditDistance, CountsEachKindOfSlipOnce) {
  EXPECT_EQ(edit_distance("port", "port"), 0u);
  EXPECT_EQ(edit_distance("port", "prt"), 1u);
  EXPECT_EQ(edit_distance("port", "porrt"), 1u);
  EXPECT_EQ(edit_distance("port", "part"), 1u);
  EXPECT_EQ(edit_distance("port", "prot"), 1u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
}

TEST(ConfigurationReference, IsTheCommittedPage) {
  if (std::getenv("GPUSCHED_WRITE_REFERENCE") != nullptr) {
    std::ofstream(GPUSCHED_REFERENCE_PATH, std::ios::binary) << configuration_reference();
  }
  std::ifstream file(GPUSCHED_REFERENCE_PATH, std::ios::binary);
  ASSERT_TRUE(file.good()) << GPUSCHED_REFERENCE_PATH;
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), configuration_reference())
      << "write the page again with GPUSCHED_WRITE_REFERENCE=1 and commit it";
}

}  // namespace
}  // namespace gpusched

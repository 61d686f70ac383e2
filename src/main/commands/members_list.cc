#include "main/commands/members_list.h"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "client/http_client.h"
#include "client/json.h"
#include "config/config.h"
#include "main/own_certificate.h"

namespace gpusched {
namespace {

constexpr Duration kAnswerLimit = seconds(2);

struct MembersListWords {
  std::string config;
  std::string data_dir = "/var/lib/gpu-scheduler";
  bool json = false;
};

/// One scheduler's answer; `why` where it does not serve.
struct MemberLine {
  ReplicaPeer peer;
  std::string role = "-";
  int64_t term = 0, applied = 0;
  std::string why;
};

std::string bracketed_host(const std::string& host) {
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

MemberLine ask_member(const ReplicaPeer& peer, const Config& config, const std::string& data_dir) {
  MemberLine line{.peer = peer};
  HttpClientOptions options{.url = (config.api.enable_tls ? "https://" : "http://") +
                                   bracketed_host(peer.host) + ":" + std::to_string(config.metrics.port),
                            .connect_timeout = kAnswerLimit};
  if (wants_own_certificate(config)) options.ca_file = authority_folder(data_dir) + "/ca.pem";
  Result<HttpClient> client = HttpClient::create(options);
  if (!client.ok()) return line.why = client.error().message, line;
  const Result<HttpAnswer> answer =
      client->request({.method = "GET", .target = "/health", .timeout = kAnswerLimit});
  if (!answer.ok()) return line.why = answer.error().message, line;
  const Result<Json> said = Json::parse(answer->body);
  const std::string role = said.ok() ? (*said)["role"].text() : "";
  if (role.empty()) return line.why = "what answers there is not one of several schedulers", line;
  line.role = role;
  line.term = (*said)["term"].integer();
  line.applied = (*said)["applied"].integer();
  if (static_cast<uint64_t>((*said)["id"].integer()) != peer.id) {
    line.why = "replica " + std::to_string((*said)["id"].integer()) + " answers there";
  } else if (answer->status != 200) {
    line.why = (*said)["why"].text();
  }
  return line;
}

std::string member_json(const MemberLine& line) {
  JsonObjectWriter object;
  object.add("id", static_cast<int64_t>(line.peer.id));
  object.add("address", bracketed_host(line.peer.host) + ":" + std::to_string(line.peer.port));
  object.add("role", line.role);
  object.add("term", line.term);
  object.add("applied", line.applied);
  object.add("serves", line.why.empty());
  object.add("why", line.why);
  return object.text();
}

void print_members(const std::vector<MemberLine>& lines) {
  std::size_t width = 7;
  for (const MemberLine& line : lines) width = std::max(width, line.peer.host.size());
  std::printf("%-4s %-*s %-10s %-12s %-12s %s\n", "ID", static_cast<int>(width), "ADDRESS", "ROLE", "TERM",
              "APPLIED", "STATUS");
  for (const MemberLine& line : lines) {
    const bool known = line.role != "-";
    std::printf("%-4" PRIu64 " %-*s %-10s %-12s %-12s %s\n", line.peer.id, static_cast<int>(width),
                line.peer.host.c_str(), line.role.c_str(), known ? std::to_string(line.term).c_str() : "-",
                known ? std::to_string(line.applied).c_str() : "-",
                line.why.empty() ? "ok" : line.why.c_str());
  }
}

int list_members(const MembersListWords& words) {
  const Result<LoadedConfig> config =
      load_config({.path = words.config, .environment = process_environment()});
  const Result<std::vector<ReplicaPeer>> peers =
      config.ok() ? replica_peers(config->values) : Result<std::vector<ReplicaPeer>>(config.error());
  if (!peers.ok() || peers->empty()) {
    std::fprintf(stderr, "gpu-scheduler members list: %s\n",
                 peers.ok() ? "replica.peers is empty: name the configuration file with --config"
                            : peers.error().message.c_str());
    return 2;
  }
  std::vector<MemberLine> lines;
  for (const ReplicaPeer& peer : *peers) lines.push_back(ask_member(peer, config->values, words.data_dir));
  if (words.json) {
    std::string all;
    for (const MemberLine& line : lines) all += (all.empty() ? "" : ",") + member_json(line);
    std::printf("{\"members\":[%s]}\n", all.c_str());
  } else {
    print_members(lines);
  }
  const bool all_serve = std::ranges::all_of(lines, [](const MemberLine& line) { return line.why.empty(); });
  return all_serve ? 0 : 1;
}

ProgramAction define_members_list(Grammar& grammar) {
  const auto words = std::make_shared<MembersListWords>();
  grammar
      .option("--config", "FILE", &words->config,
              "The scheduler's YAML configuration file, with replica.id and replica.peers")
      .completes(Complete::kFile);
  grammar
      .option("--data-dir", "DIR", &words->data_dir,
              "The scheduler's data folder, for its authority (default: /var/lib/gpu-scheduler)")
      .completes(Complete::kFolder);
  grammar.flag("--json", words->json, "Print JSON");
  grammar.details(
      "Asks /health at the port of the metrics of each scheduler in replica.peers, and needs no credential. "
      "Exit status 1: one of them is away, or there is no leader.");
  grammar.example("gpu-scheduler members list --config /etc/gpu-scheduler/scheduler.yaml",
                  "see who leads and who is away");
  return [words](const std::vector<std::string>&) { return list_members(*words); };
}

}  // namespace

ProgramCommand members_list_command() {
  return {.path = "members list",
          .summary = "Show which scheduler leads, and which are away",
          .define = define_members_list};
}

}  // namespace gpusched

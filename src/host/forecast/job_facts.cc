#include "host/forecast/job_facts.h"

#include <algorithm>
#include <bit>
#include <string>
#include <string_view>

#include "base/digest.h"
#include "base/task_labels.h"
#include "base/text/task_payload.h"
#include "base/text/task_worker.h"
#include "gpusched/v1/types.pb.h"

namespace gpusched {
namespace {

void mix_word(Digest& digest, std::string_view word) {
  const std::size_t slash = word.rfind('/');
  if (slash != std::string_view::npos) word.remove_prefix(slash + 1);
  std::string fixed;
  for (const char c : word) {
    if (c < '0' || c > '9') fixed += c;
  }
  digest.mix(std::string_view(fixed));
}

/// The first line of a script that runs something: lines before it that are blank, a comment or the shell's
/// own `set` are the same in most scripts.
std::string_view first_command(std::string_view script) {
  while (!script.empty()) {
    std::string_view line = script.substr(0, script.find('\n'));
    script.remove_prefix(std::min(line.size() + 1, script.size()));
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    const bool sets = line.starts_with("set ") && line.find_first_of(";&|") == std::string_view::npos;
    if (!line.empty() && line.front() != '#' && !sets) return line;
  }
  return {};
}

/// Program and words of the first command, without numbers and folders.
uint64_t shape_of(const v1::JobSpec& spec) {
  Digest digest;
  digest.mix(std::string_view(spec.image()).substr(0, spec.image().find_first_of("@:")));
  for (const std::string& word : spec.command()) mix_word(digest, word);
  std::string_view line = first_command(spec.script());
  while (!line.empty()) {
    const std::size_t blank = std::min(line.find(' '), line.size());
    mix_word(digest, line.substr(0, blank));
    line.remove_prefix(std::min(blank + 1, line.size()));
  }
  return digest.value();
}

/// The value of an entry; empty: there is none.
std::string_view value_of(const google::protobuf::Map<std::string, std::string>& entries,
                          std::string_view name) {
  const auto found = entries.find(std::string(name));
  return found == entries.end() ? std::string_view() : std::string_view(found->second);
}

/// A task of an agent is like those of its type whose payloads have the same order of size: its name is an
/// id, and its script decodes the payload, whatever its type is. False: it is none.
bool know_as_task(const v1::JobSpec& spec, std::size_t payload_bytes, predict::JobFacts& facts) {
  const std::string_view type = value_of(spec.labels(), kTaskTypeLabel);
  if (type.empty() || value_of(spec.labels(), kTaskIdLabel).empty()) return false;
  Digest name;
  name.mix(kTaskIdLabel);
  name.mix(type);
  facts.name = name.value();
  if (payload_bytes == 0) payload_bytes = value_of(spec.environment(), kTaskPayloadVariable).size();
  Digest shape;
  shape.mix(facts.name);
  shape.mix(static_cast<uint64_t>(std::bit_width(payload_bytes)));
  facts.shape = shape.value();
  return true;
}

/// Facts that are known without the specification.
predict::JobFacts facts_without_spec(const State& state, const Job& job) {
  const Amount amount = total_of(state.class_of(job).parts);
  return {.job = job.id.value,
          .user = job.tenant.value,
          .name = 0,
          .shape = 0,
          .size = amount.gpus > 0 ? amount.gpus : amount.cpu_milli / 1000,
          .limit_ms = job.max_runtime.ms()};
}

/// Adds what the specification says: user, name and shape.
void read_spec(const Job& job, predict::JobFacts& facts) {
  v1::JobSpec spec;
  if (!spec.ParseFromString(without_task_payload(job.spec.view()))) return;
  Digest user;
  user.mix(job.tenant.value);
  user.mix(std::string_view(spec.user().empty() ? spec.submitter() : spec.user()));
  facts.user = user.value();
  if (know_as_task(spec, task_payload_bytes_of(job.spec.view()), facts)) return;
  Digest name;
  mix_word(name, spec.name());
  facts.name = name.value();
  facts.shape = shape_of(spec);
}

}  // namespace

predict::JobFacts facts_of(const State& state, const Job& job) {
  predict::JobFacts facts = facts_without_spec(state, job);
  read_spec(job, facts);
  return facts;
}

predict::JobFacts FactsMemory::facts_of(const State& state, const Job& job) {
  predict::JobFacts facts = facts_without_spec(state, job);
  const auto found = known_.find(job.id.value);
  if (found != known_.end() && found->second.spec.identity() == job.spec.identity()) {
    facts.user = found->second.user;
    facts.name = found->second.name;
    facts.shape = found->second.shape;
    return facts;
  }
  ++specs_read_;
  read_spec(job, facts);
  if (is_final(job.state)) return facts;
  if (known_.size() >= kJobsMax) known_.clear();
  known_[job.id.value] = {.spec = job.spec, .user = facts.user, .name = facts.name, .shape = facts.shape};
  return facts;
}

}  // namespace gpusched

#include "shim/container/container_plan.h"

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "base/digest.h"

namespace gpusched::shim {
namespace {

constexpr std::array<std::string_view, 3> kRuntimeWords = {"podman", "docker", "apptainer"};
constexpr std::array<std::string_view, 3> kPullWords = {"if_missing", "always", "never"};

void append(std::vector<std::string>& words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
}

std::vector<std::string> client_words(const RuntimeClient& client) {
  std::vector<std::string> words = {client.program};
  append(words, client.options);
  return words;
}

std::string hex_digest_of(std::string_view first, std::string_view second) {
  Digest digest;
  digest.mix(first);
  digest.mix(second);
  std::array<char, 20> text{};
  std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(digest.value()));
  return text.data();
}

/// Owner of a private image's file: apptainer reads it as the job's user.
std::string own_of(const ContainerPlan& plan) {
  return is_private_file(plan) && !plan.user.empty() ? '\n' + plan.user.substr(0, plan.user.find(':')) : "";
}

/// Command and arguments behind the image, with the image's entrypoint or without.
void append_command(std::vector<std::string>& words, const ContainerPlan& plan, const std::string& image) {
  if (!plan.command.empty()) append(words, {"--entrypoint", plan.command.front()});
  words.push_back(image);
  for (std::size_t i = 1; i < plan.command.size(); ++i) words.push_back(plan.command[i]);
  append(words, plan.arguments);
}

std::vector<std::string> apptainer_run(const ContainerPlan& plan, const std::string& image,
                                       const std::string& environment_file) {
  std::vector<std::string> words = client_words(plan.client);
  words.push_back(plan.command.empty() ? "run" : "exec");
  append(words, {"--env-file", environment_file});
  append(words, plan.options);
  for (const std::string& mount : plan.mounts) append(words, {"--bind", mount});
  words.push_back(image);
  append(words, plan.command);
  append(words, plan.arguments);
  return words;
}

template <std::size_t size>
std::size_t index_in(const std::array<std::string_view, size>& words, std::string_view word) {
  std::size_t index = 0;
  while (index < size && words[index] != word) ++index;
  return index;
}

bool take_field(ContainerPlan& plan, std::string_view name, const std::string& value) {
  const struct {
    std::string_view name;
    std::string* field;
  } texts[] = {{"program", &plan.client.program},
               {"key", &plan.key},
               {"name", &plan.name},
               {"folder", &plan.folder},
               {"images_folder", &plan.images_folder},
               {"images_stamp", &plan.images_stamp},
               {"image", &plan.image},
               {"digest", &plan.digest},
               {"earlier_digest", &plan.earlier_digest},
               {"auth_file", &plan.auth_file},
               {"cgroup_parent", &plan.cgroup_parent},
               {"stdin", &plan.stdin_path},
               {"stdout", &plan.stdout_path},
               {"stderr", &plan.stderr_path},
               {"user", &plan.user},
               {"refusal", &plan.refusal},
               {"note", &plan.note}};
  for (const auto& text : texts) {
    if (text.name == name) return *text.field = value, true;
  }
  const struct {
    std::string_view name;
    std::vector<std::string>* field;
  } lists[] = {{"client_option", &plan.client.options},
               {"client_environment", &plan.client.environment},
               {"enter", &plan.enter},
               {"option", &plan.options},
               {"mount", &plan.mounts},
               {"command", &plan.command},
               {"argument", &plan.arguments}};
  for (const auto& list : lists) {
    if (list.name == name) return list.field->push_back(value), true;
  }
  if (name == "runtime") {
    const std::optional<ContainerRuntime> runtime = parse_runtime(value);
    if (runtime) plan.client.runtime = *runtime;
    return runtime.has_value();
  }
  if (name == "pull") {
    const std::size_t index = index_in(kPullWords, value);
    if (index < kPullWords.size()) plan.pull = static_cast<PullMode>(index);
    return index < kPullWords.size();
  }
  if (name == "pull_patience_ms") {
    const auto [end, error] =
        std::from_chars(value.data(), value.data() + value.size(), plan.pull_patience_ms);
    return error == std::errc() && end == value.data() + value.size();
  }
  return false;
}

}  // namespace

std::string_view to_string(ContainerRuntime runtime) {
  return kRuntimeWords.at(static_cast<std::size_t>(runtime));
}

std::optional<ContainerRuntime> parse_runtime(std::string_view text) {
  const std::size_t index = index_in(kRuntimeWords, text);
  if (index == kRuntimeWords.size()) return std::nullopt;
  return static_cast<ContainerRuntime>(index);
}

std::vector<std::string> plan_words(const ContainerPlan& plan) {
  std::vector<std::string> words;
  const auto text = [&](std::string_view name, std::string_view value) {
    if (!value.empty()) words.push_back(std::string(name) + '=' + std::string(value));
  };
  const auto list = [&](std::string_view name, const std::vector<std::string>& values) {
    for (const std::string& value : values) words.push_back(std::string(name) + '=' + value);
  };
  text("name", plan.name);
  text("runtime", to_string(plan.client.runtime));
  text("program", plan.client.program);
  list("client_option", plan.client.options);
  list("client_environment", plan.client.environment);
  text("key", plan.key);
  text("folder", plan.folder);
  text("images_folder", plan.images_folder);
  text("images_stamp", plan.images_stamp);
  text("image", plan.image);
  text("digest", plan.digest);
  text("earlier_digest", plan.earlier_digest);
  text("pull", kPullWords.at(static_cast<std::size_t>(plan.pull)));
  text("auth_file", plan.auth_file);
  text("pull_patience_ms", std::to_string(plan.pull_patience_ms));
  list("enter", plan.enter);
  list("option", plan.options);
  list("mount", plan.mounts);
  text("cgroup_parent", plan.cgroup_parent);
  list("command", plan.command);
  list("argument", plan.arguments);
  text("stdin", plan.stdin_path);
  text("stdout", plan.stdout_path);
  text("stderr", plan.stderr_path);
  text("user", plan.user);
  text("refusal", plan.refusal);
  text("note", plan.note);
  return words;
}

std::optional<ContainerPlan> parse_plan(const std::vector<std::string>& words) {
  ContainerPlan plan;
  for (const std::string& word : words) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) return std::nullopt;
    if (!take_field(plan, std::string_view(word).substr(0, equals), word.substr(equals + 1)))
      return std::nullopt;
  }
  if (plan.client.program.empty() || plan.name.empty()) return std::nullopt;
  return plan;
}

std::string_view digest_of(std::string_view image) {
  const std::size_t at = image.find('@');
  return at == std::string_view::npos ? std::string_view() : image.substr(at + 1);
}

std::string pinned_reference(std::string_view image, std::string_view digest) {
  if (digest.empty()) digest = digest_of(image);
  if (digest.empty()) return std::string(image);
  image = image.substr(0, image.find('@'));
  // A tag beside a digest says nothing, and some runtimes refuse it. A port's colon is before the last slash.
  const std::size_t slash = image.rfind('/');
  const std::size_t colon = image.rfind(':');
  if (colon != std::string_view::npos && (slash == std::string_view::npos || colon > slash))
    image = image.substr(0, colon);
  return std::string(image) + '@' + std::string(digest);
}

std::vector<uint32_t> numbers_in(const std::string& text) {
  std::vector<uint32_t> found;
  for (const char* at = text.c_str(); *at != '\0';) {
    char* end = nullptr;
    found.push_back(static_cast<uint32_t>(std::strtoul(at, &end, 10)));
    if (end == at) return {};
    at = *end == '\0' ? end : end + 1;
  }
  return found;
}

bool is_private_file(const ContainerPlan& plan) {
  return plan.client.runtime == ContainerRuntime::kApptainer && !plan.auth_file.empty();
}

std::string record_name(const ContainerPlan& plan, std::string_view reference) {
  return hex_digest_of(reference, plan.auth_file + own_of(plan));
}

std::string docker_folder(const ContainerPlan& plan) {
  return plan.images_folder + "/docker-" + hex_digest_of("", plan.auth_file);
}

std::string image_file(const ContainerPlan& plan, std::string_view reference) {
  if (reference.starts_with('/')) return std::string(reference);  // A file of the node's own.
  return plan.images_folder + '/' + record_name(plan, reference) + ".sif";
}

std::vector<std::string> pull_words(const ContainerPlan& plan, const std::string& reference) {
  std::vector<std::string> words = {plan.client.program};
  switch (plan.client.runtime) {
    case ContainerRuntime::kPodman:
      append(words, plan.client.options);
      words.push_back("pull");
      if (!plan.auth_file.empty()) append(words, {"--authfile", plan.auth_file});
      words.push_back(reference);
      return words;
    case ContainerRuntime::kDocker:
      // Docker takes a folder with a file config.json in it.
      if (!plan.auth_file.empty()) append(words, {"--config", docker_folder(plan)});
      append(words, plan.client.options);
      append(words, {"pull", reference});
      return words;
    case ContainerRuntime::kApptainer:
      append(words, plan.client.options);
      append(words, {"pull", "--force"});
      if (!plan.auth_file.empty()) append(words, {"--authfile", plan.auth_file});
      append(words, {image_file(plan, reference) + ".part", "docker://" + reference});
      return words;
  }
  return words;
}

std::vector<std::string> inspect_words(const ContainerPlan& plan, const std::string& reference) {
  std::vector<std::string> words = client_words(plan.client);
  // Docker keeps digests by repository: NAME@sha256:...
  const char* const format = plan.client.runtime == ContainerRuntime::kDocker
                                 ? "{{.Id}} {{range .RepoDigests}}{{.}} {{end}}"
                                 : "{{.Id}} {{.Digest}}";
  append(words, {"image", "inspect", "--format", format, reference});
  return words;
}

std::vector<std::string> run_words(const ContainerPlan& plan, const std::string& image,
                                   const std::string& init_program, const std::string& environment_file) {
  if (plan.client.runtime == ContainerRuntime::kApptainer)
    return apptainer_run(plan, image, environment_file);
  std::vector<std::string> words = client_words(plan.client);
  words.emplace_back("run");
  // Docker's is removed by us, when its daemon has told how it ended.
  if (uses_own_init(plan.client.runtime)) words.emplace_back("--rm");
  append(words, {"--name", plan.name, "--pull", "never", "--sig-proxy=false"});
  append(words, {"--cidfile", plan.folder + "/container-id", "--env-file", environment_file});
  if (uses_own_init(plan.client.runtime)) {
    append(words, {"--log-driver", "passthrough", "--http-proxy=false"});
    append(words, {"--init", "--init-path", init_program, "--preserve-fds", "2"});
    append(words, {"--pidfile", pid_file(plan)});
  } else {
    append(words, {"--log-driver", "none", "--init"});
  }
  if (!plan.cgroup_parent.empty()) append(words, {"--cgroup-parent", plan.cgroup_parent});
  append(words, plan.options);
  for (const std::string& mount : plan.mounts) append(words, {"--volume", mount});
  append_command(words, plan, image);
  return words;
}

std::vector<std::string> signal_words(const RuntimeClient& client, const std::string& name, int signal) {
  std::vector<std::string> words = client_words(client);
  append(words, {"kill", "--signal", std::to_string(signal), name});
  return words;
}

std::vector<std::string> end_words(const ContainerPlan& plan) {
  std::vector<std::string> words = client_words(plan.client);
  append(words, {"container", "inspect", "--format", "{{.State.OOMKilled}}", plan.name});
  return words;
}

std::vector<std::string> remove_words(const RuntimeClient& client, const std::string& name) {
  std::vector<std::string> words = client_words(client);
  append(words, {"rm", "--force", "--volumes"});
  if (client.runtime == ContainerRuntime::kPodman) append(words, {"--time", "0", "--ignore"});
  words.push_back(name);
  return words;
}

std::string pid_file(const ContainerPlan& plan) { return plan.folder + "/container-pid"; }

bool uses_own_init(ContainerRuntime runtime) { return runtime == ContainerRuntime::kPodman; }

}  // namespace gpusched::shim

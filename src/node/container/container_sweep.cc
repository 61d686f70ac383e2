#include "node/container/container_sweep.h"

#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <vector>

#include "log/log.h"
#include "ops/run_command.h"
#include "shim/processes.h"
#include "shim/protocol.h"

namespace gpusched {
namespace {

constexpr Duration kListPatience = seconds(60);
constexpr Duration kRemovePatience = minutes(2);
constexpr std::size_t kOutcomeBytesMax = 1 << 20;
constexpr int64_t kPinKeptSeconds = int64_t{14} * 24 * 3600;

}  // namespace

ContainerSweep::ContainerSweep(const ContainerNode& node) : node_(node), thread_([this] { run(); }) {}

ContainerSweep::~ContainerSweep() {
  stopping_ = true;
  thread_.join();
}

void ContainerSweep::run() const {
  remove_old_pins();
  if (node_.support.works && node_.support.client.runtime != shim::ContainerRuntime::kApptainer)
    remove_containers();
}

void ContainerSweep::remove_containers() const {
  const shim::RuntimeClient& client = node_.support.client;
  std::vector<std::string> words = {client.program};
  words.insert(words.end(), client.options.begin(), client.options.end());
  words.insert(words.end(), {"ps", "--all", "--filter", "label=gpu-scheduler.instance=" + node_.instance,
                             "--format", "{{.Names}}"});
  const CommandResult listed = run_command(words, client.environment, kListPatience, &stopping_);
  std::istringstream names(listed.output);
  std::string name;
  const std::string prefix = "gpu-scheduler-" + node_.instance + '-';
  while (!stopping_ && std::getline(names, name)) {
    if (!name.starts_with(prefix)) continue;
    const std::optional<AttemptKey> key = shim::parse_key(name.substr(prefix.size()));
    if (!key) continue;
    // Without an outcome it may be running, or is being ended by those who know it.
    const std::string folder = node_.data_folder + '/' + shim::kAttemptsFolder + '/' + shim::key_text(*key);
    const std::string outcome =
        shim::read_small_file((folder + '/' + shim::kOutcomeFile).c_str(), kOutcomeBytesMax);
    const bool over = shim::parse_outcome(*key, outcome).has_value();
    if (!over && access(folder.c_str(), F_OK) == 0) continue;
    const CommandResult removed =
        run_command(shim::remove_words(client, name), client.environment, kRemovePatience, &stopping_);
    log_event(removed.exit_code == 0 ? LogLevel::kInfo : LogLevel::kWarning, "agent", "container_swept", {},
              {{"container", name}, {"exit_code", removed.exit_code}});
  }
}

/// Removes pins of images; a job's first image matters as long as the job may be retried.
void ContainerSweep::remove_old_pins() const {
  std::error_code ignored;
  const time_t now = time(nullptr);
  for (const auto& entry : std::filesystem::directory_iterator(node_.data_folder + "/images", ignored)) {
    if (stopping_) return;
    if (!entry.path().filename().string().starts_with("pin-")) continue;
    struct stat facts{};
    if (stat(entry.path().c_str(), &facts) == 0 && now - facts.st_mtime > kPinKeptSeconds)
      unlink(entry.path().c_str());
  }
}

}  // namespace gpusched

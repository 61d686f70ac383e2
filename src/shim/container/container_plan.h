#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// The agent's plan for the runner of a container, and the command lines of container runtimes. Pure.
namespace gpusched::shim {

enum class ContainerRuntime : uint8_t { kPodman = 0, kDocker = 1, kApptainer = 2 };
std::string_view to_string(ContainerRuntime runtime);
std::optional<ContainerRuntime> parse_runtime(std::string_view text);

enum class PullMode : uint8_t { kIfMissing = 0, kAlways = 1, kNever = 2 };

/// Command line of a runtime on this node.
struct RuntimeClient {
  ContainerRuntime runtime = ContainerRuntime::kPodman;
  std::string program = {};               ///< Absolute path.
  std::vector<std::string> options = {};  ///< Options before the verb: `--runtime=runc`.
  std::vector<std::string> environment =
      {};  ///< The whole of it. Never the job's: that could lead it astray.

  friend bool operator==(const RuntimeClient&, const RuntimeClient&) = default;
};

struct ContainerPlan {
  RuntimeClient client;
  std::string key = {};            ///< "12-1-0".
  std::string name = {};           ///< Name of the container: one for each attempt's member and data folder.
  std::string folder = {};         ///< The attempt's, absolute.
  std::string images_folder = {};  ///< Records, locks and pins of images, shared by all attempts of the node.
  std::string images_stamp = {};  ///< A file that the runtime writes whenever its images change; empty: none.

  std::string image = {};
  std::string digest = {};  ///< "sha256:..."; empty: whatever the name means at the job's first attempt.
  std::string earlier_digest = {};  ///< Digest on the node of the job's first attempt; empty: unknown.
  PullMode pull = PullMode::kIfMissing;
  std::string auth_file = {};    ///< Credentials of the registry, in a file; empty: none.
  int64_t pull_patience_ms = 0;  ///< Time for which a failing pull is retried.

  std::vector<std::string> enter = {};  ///< Folders of cgroups for the client itself: apptainer's processes.
  std::vector<std::string> options = {};  ///< Options of `run`: limits, devices, user.
  std::vector<std::string> mounts =
      {};                          ///< "SOURCE:TARGET:rw" or ":ro": what the job asked for and may have.
  std::string cgroup_parent = {};  ///< The attempt's group; empty: the runtime's own.
  std::vector<std::string> command = {};    ///< Instead of the image's entrypoint; empty: the entrypoint.
  std::vector<std::string> arguments = {};  ///< Behind either.
  /// Opened on the node as `user`, which is "uid:gid:group,group" and empty for the runner's own; empty: the
  /// attempt's own files, and nothing to read.
  std::string stdin_path = {};
  std::string stdout_path = {};
  std::string stderr_path = {};
  std::string user = {};
  std::string refusal = {};  ///< Why the job may not run like this: it ends at once. Empty: it may.
  std::string note = {};     ///< A line for the job's error output before it starts; empty: none.

  friend bool operator==(const ContainerPlan&, const ContainerPlan&) = default;
};

/// A plan as words of a command line, and back. The words hold no secret: paths of credentials, never these.
std::vector<std::string> plan_words(const ContainerPlan& plan);
std::optional<ContainerPlan> parse_plan(const std::vector<std::string>& words);

/// "team/train:3" and "sha256:..." make "team/train@sha256:..."; without a digest, the image itself.
std::string pinned_reference(std::string_view image, std::string_view digest);
/// The numbers of "1000:100:100,44"; empty when it is no such text.
std::vector<uint32_t> numbers_in(const std::string& text);
/// Whether the image is a file that only its job's user may read: apptainer's, of a registry that wants a
/// credential.
bool is_private_file(const ContainerPlan& plan);
/// The part of a reference behind '@'; empty: none.
std::string_view digest_of(std::string_view image);

/// Returns the name of files about an image: one per reference and credential.
std::string record_name(const ContainerPlan& plan, std::string_view reference);
/// Folder where docker finds the credential as `config.json`.
std::string docker_folder(const ContainerPlan& plan);
/// Path of an image of apptainer, which is one file.
std::string image_file(const ContainerPlan& plan, std::string_view reference);

std::vector<std::string> pull_words(const ContainerPlan& plan, const std::string& reference);
/// Prints "ID DIGEST" of an image that is here. Not for apptainer, whose images are files.
std::vector<std::string> inspect_words(const ContainerPlan& plan, const std::string& reference);
/// `init_program` is mounted as the first process where the runtime can do that.
std::vector<std::string> run_words(const ContainerPlan& plan, const std::string& image,
                                   const std::string& init_program, const std::string& environment_file);
std::vector<std::string> signal_words(const RuntimeClient& client, const std::string& name, int signal);
/// Docker's: prints "true" when a process of the ended container was killed for memory.
std::vector<std::string> end_words(const ContainerPlan& plan);
std::vector<std::string> remove_words(const RuntimeClient& client, const std::string& name);

/// Where podman writes the number of the container's first process, as the machine sees it.
std::string pid_file(const ContainerPlan& plan);

/// Whether the runtime takes gpu-shim as the container's first process and hands descriptors on.
bool uses_own_init(ContainerRuntime runtime);

}  // namespace gpusched::shim

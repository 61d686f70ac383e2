#include "node/container/container_launch.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "gpusched/v1/types.pb.h"
#include "node/process/launch.h"
#include "shim/container/container_runner.h"
#include "shim/protocol.h"

namespace gpusched {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

class ContainerLaunch : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string draft = "/tmp/container-launch.XXXXXX";
    ASSERT_NE(mkdtemp(draft.data()), nullptr);
    folder_ = fs::canonical(draft).string();
    for (const char* name : {"data", "data-not", "readable", "secret", "credentials/acme"})
      fs::create_directories(folder_ + '/' + name);
    fs::create_symlink(folder_ + "/secret", folder_ + "/data/link");
    node_.options.mounts = {folder_ + "/data", folder_ + "/readable:ro"};
    node_.options.credentials_folder = folder_ + "/credentials";
    node_.support = {.works = true,
                     .client = {.runtime = shim::ContainerRuntime::kPodman, .program = "/usr/bin/podman"}};
    node_.data_folder = "/d";
    node_.instance = "ab";
    node_.shim_program = "/opt/gpu-shim";
    spec_.set_image("team/train:3");
    order_.mutable_key()->set_job(12);
    order_.mutable_key()->set_attempt(1);
    order_.set_tenant("acme");
    order_.set_job_name("job-12");
  }
  void TearDown() override { fs::remove_all(folder_); }

  shim::ContainerPlan plan() {
    *order_.mutable_spec() = spec_.SerializeAsString();
    LaunchDefaults defaults;
    defaults.instance = "ab";
    defaults.containers = std::make_shared<ContainerNode>(node_);
    Result<SpawnRequest> request = plan_launch(order_, {"GPU-a", "GPU-b"}, defaults);
    EXPECT_TRUE(request.ok()) << request.error().message;
    request_ = *request;
    EXPECT_EQ(request_.arguments.at(0), "/opt/gpu-shim");
    EXPECT_EQ(request_.arguments.at(1), shim::kContainerFlag);
    const auto parsed = shim::parse_plan({request_.arguments.begin() + 2, request_.arguments.end()});
    EXPECT_TRUE(parsed.has_value());
    return *parsed;
  }
  static bool has(const Words& words, const std::string& first, const std::string& second) {
    for (std::size_t i = 0; i + 1 < words.size(); ++i) {
      if (words[i] == first && words[i + 1] == second) return true;
    }
    return false;
  }
  static bool mounts(const shim::ContainerPlan& made, const std::string& mount) {
    return std::find(made.mounts.begin(), made.mounts.end(), mount) != made.mounts.end();
  }
  void mount(const std::string& source, bool read_only = false, const std::string& target = "/x") {
    v1::Mount& wanted = *spec_.add_mounts();
    wanted.set_source(source);
    wanted.set_target(target);
    wanted.set_read_only(read_only);
  }
  std::string credential(const std::string& name, mode_t mode) {
    const std::string path = folder_ + "/credentials/acme/" + name + ".json";
    std::ofstream(path) << "{}";
    chmod(path.c_str(), mode);
    return path;
  }

  std::string folder_;
  ContainerNode node_;
  v1::JobSpec spec_;
  v1::StartAttempt order_;
  SpawnRequest request_;
};

TEST_F(ContainerLaunch, CommandScriptAndArgumentsAreTold) {
  spec_.add_args("x");
  EXPECT_TRUE(plan().command.empty());
  EXPECT_EQ(plan().arguments, Words{"x"});
  spec_.set_script("echo $1");
  EXPECT_EQ(plan().command, (Words{"/bin/sh", "-c", "echo $1", "script"}));
  spec_.set_script("#!/usr/bin/perl -w\nprint 1;\n");
  EXPECT_EQ(plan().command, (Words{"/usr/bin/perl", "-w", "/run/gpu-scheduler/script"}));
  EXPECT_EQ(request_.script_argument, 0u);
  spec_.clear_script();
  spec_.add_command("run");
  EXPECT_EQ(plan().command, Words{"run"});
}

TEST_F(ContainerLaunch, TheEnvironmentIsMarkedAndTheImagesOwnValuesStay) {
  (*spec_.mutable_environment())["LD_PRELOAD"] = "/evil.so";
  plan();
  const Words& entries = request_.environment;
  EXPECT_EQ(std::count(entries.begin(), entries.end(), "+LD_PRELOAD=/evil.so"), 1);
  for (const std::string& entry : entries) {
    EXPECT_TRUE(entry.front() == shim::kJobEntryMark || entry.starts_with(shim::kMarkerVariable)) << entry;
    EXPECT_FALSE(entry.starts_with("+PATH=") || entry.starts_with("+HOME=")) << entry;
  }
  (*spec_.mutable_environment())["PATH"] = "/own";
  plan();
  EXPECT_EQ(std::count(request_.environment.begin(), request_.environment.end(), "+PATH=/own"), 1);
}

TEST_F(ContainerLaunch, TheClientHasTheMarkAndNothingOfTheJobs) {
  (*spec_.mutable_environment())["TOKEN"] = "secret";
  const Words entries = plan().client.environment;
  EXPECT_EQ(std::count(entries.begin(), entries.end(), "GPU_SCHEDULER_ATTEMPT=12-1-0@ab"), 1);
  for (const std::string& word : request_.arguments)
    EXPECT_EQ(word.find("secret"), std::string::npos) << word;
}

TEST_F(ContainerLaunch, TheContainerIsNamedAndLabelled) {
  const shim::ContainerPlan made = plan();
  EXPECT_EQ(made.name, "gpu-scheduler-ab-12-1-0");
  EXPECT_TRUE(has(made.options, "--label", "gpu-scheduler.attempt=12-1-0"));
  EXPECT_TRUE(has(made.options, "--label", "gpu-scheduler.instance=ab"));
  EXPECT_TRUE(has(made.options, "--network", "host"));
  EXPECT_TRUE(request_.container);
}

TEST_F(ContainerLaunch, ItSeesWhereToSayThatItsWorkIsSaved) {
  const shim::ContainerPlan made = plan();
  EXPECT_TRUE(has(made.options, "--volume", made.folder + "/tmp:/run/gpu-scheduler:rw"));
  EXPECT_EQ(std::count(request_.environment.begin(), request_.environment.end(),
                       "+GPU_CHECKPOINT_FILE=/run/gpu-scheduler/gpu-checkpoint"),
            1);
  EXPECT_TRUE(request_.box.open_tmp);
}

TEST_F(ContainerLaunch, MemoryIsLimited) {
  order_.set_memory_mb(512);
  const Words options = plan().options;
  EXPECT_TRUE(has(options, "--memory", "512m"));
  EXPECT_TRUE(has(options, "--memory-swap", "512m"));
}

TEST_F(ContainerLaunch, TheBoxBecomesOptionsAndItsGroupsTheParent) {
  SpawnRequest request{
      .key = {JobId{12}, 1, 0}, .arguments = {"x"}, .environment = {"GPU_SCHEDULER_ATTEMPT=12-1-0@ab"}};
  request.box = {.user = shim::Credentials{.uid = 1000, .gid = 100, .groups = {100, 44}},
                 .cgroups = {{.path = "/sys/fs/cgroup/devices/jobs/12-1-0"},
                             {.path = "/sys/fs/cgroup/memory/jobs/12-1-0"},
                             {.path = "/sys/fs/cgroup/unified/jobs/12-1-0", .unified = true}},
                 .cpus = {2, 3},
                 .umask = 027,
                 .memory_bytes_max = int64_t{256} << 20,
                 .processes_max = 99};
  ASSERT_TRUE(plan_container(request, order_, spec_, node_).ok());
  const auto made = shim::parse_plan({request.arguments.begin() + 2, request.arguments.end()});
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->cgroup_parent, "/jobs/12-1-0");
  const std::pair<const char*, const char*> wanted[] = {
      {"--user", "1000:100"},  {"--group-add", "44"}, {"--security-opt", "no-new-privileges"},
      {"--umask", "0027"},     {"--memory", "256m"},  {"--pids-limit", "99"},
      {"--cpuset-cpus", "2,3"}};
  for (const auto& [option, value] : wanted) EXPECT_TRUE(has(made->options, option, value)) << option;
  EXPECT_FALSE(request.box.user.has_value());  // The runtime's client is the agent's.
  EXPECT_EQ(request.box.cgroups.size(), 2u);
  EXPECT_EQ(request.box.cgroups[0].path, "/sys/fs/cgroup/memory/jobs/12-1-0");
}

TEST_F(ContainerLaunch, ImagesAreNamesInRegistries) {
  for (const char* image : {"debian", "debian:12", "team/train:3", "docker://team/train",
                            "reg.example/a/b@sha256:12", "localhost:5000/a:b", "[::1]:5000/a"}) {
    spec_.set_image(image);
    EXPECT_EQ(plan().refusal.empty(), *image != '[') << image;
  }
  // Read by whoever runs the runtime, which may be root: files, folders, other stores, web servers.
  for (const char* image :
       {"dir:/root/secret", "docker-archive:/root/image.tar", "oci:folder", "oci:/folder:tag",
        "oci-archive:/x.tar", "containers-storage:x", "docker-daemon:x:1", "ostree:x@/y", "sif:/x",
        "tarball:/x", "http://evil.example/x", "https://evil.example/x", "dir:relative", "oras://x/y",
        "library://x", "docker:x", "a/../../b", "$(id)"}) {
    spec_.set_image(image);
    EXPECT_NE(plan().refusal, "") << image;
  }
}

TEST_F(ContainerLaunch, RootsContainersHaveNoCapabilities) {
  EXPECT_TRUE(has(plan().options, "--cap-drop", "all"));
  node_.support.rootless = true;  // There they are those of a user namespace.
  EXPECT_FALSE(has(plan().options, "--cap-drop", "all"));
}

TEST_F(ContainerLaunch, TheNetworkIsTheNodesUnlessTheJobMayChooseAnother) {
  EXPECT_TRUE(has(plan().options, "--network", "host"));
  node_.options.network = "none";
  EXPECT_TRUE(has(plan().options, "--network", "none"));
  spec_.add_container_arguments("--network=host");
  EXPECT_NE(plan().refusal, "");
  node_.options.job_options = {"--network=host"};
  const shim::ContainerPlan made = plan();
  EXPECT_EQ(made.refusal, "");
  EXPECT_EQ(std::count(made.options.begin(), made.options.end(), "--network=host"), 1);
  EXPECT_FALSE(has(made.options, "--network", "none"));
}

TEST_F(ContainerLaunch, MountsComeFromTheAllowList) {
  mount(folder_ + "/data", false, "/results");
  mount(folder_ + "/readable", true, "/in");
  const shim::ContainerPlan made = plan();
  EXPECT_EQ(made.refusal, "");
  EXPECT_TRUE(mounts(made, folder_ + "/data:/results:rw"));
  EXPECT_TRUE(mounts(made, folder_ + "/readable:/in:ro"));
}

TEST_F(ContainerLaunch, OtherMountsAreRefused) {
  const struct {
    std::string source;
    bool read_only;
    std::string target;
  } cases[] = {{"/secret", true, "/x"},      {"/data/link", true, "/x"}, {"/data/../secret", true, "/x"},
               {"/data-not", true, "/x"},    {"/readable", false, "/x"}, {"/data/absent", true, "/x"},
               {"/data", true, "/proc/sys"}, {"/data", true, "/"},       {"/data", true, "relative"},
               {"/data", true, "/a:rw,/etc"}};
  for (const auto& one : cases) {
    spec_.clear_mounts();
    mount(folder_ + one.source, one.read_only, one.target);
    EXPECT_NE(plan().refusal, "") << one.source << " at " << one.target;
  }
  spec_.clear_mounts();
  mount("/", true);
  EXPECT_NE(plan().refusal, "");
}

TEST_F(ContainerLaunch, NothingIsMountedWhereNothingIsAllowed) {
  node_.options.mounts.clear();
  mount(folder_ + "/data", true);
  EXPECT_NE(plan().refusal.find("--container-mount"), std::string::npos);
}

TEST_F(ContainerLaunch, TheWorkingDirectoryIsMountedWhereItMayBe) {
  spec_.set_working_directory(folder_ + "/data");
  shim::ContainerPlan made = plan();
  EXPECT_TRUE(mounts(made, folder_ + "/data:" + folder_ + "/data:rw"));
  EXPECT_TRUE(has(made.options, "--workdir", folder_ + "/data"));
  spec_.set_container_workdir_mount("/here");
  made = plan();
  EXPECT_TRUE(mounts(made, folder_ + "/data:/here:rw"));
  EXPECT_TRUE(has(made.options, "--workdir", "/here"));
  spec_.set_working_directory("/of/the/image");
  EXPECT_NE(plan().refusal, "");  // A mount was asked for.
  spec_.clear_container_workdir_mount();
  made = plan();
  EXPECT_TRUE(has(made.options, "--workdir", "/of/the/image"));
  EXPECT_EQ(std::count(made.options.begin(), made.options.end(), "--volume"), 1);  // For the attempt's tmp.
  EXPECT_EQ(made.mounts, Words{});
}

TEST_F(ContainerLaunch, CredentialsAreTheTenantsOwn) {
  const std::string robot = credential("robot", 0600);
  spec_.set_registry_credential("robot");
  EXPECT_EQ(plan().auth_file, robot);
  for (const char* tenant : {"other", "", "../acme", ".", "acme/../acme"}) {
    order_.set_tenant(tenant);
    EXPECT_NE(plan().refusal, "") << tenant;
  }
  order_.set_tenant("acme");
  spec_.set_registry_credential("../acme/robot");
  EXPECT_NE(plan().refusal, "");
}

TEST_F(ContainerLaunch, CredentialsThatOthersCanReadAreNotUsed) {
  credential("robot", 0640);
  spec_.set_registry_credential("robot");
  EXPECT_NE(plan().refusal.find("chmod 600"), std::string::npos);
}

TEST_F(ContainerLaunch, TheDefaultCredentialIsUsedWhereThereIsOne) {
  EXPECT_EQ(plan().auth_file, "");
  const std::string file = credential("default", 0600);
  EXPECT_EQ(plan().auth_file, file);
}

TEST_F(ContainerLaunch, OptionsOfTheRuntimeComeFromTheAllowList) {
  node_.options.job_options = {"--ipc=host", "--shm-size="};
  for (const char* allowed : {"--ipc=host", "--shm-size=1g"}) {
    spec_.clear_container_arguments();
    spec_.add_container_arguments(allowed);
    const shim::ContainerPlan made = plan();
    EXPECT_EQ(made.refusal, "");
    EXPECT_EQ(std::count(made.options.begin(), made.options.end(), allowed), 1);
  }
  for (const char* other : {"--privileged", "--ipc=host2", "--ipc", "--shm-size", "-v/:/x", "ubuntu"}) {
    spec_.clear_container_arguments();
    spec_.add_container_arguments(other);
    EXPECT_NE(plan().refusal, "") << other;
  }
}

TEST_F(ContainerLaunch, NamesOfImagesAreNoOptions) {
  for (const char* image : {"--privileged", "a b", "a\nb", "/file.sif"}) {
    spec_.set_image(image);
    EXPECT_NE(plan().refusal, "") << image;
  }
}

TEST_F(ContainerLaunch, ApptainerGetsItsOwnOptions) {
  node_.support.client = {.runtime = shim::ContainerRuntime::kApptainer, .program = "/usr/bin/apptainer"};
  mount(folder_ + "/data", true, "/in");
  spec_.set_working_directory("/work");
  order_.set_memory_mb(100);
  EXPECT_EQ(plan().options, (Words{"--containall", "--no-home", "--pwd", "/work", "--bind",
                                   plan().folder + "/tmp:/run/gpu-scheduler:rw"}));
  EXPECT_EQ(plan().mounts, Words{folder_ + "/data:/in:ro"});
}

TEST_F(ContainerLaunch, ANodeWithoutARuntimeSaysWhy) {
  node_.support = {.why_not = "no podman in /usr/bin"};
  *order_.mutable_spec() = spec_.SerializeAsString();
  LaunchDefaults defaults;
  defaults.containers = std::make_shared<ContainerNode>(node_);
  const Result<SpawnRequest> request = plan_launch(order_, {}, defaults);
  ASSERT_FALSE(request.ok());
  EXPECT_NE(request.error().message.find("no podman in /usr/bin"), std::string::npos);
}

// GPUs.

constexpr const char* kYaml = R"(cdiVersion: 0.5.0
kind: nvidia.com/gpu
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-a
- name: "GPU-b"
  containerEdits: {}
)";

TEST(ContainerGpus, DevicesOfASpecificationAreRead) {
  EXPECT_EQ(cdi_devices(kYaml), (Words{"nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"}));
  EXPECT_EQ(cdi_devices(R"({"cdiVersion":"0.5.0","kind":"nvidia.com/gpu","devices":[{"name":"GPU-a",)"
                        R"("containerEdits":{"deviceNodes":[{"path":"/dev/nvidia0"}]}},{"name":"GPU-b"}]})"),
            (Words{"nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"}));
  EXPECT_EQ(cdi_devices("{{{{,,,:\n\"name\":"), Words{});
}

class ContainerGpuPlaces : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string draft = "/tmp/container-gpus.XXXXXX";
    ASSERT_NE(mkdtemp(draft.data()), nullptr);
    folder_ = draft;
    for (const char* name : {"cdi", "gpus/0000:01:00.0", "gpus/0000:02:00.0", "dev"})
      fs::create_directories(folder_ + '/' + name);
    std::ofstream(folder_ + "/gpus/0000:01:00.0/information")
        << "Model: \t A\nGPU UUID: \t GPU-a\nDevice Minor: \t 3\n";
    std::ofstream(folder_ + "/gpus/0000:02:00.0/information") << "GPU UUID: \t GPU-b\nDevice Minor: \t 4\n";
    for (const char* name : {"nvidia3", "nvidiactl"}) std::ofstream(folder_ + "/dev/" + name) << "";
    places_ = {.cdi_folders = {folder_ + "/absent", folder_ + "/cdi"},
               .driver_folder = folder_ + "/gpus",
               .device_folder = folder_ + "/dev"};
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string folder_;
  GpuPlaces places_;
};

TEST_F(ContainerGpuPlaces, CdiNamesExactlyTheGrantedDevices) {
  std::ofstream(folder_ + "/cdi/nvidia.yaml") << kYaml;
  const ContainerGpus gpus = container_gpus(shim::ContainerRuntime::kPodman, {"GPU-b"}, places_);
  EXPECT_EQ(gpus.options, (Words{"--device", "nvidia.com/gpu=GPU-b"}));
  EXPECT_EQ(gpus.note, "");
}

TEST_F(ContainerGpuPlaces, WithoutCdiThereAreNodesAndANote) {
  ContainerGpus gpus = container_gpus(shim::ContainerRuntime::kPodman, {"GPU-a"}, places_);
  EXPECT_EQ(gpus.options,
            (Words{"--device", folder_ + "/dev/nvidia3", "--device", folder_ + "/dev/nvidiactl"}));
  EXPECT_NE(gpus.note.find("nvidia-ctk cdi generate"), std::string::npos);
  gpus = container_gpus(shim::ContainerRuntime::kDocker, {"GPU-b"}, places_);
  EXPECT_NE(gpus.note.find("no device node was found for GPU-b"), std::string::npos);
}

TEST_F(ContainerGpuPlaces, OfASliceOnlyItsOwnNodesAreGiven) {
  const std::string instance = folder_ + "/proc/driver/nvidia/capabilities/gpu3/mig/gi7";
  fs::create_directories(instance + "/ci0");
  std::ofstream(instance + "/access") << "DeviceFileMinor: 66\n";
  std::ofstream(instance + "/ci0/access") << "DeviceFileMinor: 67\n";
  places_.root = folder_;
  const std::vector<MadeSlice> slices = {{.uuid = "MIG-1", .gpu_instance = 7, .compute_instance = 0}};
  ContainerGpus gpus = container_gpus(shim::ContainerRuntime::kPodman, {"GPU-a"}, places_, slices);
  const std::string dev = folder_ + "/dev";
  EXPECT_EQ(gpus.options,
            (Words{"--device", dev + "/nvidia3", "--device", dev + "/nvidia-caps/nvidia-cap66", "--device",
                   dev + "/nvidia-caps/nvidia-cap67", "--device", dev + "/nvidiactl"}));
  std::ofstream(folder_ + "/cdi/nvidia.json")
      << R"({"kind":"nvidia.com/gpu","devices":[{"name":"GPU-a"},{"name":"MIG-1"}]})";
  gpus = container_gpus(shim::ContainerRuntime::kPodman, {"GPU-a"}, places_, slices);
  EXPECT_EQ(gpus.options, (Words{"--device", "nvidia.com/gpu=MIG-1"}));
}

TEST_F(ContainerGpuPlaces, NoGpuOrASimulatedOneNeedsNothing) {
  for (const Words& uuids : {Words{}, Words{"GPU-sim-n1-0"}}) {
    const ContainerGpus gpus = container_gpus(shim::ContainerRuntime::kPodman, uuids, places_);
    EXPECT_TRUE(gpus.options.empty());
    EXPECT_EQ(gpus.note, "");
  }
}

// Probing, by programs of a few lines.

class ContainerProbe : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string draft = "/tmp/container-probe.XXXXXX";
    ASSERT_NE(mkdtemp(draft.data()), nullptr);
    folder_ = draft;
  }
  void TearDown() override { fs::remove_all(folder_); }
  void program(const std::string& name, const std::string& script) {
    std::ofstream(folder_ + '/' + name) << "#!/bin/sh\n" << script;
    chmod((folder_ + '/' + name).c_str(), 0755);
  }
  std::string folder_;
};

TEST_F(ContainerProbe, OnlyWhatAnswersIsAFeature) {
  program("podman", "echo 'runc|/var/lib/containers/storage|overlay|false|4.3.1'\n");
  program("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1\n");
  program("apptainer", "echo 'apptainer version 1.3.0'\n");
  const ContainerSupport support = probe_containers({}, folder_);
  EXPECT_TRUE(support.works);
  EXPECT_EQ(support.features, (Words{"container", "container:podman", "container:apptainer"}));
  EXPECT_EQ(support.client.runtime, shim::ContainerRuntime::kPodman);
  EXPECT_EQ(support.images_stamp, "/var/lib/containers/storage/overlay-images/images.json");
  EXPECT_EQ(support.version, "4.3.1");
}

TEST_F(ContainerProbe, ARuntimeThatFailsSaysWhy) {
  program("docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1\n");
  const ContainerSupport support = probe_containers({.runtime = "docker"}, folder_);
  EXPECT_FALSE(support.works);
  EXPECT_TRUE(support.features.empty());
  EXPECT_NE(support.why_not.find("Cannot connect to the Docker daemon"), std::string::npos);
}

TEST_F(ContainerProbe, NoneIsNone) {
  program("podman", "echo 'runc|/s|overlay|false|4.3.1'\n");
  const ContainerSupport support = probe_containers({.runtime = "none"}, folder_);
  EXPECT_FALSE(support.works);
  EXPECT_NE(support.why_not.find("switched off"), std::string::npos);
}

}  // namespace
}  // namespace gpusched

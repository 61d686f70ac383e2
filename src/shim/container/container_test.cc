#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "shim/container/container_image.h"
#include "shim/container/container_init.h"
#include "shim/container/container_plan.h"
#include "shim/container/container_tool.h"
#include "shim/processes.h"

namespace gpusched::shim {
namespace {

using Words = std::vector<std::string>;

ContainerPlan plan_for(ContainerRuntime runtime) {
  return ContainerPlan{.client = {.runtime = runtime,
                                  .program = "/usr/bin/" + std::string(to_string(runtime)),
                                  .options = {"--log-level=error"},
                                  .environment = {"PATH=/bin"}},
                       .key = "12-1-0",
                       .name = "gpu-scheduler-ab-12-1-0",
                       .folder = "/d/attempts/12-1-0",
                       .images_folder = "/d/images",
                       .image = "team/train:3",
                       .options = {"--network", "host"},
                       .cgroup_parent = "/jobs/12-1-0",
                       .command = {"/bin/sh", "-c", "echo a b"},
                       .arguments = {"x"}};
}

// Command lines.

TEST(ContainerPlan, IsReadAsWritten) {
  ContainerPlan plan = plan_for(ContainerRuntime::kDocker);
  plan.digest = "sha256:ab";
  plan.pull = PullMode::kNever;
  plan.auth_file = "/c/default/robot.json";
  plan.pull_patience_ms = 1234;
  plan.note = "a = b";
  plan.refusal = "no";
  plan.images_stamp = "/s";
  plan.arguments = {"", "a=b", "two\nlines"};
  plan.mounts = {"/a:/b:ro", "/c=d:/e:rw"};
  EXPECT_EQ(parse_plan(plan_words(plan)), plan);
}

TEST(ContainerPlan, WordsThatAreNoPlanAreRefused) {
  for (const Words& words :
       {Words{}, Words{"name=a"}, Words{"program=/p", "name=a", "nothing"},
        Words{"program=/p", "name=a", "unknown=1"}, Words{"program=/p", "name=a", "runtime=lxc"},
        Words{"program=/p", "name=a", "pull=sometimes"},
        Words{"program=/p", "name=a", "pull_patience_ms=12x"}}) {
    EXPECT_FALSE(parse_plan(words).has_value());
  }
}

TEST(ContainerPlan, PodmanRunsInTheForegroundWithOurFirstProcess) {
  EXPECT_EQ(run_words(plan_for(ContainerRuntime::kPodman), "4f2a", "/opt/gpu-shim", "/e"),
            (Words{"/usr/bin/podman",
                   "--log-level=error",
                   "run",
                   "--rm",
                   "--name",
                   "gpu-scheduler-ab-12-1-0",
                   "--pull",
                   "never",
                   "--sig-proxy=false",
                   "--cidfile",
                   "/d/attempts/12-1-0/container-id",
                   "--env-file",
                   "/e",
                   "--log-driver",
                   "passthrough",
                   "--http-proxy=false",
                   "--init",
                   "--init-path",
                   "/opt/gpu-shim",
                   "--preserve-fds",
                   "2",
                   "--pidfile",
                   "/d/attempts/12-1-0/container-pid",
                   "--cgroup-parent",
                   "/jobs/12-1-0",
                   "--network",
                   "host",
                   "--entrypoint",
                   "/bin/sh",
                   "4f2a",
                   "-c",
                   "echo a b",
                   "x"}));
}

TEST(ContainerPlan, DockerRunsWithItsOwnFirstProcess) {
  EXPECT_EQ(run_words(plan_for(ContainerRuntime::kDocker), "4f2a", "/opt/gpu-shim", "/e"),
            (Words{"/usr/bin/docker",
                   "--log-level=error",
                   "run",
                   "--name",
                   "gpu-scheduler-ab-12-1-0",
                   "--pull",
                   "never",
                   "--sig-proxy=false",
                   "--cidfile",
                   "/d/attempts/12-1-0/container-id",
                   "--env-file",
                   "/e",
                   "--log-driver",
                   "none",
                   "--init",
                   "--cgroup-parent",
                   "/jobs/12-1-0",
                   "--network",
                   "host",
                   "--entrypoint",
                   "/bin/sh",
                   "4f2a",
                   "-c",
                   "echo a b",
                   "x"}));
}

TEST(ContainerPlan, ApptainerExecutesACommandAndRunsAnEntrypoint) {
  ContainerPlan plan = plan_for(ContainerRuntime::kApptainer);
  plan.options = {"--containall"};
  EXPECT_EQ(run_words(plan, "/d/images/a.sif", "/opt/gpu-shim", "/e"),
            (Words{"/usr/bin/apptainer", "--log-level=error", "exec", "--env-file", "/e", "--containall",
                   "/d/images/a.sif", "/bin/sh", "-c", "echo a b", "x"}));
  plan.command.clear();
  EXPECT_EQ(run_words(plan, "/d/images/a.sif", "/opt/gpu-shim", "/e"),
            (Words{"/usr/bin/apptainer", "--log-level=error", "run", "--env-file", "/e", "--containall",
                   "/d/images/a.sif", "x"}));
}

TEST(ContainerPlan, MountsAreOptionsOfEachRuntime) {
  for (const auto& [runtime, option] :
       {std::pair(ContainerRuntime::kPodman, "--volume"), std::pair(ContainerRuntime::kDocker, "--volume"),
        std::pair(ContainerRuntime::kApptainer, "--bind")}) {
    ContainerPlan plan = plan_for(runtime);
    plan.mounts = {"/proc/7/fd/9:/in:ro"};
    const Words words = run_words(plan, "image", "/opt/gpu-shim", "/e");
    const auto at = std::find(words.begin(), words.end(), option);
    ASSERT_NE(at, words.end());
    EXPECT_EQ(*(at + 1), "/proc/7/fd/9:/in:ro");
    EXPECT_LT(at, std::find(words.begin(), words.end(), "image"));
  }
}

TEST(ContainerPlan, WithoutACommandTheEntrypointStays) {
  ContainerPlan plan = plan_for(ContainerRuntime::kPodman);
  plan.command.clear();
  const Words words = run_words(plan, "4f2a", "/opt/gpu-shim", "/e");
  EXPECT_EQ(std::count(words.begin(), words.end(), "--entrypoint"), 0);
  EXPECT_EQ(Words(words.end() - 2, words.end()), (Words{"4f2a", "x"}));
}

TEST(ContainerPlan, CredentialsGoByFile) {
  ContainerPlan plan = plan_for(ContainerRuntime::kPodman);
  plan.auth_file = "/c/default/robot.json";
  EXPECT_EQ(pull_words(plan, "r/a:1"), (Words{"/usr/bin/podman", "--log-level=error", "pull", "--authfile",
                                              "/c/default/robot.json", "r/a:1"}));
  plan.client = {.runtime = ContainerRuntime::kDocker, .program = "/usr/bin/docker"};
  EXPECT_EQ(pull_words(plan, "r/a:1"),
            (Words{"/usr/bin/docker", "--config", docker_folder(plan), "pull", "r/a:1"}));
  plan.client = {.runtime = ContainerRuntime::kApptainer, .program = "/usr/bin/apptainer"};
  EXPECT_EQ(pull_words(plan, "r/a:1"),
            (Words{"/usr/bin/apptainer", "pull", "--force", "--authfile", "/c/default/robot.json",
                   image_file(plan, "r/a:1") + ".part", "docker://r/a:1"}));
}

TEST(ContainerPlan, ImagesAreAskedForWithTheirDigests) {
  EXPECT_EQ(inspect_words(plan_for(ContainerRuntime::kPodman), "a:1"),
            (Words{"/usr/bin/podman", "--log-level=error", "image", "inspect", "--format",
                   "{{.Id}} {{.Digest}}", "a:1"}));
  EXPECT_EQ(inspect_words(plan_for(ContainerRuntime::kDocker), "a:1"),
            (Words{"/usr/bin/docker", "--log-level=error", "image", "inspect", "--format",
                   "{{.Id}} {{range .RepoDigests}}{{.}} {{end}}", "a:1"}));
}

TEST(ContainerPlan, SignalsAndRemovalGoThroughTheRuntime) {
  const RuntimeClient podman{.runtime = ContainerRuntime::kPodman, .program = "/p", .options = {"--root=/r"}};
  EXPECT_EQ(signal_words(podman, "n", 15), (Words{"/p", "--root=/r", "kill", "--signal", "15", "n"}));
  EXPECT_EQ(remove_words(podman, "n"),
            (Words{"/p", "--root=/r", "rm", "--force", "--volumes", "--time", "0", "--ignore", "n"}));
  const RuntimeClient docker{.runtime = ContainerRuntime::kDocker, .program = "/d"};
  EXPECT_EQ(remove_words(docker, "n"), (Words{"/d", "rm", "--force", "--volumes", "n"}));
  EXPECT_EQ(end_words({.client = docker, .name = "n"}),
            (Words{"/d", "container", "inspect", "--format", "{{.State.OOMKilled}}", "n"}));
}

TEST(ContainerPlan, ADigestTakesTheTagsPlace) {
  const struct {
    const char* image;
    const char* digest;
    const char* reference;
  } cases[] = {{"team/train:3", "", "team/train:3"},
               {"team/train:3", "sha256:ab", "team/train@sha256:ab"},
               {"host:5000/train", "sha256:ab", "host:5000/train@sha256:ab"},
               {"host:5000/train:3", "sha256:ab", "host:5000/train@sha256:ab"},
               {"train:3@sha256:cd", "", "train@sha256:cd"},
               {"train@sha256:cd", "sha256:ab", "train@sha256:ab"}};
  for (const auto& one : cases) EXPECT_EQ(pinned_reference(one.image, one.digest), one.reference);
}

TEST(ContainerPlan, FilesOfImagesDifferByReferenceAndCredential) {
  ContainerPlan plan = plan_for(ContainerRuntime::kApptainer);
  ContainerPlan other = plan;
  other.auth_file = "/c/x.json";
  EXPECT_NE(image_file(plan, "a:1"), image_file(plan, "a:2"));
  EXPECT_NE(image_file(plan, "a:1"), image_file(other, "a:1"));
  EXPECT_EQ(image_file(plan, "/shared/a.sif"), "/shared/a.sif");
}

// Words of the first process.

TEST(ContainerInit, ItsWordsAreRead) {
  InitStatus status = parse_init_status("started\nended 2304 0\n");
  EXPECT_TRUE(status.started && status.ended);
  EXPECT_EQ(WEXITSTATUS(status.wait_status), 9);
  status = parse_init_status("started\nended 9 2\n");
  EXPECT_TRUE(WIFSIGNALED(status.wait_status));
  EXPECT_EQ(status.oom_kills, 2);
  EXPECT_EQ(parse_init_status("failed 2\n").start_error, 2);
}

TEST(ContainerInit, AnUnfinishedWordIsNone) {
  EXPECT_FALSE(parse_init_status("starte").started);
  EXPECT_FALSE(parse_init_status("started").started);
  const InitStatus status = parse_init_status("started\nended 0");
  EXPECT_TRUE(status.started);
  EXPECT_FALSE(status.ended);
}

// Progress.

TEST(PullProgress, PodmansBarsAreSummed) {
  PullProgress progress;
  EXPECT_EQ(progress.text(), "");
  EXPECT_TRUE(
      progress.take("Getting image source signatures\r\nCopying blob 30ba90e5f9d1 [====>---] 10.0MiB / "
                    "40.0MiB\r\nCopying blob 53b4144882cb [>-------] 0.0b / 40.0MiB\r\n"));
  EXPECT_EQ(progress.text(), "12 %");
  EXPECT_TRUE(
      progress.take("\x1b[2A\x1b[JCopying blob 30ba90e5f9d1 done  \r\nCopying blob 53b4144882cb "
                    "[====>---] 20.0MiB / 40.0MiB\r\n"));
  EXPECT_EQ(progress.text(), "75 %");
  EXPECT_FALSE(progress.take("\x1b[2A\x1b[JCopying blob 30ba90e5f9d1 done  \r\n"));
}

TEST(PullProgress, LayersAreCountedWhereSizesAreNotKnown) {
  PullProgress progress;
  progress.take("Copying blob sha256:30ba90e5f9d1aa\nCopying blob sha256:53b4144882cbbb\n");
  EXPECT_EQ(progress.text(), "0 of 2 layers");
  progress.take("30ba90e5f9d1: Pull complete\n");
  EXPECT_EQ(progress.text(), "1 of 2 layers");
}

TEST(PullProgress, DockersBarsAreSummed) {
  PullProgress progress;
  progress.take("a1b2c3d4e5f6: Downloading [==>   ]  5MB/20MB\r\n");
  EXPECT_EQ(progress.text(), "25 %");
  progress.take("a1b2c3d4e5f6: Extracting [==>   ]  1MB/20MB\r\n");
  EXPECT_EQ(progress.text(), "100 %");
}

TEST(PullProgress, PiecesMayCutLinesAnywhere) {
  const std::string text = "Copying blob 30ba90e5f9d1 [====>---] 10.0MiB / 40.0MiB\r\n";
  for (std::size_t cut = 0; cut < text.size(); ++cut) {
    PullProgress progress;
    progress.take(text.substr(0, cut));
    progress.take(text.substr(cut));
    EXPECT_EQ(progress.text(), "25 %") << cut;
  }
}

TEST(ImagePull, OnlyRefusalsAreFinal) {
  for (const char* text :
       {"reading manifest 1 in r/a: manifest unknown", "unauthorized: authentication required",
        "invalid reference format", "requested access to the resource is denied",
        "Head \"http://r/v2/a/manifests/1\": no basic auth credentials"}) {
    EXPECT_TRUE(is_final_refusal(text)) << text;
  }
  for (const char* text : {"received unexpected HTTP status: 503 Service Unavailable", "connection refused",
                           "no space left on device", "i/o timeout", ""}) {
    EXPECT_FALSE(is_final_refusal(text)) << text;
  }
}

// Finding images, by a runtime of a few lines.

class FakeRuntime : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    plan_ = plan_for(ContainerRuntime::kPodman);
    plan_.client.program = folder_ + "/runtime";
    plan_.client.options.clear();
    plan_.client.environment = {"PATH=/usr/bin:/bin", "F=" + folder_};
    plan_.images_folder = folder_ + "/images";
    plan_.images_stamp = folder_ + "/stamp";
    plan_.pull_patience_ms = 60'000;
    // Images are files with their ids; a pull makes one and changes the stamp, or fails as it is told.
    write("runtime", R"(#!/bin/sh
echo "$*" >> "$F/calls"
case "$1" in
  pull)
    for last; do :; done
    if [ -s "$F/failures" ]; then
      head -n 1 "$F/failures" >&2
      sed -i 1d "$F/failures"
      exit 125
    fi
    name=$(echo "$last" | tr '/:@' '___')
    echo "id-$name" > "$F/have-$name"
    echo x >> "$F/stamp";;
  image)
    for last; do :; done
    name=$(echo "$last" | tr '/:@' '___')
    for file in "$F"/have-*; do
      [ -f "$file" ] || continue
      read -r id < "$file"
      if [ "$file" = "$F/have-$name" ] || [ "$id" = "$last" ]; then echo "$id sha256:d-$id"; exit 0; fi
    done
    exit 125;;
esac
)",
          0755);
    write("stamp", "", 0644);
  }
  void TearDown() override { EXPECT_EQ(std::system(("rm -rf " + folder_).c_str()), 0); }

  void write(const std::string& name, const std::string& text, mode_t mode) {
    const int file = open((folder_ + '/' + name).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    ASSERT_GE(file, 0);
    ASSERT_EQ(::write(file, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    close(file);
  }
  Result<ResolvedImage> find() {
    ImageFinder finder(plan_, signals_, [this](const std::string& line) { said_.push_back(line); });
    return finder.find();
  }
  int calls(const std::string& verb) {
    const std::string command = "grep -c '^" + verb + "' " + folder_ + "/calls > " + folder_ + "/count";
    static_cast<void>(std::system(command.c_str()));
    FILE* const file = std::fopen((folder_ + "/count").c_str(), "re");
    int count = 0;
    EXPECT_EQ(std::fscanf(file, "%d", &count), 1);
    std::fclose(file);
    return count;
  }

  std::string folder_ = "/tmp/container-image.XXXXXX";
  ContainerPlan plan_;
  SignalWatch signals_;
  std::vector<std::string> said_;
};

TEST_F(FakeRuntime, AMissingImageIsPulledAndThenKnownWithoutAsking) {
  const auto first = find();
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->id, "id-team_train_3");
  EXPECT_EQ(first->digest, "sha256:d-id-team_train_3");
  plan_.key = "13-1-0";  // Another job: nothing is pinned for it.
  const int before = calls("image");
  EXPECT_EQ(*find(), *first);
  EXPECT_EQ(calls("image"), before);
  EXPECT_EQ(calls("pull"), 1);
}

TEST_F(FakeRuntime, WhatTheJobRanOnAnotherNodeIsPulledByItsDigest) {
  plan_.earlier_digest = "sha256:ab";
  plan_.pull = PullMode::kAlways;
  const auto first = find();
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->id, "id-team_train_sha256_ab");
  EXPECT_EQ(calls("pull"), 1);
  plan_.key = "12-3-0";  // Its next attempt here: pinned by what ran here.
  plan_.earlier_digest = "sha256:cd";
  EXPECT_EQ(*find(), *first);
  EXPECT_EQ(calls("pull"), 1);
}

TEST_F(FakeRuntime, AChangeOfTheRuntimesImagesIsNoticed) {
  ASSERT_TRUE(find().ok());
  plan_.key = "13-1-0";
  write("have-team_train_3", "rebuilt\n", 0644);
  write("stamp", "changed", 0644);
  EXPECT_EQ(find()->id, "rebuilt");
}

TEST_F(FakeRuntime, ARetryOfAJobRunsWhatItsFirstAttemptRan) {
  ASSERT_TRUE(find().ok());
  write("have-elsewhere", "id-team_train_3\n", 0644);
  write("have-team_train_3", "moved\n", 0644);
  write("stamp", "changed", 0644);
  plan_.key = "12-2-0";
  plan_.pull = PullMode::kAlways;
  EXPECT_EQ(find()->id, "id-team_train_3");
  EXPECT_EQ(calls("pull"), 1);
}

TEST_F(FakeRuntime, AFailingPullIsTriedAgain) {
  write("failures", "503\n503\n", 0644);
  ASSERT_TRUE(find().ok());
  EXPECT_EQ(calls("pull"), 3);
  EXPECT_TRUE(std::any_of(said_.begin(), said_.end(), [](const std::string& line) {
    return line.find("trying again (2 so far): 503") != std::string::npos;
  }));
}

TEST_F(FakeRuntime, PatienceEnds) {
  write("failures", "503\n503\n503\n", 0644);
  plan_.pull_patience_ms = 0;
  const auto image = find();
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(calls("pull"), 1);
}

TEST_F(FakeRuntime, ARefusalIsNotTriedAgain) {
  write("failures", "manifest unknown\n", 0644);
  EXPECT_EQ(find().error().code, ErrorCode::kNotFound);
  write("failures", "unauthorized\n", 0644);
  EXPECT_EQ(find().error().code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(calls("pull"), 2);
}

TEST_F(FakeRuntime, TheFolderOfImagesIsClosed) {
  ASSERT_EQ(mkdir(plan_.images_folder.c_str(), 0755), 0);
  ASSERT_TRUE(find().ok());
  struct stat facts{};
  ASSERT_EQ(stat(plan_.images_folder.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0700u);
}

TEST_F(FakeRuntime, AFileOfAPrivateRegistryIsItsUsersAlone) {
  write("runtime", R"(#!/bin/sh
echo "$*" >> "$F/calls"
for word; do file=$last; last=$word; done
echo image > "$file"
stat -c %a "$file" > "$F/mode"
)",
        0755);
  plan_.client.runtime = ContainerRuntime::kApptainer;
  const auto facts_of = [](const std::string& path) {
    struct stat facts{};
    EXPECT_EQ(stat(path.c_str(), &facts), 0) << path;
    return facts;
  };
  Result<ResolvedImage> open = find();
  ASSERT_TRUE(open.ok()) << open.error().message;
  EXPECT_EQ(facts_of(open->id).st_mode & 07777, 0644u);
  plan_.auth_file = "/c/acme/robot.json";
  plan_.key = "13-1-0";  // The key of another job.
  // As an earlier version left it.
  write("images/" + record_name(plan_, plan_.image) + ".sif", "image", 0644);
  const std::string own = std::to_string(geteuid());
  plan_.user = own + ":" + std::to_string(getegid()) + ":0";
  const Result<ResolvedImage> mine = find();
  ASSERT_TRUE(mine.ok()) << mine.error().message;
  EXPECT_NE(mine->id, open->id);
  EXPECT_EQ(facts_of(mine->id).st_mode & 07777, 0400u);
  EXPECT_EQ(read_small_file((folder_ + "/mode").c_str(), 16), "600\n");  // While it is pulled.
  ContainerPlan earlier = plan_;
  earlier.user.clear();
  EXPECT_NE(access(image_file(earlier, plan_.image).c_str(), F_OK), 0);
  if (geteuid() != 0) return;
  plan_.user = "54321:54322:54322";
  plan_.key = "14-1-0";
  const Result<ResolvedImage> theirs = find();
  ASSERT_TRUE(theirs.ok()) << theirs.error().message;
  EXPECT_NE(theirs->id, mine->id);
  EXPECT_EQ(facts_of(theirs->id).st_uid, 54'321u);
  EXPECT_EQ(facts_of(theirs->id).st_mode & 07777, 0400u);
}

TEST_F(FakeRuntime, NeverMeansNever) {
  plan_.pull = PullMode::kNever;
  EXPECT_EQ(find().error().code, ErrorCode::kNotFound);
  EXPECT_EQ(calls("image"), 1);
}

TEST_F(FakeRuntime, AnImageBroughtByACredentialIsNotForThoseWithoutIt) {
  plan_.auth_file = "/c/a/robot.json";
  ASSERT_TRUE(find().ok());
  plan_.key = "13-1-0";
  plan_.auth_file.clear();
  write("failures", "unauthorized\n", 0644);
  EXPECT_EQ(find().error().code, ErrorCode::kPermissionDenied);
  plan_.auth_file = "/c/a/robot.json";
  EXPECT_TRUE(find().ok());
  plan_.key = "15-1-0";
  plan_.auth_file.clear();  // Now the registry gives it to anybody.
  ASSERT_TRUE(find().ok());
  plan_.auth_file = "/c/b/other.json";
  plan_.key = "14-1-0";
  const int pulls = calls("pull");
  EXPECT_TRUE(find().ok());
  EXPECT_EQ(calls("pull"), pulls);
}

// Running programs.

TEST(ContainerTool, OutputErrorsAndExitCodeComeBack) {
  SignalWatch signals;
  const ToolResult result =
      run_tool({"/bin/sh", "-c", "echo out; echo err >&2; exit 3"}, {"PATH=/bin"}, signals, {});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_EQ(result.output, "out\n");
  EXPECT_EQ(result.errors, "err\n");
}

TEST(ContainerTool, AProgramThatIsNotThereIs127) {
  SignalWatch signals;
  EXPECT_EQ(run_tool({"/absent"}, {}, signals, {}).exit_code, 127);
}

TEST(ContainerTool, PatienceEndsAProgramAndWhatItStarted) {
  SignalWatch signals;
  const ToolResult result = run_tool({"/bin/sh", "-c", "sleep 1000 & wait"}, {"PATH=/bin:/usr/bin"}, signals,
                                     {.patience = milliseconds(50)});
  EXPECT_EQ(result.exit_code, 128 + SIGKILL);
}

TEST(ContainerTool, ATerminalIsOne) {
  SignalWatch signals;
  EXPECT_EQ(
      run_tool({"/bin/sh", "-c", "test -t 2"}, {"PATH=/bin:/usr/bin"}, signals, {.terminal = true}).exit_code,
      0);
  EXPECT_EQ(run_tool({"/bin/sh", "-c", "test -t 2"}, {"PATH=/bin:/usr/bin"}, signals, {}).exit_code, 1);
}

TEST(ContainerTool, TheLastLineIsTheLastWithWords) {
  EXPECT_EQ(last_line("a\nError: b\r\n\n  \n", 100), "Error: b");
  EXPECT_EQ(last_line("Error: \x1b[1mbold", 11), "Error: [1mb");
  EXPECT_EQ(last_line("", 10), "");
}

}  // namespace
}  // namespace gpusched::shim

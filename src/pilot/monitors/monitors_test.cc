#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "pilot/monitors/custom_monitor.h"
#include "pilot/monitors/file_watcher.h"
#include "pilot/monitors/helper.h"
#include "pilot/monitors/log_tailer.h"
#include "pilot/monitors/notebook.h"
#include "pilot/monitors/path_search.h"
#include "pilot/monitors/process_monitor.h"

namespace gpusched::pilot {
namespace {

namespace fs = std::filesystem;

class Monitors : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "pilot-monitors-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  void write(const std::string& name, const std::string& text, bool appends = false) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream(path(name), appends ? std::ios::app : std::ios::trunc) << text;
  }
  void append(const std::string& name, const std::string& text) const { write(name, text, true); }

  /// A monitor's news, a second later than before.
  std::vector<Sighting> look(Monitor& monitor) {
    std::vector<Sighting> seen;
    now_ = now_ + seconds(10);
    monitor.look(now_, [&](Sighting sighting) { seen.push_back(std::move(sighting)); });
    return seen;
  }
  std::vector<std::string> texts(Monitor& monitor) {
    std::vector<std::string> texts;
    for (const Sighting& sighting : look(monitor)) texts.push_back(sighting.bytes);
    return texts;
  }

  std::string folder_;
  Time now_{1};
};

using Texts = std::vector<std::string>;

TEST_F(Monitors, SearchFindsFilesByPatternsAndBelowFolders) {
  for (const char* const name : {"a/x.log", "a/b/y.log", "a/b/z.txt", "a/.git/w.log", "c.log"})
    write(name, "");
  EXPECT_EQ(search_paths({path("a/**/*.log")}).files, (Texts{path("a/b/y.log"), path("a/x.log")}));
  EXPECT_EQ(search_paths({path("*.log")}).files, Texts{path("c.log")});
  EXPECT_EQ(search_paths({path("a")}).files, (Texts{path("a/b/y.log"), path("a/b/z.txt"), path("a/x.log")}));
  EXPECT_EQ(search_paths({path("c.log"), path("c.log")}).files, Texts{path("c.log")});
  EXPECT_TRUE(search_paths({path("none/*.log")}).files.empty());
  EXPECT_EQ(search_paths({path("later.log")}).folders, Texts{folder_});
  fs::create_directory_symlink(folder_, path("a/loop"));
  EXPECT_EQ(search_paths({path("a/**/*.log")}).files.size(), 2U);
}

TEST_F(Monitors, LogTailerTellsLinesThatAreNew) {
  write("a.log", "old\n");
  LogTailer tailer({path("*.log")}, false);
  EXPECT_EQ(texts(tailer), Texts{});
  append("a.log", "one\ntwo\nhal");
  EXPECT_EQ(texts(tailer), (Texts{"one", "two"}));
  append("a.log", "f\n");
  EXPECT_EQ(texts(tailer), Texts{"half"});
  write("b.log", "from its beginning\n");
  EXPECT_EQ(texts(tailer), Texts{"from its beginning"});
  EXPECT_EQ(texts(tailer), Texts{});
}

TEST_F(Monitors, LogTailerFollowsRotationAndTruncation) {
  write("a.log", "old\n");
  LogTailer tailer({path("*.log*")}, false);
  EXPECT_EQ(texts(tailer), Texts{});
  append("a.log", "before\n");
  fs::rename(path("a.log"), path("a.log.1"));
  append("a.log.1", "late\n");
  write("a.log", "after\n");
  Texts told = texts(tailer);
  std::ranges::sort(told);
  EXPECT_EQ(told, (Texts{"after", "before", "late"}));
  write("a.log", "x\n");  // Shorter than it was: from its beginning.
  EXPECT_EQ(texts(tailer), Texts{"x"});
  append("a.log", "last words\n");
  EXPECT_EQ(texts(tailer), Texts{"last words"});
  append("a.log.1", "of a file that goes\n");
  fs::remove(path("a.log.1"));
  EXPECT_EQ(texts(tailer), Texts{"of a file that goes"});
}

TEST_F(Monitors, LogTailerKeepsUpWithWhatIsHostile) {
  write("a.log", "");
  ASSERT_EQ(::mkfifo(path("b.log").c_str(), 0600), 0);
  LogTailer tailer({path("*.log")}, false);
  EXPECT_EQ(texts(tailer), Texts{}) << "and it does not wait for the other end of a pipe";
  append("a.log", std::string(20 << 20, 'x') + "\nend\n");  // More than it reads in one look.
  EXPECT_EQ(texts(tailer), Texts{"end"});
  EXPECT_GT(tailer.passed_over_bytes(), 16 << 20);
  std::string many;
  for (int line = 0; line < 10'000; ++line) many += "line\n";
  append("a.log", many);
  EXPECT_EQ(texts(tailer).size(), kLinesMax);
}

TEST_F(Monitors, InotifyTellsBeforeTheNextSearch) {
  write("a.log", "");
  LogTailer tailer({path("*.log")}, false);
  look(tailer);
  now_ = Time{1};  // No time passes from here on: nothing is due.
  write("new.log", "first\n");
  std::vector<Sighting> seen;
  tailer.look(now_, [&](Sighting sighting) { seen.push_back(std::move(sighting)); });
  ASSERT_EQ(seen.size(), 1U);
  EXPECT_EQ(seen[0].origin, path("new.log"));
}

TEST(History, HasNoTimes) {
  EXPECT_EQ(history_command("#1700000000"), "");
  EXPECT_EQ(history_command(": 1700000000:0;torchrun a.py"), "torchrun a.py");
  EXPECT_EQ(history_command(": not a time; ls"), ": not a time; ls");
  EXPECT_EQ(history_command("# a comment"), "# a comment");
  EXPECT_EQ(history_command("ls"), "ls");
}

TEST_F(Monitors, FileWatcherTellsLinesThatAreNewInAFile) {
  write("w/train.py", "import torch\nmodel = M()\n");
  FileWatcher watcher({path("w")}, {".py"});
  EXPECT_EQ(texts(watcher), Texts{});
  write("w/notes.txt", "model.cuda()\n");
  EXPECT_EQ(texts(watcher), Texts{});
  write("w/train.py", "import torch\nmodel = M().cuda()\n");
  EXPECT_EQ(texts(watcher), Texts{"model = M().cuda()\n"});
  write("w/large.py", std::string(FileWatcher::kWatchedBytesMax + 1, 'x'));
  EXPECT_EQ(texts(watcher), Texts{});
}

std::string notebook(const std::string& first, const std::string& second) {
  return R"json({"cells":[{"cell_type":"markdown","source":"loss.backward()"},{"cell_type":"code","source":[")json" +
         first +
         R"json(\n","x = 1"],"outputs":[{"text":"trainer.train()"}]},{"cell_type":"code","source":")json" +
         second + R"json("}],"nbformat":4})json";
}

TEST_F(Monitors, FileWatcherReadsNotebooksAsCells) {
  EXPECT_EQ(*code_cells(notebook("a", "b")), (Texts{"a\nx = 1", "b"}));
  EXPECT_FALSE(code_cells("[]").has_value());
  EXPECT_FALSE(code_cells("{\"cells\":").has_value());
  write("n.ipynb", notebook("a", "b"));
  FileWatcher watcher({path("*.ipynb")}, {".ipynb"});
  EXPECT_EQ(texts(watcher), Texts{});
  write("n.ipynb", notebook("a", "trainer.train()"));
  EXPECT_EQ(texts(watcher), Texts{"trainer.train()\n"});
}

TEST_F(Monitors, ProcessMonitorTellsProcessesThatStart) {
  ProcessMonitor monitor;
  EXPECT_EQ(texts(monitor), Texts{});
  const pid_t child = ::fork();
  if (child == 0) {
    ::execlp("sleep", "sleep", "60.125", nullptr);
    ::_exit(127);
  }
  bool seen = false;
  for (int tries = 0; tries < 100 && !seen; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const Texts told = texts(monitor);
    seen = std::ranges::find(told, "sleep 60.125") != told.end();
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(seen);
}

TEST(JobsInUse, AreThoseOfCommandsThatRunInALease) {
  const auto process = [](std::vector<std::string> words) { return UserProcess{.words = std::move(words)}; };
  EXPECT_EQ(jobs_in_use({process({"/usr/bin/gpu-cli", "run", "--in-lease", "job-7", "--", "python", "a.py"}),
                         process({"gpu-cli", "run", "--in-lease=job-8", "--", "x"}),
                         process({"gpu-cli", "shell", "job-9"}), process({"gpu-cli", "get", "job-10"}),
                         process({"echo", "gpu-cli", "shell", "job-11"}),
                         process({"gpu-cli", "run", "--", "gpu-cli", "shell", "job-12"}), process({})}),
            (std::set<std::string>{"job-7", "job-8", "job-9"}));
}

std::vector<Sighting> wait_for_sightings(Monitor& monitor, std::size_t count) {
  std::vector<Sighting> seen;
  for (int tries = 0; tries < 500 && seen.size() < count; ++tries) {
    monitor.look(Time{1} + milliseconds(10) * tries,
                 [&](Sighting sighting) { seen.push_back(std::move(sighting)); });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return seen;
}

TEST_F(Monitors, CustomMonitorSpeaksJsonLines) {
  write("say", R"(echo 'no JSON'; echo '{"text":1}'
echo '{"text":"a need","origin":"calendar"}'
echo '{"text":"mine","weight":1000,"gpus":-4}'
sleep 60
)");
  const auto helper = *Helper::start({.programs = {{"sh", path("say")}}});
  CustomMonitor monitor(*helper, 0, "say", 70);
  const std::vector<Sighting> seen = wait_for_sightings(monitor, 2);
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].bytes, "a need");
  EXPECT_EQ(seen[0].origin, "calendar");
  EXPECT_FALSE(seen[0].conclusion.has_value());
  ASSERT_TRUE(seen[1].conclusion.has_value());
  EXPECT_EQ(seen[1].conclusion->weight, 70);
  EXPECT_EQ(seen[1].conclusion->gpus, 1);
}

TEST_F(Monitors, CustomMonitorIsStartedAgainAndEndsWithThePilot) {
  write("say", "echo '{\"text\":\"hello\"}'\n");
  auto helper = *Helper::start(
      {.programs = {{"sh", path("say")}, {path("nowhere")}, {"sh", path("stay")}, {"sh", path("stay")}}});
  CustomMonitor monitor(*helper, 0, "say", 70);
  EXPECT_EQ(wait_for_sightings(monitor, 2).size(), 2U);
  CustomMonitor missing(*helper, 1, "nowhere", 70);
  look(missing);
  write("stay", "echo \"{\\\"text\\\":\\\"$$\\\"}\"; exec sleep 60\n");
  pid_t pid = 0;
  {
    CustomMonitor staying(*helper, 2, "stay", 70);
    const std::vector<Sighting> seen = wait_for_sightings(staying, 1);
    ASSERT_EQ(seen.size(), 1U);
    pid = std::stoi(seen[0].bytes);
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
  CustomMonitor left(*helper, 3, "left", 70);
  const std::vector<Sighting> seen = wait_for_sightings(left, 1);
  ASSERT_EQ(seen.size(), 1U);
  helper.reset();  // As when the pilot is killed: nobody is there to ask.
  EXPECT_NE(::kill(std::stoi(seen[0].bytes), 0), 0);
}

TEST_F(Monitors, PathsMatchAsTheyAreFound) {
  for (const char* const name : {"a/x.log", "a/b/y.log", "a/b/z.txt", "a/.git/w.log", "a/.hidden", "c.log"})
    write(name, "");
  for (const Texts& patterns : {Texts{path("a/**/*.log")}, Texts{path("*.log")}, Texts{path("a")},
                                Texts{path("a/?.log"), path("c.log")}, Texts{path("**/[xy].log")}}) {
    const Texts found = search_paths(patterns).files;
    Texts matched;
    for (const std::string& file : search_paths({folder_, path("a/.git/w.log"), path("a/.hidden")}).files) {
      if (matches_paths(patterns, file)) matched.push_back(file);
    }
    EXPECT_EQ(matched, found) << patterns.front();
  }
  EXPECT_FALSE(matches_paths({path("a/**/*.log")}, path("a/../c.log")));
  EXPECT_FALSE(matches_paths({path("a")}, path("a/../../etc/passwd")));
  EXPECT_FALSE(matches_paths({path("a/.*")}, path("a/..")));
  EXPECT_FALSE(matches_paths({"/a"}, "a"));
  EXPECT_FALSE(matches_paths({"/a"}, ""));
}

TEST_F(Monitors, TheHelperOpensWhatThePatternsMatchAndNothingElse) {
  write("a.log", "mine");
  write("secret", "not mine");
  const auto helper = *Helper::start({.patterns = {path("*.log")}});
  const int open = helper->open_file(path("a.log"));
  ASSERT_GE(open, 0);
  std::string text(10, '\0');
  EXPECT_EQ(::read(open, text.data(), text.size()), 4);
  ::close(open);
  EXPECT_LT(helper->open_file(path("secret")), 0);
  EXPECT_LT(helper->open_file(path("gone.log")), 0);
  EXPECT_LT(helper->open_file(std::string(10'000, '/')), 0);
  EXPECT_LT(helper->open_file(""), 0);
  EXPECT_LT(helper->start_program(0), 0);
  const int again = helper->open_file(path("a.log"));  // It goes on.
  EXPECT_GE(again, 0);
  ::close(again);
}

}  // namespace
}  // namespace gpusched::pilot

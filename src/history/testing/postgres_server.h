#pragma once

#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "history/postgres/connection.h"

/// For tests only: a PostgreSQL server in a folder of its own, reached by a Unix socket there.
namespace gpusched::history::testing {

class PostgresProcess {
 public:
  /// Folder of its programs; empty: it is not installed.
  static std::string programs() {
    std::string newest;
    std::error_code missing;
    for (const auto& entry : std::filesystem::directory_iterator("/usr/lib/postgresql", missing)) {
      const std::string folder = entry.path().string() + "/bin";
      if (std::filesystem::exists(folder + "/initdb") && folder > newest) newest = folder;
    }
    return newest;
  }

  PostgresProcess() {
    std::string name = (std::filesystem::temp_directory_path() / "postgres-XXXXXX").string();
    CHECK(::mkdtemp(name.data()) != nullptr);
    dir_ = name;
    // The server refuses to run as root.
    if (::geteuid() == 0) {
      user_ = ::getpwnam("postgres") != nullptr ? ::getpwnam("postgres") : ::getpwnam("nobody");
      CHECK(user_ != nullptr && ::chown(dir_.c_str(), user_->pw_uid, user_->pw_gid) == 0);
      uid_ = user_->pw_uid;
      gid_ = user_->pw_gid;
    }
    const pid_t made = spawn({programs() + "/initdb", "-D", dir_ + "/data", "-U", "gpu", "--auth=trust", "-E",
                              "UTF8", "--locale=C", "--no-sync"});
    int status = 0;
    CHECK(::waitpid(made, &status, 0) == made && status == 0);
    start();
  }
  ~PostgresProcess() {
    if (pid_ > 0) stop_at_once();
    std::filesystem::remove_all(dir_);
  }
  PostgresProcess(const PostgresProcess&) = delete;
  PostgresProcess& operator=(const PostgresProcess&) = delete;

  void start() {
    pid_ = spawn({programs() + "/postgres", "-D", dir_ + "/data", "-k", dir_, "-c", "listen_addresses=", "-c",
                  "fsync=off", "-c", "log_min_messages=fatal"});
    for (int i = 0; i < 3'000; ++i) {
      if (Connection::open(server("postgres"), seconds(60), never_).ok()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    CHECK(false);
  }
  /// All its processes end without a last word; the next start repairs from its log.
  void stop_at_once() {
    ::kill(pid_, SIGQUIT);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

  PostgresServer server(const std::string& database) const {
    return {.host = dir_, .user = "gpu", .database = database};
  }
  Connection connect(const std::string& database) const {
    Result<Connection> connection = Connection::open(server(database), seconds(60), never_);
    CHECK(connection.ok());
    return std::move(*connection);
  }
  /// A new database without tables.
  PostgresServer make(const std::string& database) const {
    Connection connection = connect("postgres");
    CHECK(connection.run("CREATE DATABASE " + database).ok());
    return server(database);
  }
  const Interrupt& never() const { return never_; }

 private:
  pid_t spawn(std::vector<std::string> words) const {
    const pid_t child = ::fork();
    CHECK(child >= 0);
    if (child != 0) return child;
    ::prctl(PR_SET_PDEATHSIG, SIGQUIT);
    const bool is_other = user_ == nullptr || (::setgid(gid_) == 0 && ::setuid(uid_) == 0);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    static_cast<void>(::freopen("/dev/null", "w", stdout) == nullptr ||
                      ::freopen("/dev/null", "w", stderr) == nullptr);
    if (is_other && ::chdir("/") == 0) ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }

  std::string dir_;
  const passwd* user_ = nullptr;
  uid_t uid_ = 0;
  gid_t gid_ = 0;
  pid_t pid_ = 0;
  Interrupt never_;
};

/// Rows as `rows_of` gives those of SQLite.
inline std::string rows_of(Connection& connection, const std::string& sql) {
  const Result<Answer> answer = connection.run(sql);
  CHECK(answer.ok());
  std::string text;
  for (const std::vector<std::string>& row : answer->rows) {
    for (const std::string& value : row) text += value + "|";
    text += "\n";
  }
  return text;
}

/// Both databases' questions for the same rows; the second has other names for two columns.
inline std::vector<std::pair<std::string, std::string>> same_rows() {
  const std::string job =
      " tenant, tenant_name, $user, owner, name, state, reason, cause, exit_code, signal, priority, "
      "gpu_count,"
      " gpu_milli, gpu_model, gpu_memory_mb, cpu_milli, memory_mb, submitted_ms, scheduled_ms, started_ms,"
      " ended_ms, attempts, preemptions, node, gpu_ms, $array FROM jobs ";
  const std::string member =
      "SELECT job, attempt, member, tenant, $user, node, device_mask, model, gpu_milli, is_slice, cpu_milli,"
      " memory_mb, placed_ms, started_ms";
  const std::string sums = ", gpu_us, share_us, slice_us, lost_us, cpu_us, memory_mb_s, attempts FROM ";
  const std::vector<std::string> both = {
      member +
          ", ended_ms, cause, exit_code, signal, gpu_us, cpu_used_ms, peak_memory_bytes FROM attempts"
          " ORDER BY 1, 2, 3",
      member + " FROM running ORDER BY 1, 2, 3",
      "SELECT node, job FROM job_nodes ORDER BY 1, 2",
      "SELECT job, attempt, at_ms FROM preemptions ORDER BY 3, 1, 2",
      "SELECT at_ms, tenant, tenant_name, by, change FROM quota_changes ORDER BY 1, 2, 5",
      "SELECT hour, tenant, $user, node, device, model" + sums + "usage_hours ORDER BY 1, 2, 3, 4, 5, 6",
      "SELECT day, tenant, $user, model" + sums + "usage_days ORDER BY 1, 2, 3, 4",
      "SELECT position FROM position"};
  const auto named = [](std::string sql, const std::string& user, const std::string& array) {
    for (const auto& [word, name] : {std::pair{std::string("$user"), user}, {std::string("$array"), array}}) {
      for (std::size_t at = sql.find(word); at != std::string::npos; at = sql.find(word))
        sql.replace(at, word.size(), name);
    }
    return sql;
  };
  std::vector<std::pair<std::string, std::string>> pairs = {
      {named("SELECT id," + job + "ORDER BY 1", "user", "array"),
       named("SELECT job," + job + "WHERE ended_ms IS NOT NULL ORDER BY 1", "user_name", "array_job")}};
  for (const std::string& sql : both)
    pairs.emplace_back(named(sql, "user", "array"), named(sql, "user_name", "array_job"));
  return pairs;
}

}  // namespace gpusched::history::testing

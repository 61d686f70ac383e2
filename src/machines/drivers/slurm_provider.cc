#include "machines/drivers/slurm_provider.h"

#include <chrono>
#include <filesystem>

#include "client/json.h"
#include "machines/drivers/program.h"
#include "sign/keys/private_file.h"

namespace gpusched::machines {
namespace {

namespace fs = std::filesystem;

// Endings of notes beside the one that a machine was resumed. Names of machines have no dot.
constexpr const char* kResumeFile = ".resume";
constexpr const char* kSuspended = ".suspended";
constexpr const char* kFailed = ".failed";

ProviderAnswer nothing_known(std::string message) {
  return {.fault = Fault::kUnavailable, .message = std::move(message)};
}

bool is_there(const std::string& path) {
  std::error_code unreadable;
  return fs::exists(path, unreadable);
}

void remove_file(const std::string& path) {
  std::error_code absent;
  fs::remove(path, absent);
}

/// Whether the file is older than that. A clock that was put back makes it younger at most.
bool is_older(const std::string& path, Duration age) {
  std::error_code absent;
  const fs::file_time_type written = fs::last_write_time(path, absent);
  return absent || fs::file_time_type::clock::now() - written > std::chrono::nanoseconds(age.ns);
}

}  // namespace

std::optional<ProviderAnswer> SlurmProvider::run(const std::vector<std::string>& program,
                                                 const std::string& name, const std::string& resume_file) {
  std::vector<std::string> words = program;
  words.push_back(name);
  std::vector<std::string> environment = program_environment();
  if (!resume_file.empty()) environment.push_back("SLURM_RESUME_FILE=" + resume_file);
  const CommandResult ran = run_command(words, environment, options_.timeout, &stopping_);
  if (stopping_) return nothing_known("the scheduler is stopping");
  if (ran.exit_code == 0) return std::nullopt;
  return nothing_known(program.front() + " " + name + ": " + program_failure(ran, options_.timeout));
}

std::optional<ProviderAnswer> SlurmProvider::write_note(const std::string& path) {
  std::error_code failed;
  fs::create_directories(options_.folder, failed);
  if (failed) return nothing_known("cannot make the folder " + options_.folder + ": " + failed.message());
  const Result<Unit> written = sign::write_whole(path, "\n", 0600);
  return written ? std::nullopt : std::optional(nothing_known(written.error().message));
}

ProviderAnswer SlurmProvider::create(const provision::Pool&, const std::string& name) {
  if (is_there(note(name))) return {.state = ProviderState::kRunning};
  const std::string resume_file = note(name) + kResumeFile;
  if (const std::optional<ProviderAnswer> trouble = write_note(resume_file)) return *trouble;
  JsonObjectWriter text;
  text.add("all_nodes_resume", name);
  text.add_json("jobs", "[]");
  if (const Result<Unit> written = sign::write_whole(resume_file, text.text() + "\n", 0600); !written)
    return nothing_known(written.error().message);
  const std::optional<ProviderAnswer> trouble = run(options_.resume, name, resume_file);
  remove_file(resume_file);
  if (trouble) return *trouble;
  if (const std::optional<ProviderAnswer> unwritten = write_note(note(name))) return *unwritten;
  return {.state = ProviderState::kStarting};
}

ProviderAnswer SlurmProvider::describe(const provision::Pool&, const std::string& name) {
  if (is_there(note(name) + kSuspended)) return {.state = ProviderState::kEnding};
  return {.state = is_there(note(name)) ? ProviderState::kRunning : ProviderState::kAbsent};
}

ProviderAnswer SlurmProvider::destroy(const provision::Pool&, const std::string& name) {
  const std::string suspended = note(name) + kSuspended;
  if (!is_there(suspended)) {
    // Also a machine without a note: it may have been resumed just before a crash.
    if (const std::optional<ProviderAnswer> trouble = run(options_.suspend, name, {})) return *trouble;
    if (const std::optional<ProviderAnswer> unwritten = write_note(suspended)) return *unwritten;
  }
  if (!is_older(suspended, options_.suspend_time)) return {.state = ProviderState::kEnding};
  for (const char* const ending : {"", kFailed, kResumeFile, kSuspended}) remove_file(note(name) + ending);
  return {.state = ProviderState::kAbsent};
}

ProviderAnswer SlurmProvider::abandon(const provision::Pool& pool, const std::string& name) {
  const std::string failed = note(name) + kFailed;
  const bool is_told = is_there(failed) || is_there(note(name) + kSuspended);
  if (!options_.resume_fail.empty() && is_there(note(name)) && !is_told) {
    if (const std::optional<ProviderAnswer> unwritten = write_note(failed)) return *unwritten;
    run(options_.resume_fail, name, {});
  }
  return destroy(pool, name);
}

ProviderAnswer SlurmProvider::list(const provision::Pool& pool) {
  ProviderAnswer answer;
  std::error_code failed;
  if (!fs::exists(options_.folder, failed)) return answer;
  const std::string prefix = pool.name + "-";
  for (fs::directory_iterator each(options_.folder, failed), end; !failed && each != end;
       each.increment(failed)) {
    const std::string name = each->path().filename().string();
    // The pool `a` has no part in the machines of the pool `a-b`.
    if (name.starts_with(prefix) && name.find_first_not_of("0123456789", prefix.size()) == std::string::npos)
      answer.machines.push_back(name);
  }
  if (failed) return nothing_known("cannot read " + options_.folder + ": " + failed.message());
  return answer;
}

}  // namespace gpusched::machines

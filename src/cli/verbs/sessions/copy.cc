// gpu-cli cp: a file out of a job, or into one.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/units.h"
#include "cli/verbs/sessions/session_screen.h"
#include "grammar/job_name.h"

namespace gpusched::cli {
namespace {

constexpr Duration kProgressAfter = seconds(1);
constexpr Duration kProgressEvery = milliseconds(200);

struct CopyOptions {
  std::string source;
  std::string target;
  int64_t attempt = 0;
  int64_t member = 0;
};

Error usage(std::string sentence) {
  return {.code = ErrorCode::kInvalidArgument, .message = std::move(sentence)};
}

struct Place {
  std::string job, path;
};

/// JOB:PATH, or nothing for a local file. One whose name contains a colon is written as ./a:b.
std::optional<Place> parse_place(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0 || text.find('/') < colon) return std::nullopt;
  return Place{.job = full_job_id(text.substr(0, colon)), .path = text.substr(colon + 1)};
}

/// The file that is written: "." and folders keep the source's name.
Result<std::string> target_path(const std::string& target, const std::string& source) {
  struct stat facts{};
  const bool is_folder = ::stat(target.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
  if (!is_folder && !target.ends_with('/')) return target;
  const std::string name = source.substr(source.rfind('/') + 1);
  if (name.empty() || name == "." || name == "..") return usage(source + " is not the path of a file");
  return target + (target.ends_with('/') ? "" : "/") + name;
}

/// Written under another name and put in its place when it is whole. Gone unless `keep`.
class PartFile {
 public:
  static Result<std::unique_ptr<PartFile>> create(const std::string& path) {
    std::string name = path + ".part-XXXXXX";
    const int fd = ::mkostemp(name.data(), O_CLOEXEC);
    if (fd < 0)
      return Error{.code = ErrorCode::kIo, .message = "cannot write " + path + ": " + std::strerror(errno)};
    return std::unique_ptr<PartFile>(new PartFile(fd, path, name));
  }
  PartFile(const PartFile&) = delete;
  PartFile& operator=(const PartFile&) = delete;
  ~PartFile() {
    ::close(fd_);
    if (!kept_) ::unlink(part_.c_str());
  }

  bool write(std::string_view data) {
    while (!data.empty()) {
      const ssize_t sent = ::write(fd_, data.data(), data.size());
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0) {
        error_ = errno;
        return false;
      }
      data.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  bool keep() {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    kept_ = ::fchmod(fd_, 0666 & ~mask) == 0 && ::rename(part_.c_str(), path_.c_str()) == 0;
    if (!kept_) error_ = errno;
    return kept_;
  }
  std::string trouble() const { return "cannot write " + path_ + ": " + std::strerror(error_); }
  bool failed() const { return error_ != 0; }

 private:
  PartFile(int fd, std::string path, std::string part)
      : fd_(fd), path_(std::move(path)), part_(std::move(part)) {}
  const int fd_;
  const std::string path_, part_;
  int error_ = 0;
  bool kept_ = false;
};

/// One line that is written over, on a terminal, when it takes longer than a second.
class Progress {
 public:
  explicit Progress(const CliIo& io) : io_(io), begun_(io.wall_now()), shown_(begun_) {}
  ~Progress() {
    if (visible_) io_.err("\r\033[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void add(std::size_t bytes, int64_t total) {
    done_ += static_cast<int64_t>(bytes);
    const Time now = io_.wall_now();
    if (!io_.err_is_terminal || now - begun_ < kProgressAfter || now - shown_ < kProgressEvery) return;
    shown_ = now;
    visible_ = true;
    std::string line = "\r\033[K" + std::to_string(done_ >> 10) + " KiB";
    if (total > 0)
      line += " of " + std::to_string(total >> 10) + " KiB, " + std::to_string(done_ * 100 / total) + " %";
    io_.err(line);
  }

 private:
  const CliIo& io_;
  const Time begun_;
  Time shown_;
  int64_t done_ = 0;
  bool visible_ = false;
};

int copy_out(Session& session, const CopyOptions& options, const std::optional<Place>& source) {
  std::string path = "/jobs/" + url_encoded(source->job) + "/files?path=" + url_encoded(source->path);
  const std::string& tenant = session.options().tenant_id;
  if (!tenant.empty()) path += "&tenant_id=" + url_encoded(tenant);
  if (options.attempt > 0) path += "&attempt=" + std::to_string(options.attempt);
  if (options.member > 0) path += "&member=" + std::to_string(options.member);
  const bool to_stdout = options.target == "-";
  std::unique_ptr<PartFile> file;
  if (!to_stdout) {
    const Result<std::string> target = target_path(options.target, source->path);
    if (!target) return session.fail(kExitUsage, target.error().message, "usage");
    Result<std::unique_ptr<PartFile>> created = PartFile::create(*target);
    if (!created) return session.fail(kExitUsage, created.error().message, "cannot_write");
    file = std::move(*created);
  }
  int64_t total = 0;
  bool begun = false;
  Reply reply;
  {
    Progress progress(session.io());
    reply = session.stream(
        path,
        [&](std::string_view data) {
          progress.add(data.size(), total);
          if (file != nullptr) return file->write(data);
          session.io().out(data);
          return true;
        },
        [&](const HttpAnswer& head) {
          begun = true;
          total = head.file_size;
        });
  }
  if (file != nullptr && file->failed())
    return session.fail(kExitUnexpected, file->trouble(), "cannot_write");
  if (!reply && begun) {
    return session.fail(kExitUnexpected,
                        "the copy is incomplete: the file became shorter, or the connection to the node or "
                        "the scheduler was lost; try again",
                        "broken_off");
  }
  if (!reply) return session.fail(*reply.trouble);
  if (file != nullptr && !file->keep()) return session.fail(kExitUnexpected, file->trouble(), "cannot_write");
  return kExitOk;
}

}  // namespace

namespace {

/// Runs in the job: $1 is the target, $2 the file's name for a folder, $3 its size if that is known, $4 its
/// mode. The file appears under its name when it is whole.
constexpr const char* kReceive =
    "t=$1\n"
    "if [ -d \"$t\" ]; then\n"
    "  [ -n \"$2\" ] || { echo \"gpu-cli: $t is a folder; name the file\" >&2; exit 1; }\n"
    "  t=${t%/}/$2\n"
    "fi\n"
    "p=$t.part-$$\n"
    "trap 'rm -f \"$p\"' EXIT; trap 'exit 1' HUP INT TERM\n"
    "cat > \"$p\" || exit 1\n"
    "if [ -n \"$3\" ] && [ \"$(wc -c < \"$p\")\" -ne \"$3\" ]; then\n"
    "  echo 'gpu-cli: the copy was cut short; try again' >&2; exit 1\n"
    "fi\n"
    "chmod \"$4\" \"$p\" && mv -f \"$p\" \"$t\"\n";

int copy_in(Session& session, const CopyOptions& options, const Place& target) {
  const bool from_stdin = options.source == "-";
  const int file = from_stdin ? STDIN_FILENO : ::open(options.source.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat facts{};
  if (file < 0 || (!from_stdin && ::fstat(file, &facts) != 0)) {
    return session.fail(kExitUsage, "cannot read " + options.source + ": " + std::strerror(errno),
                        "cannot_read");
  }
  if (!from_stdin && !S_ISREG(facts.st_mode)) {
    ::close(file);
    return session.fail(kExitUsage,
                        options.source + " is not a regular file; to copy a folder: tar -c " +
                            options.source + " | gpu-cli exec " + target.job + " -i tar -x",
                        "usage");
  }
  char mode[8] = "644";
  if (!from_stdin) std::snprintf(mode, sizeof mode, "%o", facts.st_mode & 0777u);
  const std::string name = from_stdin ? "" : options.source.substr(options.source.rfind('/') + 1);
  const std::string size = from_stdin ? "" : std::to_string(facts.st_size);
  const ExecOptions receive{.job = target.job,
                            .command = {"/bin/sh", "-c", kReceive, "gpu-cli-cp",
                                        target.path.empty() ? "." : target.path, name, size, mode},
                            .attempt = options.attempt,
                            .member = options.member,
                            .interactive = true,
                            .input_fd = file};
  const SessionEnd end = run_session(session, receive);
  if (!from_stdin) ::close(file);
  // Why it could not be written was said in the job's own words.
  return end.finished && end.exit_code != kExitOk ? kExitRefused : end.exit_code;
}

int copy_file(Session& session, const CopyOptions& options) {
  const std::optional<Place> source = parse_place(options.source);
  const std::optional<Place> target = parse_place(options.target);
  if (source.has_value() == target.has_value() || (source && source->path.empty())) {
    return session.fail(kExitUsage,
                        "one of the two must be JOB:PATH, as in: gpu-cli cp job-12:results.csv . (or into "
                        "the job: gpu-cli cp data.tar job-12:)",
                        "usage");
  }
  return source ? copy_out(session, options, source) : copy_in(session, options, *target);
}

}  // namespace

Action define_copy(Grammar& grammar) {
  const auto options = std::make_shared<CopyOptions>();
  grammar.argument("SOURCE", &options->source, "JOB:PATH, or a local file; - for standard input")
      .completes(Complete::kFile);
  grammar.argument("TARGET", &options->target, "A local file or folder, - for standard output; or JOB:PATH")
      .completes(Complete::kFile);
  grammar.option("--attempt", "N", &options->attempt, "Attempt, counted from 1 (default: the latest)")
      .range(1, 1'000'000'000);
  grammar.option("--member", "N", &options->member, "Member of a gang, counted from 0").range(0, 1'000'000);
  grammar.details(
      "A PATH is relative to the job's working directory; JOB: alone is that directory. A local file whose "
      "name contains a colon is written as ./a:b.");
  grammar.details(
      "Out of a job, for small results: at most 64 MiB, or api.copy_bytes_max, from a running job or from "
      "one whose files "
      "its node still keeps. The file is read as the job's user. A relative path cannot leave the working "
      "directory; folders, pipes and devices are not copied.");
  grammar.details(
      "Into a running job the file is written in a session, as by gpu-cli exec: as the job's user, with any "
      "size, and it appears under its name when it is complete. Files cannot be copied into containers.");
  grammar.example("gpu-cli cp job-12:results.csv .", "to this folder");
  grammar.example("gpu-cli cp data.tar job-12:", "into the job's working directory");
  grammar.example("gpu-cli cp job-12:log/metrics.json - | jq .loss", "to a pipe");
  return [options](Session& session) { return copy_file(session, *options); };
}

}  // namespace gpusched::cli

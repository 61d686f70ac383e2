// gpu-cli cp: a file out of a job.
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "cli/commands.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/units.h"

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

struct Source {
  std::string job, path;
};

Result<Source> parse_source(const std::string& text) {
  const std::size_t colon = text.find(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == text.size())
    return usage("the source must be JOB:PATH, as in: gpu-cli cp job-12:results.csv .");
  return Source{.job = text.substr(0, colon), .path = text.substr(colon + 1)};
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

int copy_file(Session& session, const CopyOptions& options) {
  const Result<Source> source = parse_source(options.source);
  if (!source) return session.fail(kExitUsage, source.error().message, "usage");
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
    return session.fail(
        kExitUnexpected,
        "the copy was cut short: the file shrank, or the node or the scheduler went away; try again",
        "broken_off");
  }
  if (!reply) return session.fail(*reply.trouble);
  if (file != nullptr && !file->keep()) return session.fail(kExitUnexpected, file->trouble(), "cannot_write");
  return kExitOk;
}

}  // namespace

Action define_copy(Grammar& grammar) {
  const auto options = std::make_shared<CopyOptions>();
  grammar.argument("JOB:PATH", &options->source, "Job id and file, relative to the job's working directory");
  grammar.argument("TARGET", &options->target, "Local file or folder; - for standard output")
      .completes(Complete::kFile);
  grammar.option("--attempt", "N", &options->attempt, "Attempt, counted from 1 (default: the latest)")
      .range(1, 1'000'000'000);
  grammar.option("--member", "N", &options->member, "Member of a gang, counted from 0").range(0, 1'000'000);
  grammar.details(
      "For small results: at most 64 MiB, or api.copy_bytes_max, from a running job or from one whose files "
      "its node still keeps. The file is read as the job's user. A relative path cannot leave the working "
      "directory; folders, pipes and devices are not copied.");
  grammar.example("gpu-cli cp job-12:results.csv .", "to this folder");
  grammar.example("gpu-cli cp job-12:log/metrics.json - | jq .loss", "to a pipe");
  return [options](Session& session) { return copy_file(session, *options); };
}

}  // namespace gpusched::cli

// gpu-cli support-bundle: what somebody who helps wants to see, without secrets.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>

#include "cli/framework/verbs.h"
#include "cli/verbs/jobs/archive.h"
#include "cli/verbs/nodes/status.h"
#include "cli/verbs/support/redact.h"
#include "grammar/job_name.h"
#include "grammar/version.h"

namespace gpusched::cli {
namespace {

constexpr int kStatusWidth = 120;
constexpr std::size_t kTailBytes = 256 * 1024;
constexpr std::size_t kNodeJobsMax = 50;
constexpr std::size_t kDoctorBytesMax = 1 << 20;
constexpr std::size_t kMetricsBytesMax = 4 << 20;

struct BundleOptions {
  std::string subject;
  std::string out;
  std::string config_folder = "/etc/gpu-scheduler";
  std::vector<std::string> log_files;
};

std::string read_whole(const std::string& path, std::size_t tail_bytes) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return {};
  const auto size = static_cast<std::size_t>(std::max<std::streamoff>(file.tellg(), 0));
  file.seekg(static_cast<std::streamoff>(size - std::min(size, tail_bytes)));
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\r')) text.pop_back();
  return text;
}

/// Collects files, each without secrets.
class Bundle {
 public:
  Bundle(Session& session, const BundleOptions& options)
      : session_(session),
        options_(options),
        subject_(options.subject),
        token_(session.options().token_file.empty()
                   ? ""
                   : trimmed(read_whole(session.options().token_file, 4'096))) {}

  /// False: there is no such job or node, and the trouble is printed.
  int collect();
  /// The job's full id, or the node's name; empty: the bundle is about the whole cluster.
  const std::string& subject() const { return subject_; }
  const std::vector<ArchiveFile>& files() const { return files_; }

 private:
  int collect_subject();
  int collect_examples();
  Reply add_view(const std::string& name, const std::string& path);
  void add_text(const std::string& name, const std::string& text) {
    if (!text.empty()) files_.push_back({name, redacted_text(text, token_)});
  }
  void add_job(const std::string& job, const std::string& folder, const Json& view);
  void add_output(const std::string& job, const std::string& folder, const std::string& stream);
  void add_node(const Json& node);
  void add_jobs_of(const std::string& node);
  void add_examples();
  void add_example(const std::string& state, const std::string& folder, bool oldest);
  void add_metrics();
  void add_cluster();
  void add_this_machine();
  void add_manifest();

  Session& session_;
  const BundleOptions& options_;
  std::string subject_;
  const std::string token_;
  std::vector<ArchiveFile> files_;
  std::string notes_;
};

Reply Bundle::add_view(const std::string& name, const std::string& path) {
  Reply reply = session_.get(path);
  if (reply) {
    files_.push_back({name, redacted_json(reply.json, token_)});
  } else {
    notes_ += name + " is missing: " + reply.trouble->sentence + "\n";
  }
  return reply;
}

void Bundle::add_output(const std::string& job, const std::string& folder, const std::string& stream) {
  std::string tail;
  const Reply read = session_.stream("/jobs/" + url_encoded(job) + "/logs?stream=" + stream,
                                     [&tail](std::string_view piece) {
                                       tail += piece;
                                       if (tail.size() > 2 * kTailBytes)
                                         tail.erase(0, tail.size() - kTailBytes);
                                       return true;
                                     });
  if (tail.size() > kTailBytes) tail.erase(0, tail.size() - kTailBytes);
  if (!read) notes_ += folder + stream + " is missing or cut: " + read.trouble->sentence + "\n";
  add_text(folder + stream + ".tail", tail);
}

void Bundle::add_job(const std::string& job, const std::string& folder, const Json& view) {
  files_.push_back({folder + "job.json", redacted_json(view, token_)});
  add_view(folder + "explain.json", "/jobs/" + url_encoded(job) + "/explain");
  add_view(folder + "history.json", "/v1/jobs/" + url_encoded(job) + "/history");
  if (view["attempts"].integer() == 0) return;  // It never ran: there is no output.
  for (const char* const stream : {"stdout", "stderr"}) add_output(job, folder, stream);
}

void Bundle::add_node(const Json& node) { files_.push_back({"node.json", redacted_json(node, token_)}); }

void Bundle::add_jobs_of(const std::string& node) {
  std::size_t added = 0;
  for (const char* const state : {"running", "scheduled", "failed"}) {
    const Reply page = session_.get("/jobs?limit=1000&state=" + std::string(state));
    if (!page) {
      notes_ += std::string(state) + " jobs are missing: " + page.trouble->sentence + "\n";
      continue;
    }
    for (const Json& job : page.json["jobs"].items()) {
      if (job["node_name"].text() != node || added >= kNodeJobsMax) continue;
      ++added;
      files_.push_back({"jobs/" + job["id"].text() + ".json", redacted_json(job, token_)});
    }
  }
}

/// The newest or the oldest job in a state, if there is one.
void Bundle::add_example(const std::string& state, const std::string& folder, bool oldest) {
  std::string page = "/jobs?limit=1&state=" + state;
  Reply found = session_.get(page);
  const int64_t count = found ? found.json["total"].integer() : 0;
  if (found && oldest && count > 1) found = session_.get(page + "&offset=" + std::to_string(count - 1));
  if (!found) {
    notes_ += folder + " is missing: " + found.trouble->sentence + "\n";
    return;
  }
  for (const Json& job : found.json["jobs"].items()) add_job(job["id"].text(), folder, job);
}

void Bundle::add_examples() {
  add_example("failed", "failed/", /*oldest=*/false);
  add_example("pending", "waiting/", /*oldest=*/true);
}

void Bundle::add_metrics() {
  std::string text;
  const Reply read = session_.stream("/metrics", [&text](std::string_view piece) {
    text += piece;
    return text.size() < kMetricsBytesMax;
  });
  if (!read) notes_ += "metrics.txt is missing or cut: " + read.trouble->sentence + "\n";
  add_text("metrics.txt", text);
}

void Bundle::add_cluster() {
  const StatusText status = status_text(session_, kStatusWidth, /*color=*/false);
  const std::string name = session_.options().json ? "status.json" : "status.txt";
  if (status.trouble) notes_ += name + " is missing: " + status.trouble->sentence + "\n";
  add_text(name, status.text);
  add_metrics();
  add_view("cluster.json", "/cluster/status");
  add_view("nodes.json", "/nodes");
  add_view("tenants.json", "/tenants");
  const Reply health = add_view("health.json", "/health");
  files_.push_back({"versions.txt", version_line("gpu-cli", GPUSCHED_VERSION) + "\ngpu-scheduler " +
                                        (health ? health.json["version"].text() : "unknown") + "\n"});
}

std::string output_of(const std::string& command) {
  std::string out;
  std::FILE* const pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) return out;
  std::array<char, 4096> piece;
  for (std::size_t got; (got = std::fread(piece.data(), 1, piece.size(), pipe)) > 0;) {
    if (out.size() < kDoctorBytesMax) out.append(piece.data(), got);
  }
  ::pclose(pipe);
  return out;
}

/// Doctors, configuration and logs of the machine that the bundle is made on.
void Bundle::add_this_machine() {
  std::error_code failed;
  const std::filesystem::path beside = std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
  for (const char* const program : {"gpu-scheduler", "gpu-agent"}) {
    const std::string path = (beside / program).string();
    if (path.find('\'') != std::string::npos || ::access(path.c_str(), X_OK) != 0) continue;
    const std::string found = output_of("'" + path + "' doctor --json 2>&1 </dev/null");
    const Result<Json> json = Json::parse(found);
    files_.push_back({std::string("doctor-") + program + ".json",
                      json ? redacted_json(*json, token_) : redacted_text(found, token_)});
  }
  for (const char* const name : {"scheduler.yaml", "agent.yaml"}) {
    const std::string text = read_whole(options_.config_folder + "/" + name, kTailBytes);
    if (!text.empty()) files_.push_back({std::string("config-") + name, redacted_config(text, token_)});
  }
  for (const char* const unit : {"gpu-scheduler", "gpu-agent"}) {
    if (!options_.log_files.empty()) break;
    const std::string text = output_of(
        "journalctl --quiet --no-pager --lines=2000 --unit=" + std::string(unit) + " 2>/dev/null </dev/null");
    if (text.empty())
      notes_ += "systemd's journal has nothing of " + std::string(unit) + "; give a log file with --log\n";
    add_text("log-" + std::string(unit) + ".tail", text);
  }
  for (const std::string& path : options_.log_files) {
    const std::string text = read_whole(path, kTailBytes);
    if (text.empty()) notes_ += "log file " + path + " is empty or cannot be read\n";
    add_text("log-" + std::filesystem::path(path).filename().string().substr(0, 60) + ".tail", text);
  }
}

void Bundle::add_manifest() {
  std::string text = "support bundle about " + (subject_.empty() ? "the cluster" : subject_) +
                     "\n"
                     "Left out: tokens, passwords, values of jobs' variables except those of CUDA, NCCL and "
                     "the like, and what follows such names in texts.\n"
                     "The findings of the doctors and the configuration are those of the machine on which "
                     "the bundle was created.\n";
  for (const ArchiveFile& file : files_)
    text += file.name + "  " + std::to_string(file.data.size()) + " bytes\n";
  files_.insert(files_.begin(), {"manifest.txt", text + redacted_text(notes_, token_)});
}

int Bundle::collect() {
  const int status = subject_.empty() ? collect_examples() : collect_subject();
  if (status != kExitOk) return status;
  add_cluster();
  add_this_machine();
  add_manifest();
  return kExitOk;
}

int Bundle::collect_examples() {
  const Reply reached = session_.get("/health");
  if (!reached) return session_.fail(*reached.trouble);
  add_examples();
  return kExitOk;
}

int Bundle::collect_subject() {
  const std::string id = full_job_id(subject_);
  const Reply nodes = session_.get("/nodes");
  if (!nodes) return session_.fail(*nodes.trouble);
  const auto is_subject = [&](const Json& node) { return node["name"].text() == subject_; };
  // A node may be called 5, as job-5 is in short.
  const bool is_node = id != subject_ && std::ranges::any_of(nodes.json["nodes"].items(), is_subject);
  const Reply job = is_node ? Reply() : session_.get("/jobs/" + url_encoded(id));
  if (job && !is_node) {
    subject_ = id;
    add_job(id, "", job.json);
    for (const Json& node : nodes.json["nodes"].items()) {
      if (!job.json["node_name"].text().empty() && node["name"].text() == job.json["node_name"].text())
        add_node(node);
    }
  } else {
    if (!job && job.trouble->exit_code != kExitRefused) return session_.fail(*job.trouble);
    for (const Json& node : nodes.json["nodes"].items()) {
      if (is_subject(node)) add_node(node);
    }
    if (files_.empty()) {
      return session_.fail(
          kExitRefused, "there is no job or node " + subject_ + "; gpu-cli list and gpu-cli nodes list them",
          "not_found");
    }
    add_jobs_of(subject_);
  }
  return kExitOk;
}

int write_bundle(const Session& session, const std::string& path, const std::string& data) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  const auto failed = [&] {
    return session.fail(kExitUsage,
                        "cannot write " + path + ": " + std::strerror(errno) + "; give another file with -o",
                        "usage");
  };
  if (file < 0) return failed();
  std::string_view rest = data;
  while (!rest.empty()) {
    const ssize_t size = ::write(file, rest.data(), rest.size());
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) {
      const int status = failed();
      ::close(file);
      ::unlink(path.c_str());
      return status;
    }
    rest.remove_prefix(static_cast<std::size_t>(size));
  }
  ::close(file);
  return kExitOk;
}

/// A name that is safe in a path and short enough for the archive.
std::string folder_name(const std::string& subject) {
  std::string name = "support-" + subject.substr(0, 30);
  for (char& c : name) {
    const bool plain =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
    if (!plain) c = '_';
  }
  return name;
}

int make_bundle(Session& session, const BundleOptions& options) {
  Bundle bundle(session, options);
  if (const int status = bundle.collect(); status != kExitOk) return status;
  const std::string folder = folder_name(bundle.subject().empty() ? "cluster" : bundle.subject());
  const std::string path = options.out.empty() ? folder + ".tar.gz" : options.out;
  const int status =
      write_bundle(session, path, make_archive(folder, bundle.files(), session.io().wall_now()));
  if (status != kExitOk) return status;
  if (session.options().json) {
    JsonObjectWriter out;
    out.add("file", path);
    std::vector<std::string> names;
    for (const ArchiveFile& file : bundle.files()) names.push_back(file.name);
    out.add("content", names);
    session.io().out(out.text() + "\n");
    return kExitOk;
  }
  for (const ArchiveFile& file : bundle.files())
    session.io().out(file.name + "  " + std::to_string(file.data.size()) + " bytes\n");
  session.io().out("wrote " + path + "; review it before you send it: tar -xzf " + path + "\n");
  return kExitOk;
}

}  // namespace

Action define_support_bundle(Grammar& grammar) {
  const auto options = std::make_shared<BundleOptions>();
  grammar
      .argument("JOB|NODE", &options->subject, "Job or node that the bundle is about; left out: the cluster")
      .optional();
  grammar.option("-o,--out", "FILE", &options->out, "Output file (default: support-NAME.tar.gz)")
      .completes(Complete::kFile);
  grammar
      .option("--log", "FILE", &options->log_files,
              "Include the end of this file, such as a daemon's log, instead of systemd's journal; may be "
              "repeated")
      .completes(Complete::kFile);
  grammar.option("--config-dir", "FOLDER", &options->config_folder, "Folder of this machine's configuration")
      .completes(Complete::kFolder);
  grammar.details(
      "Collects the details of the job or node and of the cluster, why the job waits, the end of its output, "
      "what `gpu-cli status` says, the scheduler's metrics, versions, and from this machine the findings of "
      "the doctors, the configuration and the end of the daemons' logs. Without JOB or NODE the newest "
      "failed "
      "job and the one that has waited longest stand for all. Tokens, passwords and the values of the jobs' "
      "variables (except those of CUDA, NCCL and the like) are left out.");
  grammar.example("gpu-cli support-bundle", "everything about the cluster");
  grammar.example("gpu-cli support-bundle job-12 -o help.tar.gz", "everything about one job");
  return [options](Session& session) { return make_bundle(session, *options); };
}

}  // namespace gpusched::cli

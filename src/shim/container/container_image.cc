#include "shim/container/container_image.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <initializer_list>
#include <utility>
#include <vector>

#include "shim/processes.h"

namespace gpusched::shim {
namespace {

constexpr Duration kPullPatience = hours(6);  ///< For one try: large images, slow lines.
constexpr Duration kInspectPatience = minutes(2);
constexpr Duration kLockLook = milliseconds(100);
constexpr Duration kPauseFirst = milliseconds(500);
constexpr Duration kPauseMax = minutes(1);
constexpr std::size_t kRecordBytesMax = 16 * 1024;

Time boot_now() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return Time{int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec};
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    lines.push_back(text.substr(from, end - from));
    from = end + 1;
  }
  return lines;
}

/// Whole or not at all: readers see the old file or the new one.
void write_record(const std::string& path, const std::string& text) {
  const std::string draft = path + '.' + std::to_string(getpid());
  const int file = open(draft.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return;  // Records save time; nothing depends on them.
  const bool whole = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(file);
  if (!whole || rename(draft.c_str(), path.c_str()) != 0) unlink(draft.c_str());
}

/// A lock of the node's, held by one process at a time.
class FileLock {
 public:
  explicit FileLock(const std::string& path)
      : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {}
  ~FileLock() {
    if (file_ >= 0) close(file_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  bool try_take() const { return file_ < 0 || flock(file_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

 private:
  int file_;
};

double bytes_of(const std::string& text) {
  char* unit = nullptr;
  const double number = std::strtod(text.c_str(), &unit);
  switch (*unit) {
    case 'k':
    case 'K':
      return number * 1024;
    case 'M':
      return number * 1024 * 1024;
    case 'G':
      return number * 1024 * 1024 * 1024;
    default:
      return number;
  }
}

/// "11.0MiB / 22.1MiB" at the end of a line; zeros when it has none.
std::pair<double, double> sizes_in(std::string_view line) {
  const std::size_t slash = line.rfind('/');
  if (slash == std::string_view::npos) return {0, 0};
  std::string_view left = line.substr(0, slash);
  while (left.ends_with(' ')) left.remove_suffix(1);
  left = left.substr(left.find_last_of(" ]") + 1);
  std::string_view right = line.substr(slash + 1);
  while (right.starts_with(' ')) right.remove_prefix(1);
  return {bytes_of(std::string(left)), bytes_of(std::string(right))};
}

/// Without what moves a terminal's cursor.
std::string plain(std::string_view text) {
  std::string found;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      found += text[i];
      continue;
    }
    const auto is_letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z'); };
    while (i + 1 < text.size() && !is_letter(text[i])) ++i;
  }
  return found;
}

bool holds_any(std::string_view text, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(),
                     [&](std::string_view word) { return text.find(word) != std::string_view::npos; });
}

bool is_refused_credential(std::string_view errors) {
  return holds_any(errors,
                   {"unauthorized", "authentication required", "access to the resource is denied",
                    "requested access", "invalid username/password", "denied:", "no basic auth credentials"});
}

}  // namespace

bool PullProgress::take(std::string_view piece) {
  const std::string before = text();
  rest_ += piece;
  std::size_t from = 0;
  while (true) {
    const std::size_t end = rest_.find_first_of("\r\n", from);
    if (end == std::string::npos) break;
    take_line(plain(std::string_view(rest_).substr(from, end - from)));
    from = end + 1;
  }
  rest_.erase(0, from);
  if (rest_.size() > kRecordBytesMax) rest_.clear();
  return text() != before;
}

/// Podman: "Copying blob 53b4144882cb [===>---] 11.0MiB / 22.1MiB". Docker: "53b4144882cb: Pull complete".
void PullProgress::take_line(std::string_view line) {
  std::string_view name;
  if (line.starts_with("Copying blob ")) {
    name = line.substr(13);
    if (name.starts_with("sha256:")) name.remove_prefix(7);
    name = name.substr(0, std::min<std::size_t>(name.find(' '), 12));
  } else if (line.size() > 13 && line[12] == ':' &&
             line.substr(0, 12).find_first_not_of("0123456789abcdef") == std::string_view::npos) {
    name = line.substr(0, 12);
  }
  if (name.empty()) return;
  Layer& layer = layers_[std::string(name)];
  const bool over = holds_any(line, {" done", "already exists", "Already exists", "Download complete",
                                     "Extracting", "Pull complete"});
  layer.complete = layer.complete || over;
  if (line.find("Extracting") != std::string_view::npos) return;  // Its sizes are others.
  const auto [done, size] = sizes_in(line);
  if (size <= 0) return;
  layer.done = done;
  layer.size = size;
}

std::string PullProgress::text() const {
  if (layers_.empty()) return "";
  double done = 0;
  double size = 0;
  bool all_known = true;
  std::size_t complete = 0;
  for (const auto& [name, layer] : layers_) {
    complete += layer.complete ? 1 : 0;
    all_known = all_known && (layer.complete || layer.size > 0);
    size += layer.size;
    done += layer.complete ? layer.size : std::min(layer.done, layer.size);
  }
  if (all_known && size > 0) return std::to_string(static_cast<int>(100 * done / size)) + " %";
  return std::to_string(complete) + " of " + std::to_string(layers_.size()) + " layers";
}

bool is_final_refusal(std::string_view errors) {
  return is_refused_credential(errors) ||
         holds_any(errors,
                   {"manifest unknown", "name unknown", "repository name not known",
                    "invalid reference format", "repository does not exist", "short-name", "invalid checksum",
                    "unsupported digest", "no image found in manifest list for architecture"});
}

ImageFinder::ImageFinder(const ContainerPlan& plan, SignalWatch& signals, Say say)
    : plan_(plan), signals_(signals), say_(std::move(say)) {}

Result<ResolvedImage> ImageFinder::find() {
  // Apptainer's images are files that jobs' users open by name.
  const mode_t closed = plan_.client.runtime == ContainerRuntime::kApptainer ? 0711 : 0700;
  if (mkdir(plan_.images_folder.c_str(), closed) != 0) chmod(plan_.images_folder.c_str(), closed);
  std::string reference = pinned_reference(plan_.image, plan_.digest);
  if (is_private_file(plan_)) close_older_file(reference);
  const std::string pin = path("pin-" + plan_.key.substr(0, plan_.key.find('-')));
  const bool digest_given = !digest_of(reference).empty();
  PullMode mode = digest_given && plan_.pull == PullMode::kAlways ? PullMode::kIfMissing : plan_.pull;
  if (!digest_given) {
    const std::vector<std::string> pinned = lines_of(read_small_file(pin.c_str(), kRecordBytesMax));
    if (pinned.size() == 3 && pinned[0] == reference) {
      // An earlier attempt ran this: so does every later one.
      if (const auto present = inspect(pinned[1])) return *present;
      if (pinned[2].starts_with("sha256:")) reference = pinned_reference(plan_.image, pinned[2]);
      mode = PullMode::kIfMissing;
    } else if (!plan_.earlier_digest.empty()) {
      // It ran this on another node.
      reference = pinned_reference(plan_.image, plan_.earlier_digest);
      if (mode == PullMode::kAlways) mode = PullMode::kIfMissing;
    }
  }
  std::optional<ResolvedImage> found;
  if (mode != PullMode::kAlways) found = here(reference);
  if (!found && mode == PullMode::kNever) {
    return Error{
        .code = ErrorCode::kNotFound,
        .message = "the image '" + reference + "' is not on this node, and the job's pull policy is never"};
  }
  if (!found) {
    Result<ResolvedImage> brought = pull_once_on_node(reference);
    if (!brought) return brought;
    found = std::move(*brought);
  }
  if (!digest_given) write_record(pin, plan_.image + '\n' + found->id + '\n' + found->digest + '\n');
  return *found;
}

/// Earlier versions kept one file for all users of a credential, for everybody to read.
void ImageFinder::close_older_file(const std::string& reference) const {
  ContainerPlan older = plan_;
  older.user.clear();
  const std::string file = image_file(older, reference);
  if (file.starts_with(plan_.images_folder) &&
      (plan_.user.empty() ? chmod(file.c_str(), 0400) : unlink(file.c_str())) != 0)
    return;  // There was none.
}

std::optional<ResolvedImage> ImageFinder::here(const std::string& reference) const {
  if (const auto known = recorded(reference)) return known;
  const std::string before = stamp();
  std::optional<ResolvedImage> image = inspect(reference);
  if (!image || !is_open_to_us(*image)) return std::nullopt;
  record(reference, *image, before);
  return image;
}

/// File, size and time of what the runtime writes when its images change.
std::string ImageFinder::stamp() const {
  struct stat facts{};
  if (plan_.images_stamp.empty() || stat(plan_.images_stamp.c_str(), &facts) != 0) return "";
  return std::to_string(facts.st_ino) + ' ' + std::to_string(facts.st_size) + ' ' +
         std::to_string(facts.st_mtim.tv_sec) + '.' + std::to_string(facts.st_mtim.tv_nsec);
}

std::optional<ResolvedImage> ImageFinder::recorded(const std::string& reference) const {
  const std::string now = stamp();
  if (now.empty()) return std::nullopt;
  const std::vector<std::string> lines =
      lines_of(read_small_file(path("image-" + record_name(plan_, reference)).c_str(), kRecordBytesMax));
  if (lines.size() != 4 || lines[0] != now || lines[1] != reference) return std::nullopt;
  return ResolvedImage{.id = lines[2], .digest = lines[3]};
}

void ImageFinder::record(const std::string& reference, const ResolvedImage& image,
                         const std::string& stamp) const {
  if (stamp.empty()) return;
  write_record(path("image-" + record_name(plan_, reference)),
               stamp + '\n' + reference + '\n' + image.id + '\n' + image.digest + '\n');
}

std::optional<ResolvedImage> ImageFinder::inspect(const std::string& reference) const {
  if (plan_.client.runtime == ContainerRuntime::kApptainer) {
    const std::string file = image_file(plan_, reference);
    if (access(file.c_str(), R_OK) != 0) return std::nullopt;
    return ResolvedImage{.id = file, .digest = std::string(digest_of(reference))};
  }
  const ToolResult result = run_tool(inspect_words(plan_, reference), plan_.client.environment, signals_,
                                     {.patience = kInspectPatience});
  if (result.exit_code != 0) return std::nullopt;
  const std::string line = result.output.substr(0, result.output.find('\n'));
  ResolvedImage image{.id = line.substr(0, line.find(' ')), .digest = {}};
  if (image.id.empty()) return std::nullopt;
  const std::size_t digest = line.find("sha256:", image.id.size());
  if (digest != std::string::npos) image.digest = line.substr(digest, line.find(' ', digest) - digest);
  return image;
}

/// `private-ID` names the credentials with which an image was pulled; without the file anybody may use it.
bool ImageFinder::is_open_to_us(const ResolvedImage& image) const {
  if (plan_.client.runtime == ContainerRuntime::kApptainer) return true;  // A file for each credential.
  const std::vector<std::string> allowed =
      lines_of(read_small_file(path("private-" + image.id).c_str(), kRecordBytesMax));
  return allowed.empty() || std::find(allowed.begin(), allowed.end(), plan_.auth_file) != allowed.end();
}

void ImageFinder::note_credential(const ResolvedImage& image) const {
  if (plan_.client.runtime == ContainerRuntime::kApptainer) return;
  const std::string file = path("private-" + image.id);
  if (plan_.auth_file.empty()) {
    unlink(file.c_str());  // Anybody who asks gets it.
    return;
  }
  const std::string known = read_small_file(file.c_str(), kRecordBytesMax);
  const std::vector<std::string> lines = lines_of(known);
  if (std::find(lines.begin(), lines.end(), plan_.auth_file) != lines.end()) return;
  write_record(file, known + plan_.auth_file + '\n');
}

Result<ResolvedImage> ImageFinder::pull_once_on_node(const std::string& reference) {
  const std::string mark = path("pulled-" + record_name(plan_, reference));
  const std::string before = read_small_file(mark.c_str(), kRecordBytesMax);
  const FileLock lock(path("lock-" + record_name(plan_, reference)));
  bool waited = false;
  while (!lock.try_take()) {
    if (!std::exchange(waited, true)) say_("waiting for the pull of " + plan_.image + " by another job");
    if (signals_.stop_wanted()) return Error{.code = ErrorCode::kTimeout, .message = "stopped"};
    signals_.pause(kLockLook);
  }
  // Somebody else brought it since we looked: that is new enough even for those who always pull.
  if (read_small_file(mark.c_str(), kRecordBytesMax) != before) {
    if (auto image = here(reference)) return *image;
  }
  Result<ResolvedImage> image = pull(reference);
  if (!image) return image;
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  write_record(mark, std::to_string(now.tv_sec) + '.' + std::to_string(now.tv_nsec) + ' ' +
                         std::to_string(getpid()) + '\n');
  return image;
}

Result<ResolvedImage> ImageFinder::pull(const std::string& reference) {
  const Time give_up = boot_now() + milliseconds(plan_.pull_patience_ms);
  Duration pause = kPauseFirst;
  for (int tries = 1;; ++tries) {
    const Result<Unit> tried = try_pull(reference);
    if (tried) return pulled(reference);
    if (tried.error().code != ErrorCode::kUnavailable) return tried.error();
    if (boot_now() + pause >= give_up) {
      return Error{.code = ErrorCode::kUnavailable,
                   .message = "cannot pull '" + reference + "' after " + std::to_string(tries) +
                              " tries: " + tried.error().message};
    }
    say_("pull of " + plan_.image + " failed, trying again (" + std::to_string(tries) +
         " so far): " + tried.error().message);
    const Time next = boot_now() + pause;
    pause = std::min(pause * 2, kPauseMax);
    while (boot_now() < next) {
      if (signals_.stop_wanted()) return Error{.code = ErrorCode::kTimeout, .message = "stopped"};
      signals_.pause(next - boot_now());
    }
  }
}

Result<Unit> ImageFinder::try_pull(const std::string& reference) {
  const std::string what = "pulling image " + plan_.image;
  say_(what);
  if (plan_.client.runtime == ContainerRuntime::kDocker && !plan_.auth_file.empty()) {
    mkdir(docker_folder(plan_).c_str(), 0700);
    const std::string file = docker_folder(plan_) + "/config.json";
    if (symlink(plan_.auth_file.c_str(), file.c_str()) != 0 && errno != EEXIST) {
      return Error{.code = ErrorCode::kUnavailable, .message = "cannot create " + file};
    }
  }
  // Until it is known who may read it, nobody else does; what podman and docker unpack has modes of its own.
  const mode_t before = plan_.client.runtime == ContainerRuntime::kApptainer ? umask(077) : umask(022);
  PullProgress progress;
  ToolOptions options{.patience = kPullPatience, .terminal = true};
  options.on_errors = [&](std::string_view piece) {
    if (progress.take(piece)) say_(what + ", " + progress.text());
  };
  const ToolResult result =
      run_tool(pull_words(plan_, reference), plan_.client.environment, signals_, options);
  umask(before);
  if (result.stopped) return Error{.code = ErrorCode::kTimeout, .message = "stopped"};
  if (result.exit_code == 0) {
    if (plan_.client.runtime != ContainerRuntime::kApptainer) return Unit{};
    const std::string file = image_file(plan_, reference);
    const std::string part = file + ".part";
    if (is_private_file(plan_)) {
      const std::vector<uint32_t> ids = numbers_in(plan_.user);
      const bool given = ids.size() < 2 || chown(part.c_str(), ids[0], ids[1]) == 0;
      if (!given || chmod(part.c_str(), 0400) != 0) {
        unlink(part.c_str());
        return Error{.code = ErrorCode::kUnavailable,
                     .message = "cannot make the image accessible to the job's user"};
      }
    } else {
      chmod(part.c_str(), 0644);
    }
    if (rename(part.c_str(), file.c_str()) == 0) return Unit{};
  }
  const std::string reason = last_line(result.errors, kReasonBytesMax);
  if (!is_final_refusal(reason)) return Error{.code = ErrorCode::kUnavailable, .message = reason};
  return Error{.code = is_refused_credential(reason) ? ErrorCode::kPermissionDenied : ErrorCode::kNotFound,
               .message = "cannot pull '" + reference + "': " + reason};
}

Result<ResolvedImage> ImageFinder::pulled(const std::string& reference) const {
  const std::string before = stamp();
  std::optional<ResolvedImage> image = inspect(reference);
  if (!image) {
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "the image '" + reference +
                            "' was pulled but does not exist; check whether the node's disk is full"};
  }
  note_credential(*image);
  record(reference, *image, before);
  return *image;
}

}  // namespace gpusched::shim

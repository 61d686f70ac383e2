#include <algorithm>
#include <array>

#include "api/fields/checks.h"
#include "api/fields/job_rules.h"
#include "base/text/file_pattern.h"

namespace gpusched::api {
namespace {

constexpr std::size_t kUserBytesMax = 64;
constexpr std::size_t kWordBytesMax = 4'096;
constexpr std::size_t kLimitsMax = 32;
constexpr std::size_t kMountsMax = 64;
constexpr std::size_t kArgumentsMax = 64;
constexpr std::size_t kCredentialBytesMax = 253;
constexpr std::string_view kDigestPrefix = "sha256:";
constexpr std::size_t kDigestDigits = 64;

ApiError wrong(std::string_view field, std::string message) {
  return {ErrorKind::kInvalidArgument, std::string(field) + " " + std::move(message), std::string(field)};
}

std::string_view text(const std::optional<std::string>& field) {
  return field ? std::string_view(*field) : std::string_view();
}

std::optional<ApiError> check_path(std::string_view field, std::string_view path) {
  if (path.empty()) return std::nullopt;
  if (path.size() > kPathBytesMax) return wrong(field, "is longer than 4096 bytes; shorten it");
  if (!path.starts_with('/')) return wrong(field, "must be an absolute path");
  for (const char c : path) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      return wrong(field, "contains a control character; use another path");
    }
  }
  return std::nullopt;
}

/// A path in which the node replaces "%j" and the like.
std::optional<ApiError> check_file(std::string_view field, std::string_view path) {
  if (auto problem = check_path(field, path)) return problem;
  const std::string_view unknown = unknown_file_pattern(path);
  if (unknown.empty()) return std::nullopt;
  return wrong(field, "has \"" + std::string(unknown) + "\", which is not a known placeholder; " +
                          std::string(kFilePatternHelp) + ", the last for a percent sign");
}

/// A user's name or number, as `id` would take it.
std::optional<ApiError> check_user(std::string_view user) {
  if (user.empty()) return std::nullopt;
  constexpr std::string_view kFurther = "._-$@\\";
  bool good = user.size() <= kUserBytesMax && user.front() != '-';
  for (const char c : user) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    good = good && (letter || kFurther.find(c) != std::string_view::npos);
  }
  if (good) return std::nullopt;
  return wrong("user", "must be a user's name or number as the node knows it, of at most 64 characters");
}

std::optional<ApiError> check_limits(const IntegerMap& limits) {
  static constexpr std::array<std::string_view, 15> kNames = {
      "as",   "core",   "cpu",   "data", "fsize",  "locks",      "memlock", "msgqueue",
      "nice", "nofile", "nproc", "rss",  "rtprio", "sigpending", "stack"};
  if (limits.size() > kLimitsMax) return wrong("limits", "has more than 32 entries; send fewer");
  for (const auto& [name, value] : limits) {
    if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) {
      return wrong("limits", "has a name that is not a resource limit: " + name.substr(0, 32) +
                                 "; use a name of setrlimit, such as nofile, memlock, core, nproc or stack");
    }
    if (value < -1)
      return wrong("limits", "has a negative value for " + name + "; only -1, for unlimited, is allowed");
  }
  return std::nullopt;
}

std::optional<ApiError> check_mounts(const MountList& mounts) {
  if (mounts.size() > kMountsMax) return wrong("mounts", "has more than 64 entries; send fewer");
  for (std::size_t i = 0; i < mounts.size(); ++i) {
    const std::string place = "mounts[" + std::to_string(i) + "]";
    if (mounts[i].source.empty()) return wrong(place + ".source", "is missing");
    if (mounts[i].target.empty()) return wrong(place + ".target", "is missing");
    if (auto problem = check_path(place + ".source", mounts[i].source)) return problem;
    if (auto problem = check_path(place + ".target", mounts[i].target)) return problem;
    // A colon would end the path on the command line of a container runtime, a comma its --mount.
    for (const std::string* path : {&mounts[i].source, &mounts[i].target}) {
      if (path->find_first_of(":,") != std::string::npos) {
        return wrong(place, "has a colon or a comma in a path, which container runtimes do not support");
      }
    }
  }
  return std::nullopt;
}

std::optional<ApiError> check_digest(std::string_view digest) {
  if (digest.empty()) return std::nullopt;
  const std::string_view digits = digest.substr(std::min(digest.size(), kDigestPrefix.size()));
  if (digest.starts_with(kDigestPrefix) && digits.size() == kDigestDigits &&
      digits.find_first_not_of("0123456789abcdef") == std::string_view::npos) {
    return std::nullopt;
  }
  return wrong("image_digest", "must be sha256: followed by 64 hexadecimal digits");
}

std::optional<ApiError> check_container(const JobFields& box, bool has_image) {
  if (text(box.registry_credential).size() > kCredentialBytesMax) {
    return wrong("registry_credential",
                 "is longer than 253 bytes; give the name of the credential, not the secret");
  }
  const StringList none;
  const StringList& arguments = box.container_arguments ? *box.container_arguments : none;
  if (arguments.size() > kArgumentsMax) {
    return wrong("container_arguments", "has more than 64 entries; send fewer");
  }
  for (const std::string& word : arguments) {
    if (word.size() > kWordBytesMax)
      return wrong("container_arguments", "has an entry of more than 4096 bytes");
  }
  if (has_image) return std::nullopt;
  const std::array<std::pair<std::string_view, bool>, 6> given = {
      {{"mounts", box.mounts && !box.mounts->empty()},
       {"container_workdir_mount", !text(box.container_workdir_mount).empty()},
       {"pull", !text(box.pull).empty()},
       {"registry_credential", !text(box.registry_credential).empty()},
       {"container_arguments", !arguments.empty()},
       {"image_digest", !text(box.image_digest).empty()}}};
  for (const auto& [field, is_given] : given) {
    if (!is_given) continue;
    return ApiError{
        ErrorKind::kUnprocessable,
        std::string(field) +
            " is given without an image, but applies only to containers; remove it, or give an image",
        std::string(field)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> check_box(const JobFields& box, bool has_image) {
  if (auto problem = check_user(text(box.user))) return problem;
  if (auto problem = check_file("stdout_path", text(box.stdout_path))) return problem;
  if (auto problem = check_file("stderr_path", text(box.stderr_path))) return problem;
  if (auto problem = check_file("stdin_path", text(box.stdin_path))) return problem;
  if (box.umask && (*box.umask < 0 || *box.umask > 0777)) {
    return wrong("umask", "must be from 0 to 511 (0777 in octal)");
  }
  if (box.limits) {
    if (auto problem = check_limits(*box.limits)) return problem;
  }
  if (box.mounts) {
    if (auto problem = check_mounts(*box.mounts)) return problem;
  }
  if (auto problem = check_path("container_workdir_mount", text(box.container_workdir_mount))) return problem;
  if (auto problem = check_digest(text(box.image_digest))) return problem;
  const std::string_view pull = text(box.pull);
  if (!pull.empty() && pull != "if_missing" && pull != "always" && pull != "never") {
    return wrong("pull", "must be if_missing, always or never");
  }
  return check_container(box, has_image);
}

}  // namespace gpusched::api

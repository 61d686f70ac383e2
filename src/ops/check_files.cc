#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "ops/checks.h"
#include "ops/local_peer.h"
#include "ops/machine.h"

namespace gpusched::ops {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kFreeFail = kGiB;
constexpr uint64_t kFreeWarn = 5 * kGiB;
constexpr uint64_t kInodesWarn = 10'000;
constexpr uint64_t kInodesFail = 100;
constexpr std::size_t kSyncs = 24;
constexpr int64_t kSyncSlowUs = 20'000;
constexpr int64_t kSyncTooSlowUs = 500'000;

std::string gib(uint64_t bytes) {
  const uint64_t tenths = bytes / (kGiB / 10);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
}

std::string milliseconds_text(int64_t us) {
  return std::to_string(us / 1'000) + "." + std::to_string(us % 1'000 / 100) + " ms";
}

std::string nearest_existing(const std::string& folder) {
  std::filesystem::path path = folder;
  while (!path.empty() && path != path.parent_path() && !exists(path.string())) path = path.parent_path();
  return path.empty() ? "." : path.string();
}

/// The type of the mount that holds `folder`.
std::string file_system(const Patient& patient, const std::string& folder) {
  std::error_code failed;
  const std::string real = std::filesystem::weakly_canonical(folder, failed).string();
  std::string type = "unknown";
  std::size_t longest = 0;
  for (const Mount& mount : mounts(patient.root)) {
    const std::string prefix = mount.folder == "/" ? "/" : mount.folder + "/";
    if (real != mount.folder && !real.starts_with(prefix)) continue;
    if (mount.folder.size() < longest) continue;
    longest = mount.folder.size();
    type = mount.type;
  }
  return type;
}

Finding check_file_system(const Patient& patient, const std::string& folder) {
  const std::string type = file_system(patient, folder);
  const std::string move =
      "mv " + shell_quoted(folder) + " LOCAL_DISK/ && " + patient.unit + " --data-dir LOCAL_DISK/...";
  Finding finding{.check = "filesystem", .detail = folder + " is on " + type};
  const bool in_memory = type == "tmpfs" || type == "ramfs";
  const bool over_the_network = type.starts_with("nfs") || type == "cifs" || type == "smb3" ||
                                type.starts_with("fuse") || type == "lustre" || type == "ceph" ||
                                type == "9p";
  if (in_memory) {
    finding.verdict = patient.runs_jobs ? Verdict::kWarn : Verdict::kFail;
    finding.detail += ", which a reboot empties: accepted jobs would be lost";
    finding.fix = move;
  } else if (over_the_network) {
    finding.verdict = Verdict::kWarn;
    finding.detail += ": locking and fsync are less reliable there than on a local disk";
    finding.fix = move;
  }
  return finding;
}

/// Times of some durable writes, in microseconds, sorted; the error's number when one failed.
int time_syncs(int file, std::array<int64_t, kSyncs>& took) {
  const std::array<char, 4096> block{};
  for (std::size_t i = 0; i < took.size(); ++i) {
    const auto begin = std::chrono::steady_clock::now();
    const ssize_t size = ::pwrite(file, block.data(), block.size(), static_cast<off_t>(i * block.size()));
    if (size != static_cast<ssize_t>(block.size())) return size < 0 ? errno : ENOSPC;
    if (::fdatasync(file) != 0) return errno;
    const auto spent = std::chrono::steady_clock::now() - begin;
    took[i] = std::chrono::duration_cast<std::chrono::microseconds>(spent).count();
  }
  std::ranges::sort(took);
  return 0;
}

}  // namespace

std::vector<Finding> check_disk(const Patient& patient, const std::string& folder) {
  const std::string there = nearest_existing(folder);
  std::vector<Finding> found;
  struct statvfs facts{};
  if (::statvfs(there.c_str(), &facts) != 0) {
    found.push_back({.check = "space",
                     .verdict = Verdict::kFail,
                     .detail = "cannot examine " + there + ": " + std::strerror(errno),
                     .fix = "mkdir -p " + shell_quoted(folder)});
    return found;
  }
  const uint64_t free_bytes = uint64_t{facts.f_bavail} * facts.f_frsize;
  Finding space{.check = "space",
                .detail = gib(free_bytes) + " of " + gib(uint64_t{facts.f_blocks} * facts.f_frsize) +
                          " free for " + folder};
  if (free_bytes < kFreeWarn) {
    space.verdict = free_bytes < kFreeFail ? Verdict::kFail : Verdict::kWarn;
    space.fix = "du -xh --max-depth=2 " + shell_quoted(there) + " | sort -h | tail";
  }
  found.push_back(space);
  // Some file systems make inodes as they are needed, and say 0.
  if (facts.f_files > 0 && facts.f_favail < kInodesWarn) {
    found.push_back({.check = "inodes",
                     .verdict = facts.f_favail < kInodesFail ? Verdict::kFail : Verdict::kWarn,
                     .detail = std::to_string(facts.f_favail) + " inodes are left for " + folder,
                     .fix = "du -x --inodes --max-depth=2 " + shell_quoted(there) + " | sort -n | tail"});
  }
  found.push_back(check_file_system(patient, there));
  return found;
}

Finding check_volume(const std::string& folder, uint64_t recommended_bytes) {
  const std::string there = nearest_existing(folder);
  struct statvfs facts{};
  // `check_disk` reports what cannot be looked at.
  if (::statvfs(there.c_str(), &facts) != 0) return {.check = "volume", .detail = "unknown for " + folder};
  const uint64_t bytes = uint64_t{facts.f_blocks} * facts.f_frsize;
  if (bytes >= recommended_bytes)
    return {.check = "volume", .detail = "has " + gib(bytes) + " for " + folder};
  return {
      .check = "volume",
      .verdict = Verdict::kWarn,
      .detail = "has " + gib(bytes) + " for " + folder + ", " + gib(recommended_bytes) +
                " are recommended: journal and snapshots will soon fill it, and new jobs are refused then",
      .fix = "df -h    # put --data-dir on a larger volume"};
}

std::vector<Finding> check_sync(const std::string& folder) {
  if (!exists(folder)) return {};
  const std::string path = folder + "/.doctor." + std::to_string(::getpid());
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) {
    return {{.check = "sync",
             .verdict = Verdict::kFail,
             .detail = "cannot write into " + folder + ": " + std::strerror(errno),
             .fix = "ls -ld " + shell_quoted(folder) + "; id"}};
  }
  ::unlink(path.c_str());
  std::array<int64_t, kSyncs> took{};
  const int failed = time_syncs(file, took);
  ::close(file);
  if (failed != 0) {
    return {{.check = "sync",
             .verdict = Verdict::kFail,
             .detail = "a durable write in " + folder + " failed: " + std::strerror(failed),
             .fix = "df -h " + shell_quoted(folder) + "; dmesg --level=err,warn | tail"}};
  }
  const int64_t median = took[kSyncs / 2];
  Finding finding{.check = "sync",
                  .detail = "a durable write of 4 KiB takes " + milliseconds_text(median) + " (longest of " +
                            std::to_string(kSyncs) + ": " + milliseconds_text(took.back()) + ")"};
  if (median > kSyncSlowUs) {
    finding.verdict = median > kSyncTooSlowUs ? Verdict::kFail : Verdict::kWarn;
    finding.detail += "; every answer waits that long; an SSD with power-loss protection is faster";
    finding.fix = "iostat -x 1 5";
  }
  return {finding};
}

Finding check_folder(const Patient& patient, const std::string& folder, bool private_to_us) {
  struct stat facts{};
  Finding finding{.check = "folder", .detail = folder};
  if (::stat(folder.c_str(), &facts) != 0) {
    const int reason = errno;
    if (reason == ENOENT) {
      finding.detail += " does not exist yet; the first start creates it";
      return finding;
    }
    finding.verdict = Verdict::kFail;
    finding.detail += " cannot be examined: " + std::string(std::strerror(reason));
    finding.fix = "ls -ld " + shell_quoted(folder);
    return finding;
  }
  char mode[8];
  std::snprintf(mode, sizeof mode, "%04o", facts.st_mode & 07777u);
  finding.detail += " has mode " + std::string(mode) + " and owner " + std::to_string(facts.st_uid);
  const std::string wanted = private_to_us ? "0700" : "0755";
  const std::string quoted = shell_quoted(folder);
  const bool writable_by_others = (facts.st_mode & 022) != 0;
  const bool open_to_others = private_to_us && (facts.st_mode & 077) != 0;
  const uid_t us = ::geteuid();
  if (!S_ISDIR(facts.st_mode)) {
    finding.verdict = Verdict::kFail;
    finding.detail += " and is not a folder";
    finding.fix = "ls -ld " + quoted;
  } else if (us != 0 && facts.st_uid != us) {
    finding.verdict = Verdict::kFail;
    finding.detail += ", and " + patient.unit + " runs as user " + std::to_string(us);
    finding.fix = "sudo chown -R " + std::to_string(us) + " " + quoted;
  } else if (writable_by_others || open_to_others) {
    finding.verdict = writable_by_others ? Verdict::kFail : Verdict::kWarn;
    finding.detail += writable_by_others ? "; others can change it" : "; others can read it";
    finding.fix = "chmod " + wanted + " " + quoted;
  }
  return finding;
}

Finding check_way_to(const std::string& folder) {
  Finding finding{.check = "way", .detail = "jobs of every user can enter the folders above " + folder};
  const std::optional<std::string> closed = closed_folder_above(folder, {});
  if (!closed) return finding;
  finding.verdict = Verdict::kWarn;
  finding.detail = *closed + " cannot be entered by other users: their jobs have no TMPDIR and no working " +
                   "directory below " + folder + " and are refused";
  finding.fix = "chmod o+x " + shell_quoted(*closed);
  return finding;
}

Finding check_token(const std::string& path, const std::string& how_to_get_one) {
  struct stat facts{};
  Finding finding{.check = "token", .verdict = Verdict::kFail, .detail = path};
  if (::stat(path.c_str(), &facts) != 0) {
    finding.detail += ": " + std::string(std::strerror(errno));
    finding.fix = how_to_get_one;
    return finding;
  }
  const std::optional<std::string> token = read_line(path);
  if ((facts.st_mode & 077) != 0) {
    finding.detail += " can be read by others; anyone who has it can run any command on every node";
    finding.fix = "chmod 600 " + shell_quoted(path);
  } else if (!token) {
    finding.detail += " cannot be read by this user";
    finding.fix = "ls -l " + shell_quoted(path) + "; id";
  } else if (token->size() < kTokenBytesMin) {
    finding.detail += " holds no token of at least 16 characters";
    finding.fix = how_to_get_one;
  } else {
    finding.verdict = Verdict::kOk;
    finding.detail += " holds a token that only its owner can read";
  }
  return finding;
}

Finding check_shared_memory(const Patient& patient) {
  Finding finding{.check = "shm"};
  struct statvfs facts{};
  const bool is_memory = file_system(patient, "/dev/shm") == "tmpfs";
  if (!is_memory || ::statvfs((patient.root + "/dev/shm").c_str(), &facts) != 0) {
    finding.verdict = Verdict::kWarn;
    finding.detail =
        "/dev/shm is not a memory file system: NCCL and data loaders with many workers fail or become slow";
    finding.fix = "mount -t tmpfs -o size=50%,nosuid,nodev tmpfs /dev/shm";
    return finding;
  }
  const uint64_t size = uint64_t{facts.f_blocks} * facts.f_frsize;
  finding.detail =
      "/dev/shm has " + gib(size) + ", " + gib(uint64_t{facts.f_bavail} * facts.f_frsize) + " free";
  if (size < kGiB) {
    finding.verdict = Verdict::kWarn;
    finding.detail += "; NCCL and data loaders need more";
    finding.fix = "mount -o remount,size=50% /dev/shm";
  }
  return finding;
}

}  // namespace gpusched::ops

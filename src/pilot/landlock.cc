#include "pilot/landlock.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <utility>

#include "base/errors.h"

namespace gpusched::pilot {
namespace {

// The kernel's interface as linux/landlock.h has it, of which a system may have an older one.
constexpr uint64_t kExecute = 1 << 0, kWriteFile = 1 << 1, kReadFile = 1 << 2, kReadFolder = 1 << 3,
                   kRemoveFile = 1 << 5, kMakeFile = 1 << 8, kTruncate = 1 << 14;
constexpr uint64_t kFileRightsOfOne = (1 << 13) - 1;  ///< Rights that the first version knows.
constexpr uint64_t kRightRefer = 1 << 13, kRightTruncate = kTruncate, kRightIoctl = 1 << 15;
constexpr uint64_t kConnectTcp = 1 << 1, kBindTcp = 1 << 0;
constexpr uint64_t kScopeAbstractSockets = 1 << 0, kScopeSignals = 1 << 1;
constexpr int kRulePathBeneath = 1, kRulePort = 2;
constexpr uint32_t kAskVersion = 1;

struct RulesetAttributes {
  uint64_t file_rights = 0;
  uint64_t network_rights = 0;  ///< Since version 4.
  uint64_t scopes = 0;          ///< Since version 6.
};
struct [[gnu::packed]] PathRule {
  uint64_t rights = 0;
  int32_t folder = -1;
};
struct PortRule {
  uint64_t rights = 0;
  uint64_t port = 0;
};

/// A descriptor that is closed at its end.
class Opened {
 public:
  explicit Opened(int descriptor) : descriptor_(descriptor) {}
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
  ~Opened() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  const int descriptor_;
};

uint64_t known_file_rights(int version) {
  return kFileRightsOfOne | (version >= 2 ? kRightRefer : 0) | (version >= 3 ? kRightTruncate : 0) |
         (version >= 5 ? kRightIoctl : 0);
}

std::size_t size_of_attributes(int version) {
  if (version >= 6) return sizeof(RulesetAttributes);
  return version >= kLandlockOfPorts ? offsetof(RulesetAttributes, scopes)
                                     : offsetof(RulesetAttributes, network_rights);
}

Result<Unit> allow_path(int ruleset, const std::string& path, uint64_t rights, uint64_t known) {
  const Opened opened(::open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat facts{};
  if (opened.get() < 0 || ::fstat(opened.get(), &facts) != 0) return Unit{};
  constexpr uint64_t kRightsOfFiles = kExecute | kWriteFile | kReadFile | kTruncate;
  const PathRule rule{.rights = rights & known & (S_ISDIR(facts.st_mode) ? ~uint64_t{0} : kRightsOfFiles),
                      .folder = opened.get()};
  if (rule.rights == 0) return Unit{};
  if (::syscall(SYS_landlock_add_rule, ruleset, kRulePathBeneath, &rule, 0) != 0)
    return io_error("Landlock refused a rule for " + path);
  return Unit{};
}

}  // namespace

int landlock_version() {
  const long version = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, kAskVersion);
  return version > 0 ? static_cast<int>(version) : 0;
}

Result<Unit> hold_to(const KernelRules& rules) {
  const int version = landlock_version();
  if (version == 0)
    return Error{.code = ErrorCode::kUnavailable,
                 .message = "this kernel has no Landlock, or it is switched off"};
  const uint64_t known = known_file_rights(version);
  const RulesetAttributes attributes{.file_rights = known,
                                     .network_rights = kConnectTcp | kBindTcp,
                                     .scopes = kScopeAbstractSockets | kScopeSignals};
  const Opened ruleset(
      static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attributes, size_of_attributes(version), 0)));
  if (ruleset.get() < 0) return io_error("Landlock made no set of rules");
  constexpr uint64_t kRead = kReadFile | kReadFolder;
  constexpr uint64_t kWrite = kRead | kWriteFile | kTruncate | kMakeFile | kRemoveFile;
  const std::pair<const std::vector<std::string>*, uint64_t> kinds[] = {
      {&rules.read, kRead}, {&rules.write, kWrite}, {&rules.list, kReadFolder}};
  for (const auto& [paths, rights] : kinds) {
    for (const std::string& path : *paths) {
      if (const Result<Unit> allowed = allow_path(ruleset.get(), path, rights, known); !allowed)
        return allowed.error();
    }
  }
  for (const uint16_t port : rules.ports) {
    const PortRule rule{.rights = kConnectTcp, .port = port};
    const bool is_held = version >= kLandlockOfPorts;
    if (is_held && ::syscall(SYS_landlock_add_rule, ruleset.get(), kRulePort, &rule, 0) != 0)
      return io_error("Landlock refused a rule for port " + std::to_string(port));
  }
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0)
    return io_error("Landlock did not take the rules");
  return Unit{};
}

}  // namespace gpusched::pilot

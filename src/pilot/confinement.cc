#include "pilot/confinement.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/net/ip_network.h"

namespace gpusched::pilot {
namespace {

constexpr uint16_t kNamePort = 53;
/// Files of the system that the look-up of names and the check of certificates read.
constexpr const char* kSystemPlaces[] = {"/etc",
                                         "/lib",
                                         "/lib64",
                                         "/usr/lib",
                                         "/usr/lib64",
                                         "/usr/share/ca-certificates",
                                         "/usr/local/share/ca-certificates",
                                         "/run/systemd/resolve",
                                         "/dev/null",
                                         "/dev/urandom",
                                         "/proc"};
constexpr const char* kCertificateVariables[] = {"SSL_CERT_FILE", "SSL_CERT_DIR"};

// What a child that tried has for its exit status.
constexpr int kFileRefused = 1, kPortRefused = 2, kNotHeld = 4;

bool is_refused_port(uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool is_refused =
      socket >= 0 && ::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 &&
      errno == EACCES;
  if (socket >= 0) ::close(socket);
  return is_refused;
}

/// The exit status of a child that held itself to the rules, and tried.
int tried(const KernelRules& rules, const std::string& file, uint16_t port) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!hold_to(rules)) ::_exit(kNotHeld);
    const int open = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
    const bool is_refused_file = open < 0 && errno == EACCES;
    ::_exit((is_refused_file ? kFileRefused : 0) | (is_refused_port(port) ? kPortRefused : 0));
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child || !WIFEXITED(status)) return kNotHeld;
  return WEXITSTATUS(status);
}

std::string ports_text(const std::vector<uint16_t>& ports) {
  std::string text;
  for (const uint16_t port : ports) text += (text.empty() ? "" : ", ") + std::to_string(port);
  return text.empty() ? "no TCP port" : "TCP port " + text;
}

}  // namespace

KernelRules kernel_rules(const PilotSettings& settings, const std::vector<Destination>& destinations) {
  KernelRules rules;
  rules.read.assign(std::begin(kSystemPlaces), std::end(kSystemPlaces));
  for (const char* const variable : kCertificateVariables) {
    const char* const path = std::getenv(variable);
    if (path != nullptr && *path != '\0') rules.read.emplace_back(path);
  }
  rules.write.push_back(settings.state_dir);
  rules.list.emplace_back("/");
  for (const Destination& one : destinations) {
    if (!one.ca_file.empty()) rules.read.push_back(one.ca_file);
    const Result<HttpEndpoint> endpoint = parse_http_url(one.url);
    if (!endpoint || !endpoint->unix_socket.empty()) continue;
    uint16_t port = 0;
    std::from_chars(endpoint->port.data(), endpoint->port.data() + endpoint->port.size(), port);
    rules.ports.push_back(port);
    // Long answers about names come over TCP.
    if (!parse_ip_address(endpoint->host)) rules.ports.push_back(kNamePort);
  }
  std::ranges::sort(rules.ports);
  const auto same = std::ranges::unique(rules.ports);
  rules.ports.erase(same.begin(), same.end());
  return rules;
}

Result<std::string> confine(const PilotSettings& settings, const KernelRules& rules) {
  if (settings.landlock == LandlockUse::kOff)
    return std::string("the kernel holds it to nothing, as the configuration says (landlock: off)");
  const Result<Unit> held = hold_to(rules);
  if (!held && settings.landlock == LandlockUse::kRequired) return held.error();
  if (!held) return "the kernel holds it to nothing: " + held.error().message;
  const int version = landlock_version();
  return "the kernel (Landlock " + std::to_string(version) + ") lets it read no file of yours but " +
         settings.state_dir + ", and connect to " +
         (version >= kLandlockOfPorts ? ports_text(rules.ports) : "any port: it is too old to hold ports");
}

std::vector<Finding> check_confinement(const PilotSettings& settings, const KernelRules& rules) {
  const int version = landlock_version();
  if (settings.landlock == LandlockUse::kOff) {
    return {{.check = "landlock",
             .verdict = Verdict::kWarn,
             .detail = "the configuration says landlock: off; the kernel holds the pilot to nothing"}};
  }
  if (version == 0) {
    return {{.check = "landlock",
             .verdict = settings.landlock == LandlockUse::kRequired ? Verdict::kFail : Verdict::kWarn,
             .detail = "this kernel has no Landlock, or it is switched off; the program alone keeps to its "
                       "files and destinations"}};
  }
  std::string file = std::string(P_tmpdir) + "/gpu-pilot-doctor-XXXXXX";
  const int made = ::mkstemp(file.data());
  uint16_t port = 1;
  while (std::ranges::find(rules.ports, port) != rules.ports.end()) ++port;
  const int found = made < 0 ? kNotHeld : tried(rules, file, port);
  if (made >= 0) {
    ::close(made);
    ::unlink(file.c_str());
  }
  const auto finding = [&](const char* check, int bit, const std::string& what) {
    const bool is_refused = (found & kNotHeld) == 0 && (found & bit) != 0;
    return Finding{
        .check = check,
        .verdict = is_refused ? Verdict::kOk : Verdict::kFail,
        .detail = std::string(is_refused ? "the kernel refuses " : "the kernel does not refuse ") + what};
  };
  std::vector<Finding> findings = {
      {.check = "landlock", .detail = "the kernel has version " + std::to_string(version)},
      finding("files", kFileRefused, "a file that the pilot has no business with")};
  if (version < kLandlockOfPorts) {
    findings.push_back(
        {.check = "ports",
         .verdict = Verdict::kWarn,
         .detail = "this version holds no ports; the program alone keeps to its destinations"});
  } else {
    findings.push_back(finding("ports", kPortRefused,
                               "a connection to another port: it may connect to " + ports_text(rules.ports)));
  }
  return findings;
}

}  // namespace gpusched::pilot

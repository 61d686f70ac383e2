#include "main/own_certificate.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <filesystem>
#include <set>

#include "base/time.h"
#include "ops/machine.h"
#include "sign/authority.h"

namespace gpusched {
namespace {

constexpr Duration kServerValid = hours(24 * 90);
constexpr std::size_t kNamesMax = 100;

bool is_every_address(const std::string& address) {
  return address == "0.0.0.0" || address == "::" || address == "[::]";
}

/// Those that other machines can use; of an IPv6 link only its own knows the address.
void add_addresses_of_machine(std::set<std::string>& names) {
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return;
  for (const ifaddrs* entry = all; entry != nullptr && names.size() < kNamesMax; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* const four = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      ::inet_ntop(AF_INET, &four->sin_addr, text, sizeof text);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* const six = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) continue;
      ::inet_ntop(AF_INET6, &six->sin6_addr, text, sizeof text);
    } else {
      continue;
    }
    names.insert(text);
  }
  ::freeifaddrs(all);
}

/// Whether a certificate may have it as a name; other settings of api.host_names name no host.
bool is_host_name(const std::string& name) {
  return !name.empty() && name.size() <= 253 &&
         name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._:*") ==
             std::string::npos;
}

}  // namespace

bool wants_own_certificate(const Config& config) {
  return config.api.enable_tls && config.api.tls_cert_path.empty() && config.api.tls_key_path.empty();
}

std::string authority_folder(const std::string& data_dir) { return data_dir + "/ca"; }

sign::TlsFiles tls_files(const Config& config, const std::string& data_dir) {
  const std::string own = authority_folder(data_dir) + "/server.pem";
  const bool is_own = wants_own_certificate(config);
  return {.certificate = is_own ? own : config.api.tls_cert_path,
          .key = is_own ? own : config.api.tls_key_path,
          .allow_tls12 = config.api.tls_minimum_version == "1.2"};
}

Result<std::shared_ptr<const sign::TlsIdentity>> current_identity(const Config& config,
                                                                  const std::string& data_dir) {
  if (const Result<bool> made = renew_own_certificate(config, data_dir); !made.ok()) return made.error();
  return sign::TlsIdentity::load(tls_files(config, data_dir));
}

std::vector<std::string> server_names(const Config& config) {
  std::set<std::string> names = {"localhost", "127.0.0.1", "::1"};
  for (const std::string& name : config.api.host_names) {
    if (is_host_name(name)) names.insert(name);
  }
  if (is_host_name(ops::host_name())) names.insert(ops::host_name());
  if (is_every_address(config.api.address)) {
    add_addresses_of_machine(names);
  } else if (is_host_name(config.api.address)) {
    names.insert(config.api.address);
  }
  // Callers of another replica are passed on to this one, and check that one's name.
  if (const Result<std::vector<ReplicaPeer>> peers = replica_peers(config); peers.ok()) {
    for (const ReplicaPeer& peer : *peers) names.insert(peer.host);
  }
  return {names.begin(), names.end()};
}

Result<bool> renew_own_certificate(const Config& config, const std::string& data_dir) {
  if (!wants_own_certificate(config)) return false;
  std::error_code failed;  // Ignored: the authority tells of a folder that cannot be made.
  std::filesystem::create_directories(data_dir, failed);
  const Result<sign::Authority> authority = sign::Authority::open(authority_folder(data_dir));
  if (!authority.ok()) return authority.error();
  const std::string path = tls_files(config, data_dir).certificate;
  const std::vector<std::string> names = server_names(config);
  if (authority->has_issued(path, names)) return false;
  if (const Result<Unit> made = authority->issue(path, names, kServerValid); !made.ok()) return made.error();
  return true;
}

}  // namespace gpusched

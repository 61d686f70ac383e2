#include "pilot/run.h"

#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "base/check.h"
#include "base/errors.h"
#include "client/local_token.h"
#include "ops/local_peer.h"
#include "ops/machine.h"
#include "pilot/confinement.h"
#include "pilot/pilot.h"
#include "pilot/secret_files.h"

namespace gpusched::pilot {
namespace {

constexpr int kTurnMs = 1'000;

/// The time since 1970 that goes on as the machine's own clock does, whatever happens to the wall clock.
class SteadyWall {
 public:
  Time now() const { return start_ + Duration{monotonic() - begun_}; }

 private:
  static int64_t monotonic() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
  const Time start_{std::chrono::duration_cast<std::chrono::nanoseconds>(
                        std::chrono::system_clock::now().time_since_epoch())
                        .count()};
  const int64_t begun_ = monotonic();
};

std::string random_key() {
  std::array<unsigned char, 16> bytes{};
  CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  std::string key = "pilot-";
  for (const unsigned char byte : bytes) {
    key.push_back("0123456789abcdef"[byte >> 4]);
    key.push_back("0123456789abcdef"[byte & 15]);
  }
  return key;
}

void say(const std::string& line) { std::fprintf(stderr, "gpu-pilot: %s\n", line.c_str()); }

void watch(Pilot& pilot, int signals) {
  while (true) {
    std::vector<pollfd> sources{{.fd = signals, .events = POLLIN, .revents = 0}};
    for (const int descriptor : pilot.descriptors())
      sources.push_back({.fd = descriptor, .events = POLLIN, .revents = 0});
    ::poll(sources.data(), sources.size(), kTurnMs);
    if (sources.front().revents != 0) return;
    pilot.turn();
  }
}

}  // namespace

Result<Destination> scheduler_of(const PilotSettings& settings, Passphrase& passphrase) {
  Destination scheduler{
      .url = settings.api_url, .ca_file = settings.ca_file, .addresses = settings.api_addresses};
  if (scheduler.url.empty()) {
    const char* const runtime_dir = std::getenv("XDG_RUNTIME_DIR");
    scheduler.url = find_local_socket(runtime_dir == nullptr ? "" : runtime_dir);
    if (scheduler.url.empty()) {
      return Error{
          .code = ErrorCode::kNotFound,
          .message = "there is no scheduler on this machine; name one in the configuration: api.url"};
    }
  }
  if (const Result<HttpEndpoint> endpoint = parse_http_url(scheduler.url); !endpoint) return endpoint.error();
  if (settings.token_file.empty()) return scheduler;
  const Result<std::string> token = read_secret(settings.token_file, passphrase);
  if (!token) return token.error();
  if (const Result<Unit> safe = check_token_receiver(scheduler.url, settings.token_file); !safe)
    return safe.error();
  scheduler.token = *token;
  return scheduler;
}

Result<Destination> model_of(const PilotSettings& settings, Passphrase& passphrase) {
  Destination model{
      .url = settings.model.url, .ca_file = settings.model.ca_file, .addresses = settings.model.addresses};
  const Result<HttpEndpoint> endpoint = parse_http_url(model.url);
  if (!endpoint) return endpoint.error();
  if (!endpoint->tls && endpoint->unix_socket.empty() && !ops::is_loopback(endpoint->host)) {
    return Error{
        .code = ErrorCode::kPermissionDenied,
        .message = "model.url: what the model is told would go over the network in the clear; use https"};
  }
  if (settings.model.key_file.empty()) return model;
  const Result<std::string> key = read_secret(settings.model.key_file, passphrase);
  if (!key) return key.error();
  model.secrets.push_back(*key);
  return model;
}

Result<Unit> run_until_stopped(const PilotSettings& settings, bool is_dry_run) {
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  const int signals = ::signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
  if (signals < 0) return io_error("cannot wait for signals");
  // Before there is a secret in this process, and a lock.
  const Result<std::unique_ptr<Helper>> helper = Helper::start(duties_of(settings.monitors));
  if (!helper) return helper.error();
  const Result<StateFolder> folder = StateFolder::open(settings.state_dir);
  if (!folder) return folder.error();
  Result<PilotState> state = folder->load();
  if (!state) return state.error();
  Passphrase passphrase(settings.passphrase_file);
  const SteadyWall clock;
  AuditFile audit(folder->audit_path());
  Result<Destination> scheduler =
      is_dry_run ? Result<Destination>(Destination{}) : scheduler_of(settings, passphrase);
  if (!scheduler) return scheduler.error();
  const bool asks_model = !is_dry_run && !settings.model.url.empty();
  Result<Destination> model =
      asks_model ? model_of(settings, passphrase) : Result<Destination>(Destination{});
  if (!model) return model.error();
  std::vector<Destination> allowed;
  if (!is_dry_run) allowed.push_back(*scheduler);
  if (asks_model) allowed.push_back(*model);
  Outbox outbox(allowed, audit, [&] { return clock.now(); });
  LeaseDoor door(outbox, scheduler->url);
  ModelDoor model_door(outbox, settings.model, model->secrets.empty() ? "" : model->secrets.front());
  // A dry run leaves the leases of real ones alone.
  if (is_dry_run) state->memory.leases.clear();
  Pilot pilot(settings, *folder, std::move(*state), **helper, is_dry_run ? nullptr : &door,
              asks_model ? &model_door : nullptr,
              {.now = [&] { return clock.now(); }, .new_key = random_key, .say = say});
  const Result<std::string> confined = confine(settings, kernel_rules(settings, allowed));
  if (!confined) return confined.error();
  say(*confined);
  pilot.turn();  // From here on what is new is seen.
  say("watches with " + std::to_string(settings.monitors.size()) + " monitors; " +
      (is_dry_run ? "a dry run: sends nothing" : "asks " + scheduler->url) +
      (asks_model ? " and the model at " + model->url : "") + "; decisions are in " + settings.state_dir +
      "/decisions.jsonl");
  watch(pilot, signals);
  pilot.stop();
  ::close(signals);
  return Unit{};
}

}  // namespace gpusched::pilot

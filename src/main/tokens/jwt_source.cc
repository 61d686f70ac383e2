#include "main/tokens/jwt_source.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>

#include "base/net/cancel_scope.h"
#include "base/net/public_address.h"
#include "client/http_client.h"
#include "log/log.h"
#include "ops/machine.h"
#include "ops/trusted_path.h"

namespace gpusched {
namespace {

constexpr Duration kConnect = seconds(3), kExchange = seconds(2);
constexpr Duration kFirstRetry = seconds(1);
constexpr int kDoublings = 6;

std::chrono::nanoseconds as_clock(Duration duration) { return std::chrono::nanoseconds(duration.ns); }

Error wrong(ErrorCode code, const JwtSourceOptions& options, const std::string& why) {
  return {.code = code, .message = "api.jwt_keys, " + options.keys + ": " + why};
}

/// Keys of a file that nobody else may change; with secrets in it nobody else may read it either.
Result<JwtKeysPtr> load_file(const JwtSourceOptions& options) {
  struct stat facts{};
  if (::stat(options.keys.c_str(), &facts) != 0)
    return wrong(ErrorCode::kNotFound, options, "there is no such file");
  if (const std::optional<std::string> others = ops::changeable_by_others(options.keys))
    return wrong(ErrorCode::kPermissionDenied, options, *others);
  const std::optional<std::string> text = ops::read_text(options.keys, sign::kJwksBytesMax + 1);
  if (!text) return wrong(ErrorCode::kIo, options, "it cannot be read");
  Result<JwtKeysPtr> keys = sign::JwtKeySet::parse(
      *text, {.algorithms = options.algorithms, .secrets_allowed = (facts.st_mode & 077) == 0});
  return keys.ok() ? keys : wrong(keys.error().code, options, keys.error().message);
}

struct Place {
  std::string base, host, target;
};
/// "https://host:port" and what stands behind it.
Result<Place> split(const std::string& url) {
  const std::size_t slash = std::min(url.find('/', std::string_view("https://").size()), url.size());
  Place place{.base = url.substr(0, slash), .host = {}, .target = url.substr(slash)};
  const Result<HttpEndpoint> endpoint = parse_http_url(place.base);
  if (!endpoint.ok() || !endpoint->tls || url.find_first_of(" #\\\r\n") != std::string::npos)
    return Error{.code = ErrorCode::kInvalidArgument,
                 .message = "it is no URL such as https://host:port/keys"};
  if (place.target.empty()) place.target = "/";
  place.host = endpoint->host;
  return place;
}

Result<std::string> fetch(const JwtSourceOptions& options) {
  if (options.fetch != nullptr) return options.fetch();
  const Result<Place> place = split(options.keys);
  if (!place.ok()) return place.error();
  const bool may_be_private =
      std::ranges::find(options.private_hosts, place->host) != options.private_hosts.end();
  HttpClientOptions how{.url = place->base,
                        .ca_file = options.ca_file,
                        .connect_timeout = kConnect,
                        .answer_bytes_max = sign::kJwksBytesMax};
  if (!may_be_private) how.address_allowed = is_public_address;
  Result<HttpClient> client = HttpClient::create(std::move(how));
  if (!client.ok()) return client.error();
  const Result<HttpAnswer> answer = client->request({.method = "GET",
                                                     .target = place->target,
                                                     .headers = {{"User-Agent", "gpu-scheduler"}},
                                                     .timeout = kExchange});
  if (!answer.ok()) {
    Error error = answer.error();
    if (error.code == ErrorCode::kPermissionDenied)
      error.message += "; if it is yours, name the host " + place->host + " in api.jwt_private_hosts";
    return error;
  }
  if (answer->status == 200) return answer->body;
  const bool elsewhere = answer->status / 100 == 3;
  return Error{
      .code = ErrorCode::kUnavailable,
      .message =
          "it answers with status " + std::to_string(answer->status) +
          (elsewhere ? ", which leads elsewhere, and that is not followed: set the URL that it leads to"
                     : "")};
}

}  // namespace

Result<JwtKeysPtr> load_jwt_keys(const JwtSourceOptions& options) {
  if (!options.is_url()) return load_file(options);
  const Result<std::string> text = fetch(options);
  if (!text.ok()) return wrong(text.error().code, options, text.error().message);
  Result<JwtKeysPtr> keys = sign::JwtKeySet::parse(*text, {.algorithms = options.algorithms});
  return keys.ok() ? keys : wrong(keys.error().code, options, keys.error().message);
}

JwtSource::JwtSource(JwtSourceOptions options, JwtKeysPtr known, std::function<void(JwtKeysPtr)> found)
    : options_(std::move(options)), found_(std::move(found)), has_keys_(known != nullptr) {
  const Clock::time_point now = Clock::now();
  answered_ = now;
  asked_for_unknown_ = now - as_clock(options_.unknown_rest);
  due_ = known == nullptr ? now : now + as_clock(options_.is_url() ? options_.refresh : options_.look);
  thread_ = std::thread([this] { run(); });
}

JwtSource::~JwtSource() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void JwtSource::unknown_key() {
  if (!options_.is_url() || unknown_.exchange(true)) return;
  const std::lock_guard lock(mutex_);
  wake_.notify_all();
}

void JwtSource::look_again() {
  {
    const std::lock_guard lock(mutex_);
    again_ = true;
  }
  wake_.notify_all();
}

std::string JwtSource::stamp_of_file() const {
  struct stat facts{};
  if (options_.is_url() || ::stat(options_.keys.c_str(), &facts) != 0) return {};
  return std::to_string(facts.st_ino) + "/" + std::to_string(facts.st_size) + "/" +
         std::to_string(facts.st_mtim.tv_sec) + "/" + std::to_string(facts.st_mtim.tv_nsec) + "/" +
         std::to_string(facts.st_ctim.tv_nsec);
}

void JwtSource::run() {
  const CancelScope scope(stopping_);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Clock::time_point now = Clock::now();
    const Clock::time_point for_unknown = asked_for_unknown_ + as_clock(options_.unknown_rest);
    const bool is_asked = unknown_.load() && now >= for_unknown;
    if (again_ || is_asked || now >= due_) {
      again_ = false;
      if (is_asked) {
        unknown_.store(false);
        asked_for_unknown_ = now;
      }
      lock.unlock();
      look();
      lock.lock();
      continue;
    }
    wake_.wait_until(lock, unknown_.load() ? std::min(due_, for_unknown) : due_);
  }
}

void JwtSource::look() {
  if (options_.is_url()) return take(load_jwt_keys(options_));
  due_ = Clock::now() + as_clock(options_.look);
  std::string stamp = stamp_of_file();
  if (stamp == stamp_) return;
  stamp_ = std::move(stamp);
  take(load_jwt_keys(options_));
}

void JwtSource::take(const Result<JwtKeysPtr>& loaded) {
  const Clock::time_point now = Clock::now();
  if (loaded.ok()) {
    failures_ = 0;
    answered_ = now;
    if (options_.is_url()) due_ = now + as_clock(options_.refresh);
    if (!has_keys_ || !trouble_.empty() || !options_.is_url())
      log_event(LogLevel::kInfo, "scheduler", "jwt_keys_loaded", {},
                {{"from", options_.keys}, {"keys", (*loaded)->size()}});
    trouble_.clear();
    has_keys_ = true;
    return found_(*loaded);
  }
  if (options_.is_url())
    due_ = now + std::min(as_clock(options_.refresh),
                          as_clock(kFirstRetry) * (1 << std::min(failures_++, kDoublings)));
  const bool too_old = options_.is_url() && has_keys_ && now - answered_ >= as_clock(options_.stale);
  const std::string& why = loaded.error().message;
  if (why != trouble_ || too_old) {
    log_event(LogLevel::kError, "scheduler", "jwt_keys_not_loaded", {},
              {{"why", why},
               {"kept", !has_keys_ ? "nothing: tokens are refused"
                        : too_old  ? "nothing: the keys are too old"
                                   : "the keys before"}});
  }
  trouble_ = why;
  if (!too_old) return;
  has_keys_ = false;
  found_(nullptr);
}

}  // namespace gpusched

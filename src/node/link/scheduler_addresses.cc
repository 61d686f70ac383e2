#include "node/link/scheduler_addresses.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace gpusched {
namespace {

constexpr std::size_t kAddressesMax = 16;
constexpr Duration kPauseFirst = milliseconds(50);
constexpr Duration kPauseMax = seconds(5);
constexpr Duration kPatienceMax = seconds(15);
/// Among several addresses, one whose machine is gone without a word is passed over soon.
constexpr Duration kPatienceFirst = seconds(3);

Error bad_address(std::string sentence) {
  return {.code = ErrorCode::kInvalidArgument, .message = std::move(sentence), .field = "scheduler"};
}

Result<SchedulerAddress> parse_one(const std::string& text, bool tls) {
  if (!is_unix_address(text)) {
    const Result<Address> address = parse_address(text);
    if (!address) return address.error();
    return SchedulerAddress{.text = text, .tcp = *address};
  }
  if (tls) {
    return bad_address("'" + text +
                       "' is a Unix socket, over which TLS is not spoken; remove --tls, --ca and --ca-file");
  }
  if (!text.substr(kUnixAddress.size()).starts_with('/')) {
    return bad_address("'" + text +
                       "' names no path; write unix:/PATH, such as unix:/run/gpu-scheduler/agent.sock");
  }
  return SchedulerAddress{.text = text};
}

}  // namespace

Result<std::vector<SchedulerAddress>> parse_scheduler_addresses(std::string_view list, bool tls) {
  std::vector<SchedulerAddress> found;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    std::string text(list.substr(begin, end - begin));
    text.erase(text.find_last_not_of(' ') + 1);
    text.erase(0, text.find_first_not_of(' '));
    begin = end + 1;
    Result<SchedulerAddress> address = parse_one(text, tls);
    if (!address) return address.error();
    const bool twice = std::ranges::find(found, text, &SchedulerAddress::text) != found.end();
    if (twice) return bad_address("the scheduler's address " + text + " is given twice; keep one");
    found.push_back(std::move(*address));
  }
  if (found.size() > kAddressesMax) {
    return bad_address("there are " + std::to_string(found.size()) +
                       " addresses of schedulers; give those of one cluster, at most " +
                       std::to_string(kAddressesMax));
  }
  return found;
}

SchedulerRounds::SchedulerRounds(std::vector<SchedulerAddress> addresses, uint64_t seed)
    : addresses_(std::move(addresses)), jitter_(seed) {
  CHECK(!addresses_.empty());
  succeeded();
}

Duration SchedulerRounds::patience() const { return addresses_.size() == 1 ? kPatienceMax : patience_; }

Duration SchedulerRounds::failed() {
  at_ = (at_ + 1) % addresses_.size();
  const auto within_half_of = [this](Duration pause) {
    return Duration{jitter_.between(pause.ns / 2, pause.ns)};
  };
  if (++failures_ < addresses_.size()) return within_half_of(kPauseFirst);
  failures_ = 0;
  patience_ = std::min(patience_ * 2, kPatienceMax);
  return within_half_of(std::exchange(pause_, std::min(pause_ * 2, kPauseMax)));
}

void SchedulerRounds::succeeded() {
  failures_ = 0;
  pause_ = kPauseFirst;
  patience_ = kPatienceFirst;
}

}  // namespace gpusched

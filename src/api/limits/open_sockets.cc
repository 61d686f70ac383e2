#include "api/limits/open_sockets.h"

#include <sys/stat.h>

#include <optional>
#include <utility>

#include "base/check.h"

namespace gpusched::api {
namespace {

constexpr int kLooksOfAddition = 4;  ///< More than one, so that what has ended becomes fewer.

/// The system's number of the socket behind a descriptor; nothing: there is none.
std::optional<ino_t> number_of(int descriptor) {
  struct stat facts{};
  if (::fstat(descriptor, &facts) != 0 || !S_ISSOCK(facts.st_mode)) return std::nullopt;
  return facts.st_ino;
}

}  // namespace

OpenSockets::Sockets::iterator OpenSockets::forget(Sockets::iterator socket) {
  if (!socket->second.party.empty()) {
    const auto party = parties_.find(socket->second.party);
    CHECK(party != parties_.end());
    std::vector<int>& own = party->second.descriptors;
    const std::size_t index = socket->second.index;
    CHECK(own[index] == socket->first);
    own[index] = own.back();
    all_.find(own[index])->second.index = index;
    own.pop_back();
    if (own.empty()) parties_.erase(party);
  }
  return all_.erase(socket);
}

void OpenSockets::look_at_all_of(std::vector<int> descriptors) {
  for (const int descriptor : descriptors) {
    const auto socket = all_.find(descriptor);
    if (number_of(descriptor) != socket->second.number) forget(socket);
  }
}

void OpenSockets::look_at_some() {
  for (int i = 0; i < kLooksOfAddition && !all_.empty(); ++i) {
    auto socket = all_.lower_bound(next_);
    if (socket == all_.end()) socket = all_.begin();
    next_ = socket->first + 1;
    if (number_of(socket->first) != socket->second.number) forget(socket);
  }
}

bool OpenSockets::has_room(const std::string& party, Time now) {
  const auto is_due = [now](Time looked_at) { return now >= looked_at + kLookEvery; };
  if (limits_.all_max != 0 && all_.size() >= limits_.all_max && is_due(looked_at_)) {
    looked_at_ = now;
    for (auto socket = all_.begin(); socket != all_.end();)
      socket = number_of(socket->first) == socket->second.number ? std::next(socket) : forget(socket);
  }
  if (limits_.all_max != 0 && all_.size() >= limits_.all_max) return false;
  if (party.empty() || limits_.of_party_max == 0) return true;
  const auto found = parties_.find(party);
  if (found == parties_.end() || found->second.descriptors.size() < limits_.of_party_max) return true;
  if (!is_due(found->second.looked_at)) return false;
  found->second.looked_at = now;
  look_at_all_of(found->second.descriptors);
  return known_of(party) < limits_.of_party_max;
}

void OpenSockets::add(const std::string& party, int descriptor) {
  // The earlier owner of that descriptor has it no more.
  if (const auto before = all_.find(descriptor); before != all_.end()) forget(before);
  look_at_some();
  const std::optional<ino_t> number = number_of(descriptor);
  if (!number) return;
  Socket socket{.party = party, .number = *number};
  if (!party.empty()) {
    std::vector<int>& own = parties_[party].descriptors;
    socket.index = own.size();
    own.push_back(descriptor);
  }
  all_.emplace(descriptor, std::move(socket));
}

std::size_t OpenSockets::known_of(const std::string& party) const {
  const auto found = parties_.find(party);
  return found == parties_.end() ? 0 : found->second.descriptors.size();
}

}  // namespace gpusched::api

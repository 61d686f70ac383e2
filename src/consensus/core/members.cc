#include "consensus/core/members.h"

#include <algorithm>

namespace gpusched::consensus {
namespace {

constexpr uint8_t kChangesVersion = 1;

bool has(const std::vector<uint64_t>& ids, uint64_t id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

bool is_member(const Members& members, uint64_t id) {
  return has(members.voters, id) || has(members.learners, id) || has(members.voters_outgoing, id) ||
         has(members.learners_next, id);
}

void write_ids(const std::vector<uint64_t>& ids, ByteWriter& out) {
  out.varint(ids.size());
  for (const uint64_t id : ids) out.varint(id);
}

std::vector<uint64_t> read_ids(ByteReader& in) {
  const uint64_t count = in.varint();
  if (count > kMembersMax) in.fail();
  std::vector<uint64_t> ids;
  for (uint64_t i = 0; in.ok() && i < count; ++i) {
    const uint64_t id = in.varint();
    if (id == 0 || (!ids.empty() && id <= ids.back())) in.fail();
    ids.push_back(id);
  }
  return ids;
}

}  // namespace

std::optional<std::vector<MemberChange>> parse_changes(std::string_view data) {
  ByteReader in(data);
  const uint8_t version = in.u8();
  const uint8_t count = in.u8();
  if (!in.ok() || version != kChangesVersion || count > kMembersMax) return std::nullopt;
  std::vector<MemberChange> changes;
  for (uint8_t i = 0; i < count; ++i) {
    const uint8_t kind = in.u8();
    if (kind > static_cast<uint8_t>(ChangeKind::kAddLearner)) return std::nullopt;
    const uint64_t id = in.fixed64();
    const uint64_t store = in.fixed64();
    if (!in.ok() || id == 0) return std::nullopt;
    changes.push_back({.kind = static_cast<ChangeKind>(kind), .id = id, .store = store});
  }
  if (!in.at_end()) return std::nullopt;
  return changes;
}

std::string changes_fault(const Members& members, const std::vector<MemberChange>& changes) {
  if (changes.size() > kMembersMax) return "there are too many changes";
  std::vector<uint64_t> changed;
  for (const MemberChange& change : changes) {
    const std::string name = "replica " + std::to_string(change.id);
    if (change.id == 0) return "a replica has the id 0";
    if (has(changed, change.id)) return name + " is changed twice";
    changed.push_back(change.id);
    const bool member = is_member(members, change.id);
    if (change.kind == ChangeKind::kRemove) {
      if (!member) return name + " is no member";
      continue;
    }
    if (change.store == 0) return name + " is named without its disk";
    if (member && store_of(members, change.id) != change.store) {
      return name + " has another disk than the group knows: remove it, then add it with a new id";
    }
    if (change.kind == ChangeKind::kAddVoter && !has(members.learners, change.id)) {
      return name + " is no learner: add it as one, and make it a voter once it has the log";
    }
    if (!member && change.id <= members.id_max) {
      return "the id " + std::to_string(change.id) + " was used before: take one above " +
             std::to_string(members.id_max);
    }
  }
  return {};
}

void carry_stores(const Members& before, const std::vector<MemberChange>& changes, Members& after) {
  after.stores = before.stores;
  after.id_max = before.id_max;
  for (const MemberChange& change : changes) {
    if (change.kind == ChangeKind::kRemove || store_of(before, change.id)) continue;
    after.stores.push_back({.id = change.id, .store = change.store});
    after.id_max = std::max(after.id_max, change.id);
  }
  std::erase_if(after.stores, [&](const MemberStore& known) { return !is_member(after, known.id); });
  std::sort(after.stores.begin(), after.stores.end(),
            [](const MemberStore& a, const MemberStore& b) { return a.id < b.id; });
}

std::optional<uint64_t> store_of(const Members& members, uint64_t id) {
  for (const MemberStore& known : members.stores) {
    if (known.id == id) return known.store;
  }
  return std::nullopt;
}

void write_members(const Members& members, ByteWriter& out) {
  write_ids(members.voters, out);
  write_ids(members.learners, out);
  write_ids(members.voters_outgoing, out);
  write_ids(members.learners_next, out);
  out.u8(members.auto_leave ? 1 : 0);
  out.varint(members.stores.size());
  for (const MemberStore& known : members.stores) {
    out.varint(known.id);
    out.fixed64(known.store);
  }
  out.varint(members.id_max);
}

Members read_members(ByteReader& in) {
  Members members;
  members.voters = read_ids(in);
  members.learners = read_ids(in);
  members.voters_outgoing = read_ids(in);
  members.learners_next = read_ids(in);
  const uint8_t auto_leave = in.u8();
  if (auto_leave > 1) in.fail();
  members.auto_leave = auto_leave == 1;
  const uint64_t stores = in.varint();
  if (stores > 4 * kMembersMax) in.fail();
  for (uint64_t i = 0; in.ok() && i < stores; ++i) {
    const uint64_t id = in.varint();
    const uint64_t store = in.fixed64();
    if (!is_member(members, id) || (!members.stores.empty() && id <= members.stores.back().id)) in.fail();
    members.stores.push_back({.id = id, .store = store});
  }
  members.id_max = in.varint();
  for (const auto* ids :
       {&members.voters, &members.learners, &members.voters_outgoing, &members.learners_next}) {
    for (const uint64_t id : *ids) {
      if (!store_of(members, id) || id > members.id_max) in.fail();
    }
  }
  return members;
}

}  // namespace gpusched::consensus

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "consensus/core/values.h"

/// Pure functions about members: their forms in bytes, and rules for their ids.
namespace gpusched::consensus {

/// Members that a group has at most.
inline constexpr std::size_t kMembersMax = 16;

/// Reads the data of an entry of kind `kMembers`: version 1, a count, and kind (1 byte), id and store (8
/// bytes each, little-endian) of each change. Nothing: it is no such data. No change at all leaves a joint
/// configuration.
std::optional<std::vector<MemberChange>> parse_changes(std::string_view data);

/// Why these changes are refused in such a group; empty: they are not. Ids are not used again: what a removed
/// member forgot, nobody else remembers.
std::string changes_fault(const Members& members, const std::vector<MemberChange>& changes);

/// Notes the disks of added members in `after`, the core's sets of ids, from what `before` knew.
void carry_stores(const Members& before, const std::vector<MemberChange>& changes, Members& after);

/// The disk of a member; nothing: it is no member.
std::optional<uint64_t> store_of(const Members& members, uint64_t id);

void write_members(const Members& members, ByteWriter& out);
/// Reads untrusted bytes: the reader fails on more members than there may be, on ids that are not sorted, and
/// on a member without a disk.
Members read_members(ByteReader& in);

}  // namespace gpusched::consensus

#pragma once

#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <optional>
#include <string_view>

namespace gpusched {

/// The node that registered a device's uuid, or a data folder's name: finds the nodes to compare with,
/// without looking at all of them. Holds hashes of names and forgets none, so that an answer is a suspicion
/// that the caller checks. Not thread-safe.
class ClaimIndex {
 public:
  struct Claim {
    uint32_t slot = 0;     ///< Slot in the state's node table.
    bool several = false;  ///< Claimed by several nodes: any of them may be meant.
  };

  void note(std::string_view name, uint32_t slot) {
    const auto [it, fresh] = claims_.try_emplace(hash_of(name), Claim{.slot = slot});
    if (!fresh && it->second.slot != slot) it->second.several = true;
  }
  /// Absent: no node ever registered it.
  std::optional<Claim> find(std::string_view name) const {
    const auto it = claims_.find(hash_of(name));
    if (it == claims_.end()) return std::nullopt;
    return it->second;
  }

 private:
  /// FNV-1a, 64 bits.
  static uint64_t hash_of(std::string_view name) {
    uint64_t hash = 0xCBF29CE484222325;
    for (const char byte : name) hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001B3;
    return hash;
  }

  boost::unordered_flat_map<uint64_t, Claim> claims_;
};

}  // namespace gpusched

#pragma once

#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "model/identity/access_key.h"

namespace gpusched {

/// All keys, those that ended among them until they are forgotten, with their indexes.
class KeyTable {
 public:
  std::size_t size() const { return keys_.size(); }
  /// In the order of their ids.
  auto begin() const { return keys_.begin(); }
  auto end() const { return keys_.end(); }
  /// The first with a greater id.
  auto behind(KeyId id) const { return keys_.upper_bound(id); }
  /// Null when there is none, as below.
  const AccessKey* find(KeyId id) const;
  const AccessKey* find_prefix(std::string_view prefix) const;
  /// The key of that name and home that is alive at the time.
  const AccessKey* find_living(TenantId home, std::string_view name, Time at) const;
  /// All keys of that home, dead ones too, in the order of their ids.
  template <typename Visit>
  void for_each_of(TenantId home, Visit&& visit) const {
    for (auto each = by_home_.lower_bound({home, KeyId{}}); each != by_home_.end() && each->first == home;
         ++each) {
      visit(keys_.at(each->second));
    }
  }
  /// How many they are.
  std::size_t count_of(TenantId home) const;
  /// When the first key ended, or will end; kNever: none does.
  Time first_end() const { return by_end_.empty() ? kNever : by_end_.begin()->first; }
  /// The key of which that is so.
  KeyId first_to_end() const { return by_end_.begin()->second; }

  // Changes of existing keys, for `evolve` and snapshots.
  /// False: another has the id or the prefix.
  bool add(AccessKey key);
  void revoke(KeyId id, Time at, const std::string& by);
  /// All keys of that home which are not revoked.
  void revoke_all_of(TenantId home, Time at, const std::string& by);
  void bind(KeyId id, const Binding& binding, bool taken);
  void remove(KeyId id);

 private:
  AccessKey& at(KeyId id);

  std::map<KeyId, AccessKey> keys_;
  std::map<std::string, KeyId, std::less<>> by_prefix_;
  std::set<std::pair<TenantId, KeyId>> by_home_;
  std::set<std::pair<Time, KeyId>> by_end_;  ///< Those that end, by AccessKey::ends_at.
  std::map<TenantId, std::size_t> counts_;
};

}  // namespace gpusched

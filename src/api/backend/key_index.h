#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>

#include "api/backend/keys/key_uses.h"
#include "api/backend/keys/open_under_keys.h"
#include "api/contract/caller.h"
#include "base/time.h"
#include "host/core/interfaces.h"
#include "host/core/system_clock.h"
#include "model/state.h"

namespace gpusched::api {

/// Name of a key's holder as a caller, unique among those of its kind: the key's own name behind its home's
/// id, "tenant-7/ci"; of a key of the cluster the name alone. Ids are never used again and names of keys have
/// no slash, so that no key's holder is somebody else's, whatever tenants are called. Keys that follow each
/// other under one name in one home are one caller's.
std::string holder_name(const AccessKey& key);

/// All keys that there are, as the doors ask for them. Told by the observer; asked on any thread, where
/// nobody waits for more than a copy of a pointer.
class KeyIndex final : public KeyHolders {
 public:
  explicit KeyIndex(std::function<Time()> now = wall_now) : now_(std::move(now)) {}

  /// All of a state. Both on the observer's thread.
  void fill(const State& state);
  void observe(const State& state, const Changes& changes);

  Answer<CallerPtr> holder_of(const sign::ApiKeyParts& key) const override;
  Answer<std::shared_ptr<void>> while_valid(const CallerPtr& caller, std::optional<access::Action> action,
                                            std::function<void(const ApiError&)> end) const override;
  /// When a key last let somebody in, to the minute; none: never, as far as is known.
  Time last_use(KeyId id) const;
  /// The same of all keys of which it is known, in the order of their ids.
  KeyUses uses() const;
  /// Takes uses that were known of the keys before. Newer uses stay.
  void restore(const KeyUses& uses) const;
  /// Ends what is open under keys that have expired. To be called about once a second, by any thread.
  void end_expired() const;
  bool is_there(std::string_view prefix) const override;

 private:
  struct Entry {
    KeyId id;
    std::string hash;
    Time expires_at;  ///< None: never.
    bool revoked = false;
    CallerPtr holder;
    /// Minutes since 1970; 0: never. Shared by all entries of one key, so that none is lost at a change.
    std::shared_ptr<std::atomic<int64_t>> used_min;
  };
  using EntryPtr = std::shared_ptr<const Entry>;
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  struct Shard {
    mutable std::mutex mutex;
    std::unordered_map<std::string, EntryPtr, Hash, std::equal_to<>> entries;  ///< By prefix.
  };

  /// The key's entry by its id; null: there is none any more.
  EntryPtr entry_of(KeyId id) const;
  static std::optional<ApiError> ended(const Entry& entry, Time now);
  /// The wall clock, or the newest time of the journal where that is later.
  Time now() const;
  void set(const State& state, const AccessKey& key);
  void look_at(const State& state, KeyId id);
  Shard& shard_of(std::string_view prefix) { return shards_[Hash()(prefix) % shards_.size()]; }
  const Shard& shard_of(std::string_view prefix) const { return shards_[Hash()(prefix) % shards_.size()]; }

  const std::function<Time()> now_;
  std::atomic<int64_t> newest_ns_{0};  ///< Time of the last change: a wall clock set back revives no key.
  std::array<Shard, 64> shards_;
  mutable std::mutex prefixes_mutex_;
  std::unordered_map<uint64_t, std::string> prefixes_;  ///< By id.
  const std::shared_ptr<OpenUnderKeys> open_ = std::make_shared<OpenUnderKeys>();
};

}  // namespace gpusched::api

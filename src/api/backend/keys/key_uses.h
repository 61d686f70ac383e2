#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "model/identity/access_key.h"

/// When keys were last used, in a small file beside the journal.
namespace gpusched::api {

struct KeyUse {
  KeyId key;
  Time at;  ///< To the minute.
  friend bool operator==(const KeyUse&, const KeyUse&) = default;
};
using KeyUses = std::vector<KeyUse>;

/// No file: nothing was used. kCorrupt: it is none of ours; nothing of it counts.
Result<KeyUses> read_key_uses(const std::string& path);
/// In place of the older file, whole or not at all.
Result<Unit> write_key_uses(const std::string& path, const KeyUses& uses);

/// Writes the file when something has changed, once in a while and at its end.
class KeyUseKeeper {
 public:
  /// `look` says what is so now, on the keeper's thread and that of `stop`.
  KeyUseKeeper(std::string path, Duration every, std::function<KeyUses()> look);
  ~KeyUseKeeper() { stop(); }
  KeyUseKeeper(const KeyUseKeeper&) = delete;
  KeyUseKeeper& operator=(const KeyUseKeeper&) = delete;

  /// Again: does nothing.
  void stop();

 private:
  void loop();
  void write();

  const std::string path_;
  const Duration every_;
  const std::function<KeyUses()> look_;
  KeyUses written_;
  bool failed_ = false;
  std::mutex mutex_;  // Guards `stopped_`.
  std::condition_variable wake_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace gpusched::api

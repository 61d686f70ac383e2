#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "sign/jwk.h"

namespace gpusched {

struct JwtSourceOptions {
  std::string keys;  ///< A file, or an https URL.
  std::vector<sign::JwtAlgorithm> algorithms;
  Duration refresh = minutes(5);  ///< Between two fetches of a URL.
  Duration stale = hours(24);     ///< For so long keys are used while the URL does not answer.
  std::string ca_file;            ///< Empty: the machine's authorities.
  std::vector<std::string> private_hosts;
  Duration unknown_rest = minutes(1);  ///< Between two fetches for the sake of an unknown key.
  Duration look = seconds(1);          ///< Between two looks at a file.
  /// For tests, instead of the URL: what it answers.
  std::function<Result<std::string>()> fetch = nullptr;

  bool is_url() const { return keys.starts_with("https://") || fetch != nullptr; }
  friend bool same_place(const JwtSourceOptions& a, const JwtSourceOptions& b) {
    return a.keys == b.keys && a.algorithms == b.algorithms && a.refresh == b.refresh && a.stale == b.stale &&
           a.ca_file == b.ca_file && a.private_hosts == b.private_hosts;
  }
};

using JwtKeysPtr = std::shared_ptr<const sign::JwtKeySet>;

/// Reads the file, or asks the URL, once: for at most five seconds and 64 KiB, at no address but those of the
/// public Internet unless its host is named, and following nothing. Errors name the place and say what to do.
Result<JwtKeysPtr> load_jwt_keys(const JwtSourceOptions& options);

/// Keeps a provider's keys fresh, on a thread of its own: nobody waits for a URL.
class JwtSource {
 public:
  /// `found` is told of the keys each time that they were read, and of none (null) when those from a URL
  /// became too old. With `known`, keys that were just read, it begins with waiting.
  JwtSource(JwtSourceOptions options, JwtKeysPtr known, std::function<void(JwtKeysPtr)> found);
  JwtSource(const JwtSource&) = delete;
  JwtSource& operator=(const JwtSource&) = delete;
  ~JwtSource();

  const JwtSourceOptions& options() const { return options_; }
  /// Asks the URL soon, unless it was asked for this reason not long ago. Any thread, at any rate.
  void unknown_key();
  /// Looks again now.
  void look_again();

 private:
  using Clock = std::chrono::steady_clock;

  void run();
  void look();
  void take(const Result<JwtKeysPtr>& loaded);
  /// Changes when the file does.
  std::string stamp_of_file() const;

  const JwtSourceOptions options_;
  const std::function<void(JwtKeysPtr)> found_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> stopping_{false};  // Written under the mutex.
  std::atomic<bool> unknown_{false};
  bool again_ = false;
  // Used by the thread alone.
  bool has_keys_ = false;
  std::string stamp_;
  std::string trouble_;  ///< Problem that the log was told last.
  int failures_ = 0;
  Clock::time_point due_, answered_, asked_for_unknown_;
  std::thread thread_;
};

}  // namespace gpusched

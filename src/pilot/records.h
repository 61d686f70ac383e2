#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "anticipate/anticipator.h"
#include "base/result.h"
#include "pilot/outgoing/lease_door.h"

namespace gpusched::pilot {

/// Where a lease's requests stand.
struct LeaseRecord {
  std::string key;          ///< Idempotency key of its allocation; written down before the request is sent.
  RemoteLease remote = {};  ///< Empty id: no answer yet.
  int64_t extensions = 0;   ///< How often it was extended.
};

/// All that outlives the process, in `state.json` of the state folder.
struct PilotState {
  anticipate::Memory memory = {};
  std::map<uint64_t, LeaseRecord> leases = {};  ///< By the pilot's own number.
};

/// Files of the state folder: 0700, only its owner reads them. One pilot uses a folder at a time.
class StateFolder {
 public:
  /// Makes the folder if there is none, and locks it. kLocked: another pilot uses it; kPermissionDenied: it
  /// is another user's, or others may look into it; kIo.
  static Result<StateFolder> open(const std::string& path);
  StateFolder(StateFolder&& other) noexcept;
  StateFolder& operator=(StateFolder&&) = delete;
  ~StateFolder();

  /// The last state that was saved; a new one when there is none. kCorrupt: the file is none of ours.
  Result<PilotState> load() const;
  /// Durable when it returns: written beside the old one, and put in its place.
  Result<Unit> save(const PilotState& state) const;
  /// Appends one line to `decisions.jsonl`; beyond kDecisionBytesMax the file becomes `decisions.jsonl.1`.
  void note(const std::string& line) const;

  std::string audit_path() const { return path_ + "/audit.jsonl"; }
  const std::string& path() const { return path_; }

  static constexpr int64_t kDecisionBytesMax = 16 << 20;

 private:
  StateFolder(std::string path, int lock) : path_(std::move(path)), lock_(lock) {}
  std::string path_;
  int lock_;
};

/// Reads a state folder that a pilot may be using. Errors as StateFolder::load.
Result<PilotState> read_state(const std::string& folder);

std::string state_json(const PilotState& state);
/// kCorrupt: it is none.
Result<PilotState> parse_state(const std::string& text);

/// One line of `decisions.jsonl`.
std::string decision_json(const anticipate::Decision& decision, const std::string& job, bool is_dry_run,
                          Time wall);

}  // namespace gpusched::pilot

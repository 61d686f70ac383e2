#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "anticipate/anticipator.h"
#include "pilot/monitors/helper.h"
#include "pilot/monitors/monitor.h"
#include "pilot/outgoing/lease_door.h"
#include "pilot/outgoing/model_door.h"
#include "pilot/records.h"
#include "pilot/settings.h"

namespace gpusched::pilot {

/// Duties of the monitors' helper.
HelperDuties duties_of(const std::vector<MonitorSettings>& settings);
/// Monitors of the configuration, by their names. The helper has their duties and outlives them.
std::map<std::string, std::unique_ptr<Monitor>> make_monitors(const std::vector<MonitorSettings>& settings,
                                                              const Helper& helper);

/// The world around a pilot.
struct PilotWorld {
  std::function<Time()> now;                    ///< Since 1970; never goes back.
  std::function<std::string()> new_key;         ///< An idempotency key that nobody else has.
  std::function<void(const std::string&)> say;  ///< One line for people.
};

/// Watches, decides and acts, until it is told to stop. One thread; a request to the scheduler holds it for
/// at most some seconds. Not thread-safe.
class Pilot {
 public:
  /// `model` may be null: rules decide alone. `door` is null in a dry run: every decision is written down,
  /// and none is carried out.
  Pilot(const PilotSettings& settings, const StateFolder& folder, PilotState state, const Helper& helper,
        LeaseDoor* door, ModelDoor* model, PilotWorld world);
  ~Pilot();

  /// Descriptors that tell of something to look at.
  std::vector<int> descriptors() const;
  /// Looks at everything once. Called when a descriptor is readable, and at least every second.
  void turn();
  /// Gives back what nobody uses, and saves. What is in use ends by itself, as nobody extends it any more.
  void stop();

  const anticipate::Anticipator& anticipator() const { return anticipator_; }

 private:
  struct Retry {
    Time at;
    Duration pause = seconds(1);
    Time looked_at;
    bool is_busy = false;  ///< The scheduler said so.
  };

  void see(const std::string& monitor, anticipate::Source source, const Sighting& sighting);
  void act(const anticipate::Decision& decision);
  void note(const anticipate::Decision& decision);
  void ask_model(const anticipate::Decision& decision);
  void look_after_leases(Time now);
  void look_after(uint64_t number, bool is_released, Time now);
  void allocate(uint64_t number, Time now);
  void extend(uint64_t number, const anticipate::Decision& decision, Time now);
  void release(uint64_t number, Time now);
  void look_at_lease(uint64_t number, Time now);
  void note_use(Time now);
  void forget_ended();
  void put_off(uint64_t number, const Error& error, Time now);
  void save();
  const anticipate::Lease* find(uint64_t number) const;
  std::string job_of(uint64_t number) const;

  const PilotSettings settings_;
  const StateFolder& folder_;
  LeaseDoor* const door_;
  ModelDoor* const model_;
  const PilotWorld world_;
  anticipate::Anticipator anticipator_;
  std::map<uint64_t, LeaseRecord> records_;
  std::map<uint64_t, Retry> retries_;
  std::map<std::string, std::unique_ptr<Monitor>> monitors_;
  std::map<std::string, anticipate::Source> sources_;
  Time used_looked_at_, saved_at_;
};

}  // namespace gpusched::pilot

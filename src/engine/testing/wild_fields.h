#pragma once

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/fields.h"
#include "base/limits.h"
#include "base/prng.h"
#include "engine/messages/commands.h"
#include "model/state.h"

/// For tests only: commands of which some fields are drawn again, from all that their types can hold.
namespace gpusched::testing {

/// Redraws fields of commands: bounds with their neighbours, ids that exist and that do not, instants around
/// now and near both ends of time, texts of every kind, lists that are empty, doubled and long. The members
/// of a command are read from its field tables, so that a new field is drawn without a word here.
class WildFields {
 public:
  /// Fields of the names in `spared` keep their values, and lists of those in `fixed` their lengths.
  explicit WildFields(Prng& prng, std::vector<std::string_view> spared = {},
                      std::vector<std::string_view> fixed = {})
      : prng_(prng), spared_(std::move(spared)), fixed_(std::move(fixed)) {}

  /// The command with one to three fields redrawn such that it may still be proposed; as it was when no such
  /// change was found.
  Command changed(const Command& command, const State& state, Time now) {
    state_ = &state;
    now_ = now;
    for (int tries = 0; tries < 12; ++tries) {
      Command wild = command;
      for (uint64_t left = 1 + prng_.below(3); left > 0; --left) {
        std::visit([this](auto& concrete) { change_one(concrete); }, wild);
      }
      if (well_formed(wild) && fits(wild)) return wild;
    }
    return command;
  }

 private:
  /// Walks all leaves of a struct, and redraws the one with the number `target`.
  struct Walk {
    WildFields& wild;
    uint64_t target = 0;
    uint64_t seen = 0;

    template <typename T>
    void operator()(uint32_t, const char* name, T& value) {
      if (has(wild.spared_, name)) return;
      if constexpr (kIsVector<T>) {
        if (has(wild.fixed_, name)) {
          for (auto& element : value) visit(element);
          return;
        }
      }
      visit(value);
    }
    static bool has(const std::vector<std::string_view>& names, std::string_view name) {
      return std::find(names.begin(), names.end(), name) != names.end();
    }
    template <typename T>
    void visit(T& value) {
      if constexpr (kIsBoxed<T>) {
        visit(*value);
      } else if constexpr (kIsVector<T>) {
        if (seen++ == target) wild.redraw_list(value);
        for (auto& element : value) visit(element);
      } else if constexpr (HasFields<T>) {
        T::fields(value, *this);
      } else if (seen++ == target) {
        wild.redraw(value);
      }
    }
  };

  template <typename T>
  uint64_t leaves_of(T& value) {
    Walk walk{.wild = *this, .target = UINT64_MAX};
    walk.visit(value);
    return walk.seen;
  }
  template <typename T>
  void change_one(T& value) {
    const uint64_t leaves = leaves_of(value);
    if (leaves == 0) return;
    Walk walk{.wild = *this, .target = prng_.below(leaves)};
    walk.visit(value);
  }

  /// Sequence numbers are not to run out in a test.
  static bool fits(const Command& command) { return sequence_count(command) <= 2'000; }

  template <typename Container>
  auto any(const Container& container) {
    auto it = container.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(prng_.below(container.size())));
    return it;
  }

  int64_t number() {
    static constexpr std::array<int64_t, 30> kBounds = {0,
                                                        1,
                                                        2,
                                                        7,
                                                        100,
                                                        1'000,
                                                        kMilliPerGpu,
                                                        limits::kPriorityMax,
                                                        limits::kGpusPerJobMax,
                                                        limits::kMegabytesMax,
                                                        int64_t{limits::kCpuCoresMax} * 1'000,
                                                        limits::kRetriesMax,
                                                        limits::kMembersMax,
                                                        limits::kPartsMax,
                                                        limits::kDevicesPerNodeMax,
                                                        limits::kDependenciesMax,
                                                        limits::kArrayElementsMax,
                                                        limits::kArrayIndexMax,
                                                        limits::kWaitingJobsMax,
                                                        limits::kQueueSizeDefault,
                                                        limits::kAgingPerHourMax,
                                                        limits::kGuaranteeMax,
                                                        limits::kGpuTimeMaxMs,
                                                        limits::kLinkGbsMax,
                                                        limits::kTaskCostMax,
                                                        INT32_MAX,
                                                        INT64_MAX,
                                                        INT64_MAX / 1'000,
                                                        int64_t{1} << 31,
                                                        int64_t{1} << 62};
    int64_t value = 0;
    switch (prng_.below(4)) {
      case 0:
        value = prng_.between(0, 10);
        break;
      case 1:
        value = int64_t{1} << prng_.below(63);
        break;
      default:
        value = kBounds[prng_.below(kBounds.size())];
    }
    const uint64_t around = prng_.below(4);
    if (around == 0 && value > INT64_MIN) --value;
    if (around == 1 && value < INT64_MAX) ++value;
    return prng_.chance(150) ? -value : value;
  }
  Duration span() {
    static constexpr std::array<Duration, 15> kSpans = {Duration{},
                                                        Duration{1},
                                                        milliseconds(1),
                                                        seconds(1),
                                                        minutes(1),
                                                        hours(1),
                                                        hours(24),
                                                        limits::kBeginMax,
                                                        limits::kRuntimeMax,
                                                        limits::kBookingMax,
                                                        limits::kSettingMax,
                                                        limits::kGpuTimeWindowMin,
                                                        limits::kGpuTimeWindowMax,
                                                        limits::kRequestKeysKept,
                                                        Duration{INT64_MAX}};
    Duration drawn = kSpans[prng_.below(kSpans.size())];
    if (prng_.chance(200)) drawn = milliseconds(prng_.between(0, 100'000));
    if (prng_.chance(200) && drawn.ns < INT64_MAX) ++drawn.ns;
    if (prng_.chance(200)) --drawn.ns;
    return prng_.chance(50) ? Duration{-drawn.ns} : drawn;
  }
  Time instant() {
    const std::array<Time, 10> instants = {Time{},
                                           Time{1},
                                           now_,
                                           now_ + seconds(1),
                                           now_ + hours(1),
                                           now_ + limits::kBookingMax,
                                           limits::kTimeMax,
                                           limits::kTimeMax - seconds(1),
                                           limits::kTimeMax + hours(1),
                                           kNever};
    Time drawn = instants[prng_.below(instants.size())];
    if (prng_.chance(300)) drawn = now_ + milliseconds(prng_.between(-100'000, 1'000'000));
    if (prng_.chance(200) && drawn < kNever) ++drawn.ns;
    if (prng_.chance(200)) --drawn.ns;
    return drawn;
  }
  std::string text() {
    const std::array<uint32_t, 6> lengths = {limits::kNameBytesMax,  limits::kRequestKeyBytesMax,
                                             limits::kLabelBytesMax, limits::kReasonBytesMax,
                                             limits::kMigProfileMax, 2'000};
    switch (prng_.below(9)) {
      case 0:
        return {};
      case 1:
        return state_->tenants.empty() ? "" : any(state_->tenants)->second.name;
      case 2:
        return state_->nodes.empty() ? "" : any(state_->nodes)->name;
      case 3:
        return state_->bookings.empty() ? "" : any(state_->bookings)->second.name;
      case 4:
        return std::string(lengths[prng_.below(lengths.size())] + prng_.below(2), 'y');
      case 5:
        return std::string("a\x01\n\x7f\0b", 6);
      case 6:
        return {"1g.10gb"};
      case 7:
        return {"A100"};
      default:
        return "text-" + std::to_string(prng_.below(3));
    }
  }

  void redraw(JobId& id) {
    const uint64_t newest = state_->last.sequence;
    switch (prng_.below(8)) {
      case 0:
        id = JobId{};
        return;
      case 1:
        id = JobId{UINT64_MAX - prng_.below(3)};
        return;
      case 2:
        id = JobId{newest + prng_.below(3)};
        return;
      case 3:
        if (!state_->promises.empty()) id = any(state_->promises)->first;
        return;
      case 4:
        if (!state_->attempts.empty()) id = any(state_->attempts)->first.job;
        return;
      case 5:
        if (!state_->arrays.empty()) {
          const JobArray& array = any(state_->arrays)->second;
          id = JobId{array.id.value + prng_.below(static_cast<uint64_t>(array.count) + 2)};
        }
        return;
      default:
        id = JobId{1 + prng_.below(newest)};
    }
  }
  void redraw(TenantId& id) {
    id = prng_.chance(700) ? any(state_->tenants)->first : TenantId{prng_.below(state_->last.sequence + 2)};
    if (prng_.chance(100)) id = {};
  }
  void redraw(NodeId& id) {
    id = NodeId{prng_.below(state_->last.sequence + 2)};
    if (!state_->nodes.empty() && prng_.chance(800)) id = any(state_->nodes)->id;
  }
  void redraw(KeyId& id) {
    id = KeyId{prng_.below(state_->last.sequence + 2)};
    if (state_->keys.size() > 0 && prng_.chance(800)) id = any(state_->keys)->first;
  }
  void redraw(PersonId& id) {
    id = PersonId{prng_.below(state_->last.sequence + 2)};
    if (state_->people.size() > 0 && prng_.chance(800)) id = any(state_->people)->first;
  }
  void redraw(NodeTicketId& id) {
    const auto& tickets = state_->node_identities.tickets();
    id = NodeTicketId{prng_.below(state_->last.sequence + 2)};
    if (!tickets.empty() && prng_.chance(800)) id = any(tickets)->first;
  }
  void redraw(NodeIdentityId& id) {
    const auto& identities = state_->node_identities.identities();
    id = NodeIdentityId{prng_.below(state_->last.sequence + 2)};
    if (!identities.empty() && prng_.chance(800)) id = any(identities)->second.id;
  }
  void redraw(BookingId& id) {
    id = BookingId{prng_.below(state_->last.sequence + 2)};
    if (!state_->bookings.empty() && prng_.chance(800)) id = any(state_->bookings)->first;
  }
  void redraw(Time& value) { value = instant(); }
  void redraw(Duration& value) { value = span(); }
  void redraw(std::string& value) { value = text(); }
  void redraw(Blob& value) { value = Blob(text()); }
  void redraw(bool& value) { value = !value; }
  template <typename T>
  void redraw(std::optional<T>& value) {
    auto stored = static_cast<T>(stored_number(value));
    redraw(stored);
    value.reset();
    if (stored != T{}) value = static_cast<T>(static_cast<uint64_t>(stored) - 1);
  }
  template <typename T>
    requires std::is_enum_v<T>
  void redraw(T& value) {
    value = static_cast<T>(static_cast<std::underlying_type_t<T>>(prng_.below(prng_.chance(900) ? 9 : 256)));
  }
  template <typename T>
    requires std::is_integral_v<T>
  void redraw(T& value) {
    if (prng_.chance(200)) {  // A mask, or any bits.
      value = static_cast<T>(prng_.next());
    } else if (prng_.chance(300)) {  // A neighbour.
      value = static_cast<T>(static_cast<uint64_t>(value) + (prng_.chance(500) ? 1 : UINT64_MAX));
    } else {
      value = static_cast<T>(number());
    }
  }

  template <typename T>
  void redraw_list(std::vector<T>& list) {
    const uint64_t draw = prng_.below(10);
    if (draw == 0) return list.clear();
    if (draw == 1 && !list.empty()) return list.pop_back();
    if (draw == 2 && !list.empty()) return list.push_back(T(list.front()));
    if (draw == 3) {  // Around a bound.
      static constexpr std::array<std::size_t, 4> kSizes = {16, 32, 64, 65};
      const T filler = list.empty() ? T{} : list.front();
      return list.resize(kSizes[prng_.below(kSizes.size())], filler);
    }
    T fresh{};
    for (uint64_t i = prng_.below(4); i > 0; --i) change_one(fresh);
    list.push_back(std::move(fresh));
  }

  Prng& prng_;
  const std::vector<std::string_view> spared_;
  const std::vector<std::string_view> fixed_;
  const State* state_ = nullptr;
  Time now_;
};

}  // namespace gpusched::testing

#include "node/watch/fault_watch.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "base/check.h"

namespace gpusched {
namespace {

constexpr Duration kNoteKept = minutes(10);
constexpr std::size_t kFindingBytesMax = 200;
constexpr std::string_view kLogLine = "log";
constexpr std::size_t kColumns = 7;

template <typename Number>
bool read_number(const std::string& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

/// Ids that `settle` gives: 0 means no finding, and there is always a next one.
bool is_id(int64_t id) { return id > 0 && id < std::numeric_limits<int64_t>::max() / 2; }

std::vector<std::string> columns_of(const std::string& line) {
  std::vector<std::string> columns;
  std::size_t from = 0;
  while (true) {
    const std::size_t end = line.find('\t', from);
    columns.push_back(line.substr(from, end - from));
    if (end == std::string::npos) return columns;
    from = end + 1;
  }
}

std::string one_line(std::string text) {
  text = clean_text(text, kFindingBytesMax);
  std::replace_if(
      text.begin(), text.end(), [](char letter) { return letter == '\t' || letter == '\n'; }, ' ');
  return text;
}

}  // namespace

FaultWatch::FaultWatch(std::vector<std::string> uuids, FaultTable table, const std::string& remembered,
                       bool rebooted, Time wall)
    : uuids_(std::move(uuids)), table_(std::move(table)), devices_(uuids_.size()) {
  load(remembered, rebooted, wall);
}

// One line a device: its uuid, rule, code, id, errors released, rows released (1: pending, 2: failed),
// detail.
std::string FaultWatch::text() const {
  std::string text;
  if (log_position_ > 0) text += std::string(kLogLine) + "\t" + std::to_string(log_position_) + "\n";
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const Watched& device = devices_[i];
    if (device.standing.id == 0) continue;
    const int rows = (device.remap_pending_released ? 1 : 0) + (device.remap_failed_released ? 2 : 0);
    text += uuids_[i] + "\t" + std::string(to_string(device.standing.rule)) + "\t" + device.standing.code +
            "\t" + std::to_string(device.standing.id) + "\t" + std::to_string(device.ecc_released) + "\t" +
            std::to_string(rows) + "\t" + one_line(device.standing.detail) + "\n";
  }
  return text;
}

void FaultWatch::load(const std::string& text, bool rebooted, Time wall) {
  told_ = text;
  std::size_t from = 0;
  while (from < text.size()) {
    const std::size_t end = std::min(text.find('\n', from), text.size());
    const std::vector<std::string> columns = columns_of(text.substr(from, end - from));
    from = end + 1;
    if (columns.size() == 2 && columns[0] == kLogLine && !rebooted) read_number(columns[1], log_position_);
    const auto uuid = std::find(uuids_.begin(), uuids_.end(), columns[0]);
    if (columns.size() != kColumns || uuid == uuids_.end()) continue;
    Watched& device = devices_[static_cast<std::size_t>(uuid - uuids_.begin())];
    device = Watched{};
    int rows = 0;
    if (!read_number(columns[3], device.standing.id) || !read_number(columns[4], device.ecc_released) ||
        !read_number(columns[5], rows) || !is_id(device.standing.id)) {
      device = Watched{};
      continue;
    }
    device.remap_pending_released = (rows & 1) != 0;
    device.remap_failed_released = (rows & 2) != 0;
    for (const FaultRule rule :
         {FaultRule::kNote, FaultRule::kDrain, FaultRule::kReset, FaultRule::kReplace}) {
      if (to_string(rule) == columns[1]) device.standing.rule = rule;
    }
    device.standing.code = columns[2];
    device.standing.detail = columns[6];
    device.news = true;  // Whether the last agent told it is not known.
    if (!rebooted) continue;
    device.ecc_released = 0;
    device.remap_pending_released = false;
    if (device.standing.rule == FaultRule::kReset || device.standing.rule == FaultRule::kNote)
      settle(device, FaultRule::kIgnore, {}, {}, wall);
  }
}

void FaultWatch::settle(Watched& device, FaultRule rule, std::string code, std::string detail, Time wall) {
  device.standing = {.rule = rule,
                     .code = std::move(code),
                     .detail = std::move(detail),
                     .id = std::max(wall.ns, device.standing.id + 1)};
  device.news = true;
  changed_ = true;
}

void FaultWatch::raise(uint32_t index, const std::string& code, const std::string& detail, Time now,
                       Time wall) {
  const FaultRule rule = table_.rule_of(code);
  if (rule == FaultRule::kIgnore) return;
  Watched& device = devices_[index];
  if (rule == device.standing.rule && code == device.standing.code) {
    device.seen_at = now;
    device.known = true;
    return;
  }
  if (rule <= device.standing.rule) return;
  device.seen_at = now;
  device.known = true;
  const std::string meaning(FaultTable::meaning_of(code));
  std::string words = meaning;
  if (!detail.empty()) words += (words.empty() ? "" : ": ") + detail;
  settle(device, rule, code, one_line(words), wall);
}

void FaultWatch::on_xid(uint32_t index, uint32_t xid, const std::string& text, Time now, Time wall) {
  if (index < devices_.size()) raise(index, xid_code(xid), text, now, wall);
}

void FaultWatch::on_reading(uint32_t index, const DeviceReading& reading, Time now, Time wall) {
  if (index >= devices_.size()) return;
  Watched& device = devices_[index];
  for (const uint32_t xid : reading.xids) raise(index, xid_code(xid), {}, now, wall);
  if (reading.ecc_uncorrected >= 0) {
    device.ecc_now = reading.ecc_uncorrected;
    // Counted from the driver's start: fewer than before, it started again.
    if (device.ecc_now < device.ecc_released) device.ecc_released = 0;
    if (device.ecc_now > device.ecc_released) {
      raise(index, "ecc_uncorrected", std::to_string(device.ecc_now - device.ecc_released), now, wall);
    }
  }
  const auto flag = [&](bool is, bool& present, bool& released, const char* code) {
    present = is;
    if (!is) released = false;
    if (is && !released) raise(index, code, {}, now, wall);
  };
  flag(reading.remap_pending, device.remap_pending_now, device.remap_pending_released, "row_remap_pending");
  flag(reading.remap_failed, device.remap_failed_now, device.remap_failed_released, "row_remap_failed");
  for (const std::string& code : reading.throttles) raise(index, code, {}, now, wall);
}

void FaultWatch::tick(Time now, Time wall) {
  for (Watched& device : devices_) {
    if (device.standing.rule != FaultRule::kNote) continue;
    if (!std::exchange(device.known, true)) device.seen_at = now;  // An earlier agent's: from now on.
    if (now - device.seen_at >= kNoteKept) settle(device, FaultRule::kIgnore, {}, {}, wall);
  }
}

void FaultWatch::on_reset(uint32_t index, Time wall) {
  Watched& device = devices_.at(index);
  device.ecc_released = 0;
  device.ecc_now = 0;
  device.remap_pending_now = device.remap_pending_released = false;
  if (device.standing.rule == FaultRule::kReset || device.standing.rule == FaultRule::kNote)
    settle(device, FaultRule::kIgnore, {}, {}, wall);
}

void FaultWatch::amend(uint32_t index, const std::string& words, Time wall) {
  Watched& device = devices_.at(index);
  settle(device, device.standing.rule, device.standing.code, one_line(device.standing.detail + words), wall);
}

bool FaultWatch::clear(uint32_t index, int64_t id) {
  if (index >= devices_.size()) return false;
  Watched& device = devices_[index];
  if (device.standing.id != id) return false;
  device.ecc_released = device.ecc_now;
  device.remap_pending_released = device.remap_pending_now;
  device.remap_failed_released = device.remap_failed_now;
  device.standing = {.rule = FaultRule::kIgnore, .code = {}, .detail = {}, .id = id};
  device.news = false;
  changed_ = true;
  return true;
}

void FaultWatch::set_log_position(uint64_t position) {
  changed_ = changed_ || log_position_ != position;
  log_position_ = position;
}

std::vector<uint32_t> FaultWatch::take_news() {
  std::vector<uint32_t> news;
  for (uint32_t index = 0; index < devices_.size(); ++index) {
    if (std::exchange(devices_[index].news, false)) news.push_back(index);
  }
  return news;
}

std::optional<std::string> FaultWatch::take_text() {
  if (!std::exchange(changed_, false)) return std::nullopt;
  std::string now = text();
  if (now == told_) return std::nullopt;
  told_ = now;
  return now;
}

}  // namespace gpusched

#include "main/billing/prices_file.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "config/yaml_problem.h"
#include "ops/machine.h"

namespace gpusched {
namespace {

constexpr std::size_t kFileBytesMax = 1 << 20;
constexpr std::size_t kRulesMax = 1'000;
constexpr int64_t kAmountMax = 1'000'000;
constexpr std::size_t kDecimalsMax = 6;

using Members = std::map<std::string, YAML::Node>;

bool is_digits(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

class PricesReader {
 public:
  explicit PricesReader(std::string path) : path_(std::move(path)) {}

  void read(const YAML::Node& root);
  const std::string& problems() const { return problems_; }
  void problem(const std::string& sentence) { problems_ += (problems_.empty() ? "" : "\n") + sentence; }
  history::PriceList take() { return std::move(out_); }

 private:
  void problem(const YAML::Node& at, const std::string& sentence) {
    problem(path_ + ":" + std::to_string(at.Mark().line + 1) + ": " + sentence);
  }
  Members members(const YAML::Node& entry, const std::string& what, std::initializer_list<const char*> known);
  std::string text(const Members& from, const char* name, const YAML::Node& entry, bool needed);
  void read_rule(const YAML::Node& entry);
  void read_part(const Members& found, history::PriceRule& rule);
  void read_hours(const Members& found, history::PriceRule& rule);

  const std::string path_;
  std::string problems_;
  history::PriceList out_;
};

Members PricesReader::members(const YAML::Node& entry, const std::string& what,
                              std::initializer_list<const char*> known) {
  Members found;
  std::string names;
  for (const char* const name : known) names += (names.empty() ? "" : ", ") + std::string(name);
  if (!entry.IsMap()) {
    problem(entry, what + " is no map with the keys " + names);
    return found;
  }
  for (const auto& pair : entry) {
    const std::string key = pair.first.IsScalar() ? pair.first.Scalar() : "(not a name)";
    if (std::ranges::find(known, key) == known.end()) {
      problem(pair.first, what + " has no key " + key + "; the known ones are " + names);
    } else if (!found.emplace(key, pair.second).second) {
      problem(pair.first, what + " has " + key + " twice");
    }
  }
  return found;
}

std::string PricesReader::text(const Members& from, const char* name, const YAML::Node& entry, bool needed) {
  const auto found = from.find(name);
  if (found == from.end()) {
    if (needed) problem(entry, std::string("it needs a `") + name + ":`");
    return {};
  }
  const YAML::Node& node = found->second;
  if (node.IsScalar() && !node.Scalar().empty() && node.Scalar().size() <= limits::kNameBytesMax &&
      !has_control_character(node.Scalar()))
    return node.Scalar();
  problem(node, std::string("`") + name + ":` is no text of 1 to " + std::to_string(limits::kNameBytesMax) +
                    " bytes");
  return {};
}

void PricesReader::read_part(const Members& found, history::PriceRule& rule) {
  const auto part = found.find("class");
  if (part == found.end()) return;
  for (const history::GpuPart known :
       {history::GpuPart::kWhole, history::GpuPart::kShare, history::GpuPart::kMig}) {
    if (part->second.IsScalar() && part->second.Scalar() == history::to_string(known)) {
      rule.any_part = false;
      rule.part = known;
      return;
    }
  }
  problem(part->second, "`class:` is none of whole, share, mig");
}

/// "HH:MM"; 24:00 ends a day.
std::optional<int> minute_of(std::string_view text) {
  if (text.size() != 5 || text[2] != ':' || !is_digits(text.substr(0, 2)) || !is_digits(text.substr(3)))
    return std::nullopt;
  const int minute = ((text[0] - '0') * 10 + text[1] - '0') * 60 + (text[3] - '0') * 10 + text[4] - '0';
  return text[3] < '6' && minute <= history::kMinutesPerDay ? std::optional(minute) : std::nullopt;
}

void PricesReader::read_hours(const Members& found, history::PriceRule& rule) {
  const auto hours = found.find("hours");
  if (hours == found.end()) return;
  const std::string text = hours->second.IsScalar() ? hours->second.Scalar() : std::string();
  const std::size_t dash = text.find('-');
  const std::optional<int> from = minute_of(std::string_view(text).substr(0, dash));
  const std::optional<int> until =
      dash == std::string::npos ? std::nullopt : minute_of(std::string_view(text).substr(dash + 1));
  if (!from || !until || *from == *until || *from == history::kMinutesPerDay)
    return problem(hours->second, "`hours:` is no time of the day such as 22:00-06:00");
  rule.from_minute = *from;
  rule.until_minute = *until;
}

void PricesReader::read_rule(const YAML::Node& entry) {
  const Members found = members(entry, "a price", {"model", "class", "hours", "gpu_hour"});
  history::PriceRule rule;
  if (found.contains("model")) rule.model = text(found, "model", entry, false);
  read_part(found, rule);
  read_hours(found, rule);
  const std::string price = text(found, "gpu_hour", entry, true);
  if (!price.empty() && !parse_amount(price, rule.micros_per_hour)) {
    problem(found.at("gpu_hour"),
            "`gpu_hour:` is no amount from 0 to 1000000 with at most six decimals, such as 1.75");
  }
  out_.rules.push_back(std::move(rule));
}

void PricesReader::read(const YAML::Node& root) {
  const Members found = members(root, "the file", {"currency", "time_zone", "prices"});
  out_.currency = text(found, "currency", root, true);
  out_.time_zone = text(found, "time_zone", root, true);
  const auto prices = found.find("prices");
  if (prices == found.end()) return problem(root, "it needs a list `prices:`");
  if (!prices->second.IsSequence() || prices->second.size() == 0 || prices->second.size() > kRulesMax)
    return problem(prices->second, "`prices:` is no list of 1 to " + std::to_string(kRulesMax) + " prices");
  for (const YAML::Node& entry : prices->second) read_rule(entry);
}

}  // namespace

bool parse_amount(const std::string& text, int64_t& micros) {
  const std::size_t point = text.find('.');
  const std::string whole = text.substr(0, point);
  std::string decimals = point == std::string::npos ? "0" : text.substr(point + 1);
  if (!is_digits(whole) || whole.size() > 7 || !is_digits(decimals) || decimals.size() > kDecimalsMax)
    return false;
  decimals.resize(kDecimalsMax, '0');
  micros = std::stoll(whole) * history::kMicros + std::stoll(decimals);
  return micros <= kAmountMax * history::kMicros;
}

std::string amount_text(int64_t micros) {
  std::string decimals = std::to_string(history::kMicros + micros % history::kMicros).substr(1);
  while (decimals.size() > 2 && decimals.back() == '0') decimals.pop_back();
  return std::to_string(micros / history::kMicros) + "." + decimals;
}

Result<history::PriceList> parse_prices_file(const std::string& path, const std::string& text) {
  PricesReader reader(path);
  try {
    reader.read(YAML::Load(text));
  } catch (const YAML::Exception& broken) {
    reader.problem(yaml_problem(path, text, broken.mark.line, broken.msg));
  }
  if (!reader.problems().empty())
    return Error{.code = ErrorCode::kInvalidArgument, .message = reader.problems()};
  return reader.take();
}

Result<history::PriceList> load_prices_file(const std::string& path) {
  if (!ops::exists(path)) return Error{.code = ErrorCode::kNotFound, .message = "there is no file " + path};
  const std::optional<std::string> text = ops::read_text(path, kFileBytesMax);
  if (!text) return Error{.code = ErrorCode::kIo, .message = "cannot read " + path};
  return parse_prices_file(path, *text);
}

}  // namespace gpusched

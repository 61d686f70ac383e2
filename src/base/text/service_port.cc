#include "base/text/service_port.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace gpusched {
namespace {

constexpr std::string_view kTcp = "tcp";
constexpr std::string_view kHttp = "http:";
constexpr std::string_view kNoProbe = "-";
constexpr std::size_t kPathBytesMax = 200;
constexpr int64_t kPortMin = 1'024, kPortMax = 65'535;

std::optional<int64_t> parse_number(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc{} && stop == end && value >= 0 ? std::optional(value) : std::nullopt;
}

}  // namespace

std::optional<ReadyProbe> parse_ready_probe(std::string_view text) {
  if (text == kTcp) return ReadyProbe{};
  if (!text.starts_with(kHttp)) return std::nullopt;
  text.remove_prefix(kHttp.size());
  const bool is_path = text.starts_with('/') && text.size() <= kPathBytesMax &&
                       std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F; });
  if (!is_path) return std::nullopt;
  return ReadyProbe{.path = std::string(text)};
}

std::string to_string(const ReadyProbe& probe) {
  return probe.path.empty() ? std::string(kTcp) : std::string(kHttp) + probe.path;
}

std::optional<PortRange> parse_port_range(std::string_view text) {
  const std::size_t dash = text.find('-');
  const std::optional<int64_t> first = parse_number(text.substr(0, dash));
  const std::optional<int64_t> last =
      dash == std::string_view::npos ? first : parse_number(text.substr(dash + 1));
  if (!first || !last || *first < kPortMin || *last > kPortMax || *first > *last) return std::nullopt;
  return PortRange{.first = static_cast<uint32_t>(*first), .last = static_cast<uint32_t>(*last)};
}

std::string to_string(const PortRange& ports) {
  std::string text = std::to_string(ports.first);
  if (ports.last != ports.first) text += '-' + std::to_string(ports.last);
  return text;
}

std::string to_line(const ServicePort& port) {
  std::string line = to_string(port.ports) + ' ';
  if (!port.probe) return line + std::string(kNoProbe);
  return line + to_string(*port.probe) + ' ' + std::to_string(port.probe->period.ms()) + ' ' +
         std::to_string(port.probe->timeout.ms()) + ' ' + std::to_string(port.probe->failures);
}

std::optional<ServicePort> parse_service_port(std::string_view line) {
  std::array<std::string_view, 5> words;
  std::size_t count = 0;
  while (!line.empty() && count < words.size()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    words[count++] = line.substr(0, end);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  if (!line.empty()) return std::nullopt;
  const std::optional<PortRange> ports = parse_port_range(words[0]);
  if (!ports) return std::nullopt;
  if (count == 2 && words[1] == kNoProbe) return ServicePort{.ports = *ports};
  std::optional<ReadyProbe> probe = parse_ready_probe(words[1]);
  const std::optional<int64_t> period = parse_number(words[2]);
  const std::optional<int64_t> timeout = parse_number(words[3]);
  const std::optional<int64_t> failures = parse_number(words[4]);
  if (count != words.size() || !probe || !period || !timeout || !failures) return std::nullopt;
  probe->period = milliseconds(*period);
  probe->timeout = milliseconds(*timeout);
  probe->failures = *failures;
  return ServicePort{.ports = *ports, .probe = std::move(probe)};
}

}  // namespace gpusched

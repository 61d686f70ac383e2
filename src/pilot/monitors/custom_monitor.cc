#include "pilot/monitors/custom_monitor.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "client/json.h"

namespace gpusched::pilot {

CustomMonitor::CustomMonitor(const Helper& helper, std::size_t number, std::string name, int32_t weight_max)
    : helper_(helper), number_(number), name_(std::move(name)), weight_max_(weight_max) {}

CustomMonitor::~CustomMonitor() {
  if (output_ < 0) return;
  helper_.end_program(number_);
  ::close(output_);
}

std::vector<int> CustomMonitor::descriptors() const {
  return output_ < 0 ? std::vector<int>() : std::vector<int>{output_};
}

void CustomMonitor::start(Time now) {
  start_at_ = now + pause_;
  output_ = helper_.start_program(number_);
  started_at_ = now;
  lines_.reset();
}

void CustomMonitor::end(Time now) {
  helper_.end_program(number_);
  ::close(output_);
  output_ = -1;
  pause_ = now - started_at_ > kRestartMax ? kRestartFirst : std::min(pause_ * 2, kRestartMax);
  start_at_ = now + pause_;
}

void CustomMonitor::look(Time now, const Sink& sink) {
  constexpr int kReadsMax = 16;
  if (output_ < 0 && now >= start_at_) start(now);
  if (output_ < 0) return;
  std::array<char, 65'536> piece;
  for (int reads = 0; reads < kReadsMax; ++reads) {
    const ssize_t got = ::read(output_, piece.data(), piece.size());
    if (got < 0) return;
    if (got == 0) return end(now);
    for (const std::string& line : lines_.feed({piece.data(), static_cast<std::size_t>(got)}))
      take(line, sink);
  }
}

void CustomMonitor::take(const std::string& line, const Sink& sink) const {
  const Result<Json> told = Json::parse(line);
  if (!told || !(*told)["text"].is_string()) return;
  Sighting sighting{.origin = (*told)["origin"].text(), .bytes = (*told)["text"].text()};
  if (sighting.origin.empty()) sighting.origin = name_;
  const Json weight = (*told)["weight"];
  if (weight.is_number()) {
    const int64_t gpus = (*told)["gpus"].is_number() ? (*told)["gpus"].integer() : 1;
    sighting.conclusion = Conclusion{
        .weight = static_cast<int32_t>(std::clamp<int64_t>(weight.integer(), -weight_max_, weight_max_)),
        .gpus = static_cast<int32_t>(std::clamp<int64_t>(gpus, 1, 1'000'000))};
  }
  sink(std::move(sighting));
}

}  // namespace gpusched::pilot

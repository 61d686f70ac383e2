#include "sim/schedule/trace.h"

#include <cstdio>

namespace gpusched::sim {

void Trace::note(std::string_view what, std::initializer_list<uint64_t> words, std::string_view detail) {
  digest_.mix(static_cast<uint64_t>(schedule_.now().ns));
  digest_.mix(what);
  for (const uint64_t word : words) digest_.mix(word);
  if (!print_) return;
  std::string line(what);
  for (const uint64_t word : words) line += ' ' + std::to_string(word);
  if (!detail.empty()) line += ": " + std::string(detail);
  const int64_t micros = schedule_.now().ns / 1'000;
  std::printf("%6lu %10lld.%06lld %s\n", static_cast<unsigned long>(schedule_.steps()),
              static_cast<long long>(micros / 1'000'000), static_cast<long long>(micros % 1'000'000),
              line.c_str());
}

}  // namespace gpusched::sim

#include "model/decay.h"

#include <algorithm>

#include "base/check.h"

namespace gpusched {
namespace {

__extension__ using Wide = __int128;

constexpr int kBits = 40;
constexpr int kPartBits = 20;  ///< Fraction bits of DecayedUse::gpus_part and the others.
/// ln 2 and 1 / ln 2 as fractions of 2^40.
constexpr int64_t kLn2 = 762'123'384'786;
constexpr int64_t kInverseLn2 = 1'586'259'972'792;

constexpr int64_t scaled(int64_t a, int64_t b) { return static_cast<int64_t>((Wide{a} * b) >> kBits); }

/// 2^-x for x in [0, 1), a fraction of 2^40: the exponential series to its ninth term.
int64_t two_to_minus(int64_t x) {
  const int64_t y = scaled(x, kLn2);
  int64_t term = kDecayOne;
  int64_t sum = kDecayOne;
  for (int64_t n = 1; n <= 12; ++n) {
    term = -scaled(term, y) / n;
    sum += term;
  }
  return sum;
}

int64_t clamp(Wide value) {
  constexpr Wide kMax = INT64_MAX;
  return static_cast<int64_t>(std::min(value, kMax));
}

}  // namespace

int64_t decay_factor(Duration elapsed, Duration half_life) {
  CHECK(half_life.ns > 0);
  CHECK(elapsed.ns >= 0);
  const int64_t halvings = elapsed.ns / half_life.ns;
  if (halvings >= kBits) return 0;
  const Wide rest = Wide{elapsed.ns % half_life.ns} << kBits;
  return two_to_minus(static_cast<int64_t>(rest / half_life.ns)) >> halvings;
}

void DecayedUse::settle(const Amount& usage, Duration half_life, Time now, bool keeps_parts) {
  if (!at.valid()) at = now;
  if (now <= at) return;
  const int64_t kept = decay_factor(now - at, half_life);
  // The integral of 2^-(t/h) is h / ln 2 * (1 - 2^-(t/h)).
  const int64_t span_ms = clamp((Wide{half_life.ns} * kInverseLn2 >> kBits) / 1'000'000);
  const auto add = [&](int64_t& use, int64_t& part, int64_t held, int64_t in_units_of = 1) {
    const Wide most = Wide{held} * span_ms / in_units_of;  // Less than 2^104.
    const bool fits = most < (Wide{1} << 86);
    if (keeps_parts && fits) {
      const Wide old = ((Wide{use} << kPartBits) + part) * kept;
      const Wide sum = (old >> kBits) + ((most * (kDecayOne - kept)) >> (kBits - kPartBits));
      use = clamp(sum >> kPartBits);
      part = static_cast<int64_t>(sum & ((Wide{1} << kPartBits) - 1));
      return;
    }
    const Wide old = (Wide{use} * kept) >> kBits;
    const Wide fresh = fits ? (most * (kDecayOne - kept)) >> kBits : (most >> kBits) * (kDecayOne - kept);
    use = clamp(old + fresh);
  };
  add(gpus, gpus_part, usage.gpu_thousandths(), kMilliPerGpu);
  add(gpu_memory_mb, gpu_memory_mb_part, usage.gpu_memory_mb);
  add(cpu_milli, cpu_milli_part, usage.cpu_milli);
  add(memory_mb, memory_mb_part, usage.memory_mb);
  at = now;
}

}  // namespace gpusched

// rooms: bench_support sign base
//
// Cost of a signed order: the scheduler's signature and the agent's look at it, for an order of the size that
// most have and for a large one, beside the digest alone. CPU time of one thread. `tools/bench order
// [orders]`.
#include <cstdlib>
#include <ctime>
#include <string>

#include "base/check.h"
#include "sign/keys/order_key.h"
#include "support/machine.h"

namespace gpusched::bench {
namespace {

int64_t cpu_ns() {
  timespec now{};
  CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) == 0);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

template <typename Work>
double us_of(int64_t times, const Work& work) {
  const int64_t begun = cpu_ns();
  for (int64_t i = 0; i < times; ++i) work(static_cast<uint64_t>(i));
  return static_cast<double>(cpu_ns() - begun) / 1e3 / static_cast<double>(times);
}

void measure(const char* name, std::size_t bytes, int64_t orders) {
  const sign::OrderKey key = sign::OrderKey::of_seed(std::string(32, 's'));
  const std::string nonce(32, 'n'), order(bytes, 'o');
  const auto text = [&](uint64_t sequence) {
    return sign::order_text({.node = "node-0417", .nonce = nonce, .sequence = sequence}, {order});
  };
  const double digest_us = us_of(orders, [&](uint64_t i) { CHECK(!text(i).empty()); });
  std::string signature;
  const double sign_us = us_of(orders, [&](uint64_t i) { signature = key.sign(text(i)); });
  const uint64_t last = static_cast<uint64_t>(orders) - 1;
  const double verify_us =
      us_of(orders, [&](uint64_t) { CHECK(sign::is_signed_by(key.public_key(), text(last), signature)); });
  print_line(name, text_of("%.1f us to sign (%.0f/s), %.1f us to look at (%.0f/s), of it %.1f us the digest "
                           "of %zu B",
                           sign_us, 1e6 / sign_us, verify_us, 1e6 / verify_us, digest_us, bytes));
}

}  // namespace
}  // namespace gpusched::bench

int main(int argc, char** argv) {
  using gpusched::bench::text_of;
  const int64_t orders = argc > 1 ? std::atoll(argv[1]) : 20'000;
  gpusched::bench::print_line("machine", gpusched::bench::machine_line());
  gpusched::bench::print_line("durability", "none: no journal, no disk");
  gpusched::bench::print_line(
      "sizes", text_of("%lld orders each, CPU time of one thread", static_cast<long long>(orders)));
  gpusched::bench::measure("small", 600, orders);
  gpusched::bench::measure("large", 65'536, orders / 10);
  return 0;
}

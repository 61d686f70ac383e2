// rooms: bench_support access model base
//
// Cost of deciding about one call: who may do what, for callers with one binding and with many, in tenants at
// the top and eight deep; for what is allowed, and for what is hidden, which is looked at twice. One thread,
// no state: the path of a tenant is at hand. `tools/bench access [decisions]`.
#include <cstdlib>
#include <string>
#include <vector>

#include "access/access.h"
#include "base/check.h"
#include "base/limits.h"
#include "support/machine.h"

namespace gpusched::bench {
namespace {

constexpr std::size_t kManyBindings = 32;

/// The tenant with number `depth`, and all above it down to 1.
std::vector<TenantId> path_of(uint64_t depth) {
  std::vector<TenantId> path;
  for (; depth > 0; --depth) path.push_back({depth});
  return path;
}

void measure(const char* name, const access::Caller& caller, const std::vector<TenantId>& path,
             access::Verdict expected, int64_t decisions) {
  const access::Resource resource{.tenant_path = path, .owner = {access::CallerKind::kPerson, "ana"}};
  int64_t as_expected = 0;
  const int64_t begun = now_ns();
  for (int64_t i = 0; i < decisions; ++i) {
    if (access::decide_access(caller, access::Action::kCancelJob, resource) == expected) ++as_expected;
  }
  const double ns = static_cast<double>(now_ns() - begun) / static_cast<double>(decisions);
  CHECK(as_expected == decisions);
  print_line(name, text_of("%.1f ns a decision", ns));
}

void run(int64_t decisions) {
  const std::vector<TenantId> top = path_of(1), deep = path_of(limits::kTenantDepthMax);
  access::Caller one{.kind = access::CallerKind::kPerson, .name = "ana"};
  one.bindings = {{.tenant = TenantId{1}, .role = Role::kUser}};
  access::Caller many = one, stranger = one;
  many.bindings.assign(kManyBindings - 1, {.tenant = TenantId{1'000}, .role = Role::kUser});
  many.bindings.push_back(one.bindings.front());  // The last one, and the end of the path.
  stranger.bindings.assign(kManyBindings, {.tenant = TenantId{1'000}, .role = Role::kUser});
  measure("one binding", one, top, access::Verdict::kAllowed, decisions);
  measure("one, eight deep", one, deep, access::Verdict::kAllowed, decisions);
  measure("32, eight deep", many, deep, access::Verdict::kAllowed, decisions);
  measure("32, hidden", stranger, deep, access::Verdict::kHidden, decisions);
}

}  // namespace
}  // namespace gpusched::bench

int main(int argc, char** argv) {
  using gpusched::bench::text_of;
  const int64_t decisions = argc > 1 ? std::atoll(argv[1]) : 2'000'000;
  gpusched::bench::print_line("machine", gpusched::bench::machine_line());
  gpusched::bench::print_line("durability", "none: no journal, no disk");
  gpusched::bench::print_line("sizes",
                              text_of("%lld decisions each, one thread", static_cast<long long>(decisions)));
  gpusched::bench::run(decisions);
  return 0;
}

#include "main/supervise.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

namespace gpusched {
namespace {

/// Counts renewals, and ends the process's wait at the third one.
class CountingService final : public Service {
 public:
  const BoundPorts& ports() const override { return ports_; }
  int64_t active_jobs() override { return 0; }
  Result<Unit> reconfigure(const Config&) override { return Unit{}; }
  void renew_certificate() override {
    if (++renewals == 3) kill(getpid(), SIGTERM);
  }
  void reopen_audit() override {}
  void note_reload(bool) override {}
  void touch(std::function<void()> alive) override { alive(); }
  void close_doors(Duration) override {}
  void stop() override {}
  int renewals = 0;

 private:
  BoundPorts ports_;
};

TEST(Supervise, HasTheCertificateLookedAtAgainAndAgain) {
  block_signals();
  CountingService service;
  const ServiceNotifier nobody = ServiceNotifier::take_from_environment();
  EXPECT_EQ(supervise(service, nobody, [] { return std::string(); }, milliseconds(1)), SIGTERM);
  EXPECT_EQ(service.renewals, 3);
}

}  // namespace
}  // namespace gpusched

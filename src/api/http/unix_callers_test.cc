#include "api/http/unix_callers.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <map>

namespace gpusched::api {
namespace {

using sign::PeerCredential;

constexpr gid_t kAdmins = 700;

/// A name service that counts what it is asked, and can be made to hang.
class Names {
 public:
  UnixNames names() {
    return {.name_of =
                [this](uid_t uid) {
                  ++asked;
                  open.wait();
                  const auto found = users.find(uid);
                  return found == users.end() ? std::nullopt : std::optional(found->second);
                },
            .number_of = [this](const std::string& group) -> std::optional<gid_t> {
              return group == "gpu-admin" && has_group ? std::optional(kAdmins) : std::nullopt;
            },
            .groups_of =
                [this](const std::string& user, gid_t main) {
                  return user == "member" ? std::vector<gid_t>{main, kAdmins} : std::vector<gid_t>{main};
                }};
  }
  void hang() { open = held.get_future().share(); }
  void answer() { held.set_value(); }

  std::map<uid_t, std::string> users = {{5'001, "ana"}, {5'002, "member"}};
  bool has_group = true;
  std::atomic<int> asked = 0;

 private:
  static std::shared_future<void> now() {
    std::promise<void> done;
    done.set_value();
    return done.get_future().share();
  }
  std::promise<void> held;
  std::shared_future<void> open = now();
};

CallerPtr who(UnixCallers& callers, const PeerCredential& peer) {
  std::promise<CallerPtr> told;
  callers.caller_of(peer, [&told](CallerPtr caller) { told.set_value(std::move(caller)); });
  return told.get_future().get();
}
bool is_admin(const CallerPtr& caller) { return !caller->uses_open_tenants && caller->bindings.size() == 3; }

PeerCredential peer(uid_t uid, std::vector<gid_t> groups = {}) {
  return {.uid = uid, .gid = 100, .groups = std::move(groups)};
}

TEST(UnixCallers, APersonHasItsNameAndNoOtherUser) {
  Names machine;
  UnixCallers callers({.admin_group = "gpu-admin", .names = machine.names()});
  const CallerPtr ana = who(callers, peer(5'001));
  EXPECT_EQ(ana->name, "ana");
  EXPECT_EQ(ana->kind, access::CallerKind::kPerson);
  EXPECT_EQ(ana->unix_users, std::vector<std::string>{"ana"});
  EXPECT_FALSE(is_admin(ana));
  EXPECT_EQ(who(callers, peer(5'009))->name, "5009");
}

TEST(UnixCallers, AMemberOfTheGroupIsAnAdministratorByWhatItsProcessHas) {
  Names machine;
  UnixCallers callers({.admin_group = "gpu-admin", .names = machine.names()});
  EXPECT_TRUE(is_admin(who(callers, peer(5'001, {kAdmins}))));
  EXPECT_FALSE(is_admin(who(callers, peer(5'001, {701}))));
  // Where the kernel does not tell, the machine's files do.
  EXPECT_TRUE(is_admin(who(callers, {.uid = 5'002, .gid = 100})));
  EXPECT_FALSE(is_admin(who(callers, {.uid = 5'001, .gid = 100})));
}

TEST(UnixCallers, WithoutSuchAGroupNobodyIsAnAdministratorByIt) {
  Names machine;
  machine.has_group = false;
  UnixCallers callers({.admin_group = "gpu-admin", .names = machine.names()});
  EXPECT_FALSE(is_admin(who(callers, peer(5'001, {kAdmins, 0}))));
  UnixCallers without({.admin_group = "", .names = machine.names()});
  EXPECT_FALSE(is_admin(who(without, peer(5'001, {kAdmins, 0}))));
}

TEST(UnixCallers, TheMachineIsAskedOnceForManyConnections) {
  Names machine;
  UnixCallers callers({.admin_group = "gpu-admin", .names = machine.names()});
  const int before = machine.asked;
  const CallerPtr first = who(callers, peer(5'001));
  for (int i = 0; i < 10; ++i) EXPECT_EQ(who(callers, peer(5'001)), first);
  EXPECT_EQ(machine.asked, before + 1);
}

TEST(UnixCallers, ANameServiceThatHangsHoldsUpNobodyWhoIsKnown) {
  Names machine;
  UnixCallers callers({.admin_group = "gpu-admin", .names = machine.names()});
  const CallerPtr ana = who(callers, peer(5'001));
  machine.hang();
  std::promise<CallerPtr> told;
  callers.caller_of(peer(5'002), [&told](CallerPtr caller) { told.set_value(std::move(caller)); });
  EXPECT_EQ(who(callers, peer(5'001)), ana);
  EXPECT_TRUE(is_admin(who(callers, peer(0))));
  EXPECT_TRUE(is_admin(who(callers, peer(geteuid()))));
  machine.answer();
  EXPECT_EQ(told.get_future().get()->name, "member");
}

TEST(UnixCallers, WhoHasNoNumberHereIsNobody) {
  Names machine;
  UnixCallers callers({.names = machine.names()});
  if (geteuid() == 65'534) GTEST_SKIP() << "here it is the server's own user";
  EXPECT_EQ(who(callers, peer(65'534)), nullptr);
  EXPECT_EQ(who(callers, peer(static_cast<uid_t>(-1))), nullptr);
}

TEST(UnixCallers, PersonsAreNobodyWhereTheyNeedATokenAndAdministratorsAreNot) {
  Names machine;
  UnixCallers callers({.admin_group = "gpu-admin", .has_persons = false, .names = machine.names()});
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(who(callers, peer(5'001)), nullptr);
    EXPECT_TRUE(is_admin(who(callers, peer(5'001, {kAdmins}))));
  }
}

TEST(UnixCallers, TheMachinesNamesLeadBackToTheirNumbers) {
  const UnixNames names = machine_names();
  EXPECT_EQ(names.name_of(0), "root");
  EXPECT_EQ(names.name_of(4'000'000'001), std::nullopt);
  EXPECT_EQ(names.number_of("root"), gid_t{0});
  EXPECT_EQ(names.number_of("no-such-group-here"), std::nullopt);
}

}  // namespace
}  // namespace gpusched::api

// How much one caller may do: on a clock that the test moves.
#include "api/limits/admission.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "api/limits/address_group.h"

namespace gpusched::api {
namespace {

CallNeed ordinary() { return CallNeed::kOrdinary; }
CallNeed vital() { return CallNeed::kVital; }
CallNeed health() { return CallNeed::kHealth; }

/// One key, and a count of the secrets that were looked at.
class OneKey final : public KeyHolders {
 public:
  Answer<CallerPtr> holder_of(const sign::ApiKeyParts& key) const override {
    ++hashed;
    if (std::string(key.prefix) != prefix || std::string(key.secret) != secret || ended)
      return unknown_credential();
    return std::make_shared<const access::Caller>(
        access::Caller{.kind = access::CallerKind::kService, .name = "ci"});
  }
  bool is_there(std::string_view asked) const override { return asked == prefix; }
  Answer<std::shared_ptr<void>> while_valid(const CallerPtr&, std::optional<access::Action>,
                                            std::function<void(const ApiError&)>) const override {
    return std::shared_ptr<void>();
  }

  std::string text() const { return "Bearer gsk_" + prefix + "." + secret; }
  const std::string prefix = "abcdefghijkm", secret = std::string(64, 'a');
  bool ended = false;
  mutable int hashed = 0;
};

/// A provider's tokens: one that is good, one without a role, and a count of those that were looked at.
class OneToken final : public TokenHolders {
 public:
  Answer<CallerPtr> holder_of(std::string_view token) const override {
    ++verified;
    if (are_away) return ApiError{ErrorKind::kUnavailable, "no keys"};
    if (token == "r.o.le") return ApiError{ErrorKind::kPermissionDenied, "no role"};
    if (token != "g.oo.d") return unknown_credential();
    return std::make_shared<const access::Caller>(
        access::Caller{.kind = access::CallerKind::kPerson, .name = "jwt:i#s"});
  }
  Answer<std::shared_ptr<void>> while_valid(const CallerPtr&,
                                            std::function<void(const ApiError&)>) const override {
    return std::shared_ptr<void>();
  }
  bool are_away = false;
  mutable int verified = 0;
};

class AdmissionTest : public ::testing::Test {
 protected:
  CallerLimits limits() {
    return {.failed_rate = {10, 100}, .callers_kept = 50, .now = [this] { return now_; }};
  }
  Answer<CallerPtr> ask(Admission& admission, const std::string& authorization,
                        const std::string& address = "10.0.0.7") {
    return admission.caller_of(doorkeeper_, address, authorization);
  }
  /// A key that nobody has, another one each time.
  std::string wrong() {
    std::string secret = std::to_string(++drawn_);
    secret.insert(0, 64 - secret.size(), '0');
    return "Bearer gsk_zzzzzzzzzzzz." + secret;
  }
  /// Asks with wrong keys until the address is no longer listened to.
  void spend(Admission& admission, const std::string& address = "10.0.0.7") {
    for (int i = 0; i < 1'000; ++i) {
      if (ask(admission, wrong(), address).error().kind == ErrorKind::kRateLimited) return;
    }
    FAIL() << "never refused";
  }

  Time now_ = Time{1'000'000'000'000};
  OneKey key_;
  Doorkeeper doorkeeper_{.token = std::string(64, 't'), .keys = &key_};
  uint64_t drawn_ = 0;
};

TEST_F(AdmissionTest, BeyondTheBudgetWrongCredentialsAreRefusedBeforeAHash) {
  Admission admission(limits());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ask(admission, wrong()).error().kind, ErrorKind::kUnauthenticated);
  EXPECT_EQ(key_.hashed, 100);
  for (int i = 0; i < 10'000; ++i) {
    const ApiError refused = ask(admission, wrong()).error();
    ASSERT_EQ(refused.kind, ErrorKind::kRateLimited);
    ASSERT_GE(refused.retry_after, seconds(1));
  }
  EXPECT_EQ(key_.hashed, 100);
  EXPECT_EQ(admission.callers().refused(Refused::kFailedCredentials), 10'000u);
  // Ten more in each second that follows, and no more than the burst after a pause.
  now_ = now_ + seconds(1);
  for (int i = 0; i < 50; ++i) (void)ask(admission, wrong());
  EXPECT_EQ(key_.hashed, 110);
  now_ = now_ + hours(1);
  for (int i = 0; i < 500; ++i) (void)ask(admission, wrong());
  EXPECT_EQ(key_.hashed, 210);
}

TEST_F(AdmissionTest, AGoodCredentialPassesBesideAFloodFromItsAddress) {
  Admission admission(limits());
  spend(admission);
  // Never seen before: its prefix is there, and the token is compared without a hash.
  EXPECT_TRUE(ask(admission, key_.text()).ok());
  EXPECT_TRUE(ask(admission, "Bearer " + doorkeeper_.token).ok());
  EXPECT_TRUE(ask(admission, "").ok());
  EXPECT_EQ(ask(admission, "Bearer whatever").error().kind, ErrorKind::kRateLimited);
  // Another address is nobody's neighbour.
  EXPECT_EQ(ask(admission, wrong(), "10.0.0.8").error().kind, ErrorKind::kUnauthenticated);
}

TEST_F(AdmissionTest, WhoKnowsAPrefixHasItsHolderNotRefused) {
  Admission admission(limits());
  EXPECT_TRUE(ask(admission, key_.text()).ok());  // So it is known.
  const std::string guess = "Bearer gsk_" + key_.prefix + "." + std::string(64, 'b');
  int looked_at = 0;
  for (int i = 0; i < 1'000; ++i)
    looked_at += ask(admission, guess).error().kind == ErrorKind::kUnauthenticated;
  EXPECT_LE(looked_at, 101);
  EXPECT_TRUE(ask(admission, key_.text()).ok());
  // A key that was good and has ended is looked at once more, and then as all others.
  key_.ended = true;
  EXPECT_EQ(ask(admission, key_.text()).error().kind, ErrorKind::kUnauthenticated);
  EXPECT_EQ(ask(admission, key_.text()).error().kind, ErrorKind::kRateLimited);
}

TEST_F(AdmissionTest, AFloodOfAddressesAndNamesIsRememberedInPart) {
  Admission admission({.address_rate = {100, 0}, .callers_kept = 50, .now = [this] { return now_; }});
  for (int i = 0; i < 5'000; ++i) {
    const std::string address = "10.1." + std::to_string(i / 250) + "." + std::to_string(i % 250);
    (void)admission.take(address);
    (void)ask(admission, wrong(), address);
    (void)admission.open(*anonymous_caller(), address, CallRoom::kHttp, ordinary);
  }
  EXPECT_LE(admission.addresses(), 100u);
  EXPECT_LE(admission.callers().callers(), 50u);
  EXPECT_EQ(admission.callers().calls_open(CallRoom::kHttp), 0u);
}

TEST_F(AdmissionTest, MachinesShareAnAddressOfIPv4AndANetOfIPv6) {
  EXPECT_EQ(address_group("10.0.0.7"), "10.0.0.7");
  EXPECT_EQ(address_group("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(address_group("2001:db8:1:2::9"), "2001:db8:1:2::/64");
  EXPECT_EQ(address_group("fe80::1%eth0"), "fe80::/64");
  EXPECT_EQ(address_group("::ffff:10.0.0.7"), "10.0.0.7");
  EXPECT_EQ(address_group("unix:/run/s"), "unix:/run/s");
  Admission admission(limits());
  spend(admission, "2001:db8:1:2::1");
  EXPECT_EQ(ask(admission, wrong(), "2001:db8:1:2:ffff::1").error().kind, ErrorKind::kRateLimited);
  EXPECT_EQ(ask(admission, wrong(), "2001:db8:1:3::1").error().kind, ErrorKind::kUnauthenticated);
}

TEST_F(AdmissionTest, ACallersRateHoldsForItAlone) {
  Admission admission({.caller_rate = {5, 20}, .now = [this] { return now_; }});
  const access::Caller one{.kind = access::CallerKind::kService, .name = "one"};
  const access::Caller other{.kind = access::CallerKind::kPerson, .name = "one"};
  const auto passes = [&](const access::Caller& caller, int count) {
    int passed = 0;
    for (int i = 0; i < count; ++i)
      passed += admission.open(caller, "10.0.0.7", CallRoom::kGrpc, ordinary).ok() ? 1 : 0;
    return passed;
  };
  EXPECT_EQ(passes(one, 100), 20);
  EXPECT_EQ(passes(other, 100), 20);  // A caller of another kind is somebody else.
  EXPECT_EQ(passes(one, 100), 0);
  EXPECT_TRUE(admission.open(one, "10.0.0.7", CallRoom::kGrpc, health).ok());
  EXPECT_EQ(admission.open(one, "10.0.0.7", CallRoom::kGrpc, vital).error().kind, ErrorKind::kRateLimited);
  now_ = now_ + seconds(2);
  EXPECT_EQ(passes(one, 100), 10);
  EXPECT_EQ(admission.callers().refused(Refused::kCallerRate), 80u + 80u + 100u + 1u + 90u);
  // Without a credential callers are told apart by where they come from.
  EXPECT_EQ(passes(*anonymous_caller(), 100), 20);
  EXPECT_TRUE(admission.open(*anonymous_caller(), "10.0.0.8", CallRoom::kGrpc, ordinary).ok());
}

TEST_F(AdmissionTest, CallsUnderWayAreSharedAndSomeRoomIsKeptForOperators) {
  Admission admission(limits());
  admission.callers().set_room(CallRoom::kHttp, 160);
  std::vector<CallTicket> held;
  const auto fill = [&](const std::string& name) {
    const access::Caller caller{.kind = access::CallerKind::kService, .name = name};
    int opened = 0;
    while (true) {
      Answer<CallTicket> ticket = admission.open(caller, "10.0.0.7", CallRoom::kHttp, ordinary);
      if (!ticket) {
        EXPECT_EQ(ticket.error().kind, ErrorKind::kCallerLimit);
        EXPECT_EQ(ticket.error().retry_after, seconds(1));
        return opened;
      }
      held.push_back(std::move(*ticket));
      ++opened;
    }
  };
  EXPECT_EQ(fill("a"), 75);  // Half of what is not kept.
  EXPECT_EQ(fill("b"), 37);
  for (int i = 0; i < 40; ++i) fill("c" + std::to_string(i));
  const std::size_t most = admission.callers().calls_open(CallRoom::kHttp);
  EXPECT_LE(most, 150u);
  const access::Caller operating{.kind = access::CallerKind::kPerson, .name = "op"};
  EXPECT_FALSE(admission.open(operating, "10.0.0.7", CallRoom::kHttp, ordinary).ok());
  EXPECT_TRUE(admission.open(operating, "10.0.0.7", CallRoom::kHttp, vital).ok());
  EXPECT_TRUE(admission.open(*anonymous_caller(), "10.0.0.7", CallRoom::kHttp, health).ok());
  // The caller with most gets no more of the room that is kept for calls that end work.
  EXPECT_FALSE(
      admission.open({.kind = access::CallerKind::kService, .name = "a"}, "", CallRoom::kHttp, vital).ok());
  // The other server has room of its own.
  EXPECT_TRUE(admission.open(operating, "10.0.0.7", CallRoom::kGrpc, ordinary).ok());
  held.clear();
  EXPECT_EQ(admission.callers().calls_open(CallRoom::kHttp), 0u);
  EXPECT_TRUE(admission.open(operating, "10.0.0.7", CallRoom::kHttp, ordinary).ok());
}

TEST_F(AdmissionTest, StreamsAndSessionsOfACallerAreCounted) {
  Admission admission({.streams_max = 2, .sessions_max = 1, .now = [this] { return now_; }});
  const access::Caller caller{.kind = access::CallerKind::kService, .name = "one"};
  const auto open = [&] { return std::move(*admission.open(caller, "", CallRoom::kHttp, ordinary)); };
  CallTicket first = open();
  CallTicket second = open();
  CallTicket third = open();
  EXPECT_FALSE(first.become_stream());
  EXPECT_FALSE(first.become_stream());  // It is one.
  EXPECT_FALSE(second.become_stream());
  const auto refused = third.become_stream();
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->kind, ErrorKind::kCallerLimit);
  EXPECT_NE(refused->message.find("api.caller_streams_max"), std::string::npos);
  EXPECT_FALSE(third.become_session());
  EXPECT_TRUE(open().become_session());
  second.end();
  EXPECT_FALSE(open().become_stream());
  third = CallTicket();
  EXPECT_FALSE(open().become_session());
  EXPECT_FALSE(CallTicket().become_stream());  // Nobody's.
}

TEST_F(AdmissionTest, BytesAreChargedToWhoeverSendsAGoodCredential) {
  Admission admission(limits());
  // Never seen before: whoever sends heads alone learns nothing, and has nothing computed.
  EXPECT_EQ(admission.payer_of(doorkeeper_, "10.0.0.7", key_.text()), "10.0.0.7");
  EXPECT_EQ(admission.payer_of(doorkeeper_, "10.0.0.7", wrong()), "10.0.0.7");
  EXPECT_EQ(key_.hashed, 0);
  EXPECT_TRUE(ask(admission, key_.text()).ok());
  EXPECT_EQ(admission.payer_of(doorkeeper_, "10.0.0.7", key_.text()), "service ci");
  EXPECT_EQ(admission.payer_of(doorkeeper_, "10.0.0.7", "Bearer " + doorkeeper_.token),
            "operator admin by shared token");
  EXPECT_EQ(admission.payer_of(doorkeeper_, "10.0.0.7", ""), "anonymous 10.0.0.7");
}

TEST_F(AdmissionTest, TokensOfAProviderThatAreRefusedCountAndKnownOnesPass) {
  const OneToken tokens;
  doorkeeper_.tokens = &tokens;
  Admission admission(limits());
  EXPECT_TRUE(ask(admission, "Bearer g.oo.d").ok());
  for (int i = 0; i < 100; ++i)  // One that the provider signed, but that has no role here, counts, too.
    EXPECT_NE(ask(admission, i % 2 == 0 ? "Bearer x.y.z" : "Bearer r.o.le").error().kind,
              ErrorKind::kRateLimited);
  EXPECT_EQ(tokens.verified, 101);
  for (const char* const token : {"Bearer x.y.z", "Bearer r.o.le"})
    EXPECT_EQ(ask(admission, token).error().kind, ErrorKind::kRateLimited);
  EXPECT_EQ(tokens.verified, 101);
  EXPECT_TRUE(ask(admission, "Bearer g.oo.d").ok());
}

TEST_F(AdmissionTest, TokensThatCannotBeCheckedAreNobodysFault) {
  OneToken tokens;
  tokens.are_away = true;
  doorkeeper_.tokens = &tokens;
  Admission admission(limits());
  for (int i = 0; i < 1'000; ++i)
    ASSERT_EQ(ask(admission, "Bearer g.oo.d").error().kind, ErrorKind::kUnavailable);
}

TEST_F(AdmissionTest, UsersOfAUnixSocketAreToldApart) {
  Admission admission({.caller_rate = {1, 1}, .now = [this] { return now_; }});
  const auto named = [](const char* name) {
    return std::make_shared<const access::Caller>(access::unix_person(name, false));
  };
  const CallerPtr ann = named("ann"), bob = named("bob");
  const Answer<CallerPtr> caller = admission.caller_of(doorkeeper_, "unix:1001", "", ann);
  ASSERT_TRUE(caller.ok());
  EXPECT_EQ((*caller)->name, "ann");
  EXPECT_EQ(admission.payer_of(doorkeeper_, "unix:1001", "", ann), "person ann");
  EXPECT_TRUE(admission.open(*ann, "unix:1001", CallRoom::kHttp, ordinary).ok());
  EXPECT_FALSE(admission.open(*ann, "unix:1001", CallRoom::kHttp, ordinary).ok());
  EXPECT_TRUE(admission.open(*bob, "unix:1002", CallRoom::kHttp, ordinary).ok());
  // Wrong credentials are one user's, who is still taken by name.
  spend(admission, "unix:1001");
  EXPECT_EQ(ask(admission, wrong(), "unix:1002").error().kind, ErrorKind::kUnauthenticated);
  EXPECT_TRUE(admission.caller_of(doorkeeper_, "unix:1001", "", ann).ok());
}

TEST(CallNeeds, OperatorsVerbsAndEndsOfWorkAreVital) {
  using enum access::Action;
  EXPECT_EQ(need_of(kSeeHealth), CallNeed::kHealth);
  for (const access::Action action :
       {kSeeMetrics, kCancelJob, kRevokeKey, kDrainNode, kConfirmNodeDead, kPauseStarts})
    EXPECT_EQ(need_of(action), CallNeed::kVital);
  for (const access::Action action : {kSubmitJob, kSeeJob, kCreateKey, kEnterJob})
    EXPECT_EQ(need_of(action), CallNeed::kOrdinary);
  EXPECT_EQ(need_of(std::nullopt), CallNeed::kOrdinary);
}

}  // namespace
}  // namespace gpusched::api

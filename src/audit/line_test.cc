#include "audit/line.h"

#include <gtest/gtest.h>

namespace gpusched::audit {
namespace {

using access::Action;
using access::Caller;
using access::CallerKind;

Line base() {
  Line line{.at = Time{1'700'000'000'123'456'789}, .request = {42}, .peer = "10.1.2.3"};
  line.caller =
      std::make_shared<const Caller>(Caller{.kind = CallerKind::kService, .name = "nightly", .key_id = "k7"});
  return line;
}

/// Without what differs between runs.
std::string text_of(const Line& line) {
  std::string out;
  append_line(out, line);
  const std::string request = to_string(line.request);
  const std::size_t at = out.find(request);
  EXPECT_NE(at, std::string::npos);
  return out.replace(at, request.size(), "R");
}

TEST(AuditLine, OfABatchOfJobs) {
  Line line = base();
  line.door = Door::kNativeRest;
  line.claimed_by = "ana";
  line.action = Action::kSubmitJob;
  line.job = JobId{12};
  line.last_job = JobId{14};
  line.count = 3;
  line.unix_user = "ana";
  EXPECT_EQ(text_of(line),
            R"({"time":"2023-11-14T22:13:20.123Z","request_id":"R","door":"native_rest",)"
            R"("caller_kind":"service","caller":"nightly","key_id":"k7","peer":"10.1.2.3",)"
            R"("claimed_by":"ana","action":"submit_job","resource_kind":"job","resource":"job-12",)"
            R"("count":3,"last":"job-14","unix_user":"ana","outcome":"applied"})"
            "\n");
}

TEST(AuditLine, OfARefusal) {
  Line line = base();
  line.caller = nullptr;
  line.action = Action::kDrainNode;
  line.resource = "n1";
  line.outcome = Outcome::kUnauthenticated;
  line.code = "unauthenticated";
  line.repeated = 7;
  EXPECT_EQ(text_of(line),
            R"({"time":"2023-11-14T22:13:20.123Z","request_id":"R","door":"rest","caller_kind":"unknown",)"
            R"("caller":"","key_id":"","peer":"10.1.2.3","action":"drain_node","resource_kind":"node",)"
            R"("resource":"n1","outcome":"unauthenticated","code":"unauthenticated","repeated":7})"
            "\n");
}

TEST(AuditLine, HostileNamesStayOneLineOfValidJson) {
  Line line = base();
  line.action = Action::kDeleteTenant;
  line.claimed_by = "a\"b\\c\nd\r\t\x01\x7f\xff\xc3";
  line.resource = "x\",\"outcome\":\"applied\"}\n{\"time\":\"";
  const std::string text = text_of(line);
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  EXPECT_NE(text.find(R"("claimed_by":"a\"b\\c\nd\r\t\u0001\u007f\ufffd\ufffd")"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("resource":"x\",\"outcome\":\"applied\"}\n{\"time\":\"")"), std::string::npos)
      << text;
}

TEST(AuditLine, LongNamesAreCut) {
  Line line = base();
  line.action = Action::kDeleteTenant;
  line.resource = std::string(1 << 20, 'x');
  EXPECT_LT(text_of(line).size(), 600U);
}

TEST(AuditLine, WhatHasNoNameIsTheCluster) {
  Line line = base();
  line.action = Action::kPauseStarts;
  EXPECT_NE(text_of(line).find(R"("resource_kind":"cluster","resource":"cluster")"), std::string::npos);
  line.action = Action::kMakeReservation;
  line.resource = "r1";
  EXPECT_NE(text_of(line).find(R"("resource_kind":"reservation","resource":"r1")"), std::string::npos);
}

TEST(AuditLine, TheTableSaysWhichCallsAreTold) {
  for (const access::ActionRow& row : access::action_rows()) {
    EXPECT_TRUE(is_told(row.action, Outcome::kForbidden)) << row.name;
    EXPECT_TRUE(is_told(row.action, Outcome::kHidden)) << row.name;
    EXPECT_EQ(is_told(row.action, Outcome::kDone), row.audit != access::Audit::kRefusals) << row.name;
  }
  EXPECT_TRUE(is_told(Action::kSubmitJob, Outcome::kDone));
  EXPECT_TRUE(is_told(Action::kSubmitJob, Outcome::kRefused));
  EXPECT_TRUE(is_told(Action::kReadJobFile, Outcome::kDone));
  EXPECT_TRUE(is_told(Action::kEnterJob, Outcome::kDone));
  EXPECT_FALSE(is_told(Action::kSeeJob, Outcome::kDone));
  EXPECT_TRUE(is_told(std::nullopt, Outcome::kUnauthenticated));
  EXPECT_FALSE(is_told(std::nullopt, Outcome::kRefused));
}

TEST(AuditLine, EveryCallHasANumberOfItsOwn) {
  const RequestId first = next_request(), second = next_request();
  EXPECT_NE(to_string(first), to_string(second));
  EXPECT_LE(to_string({0xffff'ffff}).size(), 15U);  // Without memory of its own.
}

}  // namespace
}  // namespace gpusched::audit

#include "base/text/trace_variable.h"

#include <gtest/gtest.h>

#include <string>

#include "base/bytes.h"
#include "base/text/trace_context.h"

namespace gpusched {
namespace {

const std::string kTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const std::string kSpec = "\x0a\x05train";  // A JobSpec with a name.

std::string with_trace(std::string spec, const std::string& traceparent) {
  add_trace(spec, traceparent);
  return spec;
}

/// An entry of the environment as all pack it: the name first.
std::string variable(std::string_view name, std::string_view value) {
  std::string entry, field;
  ByteWriter inner(entry);
  inner.varint(10);
  inner.bytes(name);
  inner.varint(18);
  inner.bytes(value);
  ByteWriter out(field);
  out.varint(50);
  out.bytes(entry);
  return field;
}

TEST(TraceVariable, StandsBehindTheSpecificationAndIsTakenAwayAgain) {
  const std::string traced = with_trace(kSpec, kTrace);
  EXPECT_TRUE(traced.starts_with(kSpec));
  EXPECT_NE(traced.find(kTrace), std::string::npos);
  EXPECT_EQ(without_trace(traced), kSpec);
  EXPECT_EQ(without_trace(with_trace("", kTrace)), "");
  EXPECT_EQ(without_trace(kSpec), kSpec);
}

TEST(TraceVariable, AnIdOfTheRequestStandsBeforeItAndIsTakenAwayWithIt) {
  for (const std::string& id :
       {std::string("a"), std::string("run-7.3"), std::string(kRequestNameBytesMax, 'x')}) {
    std::string named = kSpec;
    add_request_id(named, id);
    EXPECT_NE(named, kSpec);
    EXPECT_EQ(without_trace(named), kSpec) << id;
    add_trace(named, kTrace);
    EXPECT_NE(named.find(id), std::string::npos);
    EXPECT_EQ(without_trace(named), kSpec) << id;
  }
}

TEST(TraceVariable, AnIdThatIsNotSaneOrWouldReplaceTheJobsOwnIsNotPut) {
  for (const std::string& id :
       {std::string(), std::string("a b"), std::string("a\n"), std::string(kRequestNameBytesMax + 1, 'x')}) {
    std::string named = kSpec;
    add_request_id(named, id);
    EXPECT_EQ(named, kSpec) << id;
  }
  const std::string own = kSpec + variable(kRequestVariable, "mine");
  std::string named = own;
  add_request_id(named, "run-7");
  EXPECT_EQ(named, own);
  EXPECT_EQ(without_trace(own), own);  // The job's own is part of what is compared.
}

TEST(TraceVariable, OfAVersionToComeIsWhatThisOneHas) {
  EXPECT_EQ(with_trace(kSpec, "cc" + kTrace.substr(2) + "-more"), with_trace(kSpec, kTrace));
}

TEST(TraceVariable, ThatIsNotValidOrWouldReplaceTheJobsOwnIsNotPut) {
  EXPECT_EQ(with_trace(kSpec, ""), kSpec);
  EXPECT_EQ(with_trace(kSpec, "00-1-2-01"), kSpec);
  const std::string own = kSpec + variable("TRACEPARENT", "mine");
  EXPECT_EQ(with_trace(own, kTrace), own);
  EXPECT_NE(with_trace(kSpec + variable("OTHER", "x"), kTrace), kSpec + variable("OTHER", "x"));
  EXPECT_EQ(with_trace("\x0a\x7f", kTrace), "\x0a\x7f");  // Cut off.
}

TEST(TraceVariable, OfTheJobItselfIsPartOfTheJob) {
  const std::string own = kSpec + variable("TRACEPARENT", kTrace);
  EXPECT_EQ(own.size(), with_trace(kSpec, kTrace).size());
  EXPECT_EQ(without_trace(own), own);
}

}  // namespace
}  // namespace gpusched

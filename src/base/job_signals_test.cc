#include "base/job_signals.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(JobSignals, ASignalHasSeveralSpellingsAndOneName) {
  for (const char* text : {"USR1", "SIGUSR1", "usr1", "sigusr1", "10"}) {
    const auto signal = parse_job_signal(text);
    ASSERT_TRUE(signal.has_value()) << text;
    EXPECT_EQ(signal->name, "USR1");
    EXPECT_EQ(signal->number, 10);
  }
}

TEST(JobSignals, WhatNoJobCanHandleIsNone) {
  for (const char* text : {"", "KILL", "9", "STOP", "CHLD", "0", "-1", "SIG", "USR1 ", "SIGSIGUSR1", "USR3"})
    EXPECT_FALSE(parse_job_signal(text).has_value()) << text;
}

}  // namespace
}  // namespace gpusched

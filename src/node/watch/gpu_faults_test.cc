#include "node/watch/gpu_faults.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "node/watch/fault_watch.h"

namespace gpusched {
namespace {

TEST(FaultTable, EachKindStandsOnceWithWordsForPeople) {
  std::set<std::string_view> codes;
  for (const FaultKind& kind : fault_kinds()) {
    EXPECT_TRUE(codes.insert(kind.code).second) << kind.code;
    EXPECT_FALSE(kind.meaning.empty()) << kind.code;
  }
}

std::string reference() {
  std::string out =
      "<!-- Made from the table in src/node/watch/gpu_faults.cc: `GPUSCHED_WRITE_REFERENCE=1 "
      "build/tests/node_test`. -->\n"
      "# Faults of GPUs, and what is done about each\n\n"
      "[What the rules mean, and how to change them](gpu-health.md). An Xid that is not listed is noted. "
      "After "
      "[NVIDIA's catalogue](https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html), in our "
      "words.\n\n"
      "| code | rule | what it says |\n|---|---|---|\n";
  for (const FaultKind& kind : fault_kinds()) {
    std::string code(kind.code);
    if (code.starts_with("xid ")) code.erase(0, 4);
    out += "| `" + code + "` | " + std::string(to_string(kind.rule)) + " | " + std::string(kind.meaning) +
           " |\n";
  }
  return out;
}

TEST(FaultTable, ThePageOfTheReferenceIsTheTable) {
  const std::filesystem::path path = GPUSCHED_SOURCE_DIR "/docs/reference/gpu-faults.md";
  if (std::getenv("GPUSCHED_WRITE_REFERENCE") != nullptr) std::ofstream(path) << reference();
  std::ifstream file(path);
  const std::string page((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(page, reference()) << "write the page again with GPUSCHED_WRITE_REFERENCE=1 and commit it";
}

TEST(FaultTable, TheJobsOwnFaultsAreIgnoredAndTheDevicesAreNot) {
  const FaultTable table;
  for (const uint32_t xid : {13u, 31u, 43u, 45u, 68u})
    EXPECT_EQ(table.rule_of(xid_code(xid)), FaultRule::kIgnore);
  for (const uint32_t xid : {48u, 64u, 94u, 95u, 119u, 120u})
    EXPECT_EQ(table.rule_of(xid_code(xid)), FaultRule::kReset) << xid;
  for (const uint32_t xid : {74u, 79u}) EXPECT_EQ(table.rule_of(xid_code(xid)), FaultRule::kDrain);
  EXPECT_EQ(table.rule_of("xid 92"), FaultRule::kReplace);
  EXPECT_EQ(table.rule_of("xid 777"), FaultRule::kNote);  // Nobody knows it.
}

TEST(FaultTable, AnOperatorChangesWhatIsDone) {
  const Result<FaultTable> table =
      FaultTable::parse("79=replace, 13=drain,ecc_uncorrected=ignore,4321=drain");
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ(table->rule_of("xid 79"), FaultRule::kReplace);
  EXPECT_EQ(table->rule_of("xid 13"), FaultRule::kDrain);
  EXPECT_EQ(table->rule_of("ecc_uncorrected"), FaultRule::kIgnore);
  EXPECT_EQ(table->rule_of("xid 4321"), FaultRule::kDrain);
  EXPECT_EQ(table->rule_of("xid 48"), FaultRule::kReset);
}

TEST(FaultTable, WhatIsNoChangeIsRefusedWithTheWholeForm) {
  for (const char* bad :
       {"79", "79=", "79=explode", "=drain", "ecc=drain", "xid 79=drain", "79999=drain", "-1=note"}) {
    const Result<FaultTable> table = FaultTable::parse(bad);
    ASSERT_FALSE(table.ok()) << bad;
    EXPECT_EQ(table.error().field, "gpu-faults");
    EXPECT_NE(table.error().message.find("79=replace"), std::string::npos);
  }
}

TEST(ParseXidLine, TakesWhatTheDriverWrites) {
  const auto line = parse_xid_line(
      "[12345.6] NVRM: Xid (PCI:0000:3B:00): 79, pid=1234, name=python, GPU has fallen off the bus.");
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->pci, "0000:3b:00");
  EXPECT_EQ(line->xid, 79u);
  EXPECT_EQ(line->text, "pid=1234, name=python, GPU has fallen off the bus.");
}

TEST(ParseXidLine, TakesTheOlderFormAndRecordsOfTheKernel) {
  const auto old = parse_xid_line("NVRM: Xid (0000:03:00): 14, Channel 00000001");
  ASSERT_TRUE(old.has_value());
  EXPECT_EQ(old->pci, "0000:03:00");
  EXPECT_EQ(old->xid, 14u);
  const auto record = parse_xid_line("4,1034,98765432,-;NVRM: Xid (PCI:0002:01:00): 48\n SUBSYSTEM=pci\n");
  ASSERT_TRUE(record.has_value());
  EXPECT_EQ(record->pci, "0002:01:00");
  EXPECT_EQ(record->text, "");
}

TEST(ParseXidLine, OtherLinesAreNone) {
  for (const char* line :
       {"", "NVRM: Xid (", "NVRM: Xid (PCI:0000:3b:00)", "NVRM: Xid (PCI:0000:3b:00): ",
        "NVRM: Xid (PCI:0000:3b:00): x", "NVRM: Xid (PCI:0000:3b:00): 0", "NVRM: Xid (PCI:0000:3b:00): 79x",
        "NVRM: Xid (PCI:zz): 79", "NVRM: Xid (): 79", "NVRM: Xid (PCI:0000:3b:00): 99999999999",
        "NVRM: GPU at PCI:0000:3b:00: GPU-b850f46d", "NVRM: SXid (PCI:0000:3b:00): 79"}) {
    EXPECT_FALSE(parse_xid_line(line).has_value()) << line;
  }
}

TEST(PciSlot, IsTheSameForEveryWriter) {
  EXPECT_EQ(pci_slot_of("00000000:3B:00.0"), "0000:3b:00");
  EXPECT_EQ(pci_slot_of("0000:3b:00"), "0000:3b:00");
  EXPECT_EQ(pci_slot_of("00010002:3b:00.0"), "10002:3b:00");
  EXPECT_EQ(pci_slot_of("3b:00.0"), "");
  EXPECT_EQ(pci_slot_of("[N/A]"), "");
}

class FaultWatchTest : public ::testing::Test {
 protected:
  FaultWatch make(const std::string& remembered = {}, bool rebooted = false, const char* changes = "") {
    return FaultWatch({"GPU-a", "GPU-b"}, *FaultTable::parse(changes), remembered, rebooted, wall_);
  }
  void read(FaultWatch& watch, const DeviceReading& reading) { watch.on_reading(0, reading, now_, wall_); }
  Time now_{1'000'000'000};
  Time wall_{1'700'000'000'000'000'000};
};

TEST_F(FaultWatchTest, TheGravestStands) {
  FaultWatch watch = make();
  read(watch, {.xids = {13, 31}});
  EXPECT_EQ(watch.standing(0).rule, FaultRule::kIgnore);
  EXPECT_TRUE(watch.take_news().empty());
  read(watch, {.xids = {63}});
  EXPECT_EQ(watch.standing(0).rule, FaultRule::kNote);
  const int64_t first = watch.standing(0).id;
  read(watch, {.xids = {79, 48}});
  EXPECT_EQ(watch.standing(0).code, "xid 48");
  EXPECT_GT(watch.standing(0).id, first);
  EXPECT_EQ(watch.take_news(), std::vector<uint32_t>{0});
  read(watch, {.xids = {79}});
  EXPECT_EQ(watch.standing(0).code, "xid 48");
  EXPECT_TRUE(watch.take_news().empty());
}

TEST_F(FaultWatchTest, WhatIsCountedOnCountsAnewAfterARelease) {
  FaultWatch watch = make();
  read(watch, {.ecc_uncorrected = 3});
  EXPECT_EQ(watch.standing(0).rule, FaultRule::kReset);
  EXPECT_FALSE(watch.clear(0, watch.standing(0).id + 1));
  EXPECT_TRUE(watch.clear(0, watch.standing(0).id));
  read(watch, {.ecc_uncorrected = 3});
  EXPECT_EQ(watch.standing(0).rule, FaultRule::kIgnore);
  read(watch, {.ecc_uncorrected = 4});
  EXPECT_EQ(watch.standing(0).code, "ecc_uncorrected");
  EXPECT_NE(watch.standing(0).detail.find("1"), std::string::npos);
}

TEST_F(FaultWatchTest, OutlivesTheAgentAndTellsAgain) {
  FaultWatch watch = make();
  read(watch, {.xids = {79}, .ecc_uncorrected = 2});
  watch.set_log_position(77);
  const std::optional<std::string> text = watch.take_text();
  ASSERT_TRUE(text.has_value());
  EXPECT_FALSE(watch.take_text().has_value());
  FaultWatch next = make(*text);
  EXPECT_EQ(next.standing(0).code, watch.standing(0).code);
  EXPECT_EQ(next.standing(0).id, watch.standing(0).id);
  EXPECT_EQ(next.standing(0).detail, watch.standing(0).detail);
  EXPECT_EQ(next.log_position(), 77u);
  EXPECT_EQ(next.take_news(), std::vector<uint32_t>{0});
}

TEST_F(FaultWatchTest, WhatCannotHaveBeenRememberedIsLeftOut) {
  for (const std::string id : {"0", "-1", "9223372036854775807"}) {
    FaultWatch watch = make("GPU-b\treset\tecc_uncorrected\t" + id + "\t0\t0\tdetail\n");
    EXPECT_EQ(watch.standing(1).rule, FaultRule::kIgnore) << id;
    EXPECT_TRUE(watch.take_news().empty()) << id;
  }
}

TEST_F(FaultWatchTest, ARestartOfTheMachineMendsWhatAResetMends) {
  FaultWatch watch = make();
  read(watch, {.xids = {48}});
  watch.on_xid(1, 79, "fallen", now_, wall_);
  FaultWatch next = make(*watch.take_text(), true);
  EXPECT_EQ(next.standing(0).rule, FaultRule::kIgnore);
  EXPECT_GT(next.standing(0).id, watch.standing(0).id);
  EXPECT_EQ(next.standing(1).rule, FaultRule::kDrain);
  EXPECT_EQ(next.take_news(), (std::vector<uint32_t>{0, 1}));
}

TEST_F(FaultWatchTest, NotesGoWhenTheyAreNotSeenForLong) {
  FaultWatch watch = make();
  read(watch, {.throttles = {"throttle_hw_thermal"}});
  EXPECT_EQ(watch.standing(0).rule, FaultRule::kNote);
  now_ = now_ + minutes(9);
  read(watch, {.throttles = {"throttle_hw_thermal"}});
  now_ = now_ + minutes(9);
  watch.tick(now_, wall_);
  EXPECT_EQ(watch.standing(0).rule, FaultRule::kNote);
  now_ = now_ + minutes(2);
  watch.tick(now_, wall_);
  EXPECT_EQ(watch.standing(0).rule, FaultRule::kIgnore);
  // A grave one stays.
  read(watch, {.xids = {79}});
  now_ = now_ + hours(100);
  watch.tick(now_, wall_);
  EXPECT_EQ(watch.standing(0).rule, FaultRule::kDrain);
}

TEST_F(FaultWatchTest, AResetEndsWhatItMendsAndNothingElse) {
  FaultWatch watch = make();
  read(watch, {.ecc_uncorrected = 3, .remap_pending = true});
  watch.on_reset(0, wall_);
  EXPECT_EQ(watch.standing(0).rule, FaultRule::kIgnore);
  read(watch, {.ecc_uncorrected = 0});
  EXPECT_EQ(watch.standing(0).rule, FaultRule::kIgnore);
  read(watch, {.xids = {92}, .ecc_uncorrected = 0});
  watch.on_reset(0, wall_);
  EXPECT_EQ(watch.standing(0).rule, FaultRule::kReplace);
}

TEST_F(FaultWatchTest, DamagedMemoryIsLeftOut) {
  FaultWatch watch =
      make("GPU-a\tdrain\txid 79\tnonsense\t0\t0\tx\nlog\nGPU-b\tdrain\nGPU-c\tdrain\txid 1\t1\t0\t0\t\n");
  EXPECT_EQ(watch.standing(0).rule, FaultRule::kIgnore);
  EXPECT_EQ(watch.standing(1).rule, FaultRule::kIgnore);
  EXPECT_TRUE(watch.take_news().empty());
}

}  // namespace
}  // namespace gpusched

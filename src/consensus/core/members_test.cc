#include "consensus/core/members.h"

#include <gtest/gtest.h>

namespace gpusched::consensus {
namespace {

Members group() {
  return {.voters = {1, 2, 3},
          .learners = {4},
          .stores = {{.id = 1, .store = 11},
                     {.id = 2, .store = 12},
                     {.id = 3, .store = 13},
                     {.id = 4, .store = 14}},
          .id_max = 6};
}

MemberChange change(ChangeKind kind, uint64_t id, uint64_t store = 0) {
  return {.kind = kind, .id = id, .store = store};
}

TEST(ChangesOfMembers, ThatAreSoundHaveNoFault) {
  EXPECT_EQ(changes_fault(group(), {change(ChangeKind::kAddLearner, 7, 17)}), "");
  EXPECT_EQ(changes_fault(group(), {change(ChangeKind::kAddVoter, 4, 14), change(ChangeKind::kRemove, 2)}),
            "");
  EXPECT_EQ(changes_fault(group(), {}), "");
}

TEST(ChangesOfMembers, NeverUseAnIdAgain) {
  EXPECT_EQ(changes_fault(group(), {change(ChangeKind::kAddLearner, 5, 15)}),
            "the id 5 was used before: take one above 6");
}

TEST(ChangesOfMembers, DoNotTakeAnEmptyDiskUnderAnOldId) {
  EXPECT_NE(changes_fault(group(), {change(ChangeKind::kAddLearner, 2, 99)}).find("another disk"),
            std::string::npos);
}

TEST(ChangesOfMembers, MakeVotersOfLearnersOnly) {
  EXPECT_NE(changes_fault(group(), {change(ChangeKind::kAddVoter, 7, 17)}).find("is no learner"),
            std::string::npos);
}

TEST(ChangesOfMembers, NameADiskAndAMemberOnce) {
  EXPECT_NE(changes_fault(group(), {change(ChangeKind::kAddLearner, 7)}), "");
  EXPECT_NE(changes_fault(group(), {change(ChangeKind::kRemove, 2), change(ChangeKind::kRemove, 2)}), "");
  EXPECT_NE(changes_fault(group(), {change(ChangeKind::kRemove, 9)}), "");
}

TEST(ChangesOfMembers, ThatAreNoneAreNotRead) {
  EXPECT_TRUE(parse_changes(std::string("\1\0", 2)).has_value());
  EXPECT_FALSE(parse_changes("").has_value());
  EXPECT_FALSE(parse_changes(std::string("\2\0", 2)).has_value());
  EXPECT_FALSE(parse_changes(std::string("\1\1", 2)).has_value());
  EXPECT_FALSE(parse_changes(std::string("\1\0\0", 3)).has_value());
}

TEST(Members, KeepTheDisksOfThoseWhoStay) {
  Members after{.voters = {1, 3, 4}};
  carry_stores(group(), {change(ChangeKind::kAddVoter, 4, 14), change(ChangeKind::kRemove, 2)}, after);
  EXPECT_EQ(store_of(after, 4), 14u);
  EXPECT_EQ(store_of(after, 2), std::nullopt);
  EXPECT_EQ(after.id_max, 6u);
}

}  // namespace
}  // namespace gpusched::consensus

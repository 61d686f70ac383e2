#include "model/identity/owner_table.h"

#include <gtest/gtest.h>

#include <optional>

#include "base/limits.h"

namespace gpusched {
namespace {

constexpr CallerKind kPerson = CallerKind::kPerson;

TEST(OwnerTable, AnOwnerHasOneNumberAsLongAsSomethingRefersToIt) {
  OwnerTable table;
  const uint32_t ana = table.acquire(kPerson, "ana");
  EXPECT_NE(ana, OwnerTable::kNobody);
  EXPECT_EQ(table.acquire(kPerson, "ana"), ana);
  EXPECT_NE(table.acquire(CallerKind::kService, "ana"), ana);
  EXPECT_EQ(table.size(), 2u);
  table.release(ana);
  EXPECT_EQ(table.find(kPerson, "ana"), ana);
  table.release(ana);
  EXPECT_EQ(table.find(kPerson, "ana"), OwnerTable::kNobody);
  EXPECT_EQ(table.at(ana), nullptr);
  EXPECT_EQ(table.size(), 1u);
}

TEST(OwnerTable, TheLowestFreeNumberIsGivenFirst) {
  OwnerTable table;
  for (const char* name : {"a", "b", "c", "d"}) table.acquire(kPerson, name);
  table.release(3);
  table.release(2);
  EXPECT_EQ(table.acquire(kPerson, "e"), 2u);
  EXPECT_EQ(table.acquire(kPerson, "f"), 3u);
  EXPECT_EQ(table.acquire(kPerson, "g"), 5u);
}

TEST(OwnerTable, NobodyIsNotCounted) {
  OwnerTable table;
  EXPECT_EQ(table.acquire(CallerKind{}, ""), OwnerTable::kNobody);
  table.retain(OwnerTable::kNobody);
  table.release(OwnerTable::kNobody);
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(table.at(OwnerTable::kNobody), nullptr);
}

TEST(OwnerTable, ACopyByItsNumbersGoesOnAsTheFirst) {
  OwnerTable table;
  for (const char* name : {"a", "b", "c", "d"}) table.acquire(kPerson, name);
  table.release(2);
  table.release(4);
  OwnerTable copy;
  std::vector<std::optional<JobOwner>> told;
  table.for_each([&](const JobOwner* owner) {
    told.push_back(owner == nullptr ? std::nullopt : std::optional(*owner));
    EXPECT_TRUE(copy.restore(owner == nullptr ? JobOwner{} : *owner));
  });
  EXPECT_EQ(told.size(), 3u) << "the last number is somebody's";
  EXPECT_FALSE(copy.is_whole()) << "nothing refers to them yet";
  copy.retain(1);
  copy.retain(3);
  EXPECT_TRUE(copy.is_whole());
  EXPECT_FALSE(OwnerTable(copy).restore({.kind = kPerson, .name = "a"})) << "it has a number";
  for (const char* name : {"e", "f", "g"})
    EXPECT_EQ(copy.acquire(kPerson, name), table.acquire(kPerson, name));
}

TEST(OwnerTable, AllButAnonymousCallersHaveANameOfABoundedLength) {
  EXPECT_TRUE(is_possible(CallerKind::kAnonymous, ""));
  EXPECT_FALSE(is_possible(CallerKind::kAnonymous, "ana"));
  EXPECT_TRUE(is_possible(kPerson, std::string(limits::kNameBytesMax, 'x')));
  EXPECT_FALSE(is_possible(kPerson, std::string(limits::kNameBytesMax + 1, 'x')));
  EXPECT_FALSE(is_possible(kPerson, ""));
  EXPECT_FALSE(is_possible(CallerKind{}, "ana"));
  EXPECT_FALSE(is_possible(static_cast<CallerKind>(6), "ana"));
}

}  // namespace
}  // namespace gpusched

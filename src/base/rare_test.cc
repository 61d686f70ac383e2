#include "base/rare.h"

#include <gtest/gtest.h>

#include <string>

namespace gpusched {
namespace {

struct Extras {
  std::string word;
  int64_t number = 0;

  friend bool operator==(const Extras&, const Extras&) = default;
};

TEST(Rare, IsNothingUntilAMemberIsSet) {
  Rare<Extras> rare;
  EXPECT_EQ(*rare, Extras{});
  rare.set(&Extras::number, 0);
  EXPECT_FALSE(rare.is_set());
  rare.set(&Extras::number, 7);
  EXPECT_TRUE(rare.is_set());
  EXPECT_EQ(rare->number, 7);
  rare.set(&Extras::number, 0);
  EXPECT_EQ(*rare, Extras{});
}

TEST(Rare, TakesAWholeStructAndKeepsNoneThatIsEmpty) {
  Rare<Extras> rare;
  rare.assign({.word = "a", .number = 1});
  rare.assign({.word = "b"});
  EXPECT_EQ(*rare, (Extras{.word = "b"}));
  rare.assign({});
  EXPECT_FALSE(rare.is_set());
}

TEST(Rare, CopiesAreTheirOwn) {
  Rare<Extras> first;
  first.set(&Extras::word, "a");
  Rare<Extras> second = first;
  second.set(&Extras::word, "b");
  EXPECT_EQ(first->word, "a");
  first = second;
  second.set(&Extras::word, "c");
  EXPECT_EQ(first->word, "b");
  const Rare<Extras> moved = std::move(second);
  EXPECT_EQ(moved->word, "c");
  first = Rare<Extras>();
  EXPECT_FALSE(first.is_set());
}

TEST(RareFields, PutsBackWhatIsNotEmpty) {
  Rare<Extras> rare;
  {
    RareFields untouched(rare);
  }
  EXPECT_FALSE(rare.is_set());
  {
    RareFields fields(rare);
    fields->number = 3;
    EXPECT_FALSE(rare.is_set());
  }
  const Rare<Extras>& seen = rare;
  EXPECT_EQ(RareFields(seen)->number, 3);
  {
    RareFields fields(rare);
    fields->number = 0;
  }
  EXPECT_FALSE(rare.is_set());
}

}  // namespace
}  // namespace gpusched

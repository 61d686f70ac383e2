#include "journal/disk/cached_bytes.h"

#include <gtest/gtest.h>

#include <string>

namespace gpusched {
namespace {

std::string sectors(char fill, std::size_t count = 1) {
  return std::string(count * CachedBytes::kSectorBytes, fill);
}

TEST(CachedBytes, APowerLossTakesWhatOnlyALieSynced) {
  CachedBytes bytes;
  bytes.write(0, sectors('a'));
  bytes.sync();
  bytes.write(0, sectors('b'));
  bytes.lie_about_sync();
  EXPECT_EQ(bytes.cached(), sectors('b'));
  EXPECT_EQ(bytes.on_device(), sectors('a'));
}

TEST(CachedBytes, ALaterSyncMakesALieTrue) {
  Prng prng(1);
  CachedBytes bytes;
  bytes.write(0, sectors('a'));
  bytes.lie_about_sync();
  bytes.sync();
  bytes.lose_power(prng);
  EXPECT_EQ(bytes.cached(), sectors('a'));
}

// The seed 263735325956173 of the simulation: the device had lost a write to these sectors before, said that
// it had synced the next one, and failed the sync after that, which leaves sectors clean that it never got.
TEST(CachedBytes, SettlingMakesALieTrueWhateverTheNextSyncDid) {
  constexpr std::size_t kCount = 64;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Prng prng(seed);
    CachedBytes bytes;
    bytes.write(0, sectors('\0', kCount));
    bytes.misdirect(0, sectors('\0', kCount).size(), {}, bytes);
    bytes.write(0, sectors('a', kCount));
    bytes.lie_about_sync();
    bytes.fail_sync(prng);
    bytes.repair();
    bytes.settle();
    EXPECT_EQ(bytes.cached(), sectors('a', kCount)) << "seed " << seed;
    EXPECT_EQ(bytes.on_device(), sectors('a', kCount)) << "seed " << seed;
  }
}

TEST(CachedBytes, RepairPutsBackWhatDecayTook) {
  CachedBytes bytes;
  bytes.write(0, sectors('a', 2));
  bytes.sync();
  bytes.decay(10, "xyz");
  EXPECT_TRUE(bytes.is_damaged());
  bytes.drop_cache();
  EXPECT_EQ(bytes.cached().substr(10, 3), "xyz");
  bytes.repair();
  EXPECT_FALSE(bytes.is_damaged());
  EXPECT_EQ(bytes.cached(), sectors('a', 2));
}

}  // namespace
}  // namespace gpusched

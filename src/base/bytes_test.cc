#include "base/bytes.h"

#include <gtest/gtest.h>

namespace gpusched {
namespace {

TEST(Bytes, WhatIsWrittenIsRead) {
  std::string out;
  ByteWriter writer(out);
  writer.varint(UINT64_MAX);
  writer.svarint(INT64_MIN);
  writer.svarint(-1);
  writer.bytes("gpu");
  writer.fixed32(7);
  ByteReader reader(out);
  EXPECT_EQ(reader.varint(), UINT64_MAX);
  EXPECT_EQ(reader.svarint(), INT64_MIN);
  EXPECT_EQ(reader.svarint(), -1);
  EXPECT_EQ(reader.bytes(), "gpu");
  EXPECT_EQ(reader.fixed32(), 7u);
  EXPECT_TRUE(reader.ok());
  EXPECT_TRUE(reader.at_end());
}

TEST(Bytes, OverlongNumberFails) {
  const std::string overlong(11, '\x80');
  ByteReader reader(overlong);
  EXPECT_EQ(reader.varint(), 0u);
  EXPECT_FALSE(reader.ok());
}

TEST(Bytes, LengthPastTheEndFails) {
  ByteReader reader(
      "\x05"
      "abc");
  EXPECT_TRUE(reader.bytes().empty());
  EXPECT_FALSE(reader.ok());
}

}  // namespace
}  // namespace gpusched

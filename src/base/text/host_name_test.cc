#include "base/text/host_name.h"

#include <gtest/gtest.h>

#include <string>

namespace gpusched {
namespace {

TEST(HostName, AreWordsWithDotsBetween) {
  const std::string word(63, 'w');
  for (const std::string& name :
       {std::string("n1"), std::string("GPU-07.lab.example"), std::string("10.0.0.7"), std::string("7"), word,
        word + '.' + word + '.' + word + '.' + std::string(61, 'x')})
    EXPECT_TRUE(is_host_name(name)) << name;
}

TEST(HostName, OthersAreNone) {
  const std::string word(63, 'w');
  for (const std::string& name : {std::string(),
                                  std::string("."),
                                  std::string("a."),
                                  std::string(".a"),
                                  std::string("a..b"),
                                  std::string("-a"),
                                  std::string("a-"),
                                  std::string("a.-b"),
                                  std::string("a b"),
                                  std::string("a/b"),
                                  std::string("../etc"),
                                  std::string("a_b"),
                                  std::string("a\nb"),
                                  std::string("a\x1b[31m"),
                                  std::string("a\"b"),
                                  std::string("<b>"),
                                  std::string("caf\xC3\xA9"),
                                  std::string("a\xFF"),
                                  std::string("a\0b", 3),
                                  word + 'w',
                                  word + '.' + word + '.' + word + '.' + std::string(62, 'x')})
    EXPECT_FALSE(is_host_name(name)) << name;
}

}  // namespace
}  // namespace gpusched

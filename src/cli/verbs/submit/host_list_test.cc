#include "cli/verbs/submit/host_list.h"

#include <gtest/gtest.h>

namespace gpusched::cli {
namespace {

TEST(HostList, IsReadAsSlurmWritesIt) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(*expand_host_list("n1"), Names({"n1"}));
  EXPECT_EQ(*expand_host_list("a,n[1-3,7],b"), Names({"a", "n1", "n2", "n3", "n7", "b"}));
  EXPECT_EQ(*expand_host_list("rack[08-10].lab"), Names({"rack08.lab", "rack09.lab", "rack10.lab"}));
}

TEST(HostList, RefusesWhatIsNone) {
  for (const char* text : {"", ",", "a,,b", "n[", "n]1[", "n[]", "n[x]", "n[3-1]", "n[1-2][3-4]",
                           "n[1-99999]", "n[[1]]", "n[1-2-3]"}) {
    EXPECT_FALSE(expand_host_list(text).ok()) << text;
  }
}

}  // namespace
}  // namespace gpusched::cli

#include "pilot/settings.h"

#include <gtest/gtest.h>

namespace gpusched::pilot {
namespace {

constexpr const char* kMonitor = "monitors:\n  - {kind: process}\n";

TEST(Settings, ReadTheExample) {
  const Result<PilotSettings> settings = parse_settings(example_settings(), "pilot.yaml", "/home/me");
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  EXPECT_EQ(settings->state_dir, "/home/me/.local/state/gpu-pilot");
  ASSERT_EQ(settings->monitors.size(), 4U);
  EXPECT_EQ(settings->monitors[0].paths, std::vector<std::string>{"/home/me/runs/**/*.log"});
  EXPECT_EQ(settings->monitors[1].suffixes.front(), ".py");
  EXPECT_EQ(settings->decide.idle, minutes(5));
  EXPECT_EQ(settings->rules.size(), anticipate::builtin_rules().size());
}

TEST(Settings, TakeRulesOfTheUserInPlaceOfBuiltInOnes) {
  const Result<PilotSettings> settings = parse_settings(
      std::string(kMonitor) +
          "rules_off: [over-there]\nrules:\n  - {name: over-there, any: [x]}\n  - name: launcher\n"
          "    on: [shell]\n    any: [mine]\n    weight: 30\n    gpu_model: H100\n    memory_gb: 80\n",
      "p", "/home/me");
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  EXPECT_EQ(settings->rules.size(), anticipate::builtin_rules().size());
  EXPECT_EQ(settings->rules.back().name, "launcher");
  EXPECT_EQ(settings->rules.back().memory_gb, 80);
  const Result<PilotSettings> none =
      parse_settings(std::string(kMonitor) + "rules_off: [all]\n", "p", "/home/me");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->rules.empty());
}

TEST(Settings, SayWhatThePilotIsHeldTo) {
  const Result<PilotSettings> settings = parse_settings(
      std::string(kMonitor) +
          "landlock: required\npassphrase_file: ~/words\napi: {addresses: [10.1.0.0/16, '::1']}\n"
          "model: {url: 'https://m', name: m, addresses: 192.0.2.7}\n",
      "p", "/home/me");
  ASSERT_TRUE(settings.ok()) << settings.error().message;
  EXPECT_EQ(settings->landlock, LandlockUse::kRequired);
  EXPECT_EQ(settings->passphrase_file, "/home/me/words");
  ASSERT_EQ(settings->api_addresses.size(), 2U);
  EXPECT_TRUE(settings->api_addresses[0].contains(*parse_ip_address("10.1.2.3")));
  EXPECT_FALSE(settings->model.addresses.at(0).contains(*parse_ip_address("192.0.2.8")));
  EXPECT_EQ(parse_settings(kMonitor, "p", "/home/me")->landlock, LandlockUse::kAuto);
}

TEST(Settings, NameTheLineAndWhatIsExpected) {
  const std::pair<const char*, const char*> kTexts[] = {
      {"bounds:\n  gpus_max: 100\n", "p:2: bounds.gpus_max is wrong; expected a whole number from 1 to 64"},
      {"bound: {}\n", "p:1: unknown key bound; did you mean bounds?"},
      {"monitors:\n  - {kind: log}\n", "p:2: monitor log needs paths"},
      {"monitors:\n  - {kind: log, paths: [runs]}\n",
       "p:2: monitors.paths is wrong; expected a list of absolute paths"},
      {"monitors:\n  - {kind: model}\n", "p:2: monitors.kind is wrong"},
      {"monitors:\n  - {kind: custom}\n", "p:2: monitor custom needs a command"},
      {"monitors:\n  - {kind: process}\n  - {kind: process}\n", "p:3: two monitors have the name process"},
      {"rules:\n  - {name: all}\n", "p:2: rule all: give at least one phrase"},
      {"rules_off: [nonsense]\n", "rules_off: there is no rule nonsense"},
      {"landlock: maybe\n", "p:1: landlock is wrong; expected auto, off or required"},
      {"api: {addresses: [example.org]}\n", "p:1: api.addresses is wrong; expected a list of addresses"},
      {"state_dir: here\n", "p:1: state_dir is wrong; expected an absolute path"},
      {"decide: {threshold: 5, threshold: 6}\n", "p:1: decide.threshold is given twice"},
      {"a: [\n", "not valid YAML"},
      {"", "there are no monitors"},
  };
  for (const auto& [text, sentence] : kTexts) {
    const Result<PilotSettings> settings = parse_settings(text, "p", "/home/me");
    ASSERT_FALSE(settings.ok()) << text;
    EXPECT_EQ(settings.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(settings.error().message.find(sentence), std::string::npos) << settings.error().message;
  }
}

}  // namespace
}  // namespace gpusched::pilot

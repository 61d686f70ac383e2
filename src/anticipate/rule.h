#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "anticipate/observation.h"
#include "base/result.h"

/// Rules about what is seen. Pure and thread-safe.
namespace gpusched::anticipate {

/// Meaning of a text that a rule matches.
enum class Meaning : uint8_t {
  kNeed,  ///< A GPU will be needed, or with a negative weight: this is not about a GPU.
  kOver,  ///< The need is over.
};

/// A rule matches a text that has all phrases of `all`, one of `any` unless that is empty, and none of
/// `none`. Case does not matter. A phrase that begins or ends with a letter or digit begins or ends a word
/// there. `*` in a phrase stands for up to kGapBytesMax bytes of one line.
struct Rule {
  std::string name;
  std::vector<Source> sources = {};  ///< Where it looks; empty: everywhere.
  std::vector<std::string> all = {}, any = {}, none = {};
  Meaning meaning = Meaning::kNeed;
  int32_t weight = 50;                      ///< From -100 to 100; the threshold is usually 100.
  int32_t gpus = 1;                         ///< Number of GPUs that it foresees.
  std::vector<std::string> gpus_from = {};  ///< Options in the text whose number is taken instead.
  std::string gpu_model = {};               ///< Empty: any.
  int64_t memory_gb = 0;                    ///< 0: any.
};

inline constexpr std::size_t kGapBytesMax = 160;
inline constexpr std::size_t kRulesMax = 200;
inline constexpr std::size_t kPhrasesMax = 32;  ///< In one list of a rule.
inline constexpr std::size_t kPhraseBytesMax = 200;
inline constexpr int32_t kWeightMax = 100;

/// kInvalidArgument says what of the rule is wrong; `field` names its member.
Result<Unit> check_rule(const Rule& rule);

/// Lower-case ASCII; other bytes stay.
std::string lower_case(std::string_view text);
/// Whether `text` has the phrase. Both in lower case. Takes time in proportion to the length of the text.
bool has_phrase(std::string_view text, std::string_view phrase);
/// Whether the rule matches a text of that source. `text` is in lower case.
bool matches(const Rule& rule, Source source, std::string_view text);
/// The number of GPUs that the rule foresees by this text, in lower case: at least 1. It may be any number
/// that somebody wrote there: the user's bounds hold it.
int32_t gpus_of(const Rule& rule, std::string_view text);

/// Rules that hold unless the user's configuration switches them off.
std::vector<Rule> builtin_rules();

}  // namespace gpusched::anticipate

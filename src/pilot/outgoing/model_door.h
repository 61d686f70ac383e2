#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "anticipate/anticipator.h"
#include "base/net/ip_network.h"
#include "base/result.h"
#include "pilot/outgoing/outbox.h"

namespace gpusched::pilot {

/// The model that the user chose, and how much it may cost.
struct ModelSettings {
  std::string url;                        ///< Without the path of the API; empty: there is no model.
  bool is_anthropic = false;              ///< Anthropic's messages; else OpenAI's chat completions.
  std::string name;                       ///< Name of the model at its server.
  std::string key_file;                   ///< Empty: no key.
  std::string ca_file;                    ///< Empty: the machine's authorities.
  std::vector<IpNetwork> addresses = {};  ///< Addresses that its server may have; empty: any.
  std::string prompt;                     ///< Instructions; empty: the built-in ones.
  Duration timeout = seconds(10);
  int32_t ask_from = 40;    ///< Signs that weigh less are not worth a question.
  int32_t weight_max = 50;  ///< Weight of an answer of full confidence, for or against.
  int64_t tokens_per_day = 50'000;
  int64_t cents_per_million_tokens = 0;
  int64_t cents_per_day = 100;
};

/// A model's conclusion. Numbers are as it gave them, within their ranges.
struct ModelAnswer {
  bool is_needed = false;
  int32_t gpus = 1;        ///< 1 to 1,000,000; the user's bounds hold it.
  int32_t confidence = 0;  ///< 0 to 100.
  std::string why;         ///< Plain text without secrets.
};

/// Asks a model about signs. Its answers are data from a stranger. After a failure it rests for a minute,
/// doubling up to half an hour. The same signs are asked about once in an hour. Not thread-safe.
class ModelDoor {
 public:
  ModelDoor(Outbox& outbox, ModelSettings settings, std::string key);

  /// Blocks for at most the settings' timeout. Nothing: it rests, or a budget is used up. Errors: why there
  /// is no answer, or none that makes sense.
  std::optional<Result<ModelAnswer>> ask(const std::vector<anticipate::Reason>& reasons, Time now);

  int64_t tokens_used() const { return tokens_used_; }
  const ModelSettings& settings() const { return settings_; }

 private:
  struct Kept {
    ModelAnswer answer;
    Time at;
  };

  Result<ModelAnswer> request(const std::string& question);
  bool has_budget(std::size_t question_bytes, Time now);

  Outbox& outbox_;
  const ModelSettings settings_;
  const std::string key_;
  std::map<std::string, Kept> answers_;
  int64_t tokens_used_ = 0;  // Since `day_`.
  Time day_, rests_until_;
  Duration rest_;
};

/// The question about signs, as text. Signs are quoted as JSON strings: they cannot end their quotes.
std::string model_question(const std::vector<anticipate::Reason>& reasons);
/// Reads a model's answer: one JSON object, perhaps between other words. kCorrupt: it makes no sense.
Result<ModelAnswer> parse_model_answer(std::string_view text);

}  // namespace gpusched::pilot

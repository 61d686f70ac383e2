#include "cli/verbs/jobs/wait_notice.h"

#include <algorithm>

#include "cli/terminal/text.h"
#include "cli/terminal/units.h"

namespace gpusched::cli {
namespace {

constexpr Duration kSilent = seconds(2);       ///< Most jobs start at once, and need no word about it.
constexpr Duration kSameReason = seconds(30);  ///< The numbers in a reason may change all the time.
constexpr Duration kLongPoll = seconds(30);
constexpr int kQuickLooks = 30;

}  // namespace

std::string wait_sentence(const std::string& job, const Json& record) {
  const std::string state = record["state"].text();
  const std::string message = record["message"].text();
  if (message.empty() || (state != "pending" && state != "scheduled")) return "";
  for (const std::string_view verb : {"is ", "was ", "waits "}) {
    if (message.starts_with(verb)) return job + " " + message;
  }
  const bool of_it = message.starts_with("requests ") || message.starts_with("requires ");
  return job + (of_it ? " waits: it " : " waits: ") + message;
}

void WaitNotice::look(const Json& record) {
  const Time now = io_.wall_now();
  const std::string sentence = wait_sentence(job_, record);
  if (sentence.empty()) {
    if (!said_.empty() && record["state"].text() == "running" && !record["message"].text().empty())
      say(job_ + " " + record["message"].text());
    waits_ = record["state"].text() == "pending";  // It waits, and nobody says why.
    said_.clear();
    since_ = {};
    looks_ = 0;
    return;
  }
  waits_ = true;
  looks_ += 1;
  if (!since_.valid()) since_ = now;
  if (now - since_ < kSilent || sentence == said_) return;
  const std::string reason = record["state"].text() + record["reason"].text();
  if (!said_.empty() && reason == said_reason_ && now - said_at_ < kSameReason) return;
  say(sentence);
  said_ = sentence;
  said_reason_ = reason;
  said_at_ = now;
}

Duration WaitNotice::next_look() const {
  if (!waits_) return kLongPoll;
  return looks_ < kQuickLooks ? kSilent : seconds(10);
}

void WaitNotice::say(const std::string& sentence) {
  io_.err("gpu-cli: " + printable(with_local_times(sentence)) + "\n");
}

}  // namespace gpusched::cli

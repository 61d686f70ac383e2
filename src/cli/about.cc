// The commands about gpu-cli itself.
#include <memory>

#include "cli/help.h"
#include "cli/verbs.h"

namespace gpusched::cli {
namespace {

std::string joined_words(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

int explain_command(const Session& session, const std::vector<std::string>& words) {
  const CliIo& io = session.io();
  const std::string path = joined_words(words);
  if (path.empty()) {
    io.out(main_help(io.width));
  } else if (const VerbDefinition* const verb = find_verb(path)) {
    io.out(verb_help(*verb, io.width));
  } else if (is_verb_group(path)) {
    io.out(group_help(path, io.width));
  } else {
    return session.fail(kExitUsage, "there is no command " + path + "; gpu-cli --help lists them", "usage");
  }
  return kExitOk;
}

int print_versions(Session& session) {
  // Whether a scheduler answers or not, our own version is known.
  const Reply health = session.get("/health");
  const std::string theirs = health.json["version"].text();
  if (session.options().json) {
    JsonObjectWriter out;
    out.add("gpu_cli", GPUSCHED_VERSION);
    if (theirs.empty()) {
      out.add_null("gpu_scheduler");
    } else {
      out.add("gpu_scheduler", theirs);
    }
    session.io().out(out.text() + "\n");
    return kExitOk;
  }
  session.io().out("gpu-cli " GPUSCHED_VERSION "\n");
  if (!theirs.empty())
    session.io().out("gpu-scheduler " + theirs + " at " + session.options().api_url + "\n");
  return kExitOk;
}

}  // namespace

Action define_help(Grammar& grammar) {
  const auto words = std::make_shared<std::vector<std::string>>();
  grammar.argument("COMMAND", words.get(), "Such as submit, or node drain").optional();
  return [words](Session& session) { return explain_command(session, *words); };
}

Action define_version(Grammar& grammar) {
  grammar.details("gpu-cli --version prints that of gpu-cli alone, and asks nobody.");
  return [](Session& session) { return print_versions(session); };
}

}  // namespace gpusched::cli

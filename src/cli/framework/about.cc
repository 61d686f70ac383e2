// The commands about gpu-cli itself.
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>

#include "cli/framework/help.h"
#include "cli/framework/verbs.h"
#include "cli/terminal/pages.h"
#include "grammar/version.h"

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

int write_manual(Session& session, const std::string& folder) {
  if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) {
    return session.fail(kExitUsage, "cannot make the folder " + folder + ": " + std::strerror(errno),
                        "usage");
  }
  const std::map<std::string, std::string> pages = manual_pages(GPUSCHED_VERSION);
  for (const auto& [name, text] : pages) {
    std::ofstream file(folder + "/" + name, std::ios::binary);
    file << text;
    file.close();
    if (!file)
      return session.fail(kExitUsage, "cannot write " + folder + "/" + name + ": " + std::strerror(errno),
                          "usage");
  }
  session.io().out(std::to_string(pages.size()) + " pages in " + folder + "\n");
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
  session.io().out(version_line("gpu-cli", GPUSCHED_VERSION) + "\n");
  if (!theirs.empty())
    session.io().out("gpu-scheduler " + theirs + " at " + session.options().api_url + "\n");
  return kExitOk;
}

}  // namespace

Action define_help(Grammar& grammar) {
  const auto words = std::make_shared<std::vector<std::string>>();
  grammar.argument("COMMAND", words.get(), "A command, such as submit or node drain")
      .optional()
      .completes(Complete::kCommand);
  return [words](Session& session) { return explain_command(session, *words); };
}

Action define_man(Grammar& grammar) {
  const auto folder = std::make_shared<std::string>();
  grammar.argument("DIR", folder.get(), "The folder; created if it does not exist")
      .completes(Complete::kFolder);
  grammar.example("gpu-cli man /usr/local/share/man/man1", "then: man gpu-cli-submit");
  return [folder](Session& session) { return write_manual(session, *folder); };
}

Action define_version(Grammar& grammar) {
  grammar.details("gpu-cli --version prints the version of gpu-cli alone, without a request.");
  return [](Session& session) { return print_versions(session); };
}

}  // namespace gpusched::cli

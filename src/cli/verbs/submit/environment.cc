#include "cli/verbs/submit/environment.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "cli/verbs/submit/script_text.h"

namespace gpusched::cli {
namespace {

constexpr std::string_view kFunctionPrefix = "BASH_FUNC_";
constexpr std::string_view kFunctionSuffix = "%%";

Error bad_option(const std::string& option, const std::string& why) {
  return {.code = ErrorCode::kInvalidArgument, .message = option + ": " + why};
}

/// Whether a variable belongs to the caller's shell, or to the job that it runs in, and not to a new job.
bool is_of_the_shell(std::string_view name) {
  return name == "_" || name == "PWD" || name == "OLDPWD" || name == "SHLVL" ||
         name.starts_with("GPU_SCHEDULER_") || name.starts_with("SLURM_") || name.starts_with("SLURMD_");
}

/// Why a variable cannot be sent; empty: it can.
std::string unsendable(const std::string& name, const std::string& value) {
  const bool is_plain = std::ranges::all_of(
      name, [](char c) { return static_cast<unsigned char>(c) > 0x20 && c != 0x7F && c != '='; });
  if (name.empty() || !is_plain) return "its name is empty or contains '=', a space or a control character";
  if (const std::string place = not_utf8(name); !place.empty()) return "in its name " + place;
  if (const std::string place = not_utf8(value); !place.empty()) return "in its value " + place;
  return "";
}

/// The caller's own variables.
Variables own_variables(const CliIo& io) {
  Variables own;
  for (const std::string& entry : io.environment_all()) {
    const std::size_t equals = entry.find('=');
    if (equals != std::string::npos && equals > 0)
      own.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return own;
}

/// Adds a variable that was named. `option` begins the sentence of an error.
Result<Unit> add_named(const std::string& option, const std::string& name, const std::string& value,
                       Variables& out) {
  if (const std::string why = unsendable(name, value); !why.empty())
    return bad_option(option, (name.empty() ? "\"=" + value + "\"" : name) + " cannot be sent: " + why);
  out[name] = value;
  return Unit{};
}

/// Adds all variables of the caller but those of its shell.
void add_all(const Variables& own, Variables& out, std::vector<std::string>& warnings) {
  std::string functions;
  for (const auto& [name, value] : own) {
    if (is_of_the_shell(name)) continue;
    if (name.starts_with(kFunctionPrefix)) {
      std::string_view function = std::string_view(name).substr(kFunctionPrefix.size());
      if (function.ends_with(kFunctionSuffix)) function.remove_suffix(kFunctionSuffix.size());
      functions.append(functions.empty() ? "" : ", ").append(function);
    } else if (const std::string why = unsendable(name, value); !why.empty()) {
      warnings.push_back("--export ALL: " + name + " is left out: " + why);
    } else {
      out.emplace(name, value);
    }
  }
  if (!functions.empty()) {
    warnings.push_back("--export ALL: the shell's functions are not passed on, define them in the script: " +
                       functions);
  }
}

/// The entries of --export. Commas within a quoted value are part of it: "A='1,2',B".
std::vector<std::string> export_entries(const std::string& list) {
  std::vector<std::string> entries(1);
  char quote = 0;
  for (std::size_t at = 0; at < list.size(); ++at) {
    const char c = list[at];
    std::string& entry = entries.back();
    const bool ends_value = at + 1 == list.size() || list[at + 1] == ',';
    if (quote != 0 && c == quote && ends_value) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"') && entry.ends_with('=') &&
               entry.find('=') + 1 == entry.size() && list.find(c, at + 1) != std::string::npos) {
      quote = c;
    } else if (quote == 0 && c == ',') {
      entries.emplace_back();
    } else {
      entry += c;
    }
  }
  return entries;
}

/// A word that is no variable here belongs to the value before it, which has a comma: "A=1,2".
Result<Unit> add_exported(const std::string& list, const Variables& own, Variables& out,
                          std::vector<std::string>& warnings) {
  std::string last;  // Name of the last NAME=VALUE.
  for (const std::string& entry : export_entries(list)) {
    const std::size_t equals = entry.find('=');
    if (entry.empty() || entry == "NONE") continue;
    Result<Unit> added = Unit{};
    if (entry == "ALL") {
      add_all(own, out, warnings);
    } else if (equals != std::string::npos) {
      last = entry.substr(0, equals);
      added = add_named("--export", last, entry.substr(equals + 1), out);
    } else if (const auto found = own.find(entry); found != own.end()) {
      added = add_named("--export", entry, found->second, out);
    } else if (!last.empty()) {
      added = add_named("--export", last, out[last] + "," + entry, out);
    } else {
      warnings.push_back("--export: " + entry + " has no value in this shell and is left out");
    }
    if (!added) return added;
  }
  return Unit{};
}

/// Adds "K=V" texts; a bare "K" has its value in this shell. An empty secret is none: most likely the
/// variable is not set there.
Result<Unit> add_texts(const std::string& option, const std::vector<std::string>& texts, bool is_secret,
                       const Variables& own, Variables& out) {
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    const std::string name = text.substr(0, equals);
    if (name.empty()) return bad_option(option, "\"" + text + "\" is not KEY=VALUE");
    std::optional<std::string> value;
    if (equals != std::string::npos) {
      value = text.substr(equals + 1);
    } else if (const auto found = own.find(name); found != own.end()) {
      value = found->second;
    }
    if (!value || (is_secret && value->empty())) {
      return bad_option(option, name + " has no value in this shell; set and export it first" +
                                    (is_secret ? "" : ", or write " + name + "=VALUE"));
    }
    if (const Result<Unit> added = add_named(option, name, *value, out); !added) return added;
  }
  return Unit{};
}

}  // namespace

Result<Variables> job_environment(const SubmitOptions& submit, const CliIo& io,
                                  std::vector<std::string>& warnings) {
  Variables out;
  if (submit.export_list.empty() && submit.environment.empty() && submit.secrets.empty()) return out;
  const Variables own = own_variables(io);
  Result<Unit> added = add_exported(submit.export_list, own, out, warnings);
  if (added) added = add_texts("--env", submit.environment, false, own, out);
  if (added) added = add_texts("--secret-env", submit.secrets, true, own, out);
  if (!added) return added.error();
  return out;
}

}  // namespace gpusched::cli

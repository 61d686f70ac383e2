#include <algorithm>
#include <cstddef>
#include <fstream>

#include "base/text/shell_words.h"
#include "cli/verbs/submit/script_advice.h"
#include "cli/verbs/submit/script_text.h"
#include "cli/verbs/submit/slurm.h"
#include "cli/verbs/submit/submit.h"

namespace gpusched::cli {
namespace {

// Without a first line that names its interpreter a script is an argument of /bin/sh, and Linux takes no
// longer one. With such a line it is a file, and the limit is the job's: 1 MiB with all its fields.
constexpr size_t kScriptTextBytesMax = 128 * 1024 - 1;
constexpr size_t kScriptBytesMax = 960 * 1024;
constexpr std::string_view kMark = "#GPU";
constexpr std::string_view kSlurmMark = "#SBATCH";
constexpr std::string_view kBlank = " \t\r";

Error unusable(const std::string& sentence) {
  return {.code = ErrorCode::kInvalidArgument, .message = sentence};
}

std::string base_name(std::string path) {
  while (path.ends_with('/')) path.pop_back();
  return path.substr(path.rfind('/') + 1);
}

Result<std::string> file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kScriptBytesMax + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file && !file.eof()) return unusable("cannot read the script " + path);
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::string_view first_line(std::string_view text) { return text.substr(0, text.find('\n')); }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && kBlank.find(text.front()) != std::string_view::npos) text.remove_prefix(1);
  while (!text.empty() && kBlank.find(text.back()) != std::string_view::npos) text.remove_suffix(1);
  return text;
}

/// A first line that no kernel could follow; the node runs the script by it, as a kernel would.
Result<Unit> check_interpreter(const Script& script, const std::string& origin) {
  if (!script.text.starts_with("#!")) return Unit{};
  const std::string_view line = trimmed(first_line(script.text).substr(2));
  if (line.empty())
    return unusable(origin + "1: the line names no interpreter; write, for example, #!/bin/bash");
  const std::size_t end = std::min(line.find_first_of(kBlank), line.size());
  const std::string_view rest = trimmed(line.substr(end));
  if (base_name(std::string(line.substr(0, end))) == "env" && !rest.starts_with('-') &&
      rest.find_first_of(kBlank) != std::string_view::npos) {
    return unusable(origin + "1: the rest of this line is one word to a kernel; write #!" +
                    std::string(line.substr(0, end)) + " -S " + std::string(rest));
  }
  return Unit{};
}

/// Cleans the script's text. Sentences begin with its name, or with `origin`.
Result<Unit> clean_text(Script& script, const std::string& origin) {
  const std::string who = script.name.empty() ? "the script" : script.name;
  Result<ScriptText> clean = clean_script_text(script.text, script.name.empty() ? "script" : script.name);
  // A program is not told about its first byte that is not UTF-8.
  if (script.text.find('\0') != std::string::npos && !is_utf16(script.text)) {
    return unusable(who + " is not a script; run a program with: gpu-cli submit -- " +
                    (script.name.empty() ? "FILE" : "./" + script.name));
  }
  if (!clean) return clean.error();
  script.text = std::move(clean->text);
  script.notes = std::move(clean->notes);
  if (script.text.find_first_not_of(" \t\n") == std::string::npos) return unusable(origin + "it is empty");
  if (script.text.size() > kScriptBytesMax) {
    return unusable(who +
                    " is larger than 960 KiB; put it where the nodes can read it and give its path after --");
  }
  if (script.text.size() > kScriptTextBytesMax && !script.text.starts_with("#!")) {
    return unusable(who +
                    " is larger than 128 KiB; begin it with a line that names its interpreter, such as "
                    "#!/bin/sh, so that it is run as a file");
  }
  return Unit{};
}

/// One word that ends as scripts do: a file that was misspelt rather than the text of a script.
bool is_script_name(std::string_view source) {
  if (source.find_first_of(" \t\n;|&") != std::string_view::npos) return false;
  static constexpr std::string_view kEndings[] = {".sh", ".bash", ".py", ".pl", ".sbatch", ".slurm", ".job"};
  return std::ranges::any_of(kEndings, [&](std::string_view ending) { return source.ends_with(ending); });
}

}  // namespace

Result<Script> read_script(const SubmitOptions& submit, const CliIo& io) {
  const bool is_argument = !submit.script_file.empty();
  const std::string& source = is_argument ? submit.script_file : submit.script;
  const std::string origin = is_argument ? "" : "--script: ";
  Script script;
  if (source == "-") {
    Result<std::string> text = io.read_stdin();
    if (!text) return unusable(text.error().message);
    script.text = std::move(*text);
    script.folder = ".";
  } else if (std::ifstream(source).good()) {
    Result<std::string> text = file_text(source);
    if (!text) return unusable(origin + text.error().message);
    script = {.text = std::move(*text), .name = base_name(source)};
    const std::size_t slash = source.rfind('/');
    script.folder = slash == std::string::npos ? "." : source.substr(0, slash + 1);
  } else if (is_argument || is_script_name(source)) {
    return unusable(origin + "there is no file " + source + " (a command goes after --)");
  } else {
    script.text = source;
  }
  const std::string who = source == "-" || script.name.empty() ? "--script: " : script.name + ": ";
  if (const Result<Unit> good = clean_text(script, who); !good) return good.error();
  const std::string place = (script.name.empty() ? "script" : script.name) + ":";
  if (const Result<Unit> good = check_interpreter(script, place); !good) return good.error();
  return script;
}

namespace {

/// What the lines of a script ask for, before they are put together.
struct LineReader {
  const Grammar& grammar;
  ScriptLines& lines;
  std::vector<std::string> words = {};  ///< Words of the #GPU lines.
  SlurmRequest slurm = {};
  bool header = true;          ///< No command has come yet.
  bool told_of_slurm = false;  ///< #SBATCH lines behind the first command.

  void take_gpu(std::string_view line, const std::string& place);
  void take_slurm(std::string_view line, const std::string& place);
};

/// Whether `line` begins with the mark, as a word of its own.
bool has_mark(std::string_view line, std::string_view mark) {
  return line.starts_with(mark) &&
         (line.size() == mark.size() || kBlank.find(line[mark.size()]) != std::string_view::npos);
}

void LineReader::take_gpu(std::string_view line, const std::string& place) {
  if (!header) {
    lines.warnings.push_back(place +
                             "this #GPU line comes after the first command and is ignored; move it up");
    return;
  }
  Result<std::vector<std::string>> parted = shell_words(line.substr(kMark.size()));
  // Each line alone, so that a mistake is found where it is; then all together, for what was given.
  const Result<Unit> good = parted ? grammar.parse(*parted) : Result<Unit>(parted.error());
  if (!good) return lines.problems.push_back(place + good.error().message);
  words.insert(words.end(), parted->begin(), parted->end());
}

void LineReader::take_slurm(std::string_view line, const std::string& place) {
  if (!header) {
    if (!std::exchange(told_of_slurm, true)) {
      lines.warnings.push_back(
          place + "this #SBATCH line comes after the first command and is ignored, as by sbatch; move it up");
    }
    return;
  }
  const Result<std::vector<std::string>> parted = shell_words(line.substr(kSlurmMark.size()));
  if (!parted) return lines.problems.push_back(place + parted.error().message);
  const std::size_t before = slurm.problems().size();
  slurm.take(*parted, place);
  lines.problems.insert(lines.problems.end(), slurm.problems().begin() + static_cast<std::ptrdiff_t>(before),
                        slurm.problems().end());
}

/// The options of all lines together, as words.
Result<std::vector<std::string>> all_words(const LineReader& reader, const Grammar& grammar) {
  // The #GPU lines come last, so they win over #SBATCH lines.
  if (const Result<Unit> good = grammar.parse(reader.words); !good) return good.error();
  const auto given = [&](std::initializer_list<std::string_view> names) {
    return std::ranges::any_of(names,
                               [&](std::string_view name) { return grammar.was_given(*grammar.find(name)); });
  };
  const auto value = [&](std::string_view name) {
    const std::vector<std::string> values = grammar.values_of(*grammar.find(name));
    return values.empty() ? std::string() : values.back();
  };
  const std::string gpus = value("--gpus-per-node");
  Result<std::vector<std::string>> words =
      reader.slurm.words({.gpus = given({"--gpus", "--gpus-per-node", "--gpu-share", "--mig"}),
                          .output = given({"--output"}),
                          .error = given({"--error"}),
                          .memory = given({"--mem"}),
                          .cpus = value("--cpus"),
                          .gpu_count = gpus.empty() ? value("--gpus") : gpus});
  if (words) words->insert(words->end(), reader.words.begin(), reader.words.end());
  return words;
}

}  // namespace

ScriptLines read_script_lines(const Script& script, const Grammar& grammar) {
  const std::string who = script.name.empty() ? "script" : script.name;
  ScriptLines lines;
  LineReader reader{.grammar = grammar, .lines = lines};
  size_t number = 0;
  for (std::string_view rest = script.text; !rest.empty();) {
    std::string_view line = first_line(rest);
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    ++number;
    const std::string place = who + ":" + std::to_string(number) + ": ";
    line = trimmed(line);
    if (!line.empty() && line.front() != '#') reader.header = false;
    if (has_mark(line, kMark)) reader.take_gpu(line, place);
    if (has_mark(line, kSlurmMark)) reader.take_slurm(line, place);
  }
  lines.warnings.insert(lines.warnings.end(), reader.slurm.warnings().begin(), reader.slurm.warnings().end());
  for (std::string& advice : slurm_advice(who, script.text)) lines.warnings.push_back(std::move(advice));
  lines.account = reader.slurm.account();
  lines.asks_for_tasks = reader.slurm.asks_for_tasks();
  if (!lines.problems.empty()) return lines;
  const Result<std::vector<std::string>> words = all_words(reader, grammar);
  // The tries above filled lists, which the whole fills again.
  for (const OptionSpec& option : grammar.options()) {
    if (auto* const list = std::get_if<std::vector<std::string>*>(&option.target)) (*list)->clear();
  }
  const Result<Unit> good = words ? grammar.parse(*words) : Result<Unit>(words.error());
  if (!good) lines.problems.push_back(good.error().message);
  return lines;
}

}  // namespace gpusched::cli

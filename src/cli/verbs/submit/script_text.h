#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

/// The bytes of a script: what editors of other systems leave in it is removed or refused. Pure.
namespace gpusched::cli {

/// A script's text without a byte order mark and with line ends of LF.
struct ScriptText {
  std::string text;
  std::vector<std::string> notes;  ///< Changes to the text, a sentence each; begins with the script's name.
};

/// Cleans `text` of the script `name`. kInvalidArgument, "name:line: ..." with the place of the byte in its
/// line, for bytes that cannot be what was meant: UTF-16, a carriage return within a line, bytes that are not
/// UTF-8, and a `#!` behind blanks or empty lines.
Result<ScriptText> clean_script_text(std::string text, const std::string& name);

/// Whether `text` begins as UTF-16 does, with its byte order mark.
bool is_utf16(std::string_view text);

/// "byte 7 is 0xE9, which is not UTF-8", with the place of the first such byte in `text`, counted from 1;
/// empty: all of it is UTF-8.
std::string not_utf8(std::string_view text);

}  // namespace gpusched::cli

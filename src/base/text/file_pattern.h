#pragma once

#include <string>
#include <string_view>

/// Paths of a job's input and output files in which "%j" and the like stand for what the node knows when it
/// opens them, by the letters of Slurm. Pure and thread-safe.
namespace gpusched {

/// Values of the letters.
struct FileWords {
  std::string job = {};          ///< %j: the job's id, such as "job-12".
  std::string array = {};        ///< %A: the array's name; of a job by itself, the job's id.
  std::string array_index = {};  ///< %a
  std::string member = {};       ///< %t: which member of the job, from 0 on.
  std::string name = {};         ///< %x: the job's name.
  std::string user = {};         ///< %u: whom it runs as.
  std::string node = {};         ///< %N: the node's name.
};

/// Lists the letters, for people. A width of at most 10 digits may stand before the letter of a number:
/// "%4a".
inline constexpr std::string_view kFilePatternHelp =
    "%j (job), %A (array), %a (index in it), %t (member), %x (name), %u (user), %N (node) and %% exist";

/// The first "%" with what follows it that means nothing, such as "%q" or a "%" at the end; empty: there is
/// none. Not more than one UTF-8 character follows the "%".
std::string_view unknown_file_pattern(std::string_view path);

/// The path with all letters replaced. A "/" in what is put in becomes "_": names make no folders. A pattern
/// without meaning stays as it is.
std::string fill_file_pattern(std::string_view path, const FileWords& words);

}  // namespace gpusched

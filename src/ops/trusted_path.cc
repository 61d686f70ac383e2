#include "ops/trusted_path.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <vector>

#include "ops/machine.h"

namespace gpusched::ops {
namespace {

constexpr int kLinksMax = 40;  ///< As the kernel's own bound.

std::string name_of(uid_t uid) {
  passwd entry{};
  passwd* found = nullptr;
  std::vector<char> text(16 * 1024);
  if (getpwuid_r(uid, &entry, text.data(), text.size(), &found) == 0 && found != nullptr)
    return std::string("'") + found->pw_name + "'";
  return std::to_string(uid);
}

/// The words of a path, the last first.
void push_words(const std::filesystem::path& path, std::vector<std::string>& words) {
  std::vector<std::string> found;
  for (const std::filesystem::path& word : path) {
    if (!word.empty() && word != "/" && word != ".") found.push_back(word.string());
  }
  words.insert(words.end(), found.rbegin(), found.rend());
}

std::optional<std::string> problem_of(const std::string& place, const struct stat& facts) {
  const bool is_ours = facts.st_uid == 0 || facts.st_uid == geteuid();
  if (!is_ours) {
    return place + " belongs to user " + name_of(facts.st_uid) + ", who can change it: run `chown root " +
           shell_quoted(place) + "`";
  }
  if (S_ISLNK(facts.st_mode)) return std::nullopt;
  const bool is_sticky_folder = S_ISDIR(facts.st_mode) && (facts.st_mode & S_ISVTX) != 0;
  if ((facts.st_mode & (S_IWGRP | S_IWOTH)) == 0 || is_sticky_folder) return std::nullopt;
  return place + " can be changed by " + ((facts.st_mode & S_IWOTH) != 0 ? "everybody" : "its group") +
         ": run `chmod go-w " + shell_quoted(place) + "`";
}

}  // namespace

std::optional<std::string> changeable_by_others(const std::string& path) {
  std::error_code failure;
  std::vector<std::string> words;  // Those that are still to be walked, the next one last.
  push_words(std::filesystem::absolute(path, failure), words);
  std::filesystem::path place = "/";
  for (int links = 0; links <= kLinksMax;) {
    struct stat facts{};
    if (lstat(place.c_str(), &facts) != 0) return std::nullopt;
    if (auto problem = problem_of(place.string(), facts)) return problem;
    if (S_ISLNK(facts.st_mode)) {
      const std::filesystem::path target = std::filesystem::read_symlink(place, failure);
      if (failure) return std::nullopt;
      push_words(target, words);
      place = target.is_absolute() ? std::filesystem::path("/") : place.parent_path();
      ++links;
      continue;
    }
    if (words.empty()) return std::nullopt;
    place = words.back() == ".." ? place.parent_path() : place / words.back();
    words.pop_back();
  }
  return path + " is a broken symbolic link";
}

}  // namespace gpusched::ops

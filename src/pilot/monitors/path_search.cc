#include "pilot/monitors/path_search.h"

#include <dirent.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <span>
#include <string_view>

namespace gpusched::pilot {
namespace {

constexpr std::size_t kDepthMax = 32;
constexpr std::array<std::string_view, 4> kPassedOver = {".git", "node_modules", "__pycache__", ".venv"};

const std::vector<std::string> kAllBelow = {"**", "*"};

bool is_pattern(std::string_view name) { return name.find_first_of("*?[") != std::string_view::npos; }

std::vector<std::string> names_of(std::string_view path) {
  std::vector<std::string> names;
  while (!path.empty()) {
    const std::size_t slash = path.find('/');
    if (slash != 0) names.emplace_back(path.substr(0, slash));
    path = slash == std::string_view::npos ? std::string_view() : path.substr(slash + 1);
  }
  return names;
}

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};

class Search {
 public:
  void look(const std::string& folder, std::span<const std::string> names, std::size_t depth) {
    if (names.empty()) return take(folder, depth);
    if (depth > kDepthMax) {
      out_.is_cut = true;
      return;
    }
    const std::string& name = names.front();
    if (name == "**") return look_below(folder, names, depth);
    if (!is_pattern(name)) return look(folder + "/" + name, names.subspan(1), depth + 1);
    for (const std::string& entry : entries(folder)) {
      if (::fnmatch(name.c_str(), entry.c_str(), FNM_PERIOD) == 0)
        look(folder + "/" + entry, names.subspan(1), depth + 1);
    }
  }

  FoundPaths result() {
    out_.files.assign(files_.begin(), files_.end());
    out_.folders.assign(folders_.begin(), folders_.end());
    return std::move(out_);
  }

 private:
  void look_below(const std::string& folder, std::span<const std::string> names, std::size_t depth) {
    look(folder, names.subspan(1), depth + 1);
    for (const std::string& entry : entries(folder)) {
      if (std::ranges::find(kPassedOver, entry) != kPassedOver.end()) continue;
      struct stat facts{};
      const std::string path = folder + "/" + entry;
      if (::lstat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode)) look(path, names, depth + 1);
    }
  }

  /// The pattern ends here: a file, or all files below a folder.
  void take(const std::string& path, std::size_t depth) {
    struct stat facts{};
    if (::stat(path.c_str(), &facts) != 0) {
      // It may come to be: its folder is where that shows.
      folders_.insert(path.substr(0, path.rfind('/')));
      return;
    }
    if (S_ISDIR(facts.st_mode)) {
      if (depth <= kDepthMax && taken_.insert(path).second) look(path, kAllBelow, depth + 1);
      return;
    }
    if (!S_ISREG(facts.st_mode)) return;
    const std::string folder = path.substr(0, path.rfind('/'));
    folders_.insert(folder.empty() ? "/" : folder);
    if (files_.size() < kFilesMax) {
      files_.insert(path);
    } else {
      out_.is_cut = true;
    }
  }

  std::vector<std::string> entries(const std::string& folder) {
    std::vector<std::string> names;
    const std::unique_ptr<DIR, CloseFolder> open(::opendir(folder.empty() ? "/" : folder.c_str()));
    if (open == nullptr) return names;
    if (folders_.size() < kFoldersMax) {
      folders_.insert(folder.empty() ? "/" : folder);
    } else {
      out_.is_cut = true;
    }
    for (const dirent* entry = ::readdir(open.get()); entry != nullptr; entry = ::readdir(open.get())) {
      if (seen_ == kEntriesMax) {
        out_.is_cut = true;
        break;
      }
      const std::string_view name = entry->d_name;
      if (name == "." || name == "..") continue;
      ++seen_;
      names.emplace_back(name);
    }
    std::ranges::sort(names);
    return names;
  }

  FoundPaths out_;
  std::set<std::string> files_, folders_, taken_;
  std::size_t seen_ = 0;
};

bool matches(std::span<const std::string> pattern, std::span<const std::string> path) {
  // A pattern that ends at a folder stands for all files below it.
  if (pattern.empty()) return path.empty() || matches(kAllBelow, path);
  const std::string& name = pattern.front();
  if (name == "**") {
    if (matches(pattern.subspan(1), path)) return true;
    const bool is_passed_over =
        path.empty() || std::ranges::find(kPassedOver, path.front()) != kPassedOver.end();
    return !is_passed_over && matches(pattern, path.subspan(1));
  }
  if (path.empty()) return false;
  const bool is_same = is_pattern(name) ? ::fnmatch(name.c_str(), path.front().c_str(), FNM_PERIOD) == 0
                                        : name == path.front();
  return is_same && matches(pattern.subspan(1), path.subspan(1));
}

}  // namespace

bool matches_paths(const std::vector<std::string>& patterns, const std::string& path) {
  const std::vector<std::string> names = names_of(path);
  const bool has_dots =
      std::ranges::any_of(names, [](const std::string& name) { return name == "." || name == ".."; });
  if (!path.starts_with('/') || has_dots || names.size() > kDepthMax) return false;
  return std::ranges::any_of(patterns,
                             [&](const std::string& pattern) { return matches(names_of(pattern), names); });
}

FoundPaths search_paths(const std::vector<std::string>& patterns) {
  Search search;
  for (const std::string& pattern : patterns) search.look("", names_of(pattern), 0);
  return search.result();
}

}  // namespace gpusched::pilot

// Runs every tests/scenarios/access/*.scn: one test a file. The format is in tests/scenarios/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "access/access.h"

namespace gpusched::access {
namespace {

/// One line: words, key=value options, and what is expected behind "->".
struct Line {
  std::vector<std::string> words;
  std::map<std::string, std::string> options;
  std::string expected;
  mutable std::set<std::string> asked = {};  ///< Options that a verb asked for.

  std::string word(std::size_t index) const { return index < words.size() ? words[index] : ""; }
  bool has(const std::string& key) const {
    asked.insert(key);
    return options.contains(key);
  }
  std::string option(const std::string& key) const {
    asked.insert(key);
    const auto it = options.find(key);
    return it == options.end() ? "" : it->second;
  }
};

Line parse(const std::string& raw) {
  Line line;
  const std::size_t arrow = raw.find("->");
  std::istringstream words(raw.substr(0, arrow));
  for (std::string word; words >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos) {
      line.words.push_back(word);
    } else {
      line.options[word.substr(0, equals)] = word.substr(equals + 1);
    }
  }
  if (arrow == std::string::npos) return line;
  std::istringstream expected(raw.substr(arrow + 2));  // One blank between words, however they are aligned.
  for (std::string word; expected >> word;) line.expected += (line.expected.empty() ? "" : " ") + word;
  return line;
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, separator);) parts.push_back(word);
  return parts;
}

Role role_of(const std::string& name) {
  const std::optional<Role> role = role_named(name);
  EXPECT_TRUE(role.has_value()) << "no such role: " << name;
  return role.value_or(Role::kAnonymous);
}

CallerKind kind_of(const std::string& name) {
  const std::optional<CallerKind> kind = caller_kind_named(name);
  EXPECT_TRUE(kind.has_value()) << "no such kind of caller: " << name;
  return kind.value_or(CallerKind::kAnonymous);
}

std::string_view to_string(Verdict verdict) {
  constexpr std::string_view kNames[] = {"allowed", "forbidden", "hidden"};
  return kNames[static_cast<std::size_t>(verdict)];
}

class Scenario {
 public:
  void run(const Line& line) {
    static const std::map<std::string, std::string (Scenario::*)(const Line&)> kVerbs = {
        {"tenant", &Scenario::tenant},   {"caller", &Scenario::caller}, {"ask", &Scenario::ask},
        {"may", &Scenario::may},         {"grant", &Scenario::grant},   {"lend", &Scenario::lend},
        {"run-as", &Scenario::run_user}, {"home", &Scenario::home},
    };
    const auto verb = kVerbs.find(line.word(0));
    ASSERT_NE(verb, kVerbs.end()) << "no such verb: " << line.word(0);
    EXPECT_EQ((this->*verb->second)(line), line.expected);
    for (const auto& [key, value] : line.options)
      EXPECT_TRUE(line.asked.contains(key)) << line.word(0) << " knows no such word: " << key;
  }

 private:
  struct Tenant {
    std::vector<TenantId> path;
    bool is_open = false;
  };

  const Tenant& tenant_of(const std::string& name) {
    EXPECT_TRUE(tenants_.contains(name)) << "no such tenant: " << name;
    return tenants_[name];
  }
  const Caller& caller_of(const std::string& name) {
    EXPECT_TRUE(callers_.contains(name)) << "no such caller: " << name;
    return callers_[name];
  }
  /// The resource that a line's options name; it points into them.
  Resource resource_of(const Line& line) {
    Resource resource;
    if (line.has("tenant")) {
      const Tenant& tenant = tenant_of(line.option("tenant"));
      resource.tenant_path = tenant.path;
      resource.is_open = tenant.is_open;
    }
    if (line.has("owner")) {
      const std::string& owner = line.options.at("owner");  // "person:ana"
      const std::size_t colon = std::min(owner.find(':'), owner.size());
      resource.owner = {.kind = kind_of(owner.substr(0, colon)),
                        .name = std::string_view(owner).substr(std::min(colon + 1, owner.size()))};
    }
    if (line.has("node")) resource.node = line.options.at("node");
    return resource;
  }

  std::string tenant(const Line& line) {
    Tenant made{.path = {TenantId{tenants_.size() + 1}}, .is_open = line.word(2) == "open"};
    if (line.has("parent")) {
      const Tenant& parent = tenant_of(line.option("parent"));
      made.path.insert(made.path.end(), parent.path.begin(), parent.path.end());
    }
    tenants_[line.word(1)] = made;
    return "";
  }
  static Caller made_caller(const std::string& kind, const std::string& name) {
    if (kind == "shared-token") return shared_token_caller();
    if (kind == "unix-person") return unix_person(name, true);
    if (kind == "unix-person-alone") return unix_person(name, false);
    if (kind == "unix-admin") return unix_admin(name);
    return {.kind = kind_of(kind)};
  }
  std::string caller(const Line& line) {
    Caller made = made_caller(line.word(2), line.word(1));
    if (made.name.empty() && made.kind != CallerKind::kAnonymous) made.name = line.word(1);
    for (const std::string& bound : split(line.option("roles"), ',')) {  // "lab:user", "*:admin"
      const std::vector<std::string> parts = split(bound, ':');
      EXPECT_EQ(parts.size(), 2U) << bound;
      const TenantId tenant = parts[0] == "*" ? TenantId{} : tenant_of(parts[0]).path.front();
      made.bindings.push_back({.tenant = tenant, .role = role_of(parts[1])});
    }
    for (const std::string& user : split(line.option("users"), ',')) made.unix_users.push_back(user);
    made.node = line.option("node");
    callers_[line.word(1)] = made;
    return "";
  }
  std::string ask(const Line& line) {
    const std::optional<Action> action = action_named(line.word(2));
    if (!action) return "no such action";
    return std::string(to_string(decide_access(caller_of(line.word(1)), *action, resource_of(line))));
  }
  /// All that is allowed to do with a job, a tenant ...
  std::string may(const Line& line) {
    static const std::map<std::string, Subject> kSubjects = {{"job", Subject::kJob},
                                                             {"tenant", Subject::kTenant},
                                                             {"key", Subject::kKey},
                                                             {"node", Subject::kNode},
                                                             {"cluster", Subject::kCluster}};
    const auto subject = kSubjects.find(line.word(2));
    if (subject == kSubjects.end()) return "no such subject";
    std::string all;
    for (const ActionRow& row : action_rows()) {
      if (row.subject != subject->second) continue;
      if (decide_access(caller_of(line.word(1)), row.action, resource_of(line)) != Verdict::kAllowed)
        continue;
      all += (all.empty() ? "" : " ") + std::string(row.name);
    }
    return all.empty() ? "nothing" : all;
  }
  std::string grant(const Line& line) {
    const Resource resource = resource_of(line);
    return may_grant(caller_of(line.word(1)), role_of(line.word(2)), resource.tenant_path) ? "yes" : "no";
  }
  std::string lend(const Line& line) {
    return may_lend_user(caller_of(line.word(1)), line.word(2)) ? "yes" : "no";
  }
  std::string run_user(const Line& line) {
    return may_run_as(caller_of(line.word(1)), line.word(2)) ? "yes" : "no";
  }
  std::string home(const Line& line) {
    const TenantId home = home_tenant(caller_of(line.word(1)));
    for (const auto& [name, tenant] : tenants_) {
      if (tenant.path.front() == home) return name;
    }
    return "none";
  }

  /// The first tenant of a scenario is the default one.
  std::map<std::string, Tenant> tenants_;
  std::map<std::string, Caller> callers_;
};

std::vector<std::filesystem::path> all_scenarios() {
  std::vector<std::filesystem::path> found;
  for (const auto& entry : std::filesystem::directory_iterator(SCENARIO_FOLDER))
    found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

class AccessScenarios : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(AccessScenarios, Holds) {
  ASSERT_EQ(GetParam().extension(), ".scn");
  std::ifstream file(GetParam());
  ASSERT_TRUE(file.is_open());
  Scenario scenario;
  std::string raw;
  int checked = 0;
  for (int number = 1; std::getline(file, raw); ++number) {
    raw.erase(std::min(raw.find('#'), raw.size()));
    if (raw.find_first_not_of(' ') == std::string::npos) continue;
    const Line line = parse(raw);
    SCOPED_TRACE(GetParam().filename().string() + ":" + std::to_string(number) + ": " + raw);
    scenario.run(line);
    if (!line.expected.empty()) ++checked;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(checked, 0) << "it expects nothing";
}

INSTANTIATE_TEST_SUITE_P(Files, AccessScenarios, ::testing::ValuesIn(all_scenarios()),
                         [](const ::testing::TestParamInfo<std::filesystem::path>& file) {
                           return file.param.stem().string();
                         });

}  // namespace
}  // namespace gpusched::access

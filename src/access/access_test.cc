#include "access/access.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace gpusched::access {
namespace {

constexpr TenantId kTop{10}, kLab{11}, kDesk{12}, kOtherLab{13}, kOther{20};
// Each from the tenant up.
const std::vector<TenantId> kTopPath = {kTop};
const std::vector<TenantId> kLabPath = {kLab, kTop};
const std::vector<TenantId> kDeskPath = {kDesk, kLab, kTop};
const std::vector<TenantId> kOtherLabPath = {kOtherLab, kTop};
const std::vector<TenantId> kOtherPath = {kOther};

constexpr Role kBindable[] = {Role::kViewer,   Role::kUser,  Role::kTenantAdmin,
                              Role::kOperator, Role::kAdmin, Role::kMetrics};
constexpr Owner kAna{.kind = CallerKind::kPerson, .name = "ana"};
constexpr Owner kBob{.kind = CallerKind::kPerson, .name = "bob"};

Caller ana(std::vector<Binding> bindings) {
  return {.kind = CallerKind::kPerson, .name = "ana", .bindings = std::move(bindings)};
}

Reach reach_of(Action action, Role role) { return row_of(action).reach[index_of(role)]; }

TEST(ActionTable, HasEachActionOnceInItsOrder) {
  std::set<std::string_view> names;
  for (std::size_t i = 0; i < kActionCount; ++i) {
    const ActionRow& row = action_rows()[i];
    EXPECT_EQ(static_cast<std::size_t>(row.action), i) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_EQ(action_named(row.name), row.action);
    EXPECT_EQ(to_string(row.action), row.name);
  }
  EXPECT_EQ(action_named("fly"), std::nullopt);
}

TEST(ActionTable, WhatRevealsASubjectIsLeftToWhoeverMayUseIt) {
  for (const ActionRow& row : action_rows()) {
    const ActionRow& seen_by = row_of(row.seen_by);
    EXPECT_EQ(seen_by.seen_by, seen_by.action) << row.name;
    if (row.action == Action::kSpeakForNode) continue;  // An agent knows its own node alone.
    for (std::size_t role = 0; role < kRoleCount; ++role)
      EXPECT_LE(row.reach[role], seen_by.reach[role]) << row.name << ", role " << role;
  }
}

TEST(ActionTable, NobodyReadsScriptsButOwnersAndTheirTenantsAdmins) {
  for (const Role role : kBindable) {
    const bool reads = reach_of(Action::kReadJobScript, role) == Reach::kAll;
    EXPECT_EQ(reads, role == Role::kTenantAdmin) << to_string(role);
  }
  EXPECT_EQ(reach_of(Action::kReadJobScript, Role::kUser), Reach::kOwn);
}

TEST(ActionTable, WhatIsDoneAsAUnixUserSaysSo) {
  std::set<std::string_view> found;
  for (const ActionRow& row : action_rows()) {
    if (row.as_unix_user) found.insert(row.name);
  }
  EXPECT_EQ(found, (std::set<std::string_view>{"submit_job", "enter_job", "read_job_file"}));
}

// The matrix: every action x every role x how the resource stands to the binding.

TEST(Matrix, ATenantsWallsHoldForEveryActionAndRole) {
  for (const ActionRow& row : action_rows()) {
    if (!has_walls(row.subject)) continue;
    for (const Role role : kBindable) {
      const Caller caller = ana({{.tenant = kLab, .role = role}});
      for (const auto* path : {&kOtherPath, &kOtherLabPath, &kTopPath}) {  // Elsewhere, beside, above.
        for (const Owner& owner : {kAna, kBob, Owner{}}) {
          const Verdict verdict = decide_access(caller, row.action, {.tenant_path = *path, .owner = owner});
          EXPECT_EQ(verdict, Verdict::kHidden) << row.name << " " << to_string(role);
        }
      }
    }
  }
}

TEST(Matrix, WithinItsTenantAndBelowABindingAllowsWhatTheTableSays) {
  for (const ActionRow& row : action_rows()) {
    for (const Role role : kBindable) {
      const bool means_something = scope_of(role) == RoleScope::kTenant;
      const Reach reach = means_something ? reach_of(row.action, role) : Reach::kNone;
      const Caller caller = ana({{.tenant = kLab, .role = role}});
      for (const auto* path : {&kLabPath, &kDeskPath}) {
        const auto allowed = [&](const Owner& owner) {
          return decide_access(caller, row.action, {.tenant_path = *path, .owner = owner}) ==
                 Verdict::kAllowed;
        };
        EXPECT_EQ(allowed(kAna), reach != Reach::kNone) << row.name << " " << to_string(role);
        EXPECT_EQ(allowed(kBob), reach == Reach::kAll) << row.name << " " << to_string(role);
        EXPECT_EQ(allowed({}), reach == Reach::kAll) << row.name << " " << to_string(role);
      }
    }
  }
}

TEST(Matrix, ABindingWithoutATenantReachesAllOfThem) {
  for (const ActionRow& row : action_rows()) {
    for (const Role role : kBindable) {
      const Caller caller = ana({{.tenant = {}, .role = role}});
      for (const auto* path : {&kTopPath, &kDeskPath, &kOtherPath}) {
        const Verdict verdict = decide_access(caller, row.action, {.tenant_path = *path, .owner = kBob});
        EXPECT_EQ(verdict == Verdict::kAllowed, reach_of(row.action, role) == Reach::kAll)
            << row.name << " " << to_string(role);
      }
    }
  }
}

TEST(Matrix, RolesThatGoWithAKindCannotBeBound) {
  for (const ActionRow& row : action_rows()) {
    for (const Role role : {Role::kNode, Role::kAnonymous, static_cast<Role>(0), static_cast<Role>(99)}) {
      for (const TenantId tenant : {TenantId{}, kLab}) {
        const Caller caller = ana({{.tenant = tenant, .role = role}});
        const Resource resource{.tenant_path = kLabPath, .owner = kAna, .is_open = true};
        EXPECT_NE(decide_access(caller, row.action, resource), Verdict::kAllowed) << row.name;
      }
    }
  }
}

TEST(Matrix, WithoutABindingNothingIsAllowed) {
  for (const ActionRow& row : action_rows()) {
    for (const CallerKind kind : {CallerKind::kPerson, CallerKind::kService, CallerKind::kOperator}) {
      const Caller caller{.kind = kind, .name = "ana"};
      const Resource resource{
          .tenant_path = kLabPath, .owner = {.kind = kind, .name = "ana"}, .node = "n1", .is_open = true};
      EXPECT_NE(decide_access(caller, row.action, resource), Verdict::kAllowed) << row.name;
    }
  }
}

TEST(Matrix, AnonymousCallersStayInOpenTenantsAndGetNothingByBindings) {
  Caller caller = anonymous_caller();
  caller.bindings = {{.tenant = {}, .role = Role::kAdmin}, {.tenant = {}, .role = Role::kTenantAdmin}};
  for (const ActionRow& row : action_rows()) {
    const Reach reach = reach_of(row.action, Role::kAnonymous);
    const auto verdict = [&](bool is_open, Owner owner) {
      return decide_access(caller, row.action, {.tenant_path = kLabPath, .owner = owner, .is_open = is_open});
    };
    const Owner nameless{.kind = CallerKind::kAnonymous};
    EXPECT_EQ(verdict(true, nameless) == Verdict::kAllowed, reach != Reach::kNone) << row.name;
    EXPECT_EQ(verdict(true, kBob) == Verdict::kAllowed, reach == Reach::kAll) << row.name;
    if (has_walls(row.subject)) {
      EXPECT_EQ(verdict(false, nameless), Verdict::kHidden) << row.name;
    }
  }
}

TEST(Matrix, ANodeSpeaksForItselfAndDoesNothingElse) {
  Caller caller{.kind = CallerKind::kNode, .name = "n1", .node = "n1"};
  caller.bindings = {{.tenant = {}, .role = Role::kOperator}};
  for (const ActionRow& row : action_rows()) {
    const auto allowed = [&](std::string_view node) {
      return decide_access(caller, row.action, {.tenant_path = kLabPath, .node = node}) == Verdict::kAllowed;
    };
    const bool is_open_to_all = row.action == Action::kSeeHealth;
    EXPECT_EQ(allowed("n1"), row.action == Action::kSpeakForNode || is_open_to_all) << row.name;
    EXPECT_EQ(allowed("n2"), is_open_to_all) << row.name;
    EXPECT_EQ(allowed(""), is_open_to_all) << row.name;
  }
  caller.node.clear();  // A caller without a node's name is no node without one.
  EXPECT_EQ(decide_access(caller, Action::kSpeakForNode, {}), Verdict::kForbidden);
}

TEST(Matrix, SeveralBindingsAllowWhatOneOfThemDoes) {
  for (const ActionRow& row : action_rows()) {
    for (const Role first : kBindable) {
      for (const Role second : kBindable) {
        const Binding lab{.tenant = kLab, .role = first}, everywhere{.tenant = {}, .role = second};
        for (const auto* path : {&kLabPath, &kOtherPath}) {
          const Resource resource{.tenant_path = *path, .owner = kAna};
          const auto allowed = [&](std::vector<Binding> bindings) {
            return decide_access(ana(std::move(bindings)), row.action, resource) == Verdict::kAllowed;
          };
          EXPECT_EQ(allowed({lab, everywhere}), allowed({lab}) || allowed({everywhere})) << row.name;
        }
      }
    }
  }
}

TEST(SharedToken, MayDoAllThatPeopleMay) {
  const Caller caller = shared_token_caller();
  for (const ActionRow& row : action_rows()) {
    if (row.action == Action::kSpeakForNode) continue;  // Agents prove the token in their own way.
    EXPECT_EQ(decide_access(caller, row.action, {.tenant_path = kLabPath, .owner = kBob, .node = "n1"}),
              Verdict::kAllowed)
        << row.name;
    EXPECT_EQ(decide_access(caller, row.action, {}), Verdict::kAllowed) << row.name;
  }
  for (const char* user : {"", "ana", "root", "0", "1000"}) EXPECT_TRUE(may_run_as(caller, user)) << user;
}

TEST(Owners, AreKnownByKindAndName) {
  const Caller caller = ana({{.tenant = kLab, .role = Role::kUser}});
  const auto cancels = [&](const Owner& owner) {
    return decide_access(caller, Action::kCancelJob, {.tenant_path = kLabPath, .owner = owner});
  };
  EXPECT_EQ(cancels(kAna), Verdict::kAllowed);
  EXPECT_EQ(cancels({.kind = CallerKind::kService, .name = "ana"}), Verdict::kForbidden);
  EXPECT_EQ(cancels({.kind = CallerKind::kPerson, .name = "an"}), Verdict::kForbidden);
  EXPECT_EQ(cancels({.kind = CallerKind::kPerson, .name = ""}), Verdict::kForbidden);
  Caller nameless = caller;
  nameless.name.clear();  // Jobs of before owners were kept are nobody's.
  EXPECT_EQ(decide_access(nameless, Action::kCancelJob,
                          {.tenant_path = kLabPath, .owner = {.kind = CallerKind::kPerson, .name = ""}}),
            Verdict::kForbidden);
}

TEST(UnixUsers, RootIsNamedOrNotMeant) {
  Caller caller = ana({});
  caller.unix_users = {"*"};
  for (const char* user : {"", "ana", "1000", "100"}) EXPECT_TRUE(may_run_as(caller, user)) << user;
  for (const char* user : {"root", "0", "00", "+0", "-0", "0000"})
    EXPECT_FALSE(may_run_as(caller, user)) << user;
  caller.unix_users = {"root"};
  for (const char* user : {"root", "0", "00"}) EXPECT_TRUE(may_run_as(caller, user)) << user;
  EXPECT_FALSE(may_run_as(caller, "ana"));
}

TEST(Grants, NobodyGivesARoleThatItCouldNotGiveItself) {
  for (const Role own : kBindable) {
    for (const TenantId bound : {TenantId{}, kLab}) {
      const Caller giver = ana({{.tenant = bound, .role = own}});
      const bool is_admin = own == Role::kAdmin && !bound.valid();
      for (const Role given : kBindable) {
        const bool for_tenants = scope_of(given) == RoleScope::kTenant;
        const std::string what = std::string(to_string(own)) + " gives " + std::string(to_string(given));
        EXPECT_EQ(may_grant(giver, given, {}), is_admin) << what;
        EXPECT_EQ(may_grant(giver, given, kDeskPath), for_tenants && (is_admin || own == Role::kTenantAdmin))
            << what;
        EXPECT_EQ(may_grant(giver, given, kOtherPath),
                  for_tenants && (is_admin || (own == Role::kTenantAdmin && !bound.valid())))
            << what;
      }
      EXPECT_FALSE(may_grant(giver, Role::kNode, {}));
      EXPECT_FALSE(may_grant(giver, Role::kAnonymous, kLabPath));
    }
  }
}

TEST(Roles, HaveNames) {
  std::set<std::string_view> names;
  for (std::size_t i = 1; i <= kRoleCount; ++i) {
    const Role role = static_cast<Role>(i);
    EXPECT_TRUE(names.insert(to_string(role)).second);
    EXPECT_EQ(role_named(to_string(role)), role);
  }
  EXPECT_EQ(role_named("king"), std::nullopt);
  for (const CallerKind kind : {CallerKind::kAnonymous, CallerKind::kPerson, CallerKind::kService,
                                CallerKind::kNode, CallerKind::kOperator})
    EXPECT_EQ(caller_kind_named(to_string(kind)), kind);
  EXPECT_EQ(caller_kind_named("ghost"), std::nullopt);
}

}  // namespace
}  // namespace gpusched::access

#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/blob.h"
#include "base/fields.h"
#include "base/ids.h"
#include "base/time.h"
#include "model/identity/binding.h"

namespace gpusched {

using PersonId = Id<struct PersonTag>;

/// Somebody whom an administrator has recorded. A record lets nobody in: it says for whom a key may be made,
/// and such a key ends with it.
struct Person {
  PersonId id;
  TenantId tenant;  ///< Home of the person's keys. None: the cluster.
  std::string email;
  Role role = Role::kUser;  ///< Role of the person's keys in the home.
  Blob password;            ///< Its argon2id hash as text; empty: none was set. Never shown.
  bool active = true;
  std::string changed_by;
  Time created_at;
  Time updated_at;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "id", self.id);
    visit(2, "tenant", self.tenant);
    visit(3, "email", self.email);
    visit(4, "role", self.role);
    visit(5, "password", self.password);
    visit(6, "active", self.active);
    visit(7, "changed_by", self.changed_by);
    visit(8, "created_at", self.created_at);
    visit(9, "updated_at", self.updated_at);
  }
};

/// Whether its texts, its role and its home are of a form that a person's may have.
bool is_possible(const Person& person);

/// Name of a person's key in its home: "user:12". Doors give no other key a name with a colon.
std::string key_name_of(PersonId person);
/// Whether it begins as such a name does.
bool is_persons_key_name(std::string_view name);
/// The person whose key has this name; nothing: it is not written as `key_name_of` writes it.
std::optional<PersonId> person_of_key_name(std::string_view name);

/// All people that were recorded. Addresses that differ only by the case of Latin letters are one.
class PersonTable {
 public:
  std::size_t size() const { return people_.size(); }
  /// In the order of their ids.
  auto begin() const { return people_.begin(); }
  auto end() const { return people_.end(); }
  /// Null when there is none, as below.
  const Person* find(PersonId id) const;
  const Person* find_email(std::string_view email) const;

  /// In place of an older record of that id. False: another person has the address. A helper of `evolve` and
  /// of snapshots.
  bool put(Person person);

 private:
  std::map<PersonId, Person> people_;
  std::map<std::string, PersonId> by_email_;
};

}  // namespace gpusched

#pragma once

#include <bitset>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/blob.h"

namespace gpusched::api {

/// Words of a packed JobSpec, found without unpacking it. They live as long as the bytes.
struct SpecPeek {
  std::string_view name, submitter, user;
  std::string_view task_type;  ///< The label of that name.
};
SpecPeek peek_spec(std::string_view packed);

/// Whether the job never runs as root, because its caller had no credential or one without root, and a mark
/// of that. A job of before feature level 9 that has it is of a caller without a credential.
bool is_never_root(std::string_view packed);
void mark_never_root(std::string& packed);
/// Gives a packed JobSpec that names no user this one; its other bytes stay as they are.
void set_user(std::string& packed, std::string_view user);
/// Gives a packed JobSpec a label that it does not have yet; its other bytes stay as they are.
void add_label(std::string& packed, std::string_view label, std::string_view value);
/// The packed JobSpec without the values of its secret variables, and without the payload of a task and the
/// digest of it: what may be shown. The same bytes where it has none; nothing where they are damaged.
Blob without_secrets(const Blob& packed);
/// Whether the packed JobSpec names a credential for a registry of images.
bool spec_names_credential(std::string_view packed);

/// Whether the packed JobSpec has the label; without a value: any value.
bool spec_has_label(std::string_view packed, std::string_view label, const std::optional<std::string>& value);

/// The value of the packed JobSpec's label; nothing: it has no such label. It lives as long as the bytes.
std::optional<std::string_view> spec_label(std::string_view packed, std::string_view label);

/// The numbers of the fields that a packed JobSpec has; one that has its default may be among them.
using SpecNumbers = std::bitset<128>;
SpecNumbers spec_numbers(std::string_view packed);

/// "key=value", or "key" for any value, as spec_has_label takes it.
std::pair<std::string, std::optional<std::string>> parse_label(const std::string& text);

/// Whether `text` fits `pattern`, in which '*' stands for any text and '?' for any one byte.
bool glob_matches(std::string_view pattern, std::string_view text);

}  // namespace gpusched::api

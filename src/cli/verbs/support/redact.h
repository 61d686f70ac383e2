#pragma once

#include <string>
#include <string_view>

#include "client/json.h"

namespace gpusched::cli {

/// Whether the values of a key or variable of this name are secrets: it speaks of a token, password, secret,
/// credential or key.
bool names_a_secret(std::string_view name);
/// Whether a job's variable may be shown with its value: those of CUDA, NCCL and their like, and the locale.
bool is_harmless_variable(std::string_view name);

/// `text` without what follows "token=", "--password ", "Authorization: Bearer " and their like, and without
/// `known`, a secret that may stand anywhere (empty: none).
std::string redacted_text(std::string_view text, std::string_view known);
/// A JSON document, indented, without secrets: values of keys that name one, of variables in `environment`
/// that are not harmless, and whatever `redacted_text` hides in texts.
std::string redacted_json(const Json& json, std::string_view known);
/// A YAML configuration, line by line, without the values of keys that name a secret.
std::string redacted_config(std::string_view text, std::string_view known);

}  // namespace gpusched::cli

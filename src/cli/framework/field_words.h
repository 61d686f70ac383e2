#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gpusched::cli {

/// A field of a request, and the option that gives it.
struct FieldOption {
  std::string_view field;
  std::string_view option;
  std::string_view unit = {};  ///< Unit that the field counts, where the option is written otherwise.
};

/// Fields of jobs and of tenants.
std::span<const FieldOption> field_options();

/// The scheduler's sentence about a request with its fields under the names of options: "gpu_count must be
/// ..." becomes "--gpus must be ...". `field` is the one that the refusal names, or empty. Fields that are
/// plain words, such as "name", are replaced only where the sentence begins with the field that is named.
std::string in_option_words(const std::string& sentence, const std::string& field);

/// Whether a request at `path` carries fields that options gave, and no text of the caller's own.
bool has_fields_of_options(std::string_view method, std::string_view path);

}  // namespace gpusched::cli

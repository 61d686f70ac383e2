#include "api/fields/tenants/tenant_name.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "api/contract/parse.h"
#include "api/fields/checks.h"

namespace gpusched::api {
namespace {

/// The code point at the beginning of the text, which is UTF-8, and what is behind it.
uint32_t take_code_point(std::string_view& text) {
  const auto first = static_cast<unsigned char>(text.front());
  const std::size_t bytes = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  uint32_t point = bytes == 1 ? first : first & (0xFFU >> (bytes + 1));
  for (std::size_t i = 1; i < bytes && i < text.size(); ++i)
    point = point << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  text.remove_prefix(std::min(bytes, text.size()));
  return point;
}

/// Characters that nobody sees, that turn the direction of writing, or that make one letter of two code
/// points: with these two names that are not the same look the same.
constexpr std::pair<uint32_t, uint32_t> kMisleading[] = {
    {0x00, 0x1F},     {0x7F, 0xA0},     {0xAD, 0xAD},       {0x300, 0x36F},    {0x61C, 0x61C},
    {0x115F, 0x1160}, {0x1680, 0x1680}, {0x17B4, 0x17B5},   {0x180B, 0x180F},  {0x1AB0, 0x1AFF},
    {0x1DC0, 0x1DFF}, {0x2000, 0x200F}, {0x2028, 0x202F},   {0x205F, 0x206F},  {0x20D0, 0x20FF},
    {0x3000, 0x3000}, {0x3164, 0x3164}, {0xFE00, 0xFE0F},   {0xFE20, 0xFE2F},  {0xFEFF, 0xFEFF},
    {0xFFA0, 0xFFA0}, {0xFFF0, 0xFFFF}, {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF}};

bool is_misleading_name(std::string_view name) {
  if (name.front() == ' ' || name.back() == ' ' || name.find("  ") != std::string_view::npos) return true;
  while (!name.empty()) {
    const uint32_t point = take_code_point(name);
    const auto has_it = [&](const auto& range) { return point >= range.first && point <= range.second; };
    if (std::ranges::any_of(kMisleading, has_it)) return true;
  }
  return false;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

std::string with_small_letters(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

/// The text in a form of Unicode, composed, with what else `options` say. It must be UTF-8: what is not stays
/// as it is.
std::string mapped(std::string_view text, utf8proc_option_t options) {
  utf8proc_uint8_t* out = nullptr;
  const auto how =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT | options);
  const utf8proc_ssize_t bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                              static_cast<utf8proc_ssize_t>(text.size()), &out, how);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owned(out, &std::free);
  if (bytes < 0) return std::string(text);
  return {reinterpret_cast<const char*>(out), static_cast<std::size_t>(bytes)};
}

}  // namespace

std::optional<ApiError> check_tenant_name(const TenantSettings& settings) {
  if (!settings.name) return std::nullopt;
  const std::string& name = *settings.name;
  if (name.empty()) return invalid("name", "name is empty; a tenant needs one");
  constexpr std::string_view kPrefix = "tenant-";
  // A name that people would take for an id, or for the default tenant, is none either.
  const std::string folded = mapped(name, UTF8PROC_CASEFOLD);
  if (folded == "default" || (folded.starts_with(kPrefix) && folded.size() > kPrefix.size() &&
                              parse_count(std::string_view(folded).substr(kPrefix.size()), INT64_MAX)))
    return invalid("name", "name must not look like a tenant's id; choose another one");
  if (is_misleading_name(name)) {
    return invalid(
        "name",
        "name begins or ends with a space, has two in a row, or has a character that is not seen or "
        "joins another one; leave it out");
  }
  const std::string normal = mapped(name, {});
  if (normal != name)
    return invalid("name",
                   "name is not in the usual form of its characters (Unicode NFKC); write it as " + normal);
  return std::nullopt;
}

std::string tenant_name_key(std::string_view name) {
  if (is_ascii(name)) return {};
  std::string key = mapped(name, static_cast<utf8proc_option_t>(UTF8PROC_CASEFOLD | UTF8PROC_IGNORE));
  if (key == with_small_letters(std::string(name))) return {};
  return key;
}

}  // namespace gpusched::api

#include "base/text/trace_context.h"

#include <algorithm>
#include <cstddef>

namespace gpusched {
namespace {

constexpr std::size_t kTraceIdAt = 3, kTraceIdBytes = 32, kParentIdBytes = 16;
constexpr std::size_t kParentIdAt = kTraceIdAt + kTraceIdBytes + 1;
constexpr std::size_t kFlagsAt = kParentIdAt + kParentIdBytes + 1;
constexpr std::size_t kBytes = kFlagsAt + 2;

constexpr bool is_lower_hex(char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); }
constexpr bool is_name_letter(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         std::string_view("-_.:/+=~@").find(c) != std::string_view::npos;
}
bool is_id(std::string_view text) {
  return std::ranges::all_of(text, is_lower_hex) &&
         std::ranges::any_of(text, [](char c) { return c != '0'; });
}

}  // namespace

std::string_view trace_id_of(std::string_view traceparent) {
  if (traceparent.size() < kBytes) return {};
  const std::string_view version = traceparent.substr(0, 2);
  const bool may_be_longer = version != "00";
  if (!std::ranges::all_of(version, is_lower_hex) || version == "ff") return {};
  if (traceparent.size() > kBytes && (!may_be_longer || traceparent[kBytes] != '-')) return {};
  for (const std::size_t dash : {kTraceIdAt - 1, kParentIdAt - 1, kFlagsAt - 1}) {
    if (traceparent[dash] != '-') return {};
  }
  const std::string_view trace = traceparent.substr(kTraceIdAt, kTraceIdBytes);
  const bool valid = is_id(trace) && is_id(traceparent.substr(kParentIdAt, kParentIdBytes)) &&
                     std::ranges::all_of(traceparent.substr(kFlagsAt, 2), is_lower_hex);
  return valid ? trace : std::string_view();
}

bool is_request_name(std::string_view text) {
  return !text.empty() && text.size() <= kRequestNameBytesMax && std::ranges::all_of(text, is_name_letter);
}

}  // namespace gpusched

#include "api/contract/spec_peek.h"

#include <set>

#include "base/bytes.h"
#include "base/text/packed_field.h"
#include "base/text/task_content.h"
#include "base/text/task_payload.h"
#include "base/text/trace_variable.h"

namespace gpusched::api {
namespace {

constexpr uint64_t kName = 1, kEnvironment = 6, kLabels = 7, kSubmitter = 11, kUser = 12, kCredential = 21,
                   kAnonymous = 50, kSecretVariables = 66;

/// Calls `visit(number, bytes)` with every length-delimited field until it returns false, and
/// `visit_number(number, value)` with every number, of whatever width.
template <typename Visit, typename VisitNumber>
void for_each_field(std::string_view packed, Visit&& visit, VisitNumber&& visit_number) {
  ByteReader reader(packed);
  while (!reader.at_end()) {
    const uint64_t tag = reader.varint();
    switch (tag & 7) {
      case 0:
        visit_number(tag >> 3, reader.varint());
        break;
      case 2: {
        const std::string_view bytes = reader.bytes();
        if (!reader.ok() || !visit(tag >> 3, bytes)) return;
        break;
      }
      case 1:
        visit_number(tag >> 3, reader.fixed64());
        break;
      case 5:
        visit_number(tag >> 3, reader.fixed32());
        break;
      default:
        return;  // Groups: a JobSpec has none.
    }
    if (!reader.ok()) return;
  }
}

template <typename Visit>
void for_each_field(std::string_view packed, Visit&& visit) {
  for_each_field(packed, std::forward<Visit>(visit), [](uint64_t, uint64_t) {});
}

/// An entry of a map of texts.
std::pair<std::string_view, std::string_view> entry_of(std::string_view entry) {
  std::string_view key, value;
  for_each_field(entry, [&](uint64_t part, std::string_view word) {
    (part == 1 ? key : value) = word;
    return true;
  });
  return {key, value};
}

}  // namespace

SpecPeek peek_spec(std::string_view packed) {
  SpecPeek peek;
  for_each_field(packed, [&peek](uint64_t number, std::string_view bytes) {
    if (number == kName) peek.name = bytes;
    if (number == kLabels) {
      const auto [key, value] = entry_of(bytes);
      if (key == "task_type") peek.task_type = value;
    }
    if (number == kSubmitter) peek.submitter = bytes;
    if (number == kUser) peek.user = bytes;
    return number < kUser;  // Fields are packed in the order of their numbers.
  });
  return peek;
}

bool is_never_root(std::string_view packed) {
  bool found = false;
  for_each_field(
      packed, [](uint64_t, std::string_view) { return true; },
      [&found](uint64_t number, uint64_t value) { found = number == kAnonymous ? value != 0 : found; });
  return found;
}

void mark_never_root(std::string& packed) {
  std::string field;
  ByteWriter out(field);
  out.varint(kAnonymous << 3);
  out.varint(1);
  packed.insert(without_trace(packed).size(), field);
}

namespace {

/// Behind the fields with lower numbers.
std::size_t place_before(std::string_view packed, uint64_t number) {
  const std::size_t end = without_trace(packed).size();
  std::size_t place = end;
  ByteReader reader(packed.substr(0, end));
  while (!reader.at_end() && place == end) {
    const std::size_t here = end - reader.remaining();
    const uint64_t tag = reader.varint();
    const uint64_t width = tag & 7;
    if (!reader.ok() || tag >> 3 >= number || (width != 0 && width != 2)) {
      place = here;  // A field of another width is unknown, and stands behind all that are known.
    } else if (width == 0) {
      reader.varint();
    } else {
      reader.bytes();
    }
  }
  return place;
}

void insert_bytes(std::string& packed, std::size_t place, uint64_t number, std::string_view bytes) {
  std::string field;
  ByteWriter out(field);
  out.varint(number << 3 | 2);
  out.bytes(bytes);
  packed.insert(place, field);
}

}  // namespace

void set_user(std::string& packed, std::string_view user) {
  insert_bytes(packed, place_before(packed, kUser), kUser, user);
}

void add_label(std::string& packed, std::string_view label, std::string_view value) {
  std::string entry;
  ByteWriter out(entry);
  out.varint(1 << 3 | 2);
  out.bytes(label);
  out.varint(2 << 3 | 2);
  out.bytes(value);
  insert_bytes(packed, place_before(packed, kLabels + 1), kLabels, entry);
}

Blob without_secrets(const Blob& packed) {
  std::set<std::string_view> secrets;
  for_each_field(packed.view(), [&secrets](uint64_t number, std::string_view bytes) {
    if (number == kSecretVariables) secrets.insert(bytes);
    return true;
  });
  const bool has_payload = !task_payload_of(packed.view()).empty();
  if (secrets.empty() && !has_payload) return packed;
  std::string shown;
  ByteReader reader(packed.view());
  while (!reader.at_end()) {
    const std::size_t begin = packed.view().size() - reader.remaining();
    const uint64_t tag = reader.varint();
    std::string_view bytes;
    if (!read_field(reader, tag, bytes)) return {};
    if (tag >> 3 == kEnvironment && secrets.contains(entry_of(bytes).first)) continue;
    if (tag >> 3 == kTaskContentField || tag >> 3 == kTaskPayloadField) continue;
    const std::size_t end = packed.view().size() - reader.remaining();
    shown.append(packed.view().substr(begin, end - begin));
  }
  return Blob(shown);
}

bool spec_names_credential(std::string_view packed) {
  bool found = false;
  for_each_field(packed, [&found](uint64_t number, std::string_view bytes) {
    found = found || (number == kCredential && !bytes.empty());
    return !found;
  });
  return found;
}

bool spec_has_label(std::string_view packed, std::string_view label,
                    const std::optional<std::string>& value) {
  bool found = false;
  for_each_field(packed, [&](uint64_t number, std::string_view bytes) {
    if (number != kLabels) return number < kLabels;
    const auto [key, text] = entry_of(bytes);
    found = key == label && (!value || text == *value);
    return !found;
  });
  return found;
}

std::optional<std::string_view> spec_label(std::string_view packed, std::string_view label) {
  std::optional<std::string_view> found;
  for_each_field(packed, [&](uint64_t number, std::string_view bytes) {
    if (number != kLabels) return number < kLabels;
    const auto [key, text] = entry_of(bytes);
    if (key == label) found = text;
    return !found;
  });
  return found;
}

SpecNumbers spec_numbers(std::string_view packed) {
  SpecNumbers numbers;
  const auto note = [&numbers](uint64_t number) {
    if (number < numbers.size()) numbers.set(number);
    return true;
  };
  for_each_field(
      packed, [&note](uint64_t number, std::string_view) { return note(number); },
      [&note](uint64_t number, uint64_t) { note(number); });
  return numbers;
}

std::pair<std::string, std::optional<std::string>> parse_label(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos) return {text, std::nullopt};
  return {text.substr(0, equals), text.substr(equals + 1)};
}

bool glob_matches(std::string_view pattern, std::string_view text) {
  std::size_t p = 0, t = 0, star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace gpusched::api

#include "api/fields/reservation_rows.h"

#include <algorithm>
#include <iterator>
#include <variant>

#include "api/fields/checks.h"
#include "api/fields/job_message.h"
#include "base/limits.h"

namespace gpusched::api {
namespace {

using R = ReservationRequest;
using google::protobuf::FieldDescriptor;

constexpr int64_t kReasonBytesMax = 1'024;
constexpr int64_t kNodesMax = 10'000;

/// The member that holds what is asked for; none: only shown.
using Place =
    std::variant<std::monostate, std::string R::*, std::vector<std::string> R::*, Time R::*, Duration R::*>;

struct Row {
  ShownRow<ReservationView> shown;
  Place place;
  int64_t least = 0, most = INT64_MAX;  ///< Bytes of a text, entries of a list, milliseconds.
  std::string_view wrong;               ///< Sentence after its name when it is out of these bounds.

  constexpr Row within(int64_t lowest, int64_t highest, std::string_view sentence) const {
    Row row = *this;
    row.least = lowest;
    row.most = highest;
    row.wrong = sentence;
    return row;
  }
};

#define SHOWS(number, name, place, meaning, ...)                                                          \
  Row {                                                                                                   \
    shown_row<ReservationView, [](const ReservationView& view, auto& out) { __VA_ARGS__; }>(number, name, \
                                                                                            "", meaning), \
        place                                                                                             \
  }

constexpr Row kRows[] = {
    SHOWS(1, "reservation_id", {}, "`reservation-<digits>`; read-only", out.text(view.id)),
    SHOWS(2, "name", &R::name, "required; unique among reservations", out.text(view.name))
        .within(1, limits::kNameBytesMax, "must have 1 to 253 bytes"),
    SHOWS(3, "tenant_id", &R::tenant,
          "tenant whose jobs, and those of its child tenants, may use it; if omitted: none, for maintenance",
          out.text(view.tenant))
        .within(0, limits::kNameBytesMax, "is too long"),
    SHOWS(4, "users", &R::users, "only these users of the tenant; if empty: all", out.words(view.users))
        .within(0, limits::kBookingUsersMax, "must be at most 100 names"),
    SHOWS(5, "node_names", &R::nodes, "required; on creation `*` matches any text and `?` any byte",
          out.words(view.nodes))
        .within(1, kNodesMax, "must match 1 to 10000 nodes; a pattern such as gpu-* matches several"),
    SHOWS(6, "begin_at", &R::begin_at, "start; in answers: of the present or next period; if omitted: now",
          out.time(view.begin)),
    SHOWS(7, "begin_after_ms", &R::begin_after, "the same, counted from now; only on creation",
          static_cast<void>(view), static_cast<void>(out))
        .within(0, limits::kBeginMax.ms(), ""),
    SHOWS(8, "duration_ms", &R::length, "required; length of each period",
          out.number((view.end - view.begin).ms()))
        .within(1, limits::kBookingMax.ms(), "must be above 0 and at most one year"),
    SHOWS(9, "every_ms", &R::every, "time from one start to the next; 0: does not repeat",
          out.number(view.every.ms()))
        .within(0, limits::kBookingMax.ms(), "must be from 0 to one year"),
    SHOWS(10, "reason", &R::reason,
          "reason; visible to callers who see the tenant, and to everybody if there is none",
          out.text(view.reason))
        .within(0, kReasonBytesMax, "is longer than 1024 bytes; shorten it"),
    SHOWS(11, "active", {}, "whether it is active now; read-only", out.flag(view.active)),
    SHOWS(12, "end_at", {}, "end; read-only", out.time(view.end)),
};

#undef SHOWS

static_assert(limits::kNameBytesMax == 253 && limits::kBookingUsersMax == 100);  // As the sentences say.

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= limits::kNameBytesMax && name.find('\0') == std::string::npos;
}

bool fits(const Row& row, int64_t measure) { return measure >= row.least && measure <= row.most; }

/// Puts the message's value of the row's field into the request; false when it is out of its bounds.
class Reader {
 public:
  Reader(const v1::Reservation& message, const Row& row, ReservationRequest& request)
      : message_(message),
        reflection_(*message.GetReflection()),
        field_(message.GetDescriptor()->FindFieldByNumber(row.shown.number)),
        row_(row),
        request_(request) {}

  bool operator()(std::monostate) const { return true; }
  bool operator()(std::string R::* place) const {
    std::string& text = request_.*place = reflection_.GetString(message_, field_);
    const bool is_free_text = row_.least == 0;
    return fits(row_, static_cast<int64_t>(text.size())) && (is_free_text || is_name(text));
  }
  bool operator()(std::vector<std::string> R::* place) const {
    std::vector<std::string>& list = request_.*place;
    for (int i = 0; i < reflection_.FieldSize(message_, field_); ++i)
      list.push_back(reflection_.GetRepeatedString(message_, field_, i));
    return fits(row_, static_cast<int64_t>(list.size())) && std::all_of(list.begin(), list.end(), is_name);
  }
  bool operator()(Time R::* place) const {
    if (message_.has_begin_at()) request_.*place = read_time(message_.begin_at());
    return true;
  }
  bool operator()(Duration R::* place) const {
    const int64_t ms = reflection_.GetInt64(message_, field_);
    if (!fits(row_, ms)) return false;
    request_.*place = milliseconds(ms);
    return true;
  }

 private:
  const v1::Reservation& message_;
  const google::protobuf::Reflection& reflection_;
  const FieldDescriptor* field_;
  const Row& row_;
  ReservationRequest& request_;
};

std::string_view type_of(const Row& row) {
  const FieldDescriptor& field = *v1::Reservation::descriptor()->FindFieldByNumber(row.shown.number);
  if (field.is_repeated()) return "list of texts";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) return "time";
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) return "true or false";
  return field.cpp_type() == FieldDescriptor::CPPTYPE_STRING ? "text" : "whole number";
}

std::string bounds_of(const Row& row) {
  if (row.most == INT64_MAX) return "";
  const std::string bounds = std::to_string(row.least) + " to " + std::to_string(row.most);
  if (type_of(row) == "text") return bounds + " bytes";
  return type_of(row) == "list of texts" ? bounds + " entries" : bounds;
}

}  // namespace

Answer<ReservationRequest> read_reservation(const v1::Reservation& message) {
  ReservationRequest request;
  for (const Row& row : kRows) {
    if (row.shown.number == v1::Reservation::kBeginAtFieldNumber) {
      auto problem =
          check_time("begin_at", message.has_begin_at(), message.begin_at(), message.begin_after_ms());
      if (problem) return std::move(*problem);
    }
    if (!std::visit(Reader(message, row, request), row.place))
      return invalid(row.shown.name, std::string(row.shown.name) + " " + std::string(row.wrong));
  }
  if (!request.users.empty() && request.tenant.empty())
    return invalid("users", "users requires tenant_id; give the tenant of these users");
  return request;
}

void write_reservation(const ReservationView& reservation, v1::Reservation& out) {
  MessageFields fields(out);
  for (const Row& row : kRows) row.shown.to_message(reservation, fields.at(row.shown.number, row.shown.name));
}

std::optional<FieldWords> reservation_words(int number) {
  for (const Row& row : kRows) {
    if (row.shown.number != number) continue;
    return FieldWords{.meaning = row.shown.meaning,
                      .bounded = row.most != INT64_MAX && type_of(row) != "list of texts",
                      .least = static_cast<double>(row.least),
                      .most = static_cast<double>(row.most),
                      .only_shown = std::holds_alternative<std::monostate>(row.place)};
  }
  return std::nullopt;
}

std::string reservation_fields_markdown() {
  std::string out =
      "# Fields of a reservation\n\nWhat can be requested when nodes are reserved, and what is shown of a "
      "reservation: the field's name in the native API's\n`Reservation` ([native REST](native-rest.md), and "
      "the same over gRPC), its type and its bounds. Names that end in `_ms`\nare milliseconds.\n\nThis page "
      "is generated from `src/api/fields/reservation_rows.cc`; a test compares the two.\n\n| field | type | "
      "bounds | meaning |\n|---|---|---|---|\n";
  for (const Row& row : kRows) {
    out.append("| `").append(row.shown.name).append("` | ").append(type_of(row)).append(" | ");
    out.append(bounds_of(row)).append(" | ").append(row.shown.meaning).append(" |\n");
  }
  return out;
}

}  // namespace gpusched::api

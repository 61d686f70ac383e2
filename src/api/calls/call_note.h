#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/contract/caller.h"
#include "api/contract/errors.h"
#include "api/contract/jobs.h"
#include "audit/audit_log.h"
#include "base/text/trace_context.h"

/// The notes on calls that the audit is told.
namespace gpusched::api {

/// The note about one call: made when it comes, told when it is answered, whoever answers. One that is
/// dropped untold says that the call was left without an answer. Not thread-safe.
class CallNote {
 public:
  CallNote() = default;  ///< Tells nobody.
  /// `log` null: the same, with a number.
  CallNote(audit::AuditLog* log, audit::Door door) : log_(log) {
    line.request = audit::next_request();
    line.door = door;
  }
  CallNote(CallNote&& other) noexcept
      : line(std::move(other.line)), log_(std::exchange(other.log_, nullptr)) {}
  CallNote& operator=(CallNote&& other) noexcept;
  ~CallNote() { abandon(); }

  /// Another note about the same call: for a part of it.
  CallNote part() const { return CallNote(line, log_); }
  void name(access::Action action, std::string resource);
  void name_jobs(const Submitted& jobs);
  /// The one Unix user whom the jobs name.
  void name_user(const SubmitRequest& jobs);
  /// Notes the name that the client gives itself, if it is not its address.
  void claim(const std::string& by) {
    if (by != line.peer) line.claimed_by = by;
  }

  /// The client's own names for the call: an X-Request-Id, and a `traceparent`. Names that are not sane are
  /// not taken.
  void name_call(std::string_view request_id, std::string_view traceparent) {
    if (is_request_name(request_id)) line.client_request_id = request_id;
    line.trace_id = trace_id_of(traceparent);
  }

  /// Whether the audit wants to know of a call that ends so; null: well. If not, costly facts need not be
  /// found out.
  bool is_wanted(const ApiError* error) const;
  /// Ends the note. Again: does nothing.
  void tell(const ApiError* error);
  /// Ends it without a word: nothing was done, or others tell.
  void drop() { log_ = nullptr; }
  bool is_open() const { return log_ != nullptr; }

  audit::Line line;

 private:
  CallNote(audit::Line about, audit::AuditLog* log) : line(std::move(about)), log_(log) {}
  void abandon();

  audit::AuditLog* log_ = nullptr;  ///< Null: it has ended, or nobody listens.
};

/// The note about a call of many parts, each of which may be refused: a line for each outcome. The parts may
/// be answered on any threads; who answers the last one tells.
class BatchNote {
 public:
  BatchNote(CallNote note, std::size_t parts) : note_(std::move(note)), refused_(parts) {}
  void refused(std::size_t part, const ApiError& error) {
    refused_[part] = Refusal{.kind = error.kind, .hidden = error.hidden};
  }
  /// `name_of`: of what a part is about.
  void tell(const std::function<std::string(std::size_t)>& name_of);

 private:
  struct Refusal {
    ErrorKind kind;
    bool hidden;
    bool operator==(const Refusal&) const = default;
  };
  CallNote note_;
  std::vector<std::optional<Refusal>> refused_;
};

}  // namespace gpusched::api

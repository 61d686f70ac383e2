#include "host/nodes/reports.h"

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "base/limits.h"
#include "base/text/plain_words.h"
#include "host/nodes/rules/wire.h"

namespace gpusched::hub {
namespace {

/// The agent's digest of an image, if it can be one: it is kept for as long as its job.
std::string image_digest_of(const v1::Started& started) {
  constexpr std::string_view kPrefix = "sha256:";
  constexpr std::size_t kDigits = 64;
  const std::string& digest = started.image_digest();
  const bool good = digest.starts_with(kPrefix) && digest.size() == kPrefix.size() + kDigits &&
                    digest.find_first_not_of("0123456789abcdef", kPrefix.size()) == std::string::npos;
  return good ? digest : std::string();
}

}  // namespace

void Reports::on_report(Connection& connection, const v1::Report& report) {
  if (report.has_draining()) {
    connections_.acknowledge(connection.id, report.id());
    return fence_.on_draining(connection, report.draining());
  }
  std::optional<Command> command = command_of(connection, report);
  if (!command)  // Said of nothing that we know: repeating it would not help.
    return connections_.acknowledge(connection.id, report.id());
  std::optional<DeviceReleased> release;
  if (const auto* released = std::get_if<DeviceReleased>(&*command)) release = *released;
  std::optional<AttemptEnded> ended;
  if (const auto* told = std::get_if<AttemptEnded>(&*command)) ended = *told;
  std::optional<uint32_t> fault;
  if (const auto* noted = std::get_if<NoteDeviceFault>(&*command)) fault = noted->device;
  connections_.propose_once(
      connection, {Ask::kReport, connection.id, report.id(), 0}, std::move(*command),
      [this, id = connection.id, number = report.id(), release, ended, fault](const Result<Decided>& result) {
        if (const Connection* speaker = connections_.find(id); fault && speaker != nullptr && result.ok())
          faults_.order_clear(*speaker, *fault);
        // A rejection is an answer too: the report is settled. Without a durable answer it is repeated, and
        // so is a release that came before its attempt's end.
        const bool settled = !(release && fence_.is_held(*release)) && !(ended && is_of_another_node(*ended));
        if (result.ok() && settled) connections_.acknowledge(id, number);
      });
}

std::optional<Command> Reports::command_of(Connection& connection, const v1::Report& report) const {
  switch (report.what_case()) {
    case v1::Report::kPrepared:
      return AttemptPrepared{.job = JobId{report.prepared().key().job()},
                             .attempt = report.prepared().key().attempt(),
                             .member = report.prepared().key().member(),
                             .node = connection.node,
                             .placed_at = Time{report.prepared().placed_at_ns()}};
    case v1::Report::kStarted:
      return AttemptStarted{.job = JobId{report.started().key().job()},
                            .attempt = report.started().key().attempt(),
                            .member = report.started().key().member(),
                            .node = connection.node,
                            .placed_at = Time{report.started().placed_at_ns()},
                            .image_digest = image_digest_of(report.started())};
    case v1::Report::kEnded:
      return AttemptEnded{.job = JobId{report.ended().key().job()},
                          .attempt = report.ended().key().attempt(),
                          .member = report.ended().key().member(),
                          .node = connection.node,
                          .outcome = from_wire(report.ended().outcome()),
                          .placed_at = Time{report.ended().placed_at_ns()}};
    case v1::Report::kReleased:
      return fence_.command_of(connection, report.released());
    case v1::Report::kCondition: {
      const std::optional<uint32_t> slot = connection.slot_of(report.condition().index());
      if (!slot) return std::nullopt;
      // A condition is the device's last word: one that was overtaken by a newer says nothing any more.
      uint64_t& newest = connection.conditions[report.condition().index()];
      if (report.id() < newest) return std::nullopt;
      newest = report.id();
      return SetDeviceCondition{.node = connection.node,
                                .device = *slot,
                                .condition = from_wire(report.condition().condition()),
                                .detail = plain_words(report.condition().detail(), limits::kLabelBytesMax)};
    }
    case v1::Report::kValidated:
      // As for conditions, only the last word counts.
      if (report.id() < connection.validation) return std::nullopt;
      connection.validation = report.id();
      return NodeValidated{.node = connection.node,
                           .boot_id = connection.boot_id,
                           .passed = report.validated().ok(),
                           .detail = plain_words(report.validated().detail(), limits::kReasonBytesMax)};
    case v1::Report::kDeviceFault:
      return Faults::command_of(connection, report);
    case v1::Report::kDraining:
    case v1::Report::WHAT_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

bool Reports::is_of_another_node(const AttemptEnded& ended) const {
  const Attempt* attempt = hooks_.state().find_attempt(ended.job, ended.attempt);
  if (attempt == nullptr || ended.member >= attempt->members.size()) return false;
  if (!attempt->was_placed(ended.placed_at)) return false;
  const Member& member = attempt->members[ended.member];
  return member.node != ended.node && member.state != MemberState::kEnded;
}

}  // namespace gpusched::hub

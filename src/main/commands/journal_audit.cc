#include "main/commands/journal_audit.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "api/contract/spec_peek.h"
#include "api/views/state_views.h"
#include "codec/snapshot.h"
#include "host/readers/snapshot_image.h"
#include "journal/snapshot_store.h"
#include "log/line.h"

namespace gpusched {
namespace {

using access::Action;
using audit::Line;

std::string tenant_text(TenantId id) {
  return id == kDefaultTenant ? "default" : "tenant-" + std::to_string(id.value);
}

std::string key_text(KeyId id) { return "key-" + std::to_string(id.value); }

Line about(Action action, std::string resource, const std::string& by) {
  Line line{.action = action, .claimed_by = by, .resource = std::move(resource)};
  return line;
}

Line about_job(Action action, JobId job, const std::string& by) {
  Line line = about(action, "", by);
  line.job = line.last_job = job;
  return line;
}

/// The line of a command that somebody gave; none for commands of nodes and of the scheduler.
struct LineOf {
  const NodeNames& nodes;
  const Applied& applied;

  std::string name_of(NodeId id) const {
    const auto found = nodes.find(id);
    return found == nodes.end() ? "node-" + std::to_string(id.value) : found->second;
  }

  using Made = std::optional<Line>;
  Made operator()(const CreateTenant& c) const {
    return about(Action::kCreateTenant, applied.rejection ? c.name : tenant_text(TenantId{applied.first_id}),
                 c.by);
  }
  Made operator()(const UpdateTenant& c) const {
    return about(Action::kUpdateTenant, tenant_text(c.tenant), c.by);
  }
  Made operator()(const DeleteTenant& c) const {
    return about(Action::kDeleteTenant, tenant_text(c.tenant), c.by);
  }
  Made operator()(const ConfirmNodeDead& c) const {
    return about(Action::kConfirmNodeDead, name_of(c.node), c.by);
  }
  Made operator()(const RemoveNode& c) const { return about(Action::kRemoveNode, name_of(c.node), c.by); }
  Made operator()(const SetDeviceCondition& c) const {
    if (!c.by_operator) return std::nullopt;
    return about(Action::kSetDevice, name_of(c.node) + "-gpu-" + std::to_string(c.device), c.by);
  }
  Made operator()(const SetNodeAvailability& c) const {
    const bool drains = c.to == Availability::kDraining;
    return about(drains ? Action::kDrainNode : Action::kResumeNode, name_of(c.node), c.by);
  }
  Made operator()(const LabelNode& c) const { return about(Action::kLabelNode, name_of(c.node), ""); }
  Made operator()(const SubmitJobs& c) const {
    Line line = about_job(Action::kSubmitJob, JobId{applied.first_id}, c.by);
    line.count = c.jobs.size();
    for (std::size_t i = 0; i + 1 < c.jobs.size(); ++i) line.last_job.value += c.jobs[i].sequence_count();
    const auto user_of = [](const auto& job) { return std::string(api::peek_spec(job.spec.view()).user); };
    const bool one =
        std::ranges::all_of(c.jobs, [&](const auto& job) { return user_of(job) == user_of(c.jobs.front()); });
    if (!c.jobs.empty()) line.unix_user = one ? user_of(c.jobs.front()) : "(several)";
    return line;
  }
  Made operator()(const CancelJob& c) const { return about_job(Action::kCancelJob, c.job, c.by); }
  Made operator()(const UpdateJob& c) const { return about_job(Action::kUpdateJob, c.job, c.by); }
  Made operator()(const HoldJob& c) const { return about_job(Action::kHoldJob, c.job, c.by); }
  Made operator()(const RequeueJob& c) const { return about_job(Action::kRequeueJob, c.job, c.by); }
  Made operator()(const MakeBooking& c) const { return about(Action::kMakeReservation, c.name, ""); }
  Made operator()(const CancelBooking& c) const {
    return about(Action::kCancelReservation, "reservation-" + std::to_string(c.booking.value), "");
  }
  Made operator()(const MoveJobs& c) const { return about(Action::kMoveJobs, "", c.by); }
  Made operator()(const PauseStarts& c) const { return about(Action::kPauseStarts, "", c.by); }
  Made operator()(const SetPools& c) const { return about(Action::kSetPools, "", c.by); }
  Made operator()(const CreateKey& c) const {
    return about(Action::kCreateKey, applied.rejection ? c.name : key_text(KeyId{applied.first_id}), c.by);
  }
  Made operator()(const RevokeKey& c) const { return about(Action::kRevokeKey, key_text(c.key), c.by); }
  Made operator()(const BindRole& c) const { return about(Action::kBindRole, key_text(c.key), c.by); }
  Made operator()(const RecordPerson& c) const {
    const PersonId id = c.person.valid() || applied.rejection ? c.person : PersonId{applied.first_id};
    const std::string who = id.valid() ? "user-" + std::to_string(id.value) : c.email;
    return about(c.person.valid() ? Action::kUpdateUser : Action::kCreateUser, who, c.by);
  }
  Made operator()(const CreateNodeTicket& c) const { return about(Action::kAdmitNode, c.node, c.by); }
  Made operator()(const RevokeNode& c) const { return about(Action::kRevokeNode, c.node, c.by); }
  Made operator()(const AdmitNode& c) const {
    if (!c.ticket.valid()) return std::nullopt;
    return about(Action::kSpeakForNode, c.node, "");
  }

  Made operator()(const Configure&) const { return std::nullopt; }
  Made operator()(const AdvanceTime&) const { return std::nullopt; }
  Made operator()(const RegisterNode&) const { return std::nullopt; }
  Made operator()(const NodeLeaseLost&) const { return std::nullopt; }
  Made operator()(const NodeLeaseBack&) const { return std::nullopt; }
  Made operator()(const CommitPlan&) const { return std::nullopt; }
  Made operator()(const AttemptStarted&) const { return std::nullopt; }
  Made operator()(const AttemptEnded&) const { return std::nullopt; }
  Made operator()(const DeviceReleased&) const { return std::nullopt; }
  Made operator()(const DeviceStillBusy&) const { return std::nullopt; }
  Made operator()(const NodeValidated&) const { return std::nullopt; }
  Made operator()(const NoteStart&) const { return std::nullopt; }
  Made operator()(const CheckpointSaved&) const { return std::nullopt; }
  Made operator()(const NoteDeviceHeat&) const { return std::nullopt; }
  Made operator()(const AttemptPrepared&) const { return std::nullopt; }
  Made operator()(const NoteDeviceFault&) const { return std::nullopt; }
  Made operator()(const ReportWatchdogFinding&) const { return std::nullopt; }
};

/// Fields of a line that only a door knows.
constexpr std::string_view kUnknown[] = {"request_id", "door", "peer"};
/// Fields of a line that older records lack.
constexpr std::string_view kCaller[] = {"caller_kind", "caller", "key_id"};

void leave_out(std::string& json, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const std::string begins = ",\"" + std::string(name) + "\":\"";
    const std::size_t at = json.find(begins);
    json.erase(at, json.find('"', at + begins.size()) + 1 - at);  // They hold no quotes.
  }
}

}  // namespace

std::optional<Line> audit_line_of(const NodeNames& nodes, const Command& command, const Applied& applied,
                                  Time at) {
  std::optional<Line> line = std::visit(LineOf{.nodes = nodes, .applied = applied}, command);
  if (!line) return std::nullopt;
  line->at = at;
  if (applied.rejection) {
    line->outcome = audit::Outcome::kRefused;
    line->code = api::row_of(api::to_api_error(*applied.rejection, line->count).kind).code;
  }
  return line;
}

JournalAudit::JournalAudit(Disk& disk, std::string snapshots, Write write)
    : disk_(disk), snapshots_(std::move(snapshots)), write_(std::move(write)) {}

Result<Unit> JournalAudit::begin(uint64_t first_position) {
  begun_ = true;
  if (first_position == 1) return Unit{};
  std::vector<uint64_t> positions = snapshot_positions(disk_, snapshots_);
  std::ranges::sort(positions);
  for (const uint64_t position : positions) {
    const Result<Snapshot> snapshot = read_snapshot(disk_, snapshot_path(snapshots_, position));
    if (!snapshot || position + 1 < first_position) continue;
    Result<State> state = decode_proven(snapshot->info, snapshot->content());
    if (!state) continue;
    state_ = std::move(*state);
    for (const Node& node : state_.nodes) nodes_[node.id] = node.name;
    position_ = position;
    return Unit{};
  }
  return Error{.code = ErrorCode::kCorrupt,
               .message = "the journal begins with record " + std::to_string(first_position) +
                          ", and no usable snapshot has what was before it"};
}

Result<Unit> JournalAudit::visit(const JournalRecord& record) {
  if (!begun_) {
    const Result<Unit> ready = begin(record.position);
    if (!ready) return ready;
  }
  if (record.position <= position_) {
    skipped_ += 1;
    return Unit{};
  }
  const Result<Unit> replayed =
      replay(state_, record, report_, events_, kFeatureLevel,
             [this](const State& behind, const Command& command, const Applied& applied, Time at,
                    const Proposer* by) { watch(behind, command, applied, at, by); });
  if (replayed) position_ = record.position;
  return replayed;
}

void JournalAudit::watch(const State& behind, const Command& command, const Applied& applied, Time at,
                         const Proposer* by) {
  if (const auto* registered = std::get_if<RegisterNode>(&command)) {
    const Node* const node = behind.find_node_named(registered->name);
    if (node != nullptr) nodes_[node->id] = node->name;
  }
  std::optional<Line> line = audit_line_of(nodes_, command, applied, at);
  if (!line) return;
  if (by != nullptr)
    line->caller = std::make_shared<access::Caller>(
        access::Caller{.kind = by->kind, .name = by->name, .key_id = by->key_id});
  write_(*line);
}

std::string journal_audit_json(const Line& line) {
  std::string all;
  append_line(all, line);
  leave_out(all, kUnknown);
  if (line.caller == nullptr) leave_out(all, kCaller);
  all.pop_back();
  return all;
}

std::string journal_audit_text(const Line& line) {
  std::string out;
  append_rfc3339(out, line.at);
  const auto name_of = [](JobId job, const std::string& name) {
    return job.valid() ? "job-" + std::to_string(job.value) : name;
  };
  out += "  " + std::string(to_string(*line.action)) + " " + name_of(line.job, line.resource);
  if (line.count != 1)
    out += " to " + name_of(line.last_job, line.last) + " (" + std::to_string(line.count) + ")";
  if (line.caller != nullptr) {
    out += ", by " + std::string(to_string(line.caller->kind));
    if (!line.caller->name.empty()) {
      out += ' ';
      append_json_string(out, line.caller->name);
    }
    if (!line.caller->key_id.empty()) out += " " + line.caller->key_id;
  }
  if (!line.claimed_by.empty()) {
    out += line.caller == nullptr ? ", by " : ", in its words ";
    append_json_string(out, line.claimed_by);
  }
  if (!line.unix_user.empty()) {
    out += ", as ";
    append_json_string(out, line.unix_user);
  }
  out += ": " + std::string(to_string(line.outcome, line.action));
  if (!line.code.empty()) out += " " + std::string(line.code);
  return out;
}

}  // namespace gpusched

#include "node/attempts/reports.h"

#include <utility>

namespace gpusched::agent {
namespace {

ReportOutbox::Send by(NodeLink& link) {
  return [&link](const v1::Report& report) {
    v1::AgentMessage message;
    *message.mutable_report() = report;
    link.send(message);
  };
}

}  // namespace

void Reports::prepared(AttemptRow& attempt) {
  if (attempt.prepared_report != 0) return;
  v1::Report report;
  *report.mutable_prepared()->mutable_key() = to_wire(attempt.key);
  report.mutable_prepared()->set_placed_at_ns(attempt.placed_at_ns);
  attempt.prepared_report = outbox_.add(std::move(report));
}

void Reports::started(AttemptRow& attempt) {
  if (attempt.started_report != 0) return;
  v1::Report report;
  *report.mutable_started()->mutable_key() = to_wire(attempt.key);
  report.mutable_started()->set_started_unix_ns(attempt.started_unix_ns);
  report.mutable_started()->set_pid(attempt.pid);
  report.mutable_started()->set_placed_at_ns(attempt.placed_at_ns);
  report.mutable_started()->set_image_digest(spawner_.image_digest(attempt.key));
  attempt.started_report = outbox_.add(std::move(report));
}

void Reports::ended(AttemptRow& attempt) {
  if (attempt.ended_report != 0) return;
  v1::Report report;
  *report.mutable_ended()->mutable_key() = to_wire(attempt.key);
  *report.mutable_ended()->mutable_outcome() = *attempt.outcome;
  report.mutable_ended()->set_placed_at_ns(attempt.placed_at_ns);
  attempt.ended_report = outbox_.add(std::move(report));
}

void Reports::again(AttemptRow& attempt) {
  if (attempt.over()) {
    if (attempt.state() != AttemptState::kEnded) ended(attempt);
    return;
  }
  if (attempt.pid != 0) return started(attempt);
  if (attempt.state() == AttemptState::kGated) prepared(attempt);
}

void Reports::ended_other(const v1::AttemptKey& key, int64_t placed_at_ns, v1::Outcome outcome) {
  v1::Report report;
  *report.mutable_ended()->mutable_key() = key;
  *report.mutable_ended()->mutable_outcome() = std::move(outcome);
  report.mutable_ended()->set_placed_at_ns(placed_at_ns);
  outbox_.add(std::move(report));
}

void Reports::replace(uint64_t& outstanding, v1::Report report) {
  outbox_.withdraw(outstanding);
  outstanding = outbox_.add(std::move(report));
}

void Reports::send_new(Time now, NodeLink& link) { outbox_.send_new(now, by(link)); }

void Reports::send_late(Time now, NodeLink& link) { outbox_.send_late(now, by(link)); }

}  // namespace gpusched::agent

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/blob.h"
#include "base/fields.h"
#include "model/types.h"

namespace gpusched {

/// Another job that a job waits for: one that exists, or an earlier one of the same submission.
struct Dependency {
  JobId parent;
  std::optional<uint32_t> index;  ///< Given instead of `parent`: the job's place in its submission, from 0.
  DependencyKind kind = DependencyKind::kAfterOk;
  bool met = false;  ///< In JobSubmitted alone: the parent had done it already.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "parent", self.parent);
    visit(2, "index", self.index);
    visit(3, "kind", self.kind);
    visit(4, "met", self.met);
  }
};

/// When a job may run, and after what. A time or a span from now on, not both.
struct JobFlow {
  Time begin_at;
  Duration begin_after;
  Time deadline;
  Duration deadline_after;
  std::vector<Dependency> dependencies;
  OnParentFailure on_parent_failure = OnParentFailure::kCancel;
  std::vector<IndexRange> array;  ///< Given: it is an array with these indexes.
  int64_t array_at_once = 0;      ///< Its elements that run at a time; 0: no limit.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "begin_at", self.begin_at);
    visit(2, "begin_after", self.begin_after);
    visit(3, "deadline", self.deadline);
    visit(4, "deadline_after", self.deadline_after);
    visit(5, "dependencies", self.dependencies);
    visit(6, "on_parent_failure", self.on_parent_failure);
    visit(7, "array", self.array);
    visit(8, "array_at_once", self.array_at_once);
  }
};

struct JobRequest {
  int32_t priority = 0;
  std::vector<Part> parts;
  Duration max_runtime;
  RetryPolicy retry;
  bool require_feasible = false;
  Blob spec;
  bool held = false;
  std::vector<JobFlow> flow;  ///< None or one: most jobs have nothing of it.

  bool is_array() const { return !flow.empty() && !flow.front().array.empty(); }
  /// Its own number, and those of its elements.
  uint32_t sequence_count() const {
    return is_array() ? static_cast<uint32_t>(1 + count_of(flow.front().array)) : 1;
  }
  PreemptionMode preemption_mode = PreemptionMode::kRequeue;
  bool preemption_exempt = false;
  std::string booking;       ///< The name of one, on whose nodes it shall run; empty: on any other.
  std::string task_type;     ///< Sets the cost of its admission, see AdmissionPolicy; empty: one token.
  bool interactive = false;  ///< Starts at once or not at all.
  Duration preempt_grace;    ///< Time that it asks for between its preemption and its end; zero: the usual.

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "priority", self.priority);
    visit(2, "parts", self.parts);
    visit(3, "max_runtime", self.max_runtime);
    visit(4, "retry", self.retry);
    visit(5, "require_feasible", self.require_feasible);
    visit(6, "spec", self.spec);
    visit(7, "held", self.held);
    visit(8, "flow", self.flow);
    visit(50, "preemption_mode", self.preemption_mode);
    visit(51, "preemption_exempt", self.preemption_exempt);
    visit(70, "task_type", self.task_type);
    visit(71, "booking", self.booking);
    visit(80, "interactive", self.interactive);
    visit(81, "preempt_grace", self.preempt_grace);
  }
};

}  // namespace gpusched

#include "codec/snapshot.h"

#include <boost/unordered/unordered_flat_map.hpp>

#include "base/limits.h"
#include "codec/binary.h"

namespace gpusched {
namespace {

constexpr uint32_t kFormat = 1;
constexpr std::size_t kPiece = 64 * 1024;

enum class Section : uint8_t {
  kHeader = 1,
  kTenant,
  kDeviceClass,
  kNode,
  kJobClass,  ///< Before the first job that uses it; numbered from 0 in order of appearance.
  kJob,       ///< In ascending id; its class's number stands before it.
  kAttempt,
  kRequest,
  kFinished,  ///< Ids in order of their end.
  kTimer,
  kEnd,
};

struct Header {
  uint32_t format = kFormat;
  EngineConfig config;
  uint64_t sequence = 0;
  Time at;
  uint64_t digest = 0;
  uint64_t job_count = 0;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "format", self.format);
    visit(2, "config", self.config);
    visit(3, "sequence", self.sequence);
    visit(4, "at", self.at);
    visit(5, "digest", self.digest);
    visit(6, "job_count", self.job_count);
  }
};

struct FinishedJobs {
  std::vector<JobId> ids;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "ids", self.ids);
  }
};

struct StoredTimer {
  Time due;
  TimerKind kind = TimerKind::kBackoffOver;
  uint64_t id = 0;
  uint32_t extra = 0;

  template <typename Self, typename Visit>
  static void fields(Self& self, Visit&& visit) {
    visit(1, "due", self.due);
    visit(2, "kind", self.kind);
    visit(3, "id", self.id);
    visit(4, "extra", self.extra);
  }
};

class SnapshotEncoder {
 public:
  using Sink = std::function<Result<Unit>(std::string_view)>;
  explicit SnapshotEncoder(const Sink& sink) : sink_(sink) {}

  template <HasFields T>
  void add(Section section, const T& value, uint32_t prefix = 0) {
    ByteWriter writer(out_);
    writer.u8(static_cast<uint8_t>(section));
    writer.varint(prefix);
    const std::size_t at = out_.size();
    writer.fixed32(0);
    Encoder encoder(out_);
    encoder.encode(value);
    const auto size = static_cast<uint32_t>(out_.size() - at - 4);
    std::memcpy(out_.data() + at, &size, sizeof size);
    if (out_.size() >= kPiece) flush();
  }
  Result<Unit> finish() {
    flush();
    return result_;
  }

 private:
  void flush() {
    if (result_.ok() && !out_.empty()) result_ = sink_(out_);
    out_.clear();
  }
  const Sink& sink_;
  std::string out_;
  Result<Unit> result_ = Unit{};
};

void add_jobs(SnapshotEncoder& out, const State& state) {
  boost::unordered_flat_map<uint32_t, uint32_t> numbers;
  state.jobs.for_each([&](const Job& job) {
    const auto [it, fresh] = numbers.try_emplace(job.job_class, static_cast<uint32_t>(numbers.size()));
    const uint32_t number = it->second;
    if (fresh) out.add(Section::kJobClass, state.classes[job.job_class]);
    out.add(Section::kJob, job, number);
    return true;
  });
}

Error corrupt(const char* what) {
  return Error{.code = ErrorCode::kCorrupt, .message = std::string("the snapshot is damaged: ") + what};
}

/// Reads sections into a state. Every cross-reference is checked before it is used.
class SnapshotDecoder {
 public:
  explicit SnapshotDecoder(std::string_view bytes) : reader_(bytes) {}

  Result<State> run() {
    bool ended = false;
    while (reader_.ok() && !reader_.at_end() && !ended) {
      const auto section = static_cast<Section>(reader_.u8());
      const uint64_t prefix = reader_.varint();
      const std::string_view bytes = reader_.take(reader_.fixed32());
      if (!reader_.ok()) break;
      if (!started_ && section != Section::kHeader) return corrupt("it does not begin with its header");
      const Result<Unit> added = add(section, prefix, bytes, ended);
      if (!added) return added.error();
    }
    if (!reader_.ok() || !ended) return corrupt("it ends too early");
    for (const uint32_t unused : classes_) state_.release_class(unused);
    return std::move(state_);
  }

 private:
  Result<Unit> add(Section section, uint64_t prefix, std::string_view bytes, bool& ended) {
    switch (section) {
      case Section::kHeader:
        return add_header(bytes);
      case Section::kTenant:
        return add_tenant(bytes);
      case Section::kDeviceClass:
        return add_device_class(bytes);
      case Section::kNode:
        return add_node(bytes);
      case Section::kJobClass:
        return add_job_class(bytes);
      case Section::kJob:
        return add_job(prefix, bytes);
      case Section::kAttempt:
        return add_attempt(bytes);
      case Section::kRequest:
        return add_request(bytes);
      case Section::kFinished:
        return add_finished(bytes);
      case Section::kTimer:
        return add_timer(bytes);
      case Section::kEnd:
        ended = true;
        return Unit{};
    }
    return corrupt("an unknown section");
  }

  template <typename T>
  static bool read(std::string_view bytes, T& value) {
    Decoder decoder(bytes);
    decoder.decode(value);
    return decoder.ok();
  }

  Result<Unit> add_header(std::string_view bytes) {
    Header header;
    header.format = 0;
    if (started_ || !read(bytes, header)) return corrupt("its header");
    if (header.format != kFormat) {
      return Error{
          .code = ErrorCode::kVersion,
          .message = "snapshot format " + std::to_string(header.format) + " was written by a newer version"};
    }
    started_ = true;
    state_.config = header.config;
    state_.last = {.sequence = header.sequence, .at = header.at};
    state_.digest = Digest(header.digest);
    if (header.job_count <= reader_.remaining()) state_.jobs.reserve(header.job_count);
    return Unit{};
  }
  Result<Unit> add_tenant(std::string_view bytes) {
    Tenant tenant;
    if (!read(bytes, tenant) || !tenant.id.valid()) return corrupt("a tenant");
    if (tenant.id != kDefaultTenant && state_.find_tenant(tenant.id) != nullptr)
      return corrupt("a tenant twice");
    if (tenant.parent.valid() && state_.find_tenant(tenant.parent) == nullptr)
      return corrupt("a tenant's parent");
    state_.add_tenant(std::move(tenant));
    return Unit{};
  }
  Result<Unit> add_device_class(std::string_view bytes) {
    DeviceClass device_class;
    if (!read(bytes, device_class)) return corrupt("a device class");
    if (state_.device_classes.size() >= limits::kDeviceClassesMax) return corrupt("too many device classes");
    const std::size_t before = state_.device_classes.size();
    if (state_.intern_device_class(device_class) != before) return corrupt("a device class twice");
    return Unit{};
  }
  Result<Unit> add_node(std::string_view bytes) {
    Node node;
    if (!read(bytes, node) || !node.id.valid()) return corrupt("a node");
    if (node.devices.size() > limits::kDevicesPerNodeMax) return corrupt("a node's devices");
    for (const Device& device : node.devices) {
      if (device.device_class >= state_.device_classes.size()) return corrupt("a device's class");
      if (device.state < DeviceState::kFree || device.state > DeviceState::kQuarantined)
        return corrupt("a device");
    }
    if (node.state < NodeState::kReady || node.state > NodeState::kDead) return corrupt("a node's state");
    if (state_.find_node(node.id) != nullptr || state_.find_node_named(node.name) != nullptr) {
      return corrupt("a node twice");
    }
    state_.add_node(std::move(node));
    return Unit{};
  }
  Result<Unit> add_job_class(std::string_view bytes) {
    JobClass job_class;
    if (!read(bytes, job_class) || job_class.parts.empty()) return corrupt("a job class");
    classes_.push_back(state_.acquire_class(job_class.tenant, job_class.parts));
    return Unit{};
  }
  Result<Unit> add_job(uint64_t number, std::string_view bytes) {
    Job job;
    if (!read(bytes, job) || number >= classes_.size()) return corrupt("a job");
    const JobClass& job_class = state_.classes[classes_[number]];
    if (job.id <= newest_job_ || state_.find_tenant(job.tenant) == nullptr ||
        job_class.tenant != job.tenant) {
      return corrupt("a job's id or tenant");
    }
    if (job.state < JobState::kPending || job.state > JobState::kPreempted) return corrupt("a job's state");
    newest_job_ = job.id;
    job.job_class = state_.acquire_class(job_class.tenant, std::vector<Part>(job_class.parts));
    state_.add_job(std::move(job));
    return Unit{};
  }
  Result<Unit> add_attempt(std::string_view bytes) {
    Attempt attempt;
    if (!read(bytes, attempt) || attempt.members.empty()) return corrupt("an attempt");
    if (state_.find_attempt(attempt.job, attempt.number) != nullptr) return corrupt("an attempt twice");
    const Job* job = state_.jobs.find(attempt.job);
    if (job == nullptr && !attempt.abandoned) return corrupt("an attempt's job");
    for (const Member& member : attempt.members) {
      if (state_.find_node(member.node) == nullptr) return corrupt("an attempt's node");
    }
    const Attempt& added = state_.add_attempt(std::move(attempt));
    for (uint32_t i = 0; i < added.members.size(); ++i) {
      if (added.members[i].state != MemberState::kEnded) state_.hold_member(added, i);
    }
    if (!added.abandoned) state_.charge(job->tenant, total_of(state_.class_of(*job).parts));
    return Unit{};
  }
  Result<Unit> add_request(std::string_view bytes) {
    RememberedRequest request;
    if (!read(bytes, request)) return corrupt("a remembered request");
    state_.remember(std::move(request));
    return Unit{};
  }
  Result<Unit> add_timer(std::string_view bytes) {
    StoredTimer timer;
    if (!read(bytes, timer)) return corrupt("a timer");
    const Job* job = state_.jobs.find(JobId{timer.id});
    switch (timer.kind) {
      case TimerKind::kBackoffOver:
        if (job == nullptr || job->state != JobState::kPending || job->not_before != timer.due) {
          return corrupt("a back-off's timer");
        }
        break;
      case TimerKind::kNodeLost:
        if (state_.find_node(NodeId{timer.id}) == nullptr) return corrupt("a node's timer");
        break;
      case TimerKind::kRuntimeOver:
      case TimerKind::kContactLost:
        break;
      default:
        return corrupt("a timer's kind");
    }
    state_.timers.insert({.due = timer.due, .kind = timer.kind, .id = timer.id, .extra = timer.extra});
    return Unit{};
  }
  Result<Unit> add_finished(std::string_view bytes) {
    FinishedJobs finished;
    if (!read(bytes, finished)) return corrupt("the finished jobs");
    for (const JobId id : finished.ids) {
      const Job* job = state_.jobs.find(id);
      if (job == nullptr || !is_final(job->state)) return corrupt("a finished job");
      state_.finished.push_back(id);
    }
    return Unit{};
  }

  ByteReader reader_;
  State state_;
  bool started_ = false;
  std::vector<uint32_t> classes_;  ///< One reference each is ours until the end.
  JobId newest_job_;
};

}  // namespace

Result<Unit> encode_snapshot(const State& state, const std::function<Result<Unit>(std::string_view)>& sink) {
  SnapshotEncoder out(sink);
  out.add(Section::kHeader, Header{.config = state.config,
                                   .sequence = state.last.sequence,
                                   .at = state.last.at,
                                   .digest = state.digest.value(),
                                   .job_count = state.jobs.size()});
  // Ids ascend, and a parent is older than its children.
  for (const auto& [id, tenant] : state.tenants) out.add(Section::kTenant, tenant);
  for (const DeviceClass& device_class : state.device_classes) out.add(Section::kDeviceClass, device_class);
  for (const Node& node : state.nodes) out.add(Section::kNode, node);
  add_jobs(out, state);
  for (const auto& [key, attempt] : state.attempts) out.add(Section::kAttempt, attempt);
  for (const RememberedRequest& request : state.requests) out.add(Section::kRequest, request);
  out.add(Section::kFinished, FinishedJobs{.ids = {state.finished.begin(), state.finished.end()}});
  for (const Timer& timer : state.timers) {
    out.add(Section::kTimer,
            StoredTimer{.due = timer.due, .kind = timer.kind, .id = timer.id, .extra = timer.extra});
  }
  out.add(Section::kEnd, FinishedJobs{});
  return out.finish();
}

Result<State> decode_snapshot(std::string_view bytes) { return SnapshotDecoder(bytes).run(); }

Digest snapshot_digest(const State& state) {
  Digest digest;
  const Result<Unit> written = encode_snapshot(state, [&](std::string_view piece) -> Result<Unit> {
    digest.mix(piece);
    return Unit{};
  });
  CHECK(written.ok());
  return digest;
}

}  // namespace gpusched

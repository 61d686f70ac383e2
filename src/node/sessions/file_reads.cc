#include "node/sessions/file_reads.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/check.h"
#include "base/session_limits.h"
#include "node/output/attempt_identity.h"
#include "shim/protocol.h"
#include "shim/server.h"

namespace gpusched {
namespace {}  // namespace

FileReads::FileReads(std::string shim_program, std::string data_folder, std::string instance,
                     const Clock& clock, NodeLink& link)
    : shim_program_(std::move(shim_program)),
      data_folder_(std::move(data_folder)),
      instance_(std::move(instance)),
      clock_(clock),
      link_(link),
      epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  CHECK(epoll_ >= 0);
}

FileReads::~FileReads() {
  end_all();
  close(epoll_);
}

void FileReads::read(const v1::ReadFile& order, const AttemptProcess& process) {
  if (order.close()) return forget(order.request());
  const auto found = reads_.find(order.request());
  if (found != reads_.end()) return ask(found->second, order);
  if (order.offset() == 0) return begin(order, process);
  refuse(order, "conflict", "the file is no longer open on its node; start the copy again");
}

void FileReads::begin(const v1::ReadFile& order, const AttemptProcess& process) {
  if (reads_.size() >= limits::kFilesPerNodeMax) {
    return refuse(order, "unavailable",
                  "the node has reached its maximum number of open files for copies; try again in a moment");
  }
  const AttemptKey key = from_wire(order.key());
  const Result<shim::Credentials> identity = identity_of(key, process, data_folder_);
  if (!identity) return refuse(order, "file_not_found", identity.error().message);
  shim::SessionRequest request{.kind = shim::SessionRequest::Kind::kFile,
                               .target = process.pid,
                               .title = shim::shim_title(to_string(key), instance_),
                               .identity = *identity,
                               .path = order.path()};
  if (process.pid == 0) {
    v1::JobSpec spec;
    if (!spec.ParseFromString(order.spec()))
      return refuse(order, "internal", "the job's specification cannot be decoded");
    if (!spec.image().empty()) {
      return refuse(order, "unprocessable",
                    "the job ran in a container, and its files were removed with it; have the job write its "
                    "results to a mount");
    }
    const std::string folder = data_folder_ + "/" + shim::kAttemptsFolder + "/" + to_string(key);
    const std::string work = folder + "/" + shim::kWorkFolder;
    const std::string& own = access(work.c_str(), F_OK) == 0 ? work : folder;
    request.working_directory = spec.working_directory().empty() ? own : spec.working_directory();
    if (spec.working_directory_optional()) request.other_directory = own;
  }
  Result<KeeperProcess> keeper = KeeperProcess::start(shim_program_, request, {-1, -1, -1});
  if (!keeper) return refuse(order, "unavailable", keeper.error().message);
  Read& read = reads_[order.request()];
  read.keeper = std::move(*keeper);
  epoll_event interest{.events = EPOLLIN, .data = {.u64 = order.request()}};
  epoll_ctl(epoll_, EPOLL_CTL_ADD, read.keeper.socket(), &interest);
  ask(read, order);
}

void FileReads::ask(Read& read, const v1::ReadFile& order) {
  read.asked = order;
  read.asked.clear_spec();
  read.waiting = true;
  read.used_at = clock_.monotonic();
  read.keeper.send({.kind = shim::SessionOrder::Kind::kRead,
                    .size = order.size_max() > 0 ? order.size_max() : limits::kFilePieceBytes});
}

void FileReads::pump() {
  std::array<epoll_event, kKeeperEventsMax> ready;
  const int count = epoll_wait(epoll_, ready.data(), static_cast<int>(ready.size()), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t number = ready[static_cast<std::size_t>(i)].data.u64;
    const auto found = reads_.find(number);
    if (found == reads_.end()) continue;
    bool closed = false;
    const auto event = found->second.keeper.receive(closed);
    if (event && !on_event(number, found->second, *event)) continue;
    if (!closed) continue;
    if (found->second.waiting)
      refuse(found->second.asked, "unavailable", "the node ended the copy; try again");
    forget(number);
  }
}

bool FileReads::on_event(uint64_t number, Read& read, const shim::SessionEvent& event) {
  switch (event.kind) {
    case shim::SessionEvent::Kind::kStarted:
      read.size = event.size;
      read.mode = event.mode;
      return true;
    case shim::SessionEvent::Kind::kFailed:
      refuse(read.asked, event.code, event.message);
      forget(number);
      return false;
    case shim::SessionEvent::Kind::kExited:
      return true;
    case shim::SessionEvent::Kind::kData:
      break;
  }
  v1::AgentMessage message;
  v1::FileChunk& chunk = *message.mutable_file_chunk();
  chunk.set_request(number);
  chunk.set_data(event.data);
  chunk.set_offset(read.offset);
  chunk.set_size(read.size);
  chunk.set_mode(read.mode);
  read.offset += static_cast<int64_t>(event.data.size());
  const bool at_end = event.data.empty() || read.offset >= read.size;
  chunk.set_at_end(at_end);
  read.waiting = false;
  link_.send(message);
  if (at_end) forget(number);
  return !at_end;
}

void FileReads::refuse(const v1::ReadFile& order, const std::string& code, const std::string& sentence) {
  v1::AgentMessage message;
  message.mutable_file_chunk()->set_request(order.request());
  message.mutable_file_chunk()->set_code(code);
  message.mutable_file_chunk()->set_error(clean_text(sentence, sentence.size()));
  link_.send(message);
}

void FileReads::forget(uint64_t number) {
  const auto found = reads_.find(number);
  if (found == reads_.end()) return;
  ended_.add(found->second.keeper.pid());
  reads_.erase(found);
}

void FileReads::end_all() {
  while (!reads_.empty()) forget(reads_.begin()->first);
}

void FileReads::tick() {
  ended_.reap();
  const Time now = clock_.monotonic();
  for (auto it = reads_.begin(); it != reads_.end();) {
    const uint64_t number = it->first;
    const bool idle = now - it->second.used_at >= limits::kFileIdleMax;
    ++it;
    if (idle) forget(number);
  }
}

Time FileReads::next_deadline() const {
  Time next = ended_.empty() ? kNever : clock_.monotonic() + kReapPause;
  for (const auto& [number, read] : reads_) next = std::min(next, read.used_at + limits::kFileIdleMax);
  return next;
}

}  // namespace gpusched

// HostBackend: sessions and files, by way of the host's router to the agents.
#include <atomic>
#include <utility>
#include <vector>

#include "api/backend/host_backend.h"
#include "api/backend/unix_users.h"
#include "api/contract/spec_peek.h"
#include "api/views/state_views.h"
#include "base/text/task_payload.h"

namespace gpusched::api {
namespace {

/// Kind of an agent's error; an unknown code is a newer agent's.
ErrorKind agent_kind(std::string_view code) { return kind_of_code(code).value_or(ErrorKind::kSessionFailed); }

v1::AttemptKey wire_key(JobId job, uint32_t attempt, uint32_t member) {
  v1::AttemptKey key;
  key.set_job(job.value);
  key.set_attempt(attempt);
  key.set_member(member);
  return key;
}

/// One session's near end: the peer's words go to the host's thread, the router's to the peer. All members
/// but `gone_` belong to the host's thread.
class HostSession final : public SessionHandle,
                          public SessionClient,
                          public std::enable_shared_from_this<HostSession> {
 public:
  HostSession(Host& host, std::string owner, std::shared_ptr<SessionPeer> peer)
      : host_(host), owner_(std::move(owner)), peer_(std::move(peer)) {}

  void open(NodeId node, v1::OpenSession order, std::string user) {
    host_.with_nodes([self = shared_from_this(), node, order = std::move(order),
                      user = std::move(user)](NodeHub* hub) mutable {
      if (hub == nullptr) return self->fail({ErrorKind::kShuttingDown, "the scheduler is shutting down"});
      if (self->over_) return;
      self->tell_user(user);
      hub->sessions().open(node, std::move(order), self, self->owner_);
      self->send_early(*hub);
    });
  }
  void attach(JobId job, uint64_t session, std::string user) {
    host_.with_nodes([self = shared_from_this(), job, session, user = std::move(user)](NodeHub* hub) {
      if (hub == nullptr) return self->fail({ErrorKind::kShuttingDown, "the scheduler is shutting down"});
      if (self->over_) return;
      self->tell_user(user);
      hub->sessions().attach(job, session, self, self->owner_);
      self->send_early(*hub);
    });
  }
  /// It never came to be.
  void fail(ApiError error) {
    over_ = true;
    if (!gone_) peer_->on_end({.error = std::move(error)});
  }

  void input(std::string data) override {
    v1::SessionInput words;
    words.set_data(std::move(data));
    send(std::move(words));
  }
  void end_input() override {
    v1::SessionInput words;
    words.set_end_of_input(true);
    send(std::move(words));
  }
  void resize(uint32_t rows, uint32_t columns) override {
    v1::SessionInput words;
    words.set_rows(rows);
    words.set_columns(columns);
    send(std::move(words));
  }
  void signal(uint32_t number) override {
    v1::SessionInput words;
    words.set_signal(number);
    send(std::move(words));
  }
  void grant(int64_t bytes) override {
    v1::SessionInput words;
    words.set_credit(bytes);
    send(std::move(words));
  }
  void detach() override { leave(false); }
  void close() override { leave(true); }

  void on_number(uint64_t session) override {
    number_ = session;
    if (!gone_) peer_->on_number(session);
  }
  void on_output(v1::SessionOutput output) override {
    if (output.ended()) over_ = true;
    if (gone_) return;
    if (output.opened()) peer_->on_opened();
    if (output.credit() > 0) peer_->on_credit(output.credit());
    if (!output.data().empty()) peer_->on_output(std::move(*output.mutable_data()), output.of_stderr());
    if (output.end_of_output()) peer_->on_output_end();
    if (!output.ended()) return;
    SessionPeer::End end{.exit_code = output.exit_code(), .signal = output.signal()};
    if (output.code().empty()) {
      end.message = output.error();
    } else {
      end.error = ApiError{agent_kind(output.code()), output.error()};
    }
    peer_->on_end(std::move(end));
  }

 private:
  void tell_user(const std::string& user) {
    if (!gone_ && !user.empty()) peer_->on_unix_user(user);
  }
  void send(v1::SessionInput words) {
    host_.with_nodes([self = shared_from_this(), words = std::move(words)](NodeHub* hub) mutable {
      if (hub == nullptr || self->over_) return;
      if (self->number_ == 0) {
        self->early_.push_back(std::move(words));  // Bounded by what the door lets in: the first credit.
        return;
      }
      hub->sessions().input(self->number_, self.get(), std::move(words));
    });
  }
  void send_early(NodeHub& hub) {
    for (v1::SessionInput& words : std::exchange(early_, {})) {
      if (!over_) hub.sessions().input(number_, this, std::move(words));
    }
  }
  void leave(bool for_good) {
    gone_ = true;
    host_.with_nodes([self = shared_from_this(), for_good](NodeHub* hub) {
      if (std::exchange(self->over_, true) || hub == nullptr || self->number_ == 0) return;
      if (for_good) {
        hub->sessions().close(self->number_, self.get());
      } else {
        hub->sessions().detach(self->number_, self.get());
      }
    });
  }

  Host& host_;
  const std::string owner_;
  const std::shared_ptr<SessionPeer> peer_;
  std::atomic<bool> gone_{false};
  uint64_t number_ = 0;
  bool over_ = false;
  std::vector<v1::SessionInput> early_;
};

constexpr const char* kAgentTooOld = "gpu-agent of this version, which has no port forwarding: upgrade it";

v1::OpenSession order_of(const SessionRequest& request, uint32_t attempt) {
  v1::OpenSession order;
  *order.mutable_key() = wire_key(request.job, attempt, request.member);
  for (const std::string& word : request.command) *order.add_command() = word;
  order.set_terminal(request.terminal);
  order.set_rows(request.rows);
  order.set_columns(request.columns);
  order.set_term(request.term);
  for (const auto& [name, value] : request.environment) (*order.mutable_environment())[name] = value;
  order.set_port(request.port);
  // An agent that knows no ports takes this for a command, which is not there: its refusal says why.
  if (request.port > 0) *order.add_command() = kAgentTooOld;
  return order;
}

}  // namespace

std::shared_ptr<SessionHandle> HostBackend::open_session(const CallerPtr& caller, SessionRequest request,
                                                         std::shared_ptr<SessionPeer> peer) {
  std::string owner = std::string(to_string(caller->kind)) + " " + caller->name;
  auto session = std::make_shared<HostSession>(host_, std::move(owner), std::move(peer));
  if (auto error = too_many_questions(false)) {
    session->fail(std::move(*error));
    return session;
  }
  read([this, caller, session, request = std::move(request)](const Observer::View& view) mutable {
    const auto found = find_job(view.state, *caller, access::Action::kEnterJob, request.job, request.tenant);
    if (!found) return session->fail(found.error());
    if (auto refused = refuse_user(*caller, **found)) return session->fail(std::move(*refused));
    request.job = (*found)->id;
    std::string user(peek_spec((*found)->spec.view()).user);
    if (request.session != 0) return session->attach(request.job, request.session, std::move(user));
    const auto place = place_of(view.state, **found, request.attempt, request.member);
    if (!place) return session->fail(place.error());
    if (!place->running) {
      const Job& job = **found;
      std::string sentence =
          "attempt " + std::to_string(place->attempt) + " has ended; sessions need a running attempt";
      if (job.state == JobState::kPending)
        sentence = "the job waits for its next start; sessions need a running attempt";
      if (job.state == JobState::kScheduled) sentence = "the job is being started; try again when it runs";
      if (is_final(job.state)) sentence = "the job has ended; sessions need a running attempt";
      return session->fail({ErrorKind::kJobNotRunning, sentence});
    }
    session->open(place->node, order_of(request, place->attempt), std::move(user));
  });
  return session;
}

void HostBackend::read_file(const CallerPtr& caller, FileRequest request, Done<FilePiece> done) {
  if (request.transfer == 0 && sheds_read(done)) return;  // A transfer that began goes on, piece by piece.
  read([this, caller, request = std::move(request),
        done = std::move(done)](const Observer::View& view) mutable {
    const auto found =
        find_job(view.state, *caller, access::Action::kReadJobFile, request.job, request.tenant);
    if (!found) return done(found.error());
    if (auto refused = refuse_user(*caller, **found)) return done(std::move(*refused));
    request.job = (*found)->id;
    const auto place = place_of(view.state, **found, request.attempt, request.member);
    if (!place) return done(place.error());
    v1::ReadFile order;
    order.set_request(request.transfer);
    *order.mutable_key() = wire_key(request.job, place->attempt, request.member);
    order.set_path(request.path);
    order.set_offset(request.offset);
    order.set_close(request.close);
    std::string user;
    if (request.transfer == 0) {
      order.set_spec(without_task_payload((*found)->spec.view()));
      user = peek_spec(order.spec()).user;
    }
    host_.with_nodes([node = place->node, attempt = place->attempt, user = std::move(user),
                      order = std::move(order), done](NodeHub* hub) mutable {
      if (hub == nullptr) return done(ApiError{ErrorKind::kShuttingDown, "the scheduler is shutting down"});
      const auto answer = [attempt, user = std::move(user), done](Result<v1::FileChunk> chunk) {
        if (!chunk) return done(to_api_error(chunk.error()));
        if (!chunk->code().empty()) return done(ApiError{agent_kind(chunk->code()), chunk->error()});
        done(FilePiece{.data = std::move(*chunk->mutable_data()),
                       .transfer = chunk->request(),
                       .size = chunk->size(),
                       .mode = chunk->mode(),
                       .at_end = chunk->at_end(),
                       .attempt = attempt,
                       .unix_user = user});
      };
      hub->sessions().read_file(node, std::move(order), answer);
    });
  });
}

}  // namespace gpusched::api

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "node/ports/ports.h"
#include "node/sessions/file_reads.h"
#include "node/sessions/keeper_process.h"

namespace gpusched {

struct SessionsOptions {
  std::string shim_program;  ///< Path of gpu-shim.
  std::string data_folder;
  std::string instance;
};

/// The node's interactive sessions, connections to ports of attempts, and the files that are read of
/// attempts. Each is a keeper process of its own; here bytes go from it to the scheduler and back, as far as
/// credit reaches, so that neither a slow reader nor a slow command costs memory, and nothing waits.
///
/// Not thread-safe. The owner waits for `descriptor` to become readable or for `next_deadline`, then calls
/// `pump`.
class Sessions final : public AttemptSessions {
 public:
  Sessions(SessionsOptions options, const Clock& clock, NodeLink& link);
  ~Sessions() override;

  void open(const v1::OpenSession& order, const AttemptProcess& process) override;
  void input(const v1::SessionInput& input) override;
  void read_file(const v1::ReadFile& order, const AttemptProcess& process) override;
  void attempt_ended(const AttemptKey& key) override;
  void end_all() override;

  int descriptor() const { return epoll_; }
  void pump();
  Time next_deadline() const;
  std::size_t count() const { return sessions_.size(); }

 private:
  struct Session;
  enum class Source : uint8_t { kKeeper = 0, kOutput = 1, kErrorOutput = 2, kInput = 3 };

  /// Empty, or why one more of the job's is too many.
  std::string why_full(const AttemptKey& key, bool of_port) const;
  Result<Unit> start(Session& session, const v1::OpenSession& order, const AttemptProcess& process);
  void refuse(uint64_t number, const std::string& code, const std::string& sentence);
  void on_ready(Session& session, Source source);
  void on_keeper(Session& session);
  void read_output(Session& session, bool of_stderr);
  void pass_port_end_on(Session& session);
  void write_input(Session& session);
  void consumed(Session& session, std::size_t size);
  void update_interest(Session& session);
  void watch(Session& session, Source source, int descriptor, uint32_t events);
  void finish_if_over(Session& session);
  void forget(uint64_t number);
  void send(const Session& session, v1::SessionOutput output);

  const SessionsOptions options_;
  const Clock& clock_;
  NodeLink& link_;
  int epoll_ = -1;
  std::map<uint64_t, std::unique_ptr<Session>> sessions_;  ///< By the scheduler's number.
  std::map<uint64_t, uint64_t> by_serial_;  ///< Our own numbers, in epoll's data, to the scheduler's.
  uint64_t next_serial_ = 1;
  EndedKeepers ended_;
  FileReads files_;
};

}  // namespace gpusched

#include "history/postgres/connection.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/check.h"
#include "history/store/clock.h"

namespace gpusched::history {
namespace {

// Fields of an error, as libpq numbers them.
constexpr int kSqlState = 'C';
constexpr int kPrimaryMessage = 'M';
constexpr int kVersionMin = 140'000;

void ignore_notice(void* /*nobody*/, const char* /*message*/) {}

/// One line of libpq's several.
std::string one_line(std::string_view text) {
  std::string line;
  for (const char c : text) line += c == '\n' || c == '\t' ? ' ' : c;
  while (!line.empty() && line.back() == ' ') line.pop_back();
  return line;
}

Error failure(ErrorCode code, std::string_view message) {
  return {.code = code, .message = one_line(message)};
}

ErrorCode code_of(std::string_view state) {
  if (state.starts_with("53")) return ErrorCode::kStorageFull;
  if (state.starts_with("28") || state == "42501") return ErrorCode::kPermissionDenied;
  return ErrorCode::kUnavailable;
}

}  // namespace

Interrupt::Interrupt() : descriptor_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) { CHECK(descriptor_ >= 0); }

Interrupt::~Interrupt() { ::close(descriptor_); }

void Interrupt::fire() const {
  const uint64_t one = 1;
  static_cast<void>(!::write(descriptor_, &one, sizeof one));
}

Result<Connection> Connection::open(const PostgresServer& server, Duration patience,
                                    const Interrupt& interrupt) {
  const Result<const Libpq*> pq = Libpq::load();
  if (!pq.ok()) return pq.error();
  const std::string port = std::to_string(server.port);
  std::vector<const char*> keywords, values;
  const auto add = [&](const char* keyword, const char* value) {
    if (*value == '\0') return;
    keywords.push_back(keyword);
    values.push_back(value);
  };
  add("host", server.host.c_str());
  add("port", port.c_str());
  add("user", server.user.c_str());
  add("password", server.password.c_str());
  add("dbname", server.database.c_str());
  add("sslmode", server.sslmode.c_str());
  add("application_name", "gpu-scheduler");
  add("client_encoding", "UTF8");
  add("keepalives_idle", "30");
  add("tcp_user_timeout", "60000");
  keywords.push_back(nullptr);
  values.push_back(nullptr);
  pg_conn* const started = (*pq)->connectStartParams(keywords.data(), values.data(), 0);
  CHECK(started != nullptr);  // Memory is at an end.
  Connection connection(*pq, started, patience, interrupt);
  if (const Result<Unit> connected = connection.connect(); !connected.ok()) return connected.error();
  return connection;
}

Result<Unit> Connection::connect() {
  pg_conn* const conn = connection_.get();
  pq_->setNoticeProcessor(conn, &ignore_notice, nullptr);
  const int64_t deadline = now_ns() + patience_.ns;
  int next = Libpq::kPollingWriting;
  while (pq_->status(conn) != Libpq::kConnectionBad && next != Libpq::kPollingOk) {
    if (next == Libpq::kPollingFailed) break;
    const Result<Unit> ready = wait(next == Libpq::kPollingReading, next == Libpq::kPollingWriting, deadline);
    if (!ready.ok()) return ready;
    next = pq_->connectPoll(conn);
  }
  if (pq_->status(conn) != Libpq::kConnectionOk)
    return failure(ErrorCode::kUnavailable, pq_->errorMessage(conn));
  if (pq_->serverVersion(conn) < kVersionMin) {
    return failure(ErrorCode::kVersion,
                   "the server is PostgreSQL " + server_version() + ", and this program needs 14 or newer");
  }
  CHECK(pq_->setnonblocking(conn, 1) == 0);
  return Unit{};
}

Result<Unit> Connection::wait(bool reads, bool writes, int64_t deadline_ns) const {
  while (true) {
    pollfd ready[] = {{.fd = pq_->socket(connection_.get()),
                       .events = static_cast<int16_t>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)),
                       .revents = 0},
                      {.fd = interrupt_->descriptor(), .events = POLLIN, .revents = 0}};
    const int64_t left_ms = std::max<int64_t>(0, (deadline_ns - now_ns()) / 1'000'000);
    const int count = ::poll(ready, 2, static_cast<int>(std::min<int64_t>(left_ms, 60'000)));
    if (count < 0 && errno != EINTR)
      return failure(ErrorCode::kIo, std::string("poll: ") + std::strerror(errno));
    if (ready[1].revents != 0) return failure(ErrorCode::kUnavailable, "the scheduler is shutting down");
    if (ready[0].revents != 0) return Unit{};
    if (now_ns() >= deadline_ns) {
      return failure(ErrorCode::kTimeout,
                     "the server did not answer for " + std::to_string(patience_.ms() / 1'000) + " s");
    }
  }
}

Result<Unit> Connection::send_all() {
  while (true) {
    const int left = pq_->flush(connection_.get());
    if (left == 0) return Unit{};
    if (left < 0) return failure(ErrorCode::kUnavailable, pq_->errorMessage(connection_.get()));
    const Result<Unit> ready = wait(true, true, now_ns() + patience_.ns);
    if (!ready.ok()) return ready;
    if (pq_->consumeInput(connection_.get()) == 0)
      return failure(ErrorCode::kUnavailable, pq_->errorMessage(connection_.get()));
  }
}

Result<Answer> Connection::run(const std::string& sql, const std::vector<std::string>& parameters) {
  pg_conn* const conn = connection_.get();
  std::vector<const char*> values;
  for (const std::string& value : parameters) values.push_back(value.c_str());
  const int sent = parameters.empty()
                       ? pq_->sendQuery(conn, sql.c_str())
                       : pq_->sendQueryParams(conn, sql.c_str(), static_cast<int>(values.size()), nullptr,
                                              values.data(), nullptr, nullptr, 0);
  if (sent == 0) return failure(ErrorCode::kUnavailable, pq_->errorMessage(conn));
  if (const Result<Unit> flushed = send_all(); !flushed.ok()) return flushed.error();
  Result<Answer> answer = Answer{};
  while (true) {
    while (pq_->isBusy(conn) != 0) {
      if (const Result<Unit> ready = wait(true, false, now_ns() + patience_.ns); !ready.ok())
        return ready.error();
      if (pq_->consumeInput(conn) == 0) return failure(ErrorCode::kUnavailable, pq_->errorMessage(conn));
    }
    pg_result* const result = pq_->getResult(conn);
    if (result == nullptr) return answer;
    const int status = pq_->resultStatus(result);
    if (status == Libpq::kCommandOk || status == Libpq::kTuplesOk) {
      Answer got;
      for (int row = 0; row < pq_->ntuples(result); ++row) {
        std::vector<std::string>& columns = got.rows.emplace_back();
        for (int i = 0; i < pq_->nfields(result); ++i) {
          columns.emplace_back(pq_->getvalue(result, row, i),
                               static_cast<std::size_t>(pq_->getlength(result, row, i)));
        }
      }
      got.changed = std::atoll(pq_->cmdTuples(result));
      if (answer.ok()) answer = std::move(got);
    } else {
      const char* const state = pq_->resultErrorField(result, kSqlState);
      const char* const message = pq_->resultErrorField(result, kPrimaryMessage);
      // Details may have values of rows; the sentence has not.
      if (state == nullptr || message == nullptr) {
        answer = failure(ErrorCode::kUnavailable, pq_->errorMessage(conn));
      } else {
        answer = failure(code_of(state), std::string(message) + " (SQLSTATE " + state + ")");
      }
    }
    pq_->clear(result);
  }
}

bool Connection::is_encrypted() const { return pq_->sslInUse(connection_.get()) != 0; }

std::string Connection::server_version() const {
  const int version = pq_->serverVersion(connection_.get());
  return std::to_string(version / 10'000) + "." + std::to_string(version % 10'000);
}

}  // namespace gpusched::history

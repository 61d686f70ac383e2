#include "history/postgres/libpq.h"

#include <dlfcn.h>

#include <mutex>
#include <string>

namespace gpusched::history {
namespace {

constexpr const char* kLibrary = "libpq.so.5";

Result<Libpq> load_now() {
  // It stays: what it has started inside the TLS library ends with the process.
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return Error{.code = ErrorCode::kNotFound,
                 .message = std::string("the client library of PostgreSQL cannot be loaded (") +
                            (why == nullptr ? kLibrary : why) +
                            "): install it (Debian and Ubuntu: libpq5); nothing has to be restarted"};
  }
  Libpq out{};
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    if (function == nullptr) missing = name;
  };
  find(out.connectStartParams, "PQconnectStartParams");
  find(out.connectPoll, "PQconnectPoll");
  find(out.status, "PQstatus");
  find(out.socket, "PQsocket");
  find(out.finish, "PQfinish");
  find(out.errorMessage, "PQerrorMessage");
  find(out.serverVersion, "PQserverVersion");
  find(out.sslInUse, "PQsslInUse");
  find(out.setnonblocking, "PQsetnonblocking");
  find(out.sendQuery, "PQsendQuery");
  find(out.sendQueryParams, "PQsendQueryParams");
  find(out.flush, "PQflush");
  find(out.isBusy, "PQisBusy");
  find(out.consumeInput, "PQconsumeInput");
  find(out.getResult, "PQgetResult");
  find(out.clear, "PQclear");
  find(out.resultStatus, "PQresultStatus");
  find(out.resultErrorField, "PQresultErrorField");
  find(out.ntuples, "PQntuples");
  find(out.nfields, "PQnfields");
  find(out.getvalue, "PQgetvalue");
  find(out.getlength, "PQgetlength");
  find(out.cmdTuples, "PQcmdTuples");
  find(out.setNoticeProcessor, "PQsetNoticeProcessor");
  if (missing.empty()) return out;
  return Error{
      .code = ErrorCode::kNotFound,
      .message = std::string(kLibrary) + " lacks " + missing + ": install the one of PostgreSQL 14 or newer"};
}

}  // namespace

Result<const Libpq*> Libpq::load() {
  static std::mutex mutex;
  static Libpq loaded;
  static bool is_loaded = false;
  const std::lock_guard lock(mutex);
  if (!is_loaded) {
    const Result<Libpq> found = load_now();
    if (!found.ok()) return found.error();
    loaded = *found;
    is_loaded = true;
  }
  return &loaded;
}

}  // namespace gpusched::history

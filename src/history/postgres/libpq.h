#pragma once

#include <cstddef>

#include "base/result.h"

struct pg_conn;
struct pg_result;

/// The client library of PostgreSQL, loaded when it is needed: programs start without it.
namespace gpusched::history {

/// Functions of libpq, under their names without the prefix. Numbers are those of its stable interface.
struct Libpq {
  enum Status { kConnectionOk = 0, kConnectionBad = 1 };
  enum Polling { kPollingFailed = 0, kPollingReading = 1, kPollingWriting = 2, kPollingOk = 3 };
  enum ResultStatus { kCommandOk = 1, kTuplesOk = 2 };

  pg_conn* (*connectStartParams)(const char* const* keywords, const char* const* values, int expand_dbname);
  int (*connectPoll)(pg_conn*);
  int (*status)(const pg_conn*);
  int (*socket)(const pg_conn*);
  void (*finish)(pg_conn*);
  char* (*errorMessage)(const pg_conn*);
  int (*serverVersion)(const pg_conn*);
  int (*sslInUse)(pg_conn*);
  int (*setnonblocking)(pg_conn*, int);
  int (*sendQuery)(pg_conn*, const char* sql);
  int (*sendQueryParams)(pg_conn*, const char* sql, int count, const unsigned* types,
                         const char* const* values, const int* lengths, const int* formats,
                         int result_format);
  int (*flush)(pg_conn*);
  int (*isBusy)(pg_conn*);
  int (*consumeInput)(pg_conn*);
  pg_result* (*getResult)(pg_conn*);
  void (*clear)(pg_result*);
  int (*resultStatus)(const pg_result*);
  char* (*resultErrorField)(const pg_result*, int field);
  int (*ntuples)(const pg_result*);
  int (*nfields)(const pg_result*);
  char* (*getvalue)(const pg_result*, int row, int column);
  int (*getlength)(const pg_result*, int row, int column);
  char* (*cmdTuples)(pg_result*);
  void (*(*setNoticeProcessor)(pg_conn*, void (*)(void*, const char*), void*))(void*, const char*);

  /// The library, loaded once for the process. kNotFound: there is none; the message says what to install.
  static Result<const Libpq*> load();
};

}  // namespace gpusched::history

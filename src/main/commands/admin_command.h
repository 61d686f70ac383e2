#pragma once

#include <vector>

#include "grammar/program.h"

namespace gpusched {

/// `gpu-scheduler admin apply -f FILE [--dry-run] [--yes] [--json]` and `admin get`: what a cluster's tenants
/// and labels shall be, and what they are, as one file. Speaks to a running scheduler over its API. Exit
/// status: 0 it is so now (or would be), 1 it could not be done, 2 the command line or the file is wrong.
std::vector<ProgramCommand> admin_commands();

/// `gpu-scheduler node-token create NODE [--expires 1h] [--out FILE] [--json]`: leave for one machine to
/// become that node, once. Exit status as above.
ProgramCommand node_token_command();

/// `gpu-scheduler order-key rotate|finish [--data-dir DIR]`: another key for orders to nodes. Works on files;
/// the scheduler takes them when it starts. Exit status: 1 when it could not be done.
std::vector<ProgramCommand> order_key_commands();

/// `gpu-scheduler history copy FILE`: the history's database as a file of its own, made by the running
/// scheduler, which alone opens the database. Exit status: 0 done, 1 it could not be done, 2 no scheduler
/// answers, or the command line is wrong.
ProgramCommand history_copy_command();

/// `gpu-scheduler history statement FILE --prices FILE [--month MONTH] [--tenant NAME] [--json]`: what
/// tenants owe for a month, from a copy of the history. Exit status: 1 the copy cannot be read, 2 the command
/// line or the prices are wrong.
ProgramCommand history_statement_command();

/// `gpu-scheduler backup DESTINATION [--data-dir DIR]`: a copy of the data folder, of a running scheduler
/// too; `gpu-scheduler restore BACKUP DATA_DIR`: a data folder made of one. Exit status: 1 when it could not
/// be done; nothing is left behind then.
std::vector<ProgramCommand> backup_commands();

}  // namespace gpusched

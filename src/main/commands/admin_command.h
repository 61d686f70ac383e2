#pragma once

namespace gpusched {

/// `gpu-scheduler admin apply -f FILE [--dry-run] [--yes] [--json]` and `admin get`: what a cluster's tenants
/// and labels shall be, and what they are, as one file. Speaks to a running scheduler over its API. `argv[0]`
/// is the word `admin`. Returns the exit status: 0 it is so now (or would be), 1 it could not be done, 2 the
/// command line or the file is wrong.
int run_admin_command(int argc, char** argv);

/// `gpu-scheduler node-token create NODE [--expires 1h] [--out FILE] [--json]`: leave for one machine to
/// become that node, once. The same of `argv` and of what is returned.
int run_node_token_command(int argc, char** argv);

/// `gpu-scheduler order-key rotate|finish [--data-dir DIR]`: another key for orders to nodes. Works on files;
/// the scheduler takes them when it starts. The same of `argv`; returns 1 when it could not be done.
int run_order_key_command(int argc, char** argv);

}  // namespace gpusched

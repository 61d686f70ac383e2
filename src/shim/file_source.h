#pragma once

#include <string>

namespace gpusched::shim {

/// Reads one file for the agent: opens `path` below the folder (or an absolute one, unless the reader, whom
/// this process became, is root), says kStarted or kFailed on the socket, and answers each kRead with kData
/// until the file's end or until the socket closes. Returns the exit status.
///
/// A relative path never leads out of the folder, by whatever links; only regular files are read, and of one
/// that grows no more than what it was when it was opened.
int serve_file(int socket, int folder, const std::string& path, bool reader_is_root);

}  // namespace gpusched::shim

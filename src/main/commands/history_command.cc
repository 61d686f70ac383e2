#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "main/commands/admin_client.h"
#include "main/commands/admin_command.h"

namespace gpusched {
namespace {

constexpr std::size_t kPiece = std::size_t{1} << 20;

int complain_of_history(const std::string& message, int status) {
  std::fprintf(stderr, "gpu-scheduler history: %s\n", message.c_str());
  return status;
}

Error failed(const std::string& what) {
  return {.code = ErrorCode::kIo, .message = what + ": " + std::strerror(errno)};
}

/// A file descriptor that is closed.
class File {
 public:
  File(const std::string& path, int flags) : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0600)) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Result<Unit> copy_bytes(int from, int to) {
  std::vector<char> piece(kPiece);
  while (true) {
    const ssize_t got = ::read(from, piece.data(), piece.size());
    if (got < 0) return failed("cannot read the copy");
    if (got == 0) return ::fsync(to) == 0 ? Result<Unit>(Unit{}) : failed("cannot write the file");
    for (ssize_t put = 0; put < got;) {
      const ssize_t now = ::write(to, piece.data() + put, static_cast<std::size_t>(got - put));
      if (now < 0) return failed("cannot write the file");
      put += now;
    }
  }
}

/// Never over a file that is there, and never a part of one under its name.
Result<Unit> take(const std::string& from, const std::string& to) {
  const std::string partial = to + ".partial";
  const File in(from, O_RDONLY);
  if (in.fd() < 0)
    return failed("cannot read " + from + ", which the scheduler wrote; run this as its user or root");
  ::unlink(partial.c_str());
  const File out(partial, O_WRONLY | O_CREAT | O_EXCL);
  if (out.fd() < 0) return failed("cannot write " + partial);
  Result<Unit> done = copy_bytes(in.fd(), out.fd());
  if (done.ok() && ::link(partial.c_str(), to.c_str()) != 0) done = failed("cannot make " + to);
  ::unlink(partial.c_str());
  if (done.ok()) ::unlink(from.c_str());
  return done;
}

int copy(const AdminAccess& access, const std::string& file) {
  struct stat there{};
  if (::lstat(file.c_str(), &there) == 0)
    return complain_of_history(file + " is there already; give another name, or remove it", 2);
  Result<AdminClient> client = AdminClient::open(access);
  if (!client.ok()) return complain_of_history(client.error().message, 2);
  const Result<Json> made =
      client->call({.method = "POST", .target = "/v1/history:copy", .timeout = minutes(60)});
  if (!made.ok()) return complain_of_history(made.error().message, 1);
  const Result<Unit> taken = take((*made)["path"].text(), file);
  if (!taken.ok()) return complain_of_history(taken.error().message, 1);
  std::printf("%s\n", file.c_str());
  return 0;
}

ProgramAction define_copy(Grammar& grammar) {
  struct Options {
    AdminAccess access;
    std::string file;
  };
  const auto options = std::make_shared<Options>();
  grammar.argument("FILE", &options->file, "The file to make").completes(Complete::kFile);
  declare_access(grammar, options->access);
  grammar.details(
      "The running scheduler writes the copy beside its database, and this command moves it to FILE: run it "
      "on "
      "the scheduler's machine, as its user or root. Open the copy with sqlite3, never the database itself.");
  grammar.example("gpu-scheduler history copy history.db", "have the history as a file for SQL");
  return [options](const std::vector<std::string>&) { return copy(options->access, options->file); };
}

}  // namespace

ProgramCommand history_copy_command() {
  return {.path = "history copy",
          .summary = "Copy the history's database into a file, for SQL",
          .define = define_copy};
}

}  // namespace gpusched

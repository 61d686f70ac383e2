#include "pilot/outgoing/audit_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>

#include "anticipate/redact.h"
#include "base/text/civil_time.h"
#include "client/json.h"

namespace gpusched::pilot {

bool AuditFile::write(const std::string& line) {
  const int open = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (open < 0) return false;
  struct stat facts{};
  const bool is_whole = ::write(open, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  const bool is_large = ::fstat(open, &facts) == 0 && facts.st_size > kAuditBytesMax;
  ::close(open);
  if (is_large) ::rename(path_.c_str(), (path_ + ".1").c_str());
  return is_whole;
}

bool AuditFile::sends(std::string_view destination, std::string_view bytes,
                      const std::vector<std::string>& secrets, Time wall) {
  std::string shown(bytes);
  for (const std::string& secret : secrets) {
    for (std::size_t at = secret.empty() ? std::string::npos : shown.find(secret); at != std::string::npos;
         at = shown.find(secret, at))
      shown.replace(at, secret.size(), anticipate::kRedacted);
  }
  JsonObjectWriter line;
  line.add("at", utc_text(wall));
  line.add("to", destination);
  line.add("bytes", static_cast<int64_t>(bytes.size()));
  line.add("sent", shown);
  return write(line.text() + "\n");
}

void AuditFile::answered(std::string_view destination, int status, std::string_view problem, Time wall) {
  JsonObjectWriter line;
  line.add("at", utc_text(wall));
  line.add("from", destination);
  if (status > 0) line.add("status", int64_t{status});
  if (!problem.empty()) line.add("problem", problem);
  write(line.text() + "\n");
}

}  // namespace gpusched::pilot

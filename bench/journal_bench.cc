// rooms: journal base
//
// The file journal against a raw loop of the same writes and syncs: groups of 64 commands of 256 bytes, one
// record and one sync each. Both write zero-filled files on the same disk, in turns, in the same run.
#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "journal/file_journal.h"
#include "journal/record_format.h"

namespace gpusched {
namespace {

constexpr uint32_t kCommands = 64;
constexpr std::size_t kCommandBytes = 256;
constexpr std::size_t kPayloadBytes = kCommands * kCommandBytes;

using Clock = std::chrono::steady_clock;

struct Sample {
  double seconds = 0;
  std::vector<double> group_us;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

template <typename Commit>
void measure(Sample& sample, int groups, Commit commit) {
  const Clock::time_point start = Clock::now();
  Clock::time_point before = start;
  for (int i = 0; i < groups; ++i) {
    commit();
    const Clock::time_point after = Clock::now();
    sample.group_us.push_back(std::chrono::duration<double, std::micro>(after - before).count());
    before = after;
  }
  sample.seconds += seconds_since(start);
}

/// A file of zero bytes, filled and synced before the clock starts; written round and round.
class RawFile {
 public:
  RawFile(const std::string& path, uint64_t bytes) : bytes_(bytes) {
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    CHECK(fd_ >= 0);
    const std::string zeros(1u << 20, '\0');
    for (uint64_t at = 0; at < bytes; at += zeros.size()) {
      CHECK(::pwrite(fd_, zeros.data(), zeros.size(), static_cast<off_t>(at)) ==
            static_cast<ssize_t>(zeros.size()));
    }
    CHECK(::fsync(fd_) == 0);
  }
  ~RawFile() { ::close(fd_); }
  void commit(const std::string& record) {
    if (at_ + record.size() > bytes_) at_ = 0;
    CHECK(::pwrite(fd_, record.data(), record.size(), static_cast<off_t>(at_)) ==
          static_cast<ssize_t>(record.size()));
    CHECK(::fdatasync(fd_) == 0);
    at_ += record.size();
  }

 private:
  int fd_ = -1;
  uint64_t bytes_;
  uint64_t at_ = 0;
};

std::string machine() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string model = "unknown processor";
  for (std::string line; std::getline(cpuinfo, line);) {
    if (line.rfind("model name", 0) == 0) {
      model = line.substr(line.find(':') + 2);
      break;
    }
  }
  utsname system{};
  ::uname(&system);
  return model + ", " + std::to_string(std::thread::hardware_concurrency()) + " cores, " + system.sysname +
         " " + system.release;
}

double percentile(std::vector<double>& values, double share) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(share * static_cast<double>(values.size() - 1))];
}

double report(const char* name, Sample& sample) {
  const auto groups = static_cast<double>(sample.group_us.size());
  const double rate = groups * kCommands / sample.seconds;
  const double worst = percentile(sample.group_us, 1);
  std::printf("%-14s %9.0f records/s  %7.0f syncs/s  group p50 %6.1f us  p99 %7.1f us  worst %8.1f us\n",
              name, rate, groups / sample.seconds, percentile(sample.group_us, 0.5),
              percentile(sample.group_us, 0.99), worst);
  return rate;
}

int run(const std::string& folder, int rounds, int groups) {
  const std::string dir = folder + "/gpusched_journal_bench_" + std::to_string(::getpid());
  std::filesystem::create_directory(dir);
  Sample raw;
  Sample journal;
  std::vector<double> ratios;
  {
    Result<std::unique_ptr<FileJournal>> opened = FileJournal::open(dir + "/journal", {});
    if (!opened) {
      std::fprintf(stderr, "journal_bench: %s\n", opened.error().message.c_str());
      return 1;
    }
    FileJournal& file = **opened;
    RawFile raw_file(dir + "/raw", 64u << 20);
    const std::string payload(kPayloadBytes, 'p');
    const std::string record(record_bytes(kPayloadBytes), 'r');
    const auto commit = [&] {
      const uint64_t position = file.last_position() + 1;
      const JournalRecord group{.position = position,
                                .term = 1,
                                .first_sequence = position * kCommands,
                                .command_count = kCommands,
                                .payload = payload};
      CHECK(file.append(group).ok());
      CHECK(file.sync().ok());
    };
    Sample warm_up;
    measure(warm_up, 200, [&] { raw_file.commit(record); });
    measure(warm_up, 200, commit);
    for (int round = 0; round < rounds; ++round) {
      const double raw_before = raw.seconds;
      const double journal_before = journal.seconds;
      measure(raw, groups, [&] { raw_file.commit(record); });
      measure(journal, groups, commit);
      ratios.push_back((raw.seconds - raw_before) / (journal.seconds - journal_before));
      CHECK(file.compact_before(file.last_position()).ok());
    }
  }
  std::filesystem::remove_all(dir);
  std::printf("machine        %s\n", machine().c_str());
  std::printf("durability     pwrite + fdatasync per group, zero-filled files, folder %s\n", folder.c_str());
  std::printf(
      "sizes          groups of %u x %zu B, journal segments of 16 MiB, %d rounds of %d groups each, in "
      "turns\n",
      kCommands, kCommandBytes, rounds, groups);
  const double raw_rate = report("raw loop", raw);
  const double journal_rate = report("file journal", journal);
  std::printf("ratio          %.3f of all, median of the rounds %.3f (target >= 0.9)\n",
              journal_rate / raw_rate, percentile(ratios, 0.5));
  return 0;
}

}  // namespace
}  // namespace gpusched

/// journal_bench [FOLDER [ROUNDS [GROUPS]]]
int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : std::filesystem::temp_directory_path().string();
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 60;
  const int groups = argc > 3 ? std::atoi(argv[3]) : 500;
  if (rounds < 1 || groups < 1 || argc > 4) {
    std::fprintf(stderr, "usage: journal_bench [FOLDER [ROUNDS [GROUPS]]]\n");
    return 2;
  }
  return gpusched::run(folder, rounds, groups);
}

// Writes the golden files of the present format: `make_golden FOLDER SEED`. Run once for a format; what it
// wrote is committed and never written again. See tests/compat/README.md.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/check.h"
#include "codec/group.h"
#include "codec/snapshot.h"
#include "engine/engine.h"
#include "engine/testing/random_commands.h"
#include "journal/file_journal.h"

namespace gpusched {
namespace {

constexpr int kGroups = 250;

void write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  CHECK(file.good());
}

int make(const std::filesystem::path& folder, uint64_t seed) {
  testing::RandomCommands random(seed);
  State state;
  GroupEncoder encoder;
  Time now = Time{} + seconds(1'750'000'000);
  std::string digests;
  const std::string journal_folder = (folder / "journal").string();
  CHECK(std::filesystem::create_directory(journal_folder));
  Result<std::unique_ptr<FileJournal>> journal = FileJournal::open(
      journal_folder,
      {.segment_bytes = 32'768, .reserve_bytes = 1, .background = false, .store_id = 0x676F6C64656E});
  CHECK(journal.ok());
  for (int group = 1; group <= kGroups; ++group) {
    now = now + random.pause();
    encoder.begin(now);
    const uint64_t first_sequence = state.last.sequence + 1;
    const uint64_t count = 1 + random.prng().below(6);
    for (uint64_t i = 0; i < count; ++i) {
      const bool first = state.last.sequence < kFirstSequence;
      const Command command = first ? Command(Configure{.config = {.feature_level = kFeatureLevel}})
                              : state.next_due() <= now   ? Command(AdvanceTime{})
                              : random.prng().chance(300) ? random.plan(state)
                                                          : random.next(state);
      encoder.add(command);
      Events events;
      apply(state, command, {.sequence = state.last.sequence + 1, .at = now}, events);
    }
    CHECK((*journal)
              ->append({.position = static_cast<uint64_t>(group),
                        .term = 1,
                        .first_sequence = first_sequence,
                        .command_count = static_cast<uint32_t>(state.last.sequence + 1 - first_sequence),
                        .payload = encoder.payload()})
              .ok());
    CHECK((*journal)->sync().ok());
    if (group % 50 != 0) continue;
    // Record, newest command, running digest, canonical digest.
    digests += std::to_string(group) + " " + std::to_string(state.last.sequence) + " " +
               std::to_string(state.digest.value()) + " " + std::to_string(snapshot_digest(state).value()) +
               "\n";
  }
  CHECK((*journal)->seal().ok());
  write(folder / "digests.txt", digests);
  std::string snapshot;
  CHECK(encode_snapshot(state, [&](std::string_view piece) -> Result<Unit> {
          snapshot += piece;
          return Unit{};
        }).ok());
  write(folder / "snapshot.bin", snapshot);
  std::filesystem::remove(folder / "journal" / "LOCK");
  std::printf(
      "%d groups; in the snapshot %zu jobs, %zu attempts, %zu arrays, %zu promises, %zu bookings, "
      "%zu keys, %zu tickets and %zu identities of nodes, %zu people\n",
      kGroups, state.jobs.size(), state.attempts.size(), state.arrays.size(), state.promises.size(),
      state.bookings.size(), state.keys.size(), state.node_identities.tickets().size(),
      state.node_identities.identities().size(), state.people.size());
  return 0;
}

}  // namespace
}  // namespace gpusched

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: make_golden FOLDER SEED\n");
    return 2;
  }
  return gpusched::make(argv[1], std::strtoull(argv[2], nullptr, 10));
}

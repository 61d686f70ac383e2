#include "main/commands/journal_command.h"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "host/core/folder_check.h"
#include "journal/journal_inspect.h"
#include "main/commands/journal_audit.h"

namespace gpusched {
namespace {

constexpr int kWhole = 0;
constexpr int kDamaged = 1;

struct Arguments {
  std::string dir;
  bool json = false;
  int64_t from = 1;
  int64_t to = INT64_MAX;
};

std::string json_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') out.push_back('\\');
    if (byte >= 0x20) {
      out.push_back(c);
      continue;
    }
    char escaped[8];
    std::snprintf(escaped, sizeof escaped, "\\u%04x", byte);
    out += escaped;
  }
  return out + "\"";
}

std::string hex(uint32_t value) {
  char text[16];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016" PRIx64, value);
  return text;
}

std::string column(const std::string& text, std::size_t width) {
  return text.size() >= width ? text : std::string(width - text.size(), ' ') + text;
}

/// The facts of a whole journal that the three commands tell.
struct Summary {
  std::string dir;
  JournalScan scan;
  uint64_t records = 0;
  uint64_t payload_bytes = 0;
  uint64_t last_sequence = 0;

  uint64_t first_position() const {
    return scan.segments.empty() ? 1 : scan.segments.front().header.first_position;
  }
  uint64_t last_position() const {
    return scan.segments.empty() ? 0 : scan.segments.back().scan.last_position;
  }
  uint64_t last_term() const { return scan.segments.empty() ? 0 : scan.segments.back().scan.last_term; }
  bool sealed() const {
    return !scan.segments.empty() && scan.segments.back().scan.tail == SegmentTail::kSealed;
  }
  uint64_t torn_bytes() const {
    if (scan.segments.empty() || scan.segments.back().scan.tail != SegmentTail::kTorn) return 0;
    return scan.segments.back().scan.used_end - scan.segments.back().scan.end;
  }
};

class JournalReader {
 public:
  JournalReader(const Arguments& arguments, std::ostream& out, std::ostream& err,
                const JournalDecoder& decode)
      : arguments_(arguments), out_(out), err_(err), decode_(decode) {}

  int verify() {
    std::optional<FolderCheck> check;
    // Without a decoder nobody knows what records and snapshots mean.
    if (decode_) {
      summary_.dir = find_journal_dir(posix_disk(), arguments_.dir);
      check.emplace(posix_disk(), folder_above(summary_.dir) + "/snapshots");
    }
    const auto replay = [&](const StoredRecord& stored, uint64_t) -> Result<Unit> {
      return check ? check->visit(stored.record) : Result<Unit>(Unit{});
    };
    if (!read(replay)) return kDamaged;
    const bool good = !check || check->refused().empty();
    if (arguments_.json) {
      out_ << "{\"ok\":" << (good ? "true" : "false") << "," << json_summary();
      if (check) out_ << json_check(*check);
      out_ << "}\n";
    } else {
      out_ << summary_.dir << ": whole, " << records_line() << "\n";
      if (check) print_check(*check);
    }
    if (!arguments_.json) print_tail();
    if (good) return kWhole;
    for (const std::string& refused : check->refused()) {
      err_ << refused
           << ". The next start ignores it and uses an older snapshot and the journal, which are intact; the "
              "next "
           << "snapshot replaces it. Check the disk\n";
    }
    return kDamaged;
  }

  int dump() {
    if (!arguments_.json) {
      out_ << "    position     term  first_sequence  commands     bytes       crc"
           << (decode_ ? "  payload" : "") << "\n";
    }
    const auto print = [this](const StoredRecord& stored, uint64_t) -> Result<Unit> {
      const uint64_t position = stored.record.position;
      if (position >= static_cast<uint64_t>(arguments_.from) &&
          position <= static_cast<uint64_t>(arguments_.to)) {
        print_record(stored);
      }
      return Unit{};
    };
    if (!read(print)) return kDamaged;
    if (!arguments_.json) print_tail();
    return kWhole;
  }

  int audit() {
    summary_.dir = find_journal_dir(posix_disk(), arguments_.dir);
    uint64_t told = 0;
    JournalAudit audit(posix_disk(), folder_above(summary_.dir) + "/snapshots", [&](const audit::Line& line) {
      out_ << (arguments_.json ? journal_audit_json(line) : journal_audit_text(line)) << "\n";
      told += 1;
    });
    if (!read([&](const StoredRecord& stored, uint64_t) { return audit.visit(stored.record); }))
      return kDamaged;
    err_ << told
         << " writes. A journal has no reads, sessions, reboots and calls that were refused before they "
            "became "
            "commands; of a write it does not know the address and the request. What follows `in its words` "
            "is what the "
            "client called itself, unchecked, or else its address\n";
    if (summary_.first_position() > 1 || audit.skipped() > 0) {
      err_ << "Writes before record " << summary_.first_position() + audit.skipped()
           << " are not told: snapshots took the place of their records\n";
    }
    return kWhole;
  }

  int stat() {
    if (!read({})) return kDamaged;
    if (arguments_.json) {
      out_ << "{\"ok\":true," << json_summary() << ",\"segment_list\":[";
      bool first = true;
      for (const ScannedSegment& segment : summary_.scan.segments) {
        out_ << (first ? "" : ",") << json_segment(segment);
        first = false;
      }
      out_ << "]}\n";
      return kWhole;
    }
    out_ << summary_.dir << ": " << records_line() << "\n";
    out_ << "segment                    first        last   records     used bytes     size bytes\n";
    for (const ScannedSegment& segment : summary_.scan.segments) {
      out_ << file_name(segment.path) << column(std::to_string(segment.header.first_position), 12)
           << column(std::to_string(segment.scan.last_position), 12)
           << column(std::to_string(segment.scan.records), 10) << column(std::to_string(segment.scan.end), 15)
           << column(std::to_string(segment.header.segment_bytes), 15) << "\n";
    }
    for (const PreparedSegment& prepared : summary_.scan.prepared) {
      out_ << file_name(prepared.path) << column("prepared", 12) << column("", 22) << column("0", 15)
           << column(std::to_string(prepared.bytes), 15) << "\n";
    }
    print_tail();
    return kWhole;
  }

 private:
  static std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  /// False: the error is printed.
  bool read(const StoredVisitor& visit) {
    Disk& disk = posix_disk();
    summary_.dir = find_journal_dir(disk, arguments_.dir);
    const auto count = [&](const StoredRecord& stored, uint64_t offset) -> Result<Unit> {
      summary_.records += 1;
      summary_.payload_bytes += stored.record.payload.size();
      if (stored.record.command_count > 0) {
        summary_.last_sequence = stored.record.first_sequence + stored.record.command_count - 1;
      }
      return visit ? visit(stored, offset) : Result<Unit>(Unit{});
    };
    Result<JournalScan> scan = inspect_journal(disk, summary_.dir, count);
    if (scan) {
      summary_.scan = std::move(*scan);
      return true;
    }
    Error error = scan.error();
    if (error.code == ErrorCode::kNotFound) {
      error.message = arguments_.dir + " holds no journal (" + error.message +
                      "): give the data folder of the scheduler, or the journal folder inside it";
    }
    if (arguments_.json) {
      out_ << "{\"ok\":false,\"journal\":" << json_string(summary_.dir)
           << ",\"code\":" << json_string(to_string(error.code))
           << ",\"error\":" << json_string(error.message) << ",\"whole_records\":" << summary_.records
           << "}\n";
    }
    err_ << "gpu-scheduler journal: " << error.message << "\n";
    return false;
  }

  std::string records_line() const {
    std::string line = summary_.records == 0 ? "no records"
                                             : std::to_string(summary_.records) + " records, positions " +
                                                   std::to_string(summary_.first_position()) + " to " +
                                                   std::to_string(summary_.last_position()) +
                                                   ", last command " + std::to_string(summary_.last_sequence);
    line += ", " + std::to_string(summary_.scan.segments.size()) + " segments in use, " +
            std::to_string(summary_.scan.prepared.size()) + " prepared, ";
    return line + (summary_.sealed() ? "sealed" : "not sealed");
  }

  void print_check(const FolderCheck& check) {
    out_ << "state: " << check.snapshots() << " snapshots, " << check.refused().size()
         << " of them unusable; " << check.replayed() << " records replayed, digest " << hex(check.digest())
         << "\n";
  }

  static std::string json_check(const FolderCheck& check) {
    std::string out = ",\"snapshots\":" + std::to_string(check.snapshots()) +
                      ",\"replayed_records\":" + std::to_string(check.replayed()) + ",\"state_digest\":\"" +
                      hex(check.digest()) + "\",\"refused_snapshots\":[";
    for (std::size_t i = 0; i < check.refused().size(); ++i)
      out += (i == 0 ? "" : ",") + json_string(check.refused()[i]);
    return out + "]";
  }

  void print_tail() {
    if (summary_.torn_bytes() == 0) return;
    const ScannedSegment& last = summary_.scan.segments.back();
    err_ << last.path << ", offset " << last.scan.end << ": " << summary_.torn_bytes()
         << " bytes of an unfinished write: a running scheduler is writing them, or a crash interrupted it "
            "and the next start removes them. They contain nothing that was acknowledged\n";
  }

  void print_record(const StoredRecord& stored) {
    const JournalRecord& record = stored.record;
    const std::string decoded = decode_ ? decode_(record) : std::string();
    if (arguments_.json) {
      out_ << "{\"position\":" << record.position << ",\"term\":" << record.term
           << ",\"first_sequence\":" << record.first_sequence << ",\"command_count\":" << record.command_count
           << ",\"length\":" << record.payload.size() << ",\"crc\":\"" << hex(stored.crc) << "\"";
      if (decode_) out_ << ",\"payload\":" << json_string(decoded);
      out_ << "}\n";
      return;
    }
    out_ << column(std::to_string(record.position), 12) << column(std::to_string(record.term), 9)
         << column(std::to_string(record.first_sequence), 16)
         << column(std::to_string(record.command_count), 10)
         << column(std::to_string(record.payload.size()), 10) << "  " << hex(stored.crc);
    if (decode_) out_ << "  " << decoded;
    out_ << "\n";
  }

  std::string json_summary() const {
    const JournalScan& scan = summary_.scan;
    return "\"journal\":" + json_string(summary_.dir) + ",\"records\":" + std::to_string(summary_.records) +
           ",\"first_position\":" + std::to_string(summary_.first_position()) +
           ",\"last_position\":" + std::to_string(summary_.last_position()) +
           ",\"last_term\":" + std::to_string(summary_.last_term()) +
           ",\"last_sequence\":" + std::to_string(summary_.last_sequence) +
           ",\"payload_bytes\":" + std::to_string(summary_.payload_bytes) +
           ",\"segments\":" + std::to_string(scan.segments.size()) +
           ",\"prepared_segments\":" + std::to_string(scan.prepared.size()) +
           ",\"sealed\":" + (summary_.sealed() ? "true" : "false") +
           ",\"torn_bytes\":" + std::to_string(summary_.torn_bytes());
  }

  static std::string json_segment(const ScannedSegment& segment) {
    return "{\"file\":" + json_string(file_name(segment.path)) +
           ",\"first_position\":" + std::to_string(segment.header.first_position) +
           ",\"last_position\":" + std::to_string(segment.scan.last_position) +
           ",\"records\":" + std::to_string(segment.scan.records) +
           ",\"used_bytes\":" + std::to_string(segment.scan.end) +
           ",\"size_bytes\":" + std::to_string(segment.header.segment_bytes) + "}";
  }

  const Arguments& arguments_;
  std::ostream& out_;
  std::ostream& err_;
  const JournalDecoder& decode_;
  Summary summary_;
};

/// Declares what all these commands take.
std::shared_ptr<Arguments> declare_journal(Grammar& grammar, const char* json) {
  auto arguments = std::make_shared<Arguments>();
  grammar.argument("DIR", &arguments->dir, "Data folder of the scheduler, or the journal folder inside it")
      .completes(Complete::kFolder);
  grammar.flag("--json", arguments->json, json);
  grammar.details("Changes nothing, and works while the scheduler runs.");
  return arguments;
}

}  // namespace

std::vector<ProgramCommand> journal_commands(std::ostream& out, std::ostream& err, JournalDecoder decode) {
  using Read = int (JournalReader::*)();
  const auto reading = [&out, &err, decode = std::move(decode)](Read read, const char* json, bool has_range) {
    return [&out, &err, decode, read, json, has_range](Grammar& grammar) -> ProgramAction {
      const std::shared_ptr<Arguments> arguments = declare_journal(grammar, json);
      if (has_range) {
        grammar.option("--from", "POSITION", &arguments->from, "First position to print").range(0, INT64_MAX);
        grammar.option("--to", "POSITION", &arguments->to, "Last position to print").range(0, INT64_MAX);
      }
      return [&out, &err, decode, read, arguments](const std::vector<std::string>&) {
        JournalReader reader(*arguments, out, err, decode);
        const int status = (reader.*read)();
        out.flush();
        return status;
      };
    };
  };
  constexpr const char* kOne = "Print JSON";
  constexpr const char* kEach = "Print JSON, one object per line";
  return {{.path = "journal verify",
           .summary = "Read and check every record of the journal; exit status 1 if one is damaged",
           .define = reading(&JournalReader::verify, kOne, false)},
          {.path = "journal dump",
           .summary = "Print one line per record",
           .define = reading(&JournalReader::dump, kEach, true)},
          {.path = "journal audit",
           .summary = "Print who changed what, as far as the journal knows, one write per line",
           .define = reading(&JournalReader::audit, kEach, false)},
          {.path = "journal stat",
           .summary = "Show segments, sizes and positions of the journal",
           .define = reading(&JournalReader::stat, kOne, false)}};
}

}  // namespace gpusched

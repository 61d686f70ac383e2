#pragma once

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/time.h"
#include "shim/box.h"

/// Protocol of the agent and its shims: packets on local sockets, and the outcome file on disk. No
/// third-party library, so that the shim stays small. All functions are thread-safe.
namespace gpusched::shim {

/// Cause of the end of an attempt's member. Numbers as in `Outcome.Cause` of types.proto.
enum class Cause : uint8_t {
  kUnspecified = 0,
  kExited = 1,
  kSignaled = 2,
  kStartFailed = 3,
  kTimeout = 4,
  kStopped = 5,
  kShimLost = 6,
  kNodeLost = 7,
  kContactLost = 8,
  kOutOfMemory = 9,
  kNodeFault = 10,
  kOverLimit = 11,
};
std::string_view to_string(Cause cause);

/// Resources that an attempt used until it ended. Zero: not known.
struct MeasuredUsage {
  int64_t peak_memory_bytes = 0;
  bool peak_of_process = false;  ///< The peak is of its largest process alone; else of all.
  int64_t cpu_ns = 0;            ///< User and system time of all its processes.

  friend bool operator==(const MeasuredUsage&, const MeasuredUsage&) = default;
};

struct Outcome {
  Cause cause = Cause::kUnspecified;
  int32_t exit_code = 0;
  int32_t signal = 0;
  std::string detail = {};
  int64_t started_unix_ns = 0;
  int64_t ended_unix_ns = 0;
  MeasuredUsage usage = {};

  friend bool operator==(const Outcome&, const Outcome&) = default;
};

/// "12-1-0": job, attempt, member. Also the name of the attempt's folder.
std::string key_text(const AttemptKey& key);
std::optional<AttemptKey> parse_key(std::string_view text);

/// A line of text, one about usage where that is known, and a checksum: what the shim leaves in the attempt's
/// folder. Readers from before usage take that line for a part of the detail.
std::string format_outcome(const AttemptKey& key, const Outcome& outcome);
/// Nothing when the text is torn, damaged, no outcome or another attempt's: folders are used again.
std::optional<Outcome> parse_outcome(const AttemptKey& key, std::string_view text);

/// In the data folder: attempts' folders, and folders of forgotten attempts that new ones take over. Making
/// and deleting files is what a short job costs most, on file systems that avoid inodes that were lately in
/// use.
inline constexpr const char* kAttemptsFolder = "attempts";
inline constexpr const char* kSpareFolder = "spare";
/// There, too: payloads of tasks that have not begun, by the names of their attempts' folders.
inline constexpr const char* kPayloadsFolder = "payloads";
/// Names of the files in an attempt's folder.
inline constexpr const char* kStdoutFile = "stdout";
inline constexpr const char* kStderrFile = "stderr";
inline constexpr const char* kOutcomeFile = "outcome";
/// Milliseconds in decimal: another maximum runtime than the one it was started with; 0: none.
inline constexpr const char* kRuntimeFile = "runtime";
/// Names of the folders there that are its user's: its default working folder, and its TMPDIR.
inline constexpr const char* kWorkFolder = "work";
inline constexpr const char* kTmpFolder = "tmp";
/// The job's script, its user's own with mode 0700, until the attempt is over: in the attempt's folder, where
/// nobody else can replace it; in kTmpFolder where the job sees no other folder of the attempt.
inline constexpr const char* kScriptFile = "script";
/// In its TMPDIR: a job that touches it says that its work is safe. Its name is in kCheckpointVariable.
inline constexpr const char* kCheckpointFile = "gpu-checkpoint";
inline constexpr const char* kCheckpointVariable = "GPU_CHECKPOINT_FILE";
/// Path of the attempt's kTmpFolder inside a container.
inline constexpr const char* kContainerTmpFolder = "/run/gpu-scheduler";
/// Files of an attempt in a container: its plan, each word ended by a zero byte; what it waits for until its
/// command runs; and how its runner saw it end, as an outcome's text.
inline constexpr const char* kContainerFile = "container";
inline constexpr const char* kProgressFile = "progress";
inline constexpr const char* kVerdictFile = "verdict";
/// File of a service's replica: its port, and its probe (base/text/service_port.h).
inline constexpr const char* kPortFile = "port";
/// The entry of its environment that asks for the port, as `to_line` writes it there, and the one that takes
/// its place.
inline constexpr std::string_view kPortWishVariable = "GPU_SCHEDULER_PORT_WISH";
inline constexpr std::string_view kPortVariable = "PORT";
/// Where a container's runner has the socket that keeps its gang's port, until it goes. Behind all that a
/// shim has open.
inline constexpr int kPortDescriptor = 200;
/// Files of a gated attempt, until its command runs: "preparing" or "prepared"; and what lets that run.
inline constexpr const char* kGateFile = "gate";
inline constexpr const char* kGoFile = "go";
/// File of a gang's member: a line for each node, "address slots=8". In kTmpFolder of one in a container.
inline constexpr const char* kHostsFile = "hosts";
inline constexpr const char* kHostsVariable = "GPU_SCHEDULER_HOSTFILE";
/// File with the global name of its image, "sha256:..."; absent where only this node could say.
inline constexpr const char* kImageFile = "image";

/// The environment variable that marks every process of an attempt: "12-1-0@<instance>".
inline constexpr std::string_view kMarkerVariable = "GPU_SCHEDULER_ATTEMPT";

/// Packets larger than this travel in a memory file whose descriptor is passed with a kStartInMemory packet.
inline constexpr std::size_t kPacketBytesMax = 32 * 1024;
/// No request may be larger, whichever way it travels.
inline constexpr std::size_t kRequestBytesMax = 8 * 1024 * 1024;

/// To the server. The first byte of the packet: what it is, and in its upper half the version of what
/// follows, which changes with every packet's layout. Without one (1, 2, 3): an agent from before versions.
enum class RequestKind : uint8_t { kStart = 0x21, kStop = 0x12, kStartInMemory = 0x13 };
/// A start in another version than this program's. Its key stands where it stands in every version.
std::optional<AttemptKey> foreign_start_key(std::string_view packet);
/// A start that travels in a memory file, which is passed on in the same way in every version.
bool is_start_in_memory(std::string_view packet);

struct StartRequest {
  AttemptKey key;
  Duration grace;                      ///< Grace period between SIGTERM and SIGKILL.
  Duration max_runtime = {};           ///< Zero: no limit.
  Duration lost_contact = {};          ///< Zero: never killed for silence.
  std::string working_directory = {};  ///< Empty: the attempt's own folder.
  /// Where it cannot be entered the attempt's own folder does, and its error output says so.
  bool working_directory_optional = false;
  std::string spare_folder = {};       ///< Name in `spare/` to take over; empty, or gone: a new one is made.
  int64_t log_bytes_max = 0;           ///< Newest bytes kept of stdout, and as many of stderr; 0: all.
  std::vector<std::string> arguments;  ///< At least one.
  std::vector<std::string> environment;
  Box box = {};
  /// The command runs a container (container_runner.h): the attempt has started when it says so, and is over
  /// when the container is gone.
  bool container = false;
  /// It is prepared, says so, and its command runs when the agent puts kGoFile into its folder.
  bool gated = false;
  std::string hosts = {};        ///< Not empty: what its kHostsFile holds, named in kHostsVariable.
  uint32_t port = 0;             ///< Not 0: it must be free for listening, or the attempt does not start.
  std::string script = {};       ///< Content of its kScriptFile; empty: it has none.
  uint32_t script_argument = 0;  ///< Argument that becomes the path of kScriptFile; 0: none.
};
std::string encode(const StartRequest& request);

struct StopRequest {
  AttemptKey key;
  Duration grace;
  int signal = 0;            ///< Sent instead of SIGTERM; 0: SIGTERM.
  bool until_saved = false;  ///< It ends also as soon as it touches its kCheckpointFile.
};
std::string encode(const StopRequest& request);
std::optional<StopRequest> decode_stop(std::string_view packet);

/// A start request read in place: the pointers point into the packet, which must outlive it.
struct StartView {
  AttemptKey key;
  Duration grace;
  Duration max_runtime;
  Duration lost_contact;
  const char* working_directory = nullptr;
  bool working_directory_optional = false;
  const char* spare_folder = nullptr;
  int64_t log_bytes_max = 0;
  std::vector<char*> arguments;    ///< Ends with a null pointer.
  std::vector<char*> environment;  ///< Ends with a null pointer.
  Box box;
  bool container = false;
  bool gated = false;
  const char* hosts = nullptr;
  uint32_t port = 0;
  const char* script = nullptr;
  uint32_t script_argument = 0;
};
std::optional<StartView> decode_start(std::string_view packet);
/// Just the key of a kStart packet.
std::optional<AttemptKey> decode_start_key(std::string_view packet);

/// Messages from server and shims.
enum class EventKind : uint8_t {
  kStarted = 1,   ///< The command runs.
  kEnded = 2,     ///< `outcome` is on disk, or the command never ran.
  kLost = 3,      ///< The shim died without an outcome; none of its processes is left.
  kExists = 4,    ///< The attempt's folder was there before: it was started already, and is not again.
  kSaved = 5,     ///< Asked to, it said that its work is saved: it ends now.
  kPrepared = 6,  ///< A gated one waits to be let go.
};
struct Event {
  EventKind kind = EventKind::kStarted;
  AttemptKey key;
  int64_t pid = 0;              ///< kStarted: the command's process, which leads its session.
  int64_t shim_pid = 0;         ///< kStarted.
  int64_t started_unix_ns = 0;  ///< kStarted.
  Outcome outcome = {};         ///< kEnded; of kLost only `detail`.
  int64_t saved_unix_ns = 0;    ///< kSaved.
};
std::string encode(const Event& event);
std::optional<Event> decode_event(std::string_view packet);

/// A stop of a forked shim is this real-time signal with `stop_value`, or SIGTERM for the grace that the
/// request gave.
int stop_signal();
/// The value of a stop's signal: the grace in milliseconds, in the lower half, where shims of the first
/// version look; above it the signal, and whether it ends once it is saved.
sigval stop_value(const StopRequest& request);
/// The same read again; without the key.
StopRequest read_stop_value(sigval value);
/// Signal of a container's runner to its shim when the job's command runs, with the value 0; and with the
/// value kReadyToGo when that waits for kGoFile.
int ready_signal();
inline constexpr int kReadyToGo = 1;

}  // namespace gpusched::shim

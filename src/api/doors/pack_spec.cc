#include "api/doors/pack_spec.h"

#include <map>

#include "base/bytes.h"

namespace gpusched::api {
namespace {

constexpr uint8_t kLengthDelimited = 2;

/// Protocol Buffers' wire format, as far as a JobSpec needs it.
class Packer {
 public:
  explicit Packer(std::string& out) : bytes_(out) {}

  void text(uint8_t number, std::string_view value) {
    if (!value.empty()) element(number, value);
  }
  void element(uint8_t number, std::string_view value) {
    bytes_.varint(uint64_t{number} << 3 | kLengthDelimited);
    bytes_.bytes(value);
  }
  void flag(uint8_t number, bool value) {
    if (value) integer(number, 1);
  }
  void integer(uint8_t number, int64_t value) {
    bytes_.varint(uint64_t{number} << 3);
    bytes_.varint(static_cast<uint64_t>(value));  // Negative ones take ten bytes.
  }
  void map(uint8_t number, const StringMap& map) {
    for (const auto& [key, value] : map) {
      entry_.clear();
      Packer entry(entry_);
      entry.text(1, key);
      entry.text(2, value);
      element(number, entry_);
    }
  }
  void map(uint8_t number, const IntegerMap& map) {
    for (const auto& [key, value] : map) {
      entry_.clear();
      Packer entry(entry_);
      entry.text(1, key);
      entry.integer(2, value);
      element(number, entry_);
    }
  }
  void mount(uint8_t number, const MountFields& mount) {
    entry_.clear();
    Packer entry(entry_);
    entry.text(1, mount.source);
    entry.text(2, mount.target);
    entry.flag(3, mount.read_only);
    element(number, entry_);
  }

 private:
  ByteWriter bytes_;
  std::string entry_;
};

void pack_box(Packer& pack, const BoxFields& box) {
  pack.text(12, box.user);
  pack.text(13, box.stdout_path);
  pack.text(14, box.stderr_path);
  pack.text(15, box.stdin_path);
  if (box.umask) pack.integer(16, *box.umask);
  pack.map(17, box.limits);
  for (const MountFields& mount : box.mounts) pack.mount(18, mount);
  pack.text(19, box.container_workdir_mount);
  if (box.pull != Pull::kDefault) pack.integer(20, static_cast<int64_t>(box.pull));
  pack.text(21, box.registry_credential);
  for (const std::string& word : box.container_arguments) pack.element(22, word);
  pack.text(23, box.image_digest);
}

template <typename Map>
void sort_and_keep_last(Map& map) {
  if (map.size() < 2) return;
  std::map<std::string, typename Map::value_type::second_type> last;
  for (auto& [key, value] : map) last.insert_or_assign(std::move(key), std::move(value));
  map.assign(last.begin(), last.end());
}

}  // namespace

void make_canonical(StringMap& map) { sort_and_keep_last(map); }
void make_canonical(IntegerMap& map) { sort_and_keep_last(map); }

std::string pack_spec(const SpecFields& spec) {
  std::string out;
  Packer pack(out);
  pack.text(1, spec.name);
  for (const std::string& word : spec.command) pack.element(2, word);
  for (const std::string& word : spec.args) pack.element(3, word);
  pack.text(4, spec.script);
  pack.text(5, spec.image);
  pack.map(6, spec.environment);
  pack.map(7, spec.labels);
  pack.text(8, spec.working_directory);
  pack.flag(9, spec.gang_scheduling);
  pack.flag(10, spec.checkpoint_enabled);
  pack.text(11, spec.submitter);
  pack_box(pack, spec.box);
  pack.flag(24, spec.working_directory_optional);
  pack.text(25, spec.preempt_signal);
  if (spec.preempt_grace_ms > 0) pack.integer(26, spec.preempt_grace_ms);
  pack.text(27, spec.preempt_webhook);
  if (spec.idle_after_ms > 0) pack.integer(60, spec.idle_after_ms);
  pack.text(61, spec.idle_action);
  if (spec.hung_after_ms > 0) pack.integer(62, spec.hung_after_ms);
  pack.text(63, spec.hung_action);
  return out;
}

}  // namespace gpusched::api

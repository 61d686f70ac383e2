#include "api/doors/pack_spec.h"

#include <map>

#include "base/bytes.h"

namespace gpusched::api {
namespace {

constexpr uint8_t kLengthDelimited = 2;

/// Protocol Buffers' wire format, as far as a JobSpec needs it. All its field numbers fit into one byte.
class Packer {
 public:
  explicit Packer(std::string& out) : bytes_(out) {}

  void text(uint8_t number, std::string_view value) {
    if (!value.empty()) element(number, value);
  }
  void element(uint8_t number, std::string_view value) {
    bytes_.u8(static_cast<uint8_t>(number << 3 | kLengthDelimited));
    bytes_.bytes(value);
  }
  void flag(uint8_t number, bool value) {
    if (!value) return;
    bytes_.u8(static_cast<uint8_t>(number << 3));
    bytes_.u8(1);
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

 private:
  ByteWriter bytes_;
  std::string entry_;
};

}  // namespace

void make_canonical(StringMap& map) {
  if (map.size() < 2) return;
  std::map<std::string, std::string> last;
  for (auto& [key, value] : map) last.insert_or_assign(std::move(key), std::move(value));
  map.assign(last.begin(), last.end());
}

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
  return out;
}

}  // namespace gpusched::api

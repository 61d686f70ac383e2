#include "api/fields/pack_spec.h"

#include <map>

#include "api/fields/job_rows.h"
#include "base/bytes.h"

namespace gpusched::api {
namespace {

constexpr uint8_t kLengthDelimited = 2;

/// Protocol Buffers' wire format, as far as a JobSpec needs it.
class Packer {
 public:
  explicit Packer(std::string& out) : bytes_(out) {}

  void text(uint32_t number, std::string_view value) {
    if (!value.empty()) element(number, value);
  }
  void element(uint32_t number, std::string_view value) {
    bytes_.varint(uint64_t{number} << 3 | kLengthDelimited);
    bytes_.bytes(value);
  }
  void flag(uint32_t number, bool value) {
    if (value) integer(number, 1);
  }
  void integer(uint32_t number, int64_t value) {
    bytes_.varint(uint64_t{number} << 3);
    bytes_.varint(static_cast<uint64_t>(value));  // Negative ones take ten bytes.
  }
  void map(uint32_t number, const StringMap& map) {
    for (const auto& [key, value] : map) {
      entry_.clear();
      Packer entry(entry_);
      entry.text(1, key);
      entry.text(2, value);
      element(number, entry_);
    }
  }
  void map(uint32_t number, const IntegerMap& map) {
    for (const auto& [key, value] : map) {
      entry_.clear();
      Packer entry(entry_);
      entry.text(1, key);
      entry.integer(2, value);
      element(number, entry_);
    }
  }
  void mount(uint32_t number, const MountFields& mount) {
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

/// The number of a word in gpusched.v1.PullPolicy.
int64_t pull_number(std::string_view word) {
  return word == "if_missing" ? 1 : word == "always" ? 2 : word == "never" ? 3 : 0;
}

/// Writes one field, if it is given and is not its type's default.
class FieldPacker {
 public:
  FieldPacker(const JobFields& fields, Packer& pack) : fields_(fields), pack_(pack) {}

  void write(const JobRow& row) {
    number_ = static_cast<uint32_t>(row.number);
    std::visit(*this, row.place);
  }
  void operator()(std::monostate) const {}
  void operator()(std::optional<std::string> JobFields::* place) const {
    const std::optional<std::string>& text = fields_.*place;
    if (!text || text->empty()) return;
    if (place == &JobFields::pull) return pack_.integer(number_, pull_number(*text));
    pack_.element(number_, *text);
  }
  void operator()(std::optional<int64_t> JobFields::* place) const {
    const std::optional<int64_t>& number = fields_.*place;
    if (!number || (*number == 0 && place != &JobFields::umask)) return;  // A mask of 0 is one.
    pack_.integer(number_, *number);
  }
  void operator()(std::optional<bool> JobFields::* place) const {
    pack_.flag(number_, (fields_.*place).value_or(false));
  }
  void operator()(std::optional<StringList> JobFields::* place) const {
    if (!(fields_.*place)) return;
    for (const std::string& word : *(fields_.*place)) pack_.element(number_, word);
  }
  void operator()(std::optional<StringMap> JobFields::* place) const {
    if (fields_.*place) pack_.map(number_, *(fields_.*place));
  }
  void operator()(std::optional<IntegerMap> JobFields::* place) const {
    if (fields_.*place) pack_.map(number_, *(fields_.*place));
  }
  void operator()(std::optional<MountList> JobFields::* place) const {
    if (!(fields_.*place)) return;
    for (const MountFields& mount : *(fields_.*place)) pack_.mount(number_, mount);
  }
  void operator()(std::optional<NumberOrWord> JobFields::*) const {
    UNREACHABLE();
  }  // A specification has none.
  void operator()(std::optional<Time> JobFields::*) const { UNREACHABLE(); }

 private:
  const JobFields& fields_;
  Packer& pack_;
  uint32_t number_ = 0;
};

constexpr std::size_t kUsualBytes = 192;  // Most specifications fit, so that one allocation does.

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

std::string pack_spec(const JobFields& fields) {
  std::string out;
  out.reserve(kUsualBytes);
  Packer pack(out);
  FieldPacker packer(fields, pack);
  for (const JobRow& row : job_rows()) {
    if (row.message == JobMessage::kSpec) packer.write(row);
  }
  return out;
}

}  // namespace gpusched::api

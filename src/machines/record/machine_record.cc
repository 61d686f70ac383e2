#include "machines/record/machine_record.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/errors.h"
#include "client/json.h"
#include "sign/keys/private_file.h"

namespace gpusched::machines {
namespace {

constexpr int64_t kVersion = 1;

std::string list_json(const std::vector<std::string>& objects) {
  std::string text = "[";
  for (std::size_t i = 0; i < objects.size(); ++i) text += (i > 0 ? ",\n" : "\n") + objects[i];
  return text + "]";
}

std::string machine_json(const MachineRecord& machine) {
  JsonObjectWriter json;
  json.add("name", machine.name);
  json.add("pool", machine.pool);
  json.add("asked_ms", machine.asked_ms);
  json.add("ready_ms", machine.ready_ms);
  json.add("ending", machine.ending);
  json.add("why", machine.why);
  json.add("price_milli", machine.price_milli);
  return json.text();
}

std::string pool_json(const std::string& name, const PoolRecord& pool) {
  JsonObjectWriter json;
  json.add("name", name);
  json.add("next", pool.next);
  json.add("spent_micro", pool.spent_micro);
  json.add("made", pool.made);
  json.add("gone", pool.gone);
  std::string boots;
  for (const int64_t ms : pool.boots_ms) boots += (boots.empty() ? "" : ",") + std::to_string(ms);
  json.add_json("boots_ms", "[" + boots + "]");
  return json.text();
}

Error corrupt(const std::string& path, const std::string& why) {
  return {
      .code = ErrorCode::kCorrupt,
      .message = path + " is damaged: " + why +
                 "; move it away and start again: machines that it named are then reported as orphans, to "
                 "be ended at their provider"};
}

}  // namespace

Result<Records> load_records(const std::string& path) {
  Records records;
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) {
    if (failed)
      return Error{.code = ErrorCode::kIo, .message = "cannot read " + path + ": " + failed.message()};
    return records;
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file.good() && !file.eof()) return io_error("cannot read " + path);
  const Result<Json> parsed = Json::parse(text.str());
  if (!parsed.ok() || !parsed->is_object()) return corrupt(path, "it is not one JSON object");
  const Json& json = *parsed;
  if (json["version"].integer() > kVersion) {
    return Error{.code = ErrorCode::kVersion,
                 .message = path + " was written by a newer version; start that one, or a newer"};
  }
  if (!json["machines"].is_array() || !json["pools"].is_array())
    return corrupt(path, "it has no lists `machines` and `pools`");
  for (const Json& each : json["machines"].items()) {
    MachineRecord machine{.name = each["name"].text(),
                          .pool = each["pool"].text(),
                          .asked_ms = each["asked_ms"].integer(),
                          .ready_ms = each["ready_ms"].integer(),
                          .ending = each["ending"].boolean(),
                          .why = each["why"].text(),
                          .price_milli = each["price_milli"].integer()};
    if (machine.name.empty() || machine.pool.empty())
      return corrupt(path, "a machine has no name or no pool");
    if (!records.machines.emplace(machine.name, machine).second)
      return corrupt(path, "it has " + machine.name + " twice");
  }
  for (const Json& each : json["pools"].items()) {
    PoolRecord pool{.next = each["next"].integer(),
                    .spent_micro = each["spent_micro"].integer(),
                    .made = each["made"].integer(),
                    .gone = each["gone"].integer()};
    for (const Json& boot : each["boots_ms"].items()) pool.boots_ms.push_back(boot.integer());
    if (each["name"].text().empty() || pool.next < 1) return corrupt(path, "a pool has no name or no number");
    records.pools.emplace(each["name"].text(), std::move(pool));
  }
  return records;
}

Result<Unit> save_records(const std::string& path, const Records& records) {
  std::vector<std::string> machines, pools;
  for (const auto& [name, machine] : records.machines) machines.push_back(machine_json(machine));
  for (const auto& [name, pool] : records.pools) pools.push_back(pool_json(name, pool));
  JsonObjectWriter json;
  json.add("version", kVersion);
  json.add_json("machines", list_json(machines));
  json.add_json("pools", list_json(pools));
  if (const Result<Unit> written = sign::write_whole(path, json.text() + "\n", 0600); !written.ok())
    return written;
  // The name, too: without it a power failure could bring the old file back.
  const std::string folder = std::filesystem::path(path).parent_path().string();
  const int file = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (file < 0) return io_error("cannot open " + folder);
  const bool synced = ::fsync(file) == 0;
  const Error trouble = io_error("cannot sync " + folder);
  ::close(file);
  if (!synced) return trouble;
  return Unit{};
}

int64_t cost_micro(int64_t price_milli, int64_t ms) {
  // Thousandths an hour times milliseconds: 3.6e6 ms an hour, 1e3 millionths a thousandth.
  __extension__ using Wide = __int128;
  return static_cast<int64_t>(static_cast<Wide>(price_milli) * ms / 3'600);
}

}  // namespace gpusched::machines

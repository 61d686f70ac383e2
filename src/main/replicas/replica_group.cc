#include "main/replicas/replica_group.h"

#include <charconv>
#include <optional>

#include "client/json.h"
#include "ops/machine.h"

namespace gpusched {
namespace {

/// Numbers of 64 bits are strings: readers of JSON know 53 of them.
std::string quoted(uint64_t number) { return Json::quoted(std::to_string(number)); }

uint64_t number_of(const Json& value) {
  const std::string text = value.text();
  uint64_t number = 0;
  const auto [at, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failed == std::errc{} && at == text.data() + text.size() ? number : 0;
}

}  // namespace

std::string replica_group_file(const std::string& data_dir) {
  return (data_dir.empty() ? "" : data_dir + "/") + "replica/group.json";
}

Result<ReplicaGroup> read_replica_group(const std::string& data_dir) {
  const std::string path = replica_group_file(data_dir);
  const std::optional<std::string> text = ops::read_text(path);
  if (!text)
    return Error{.code = ErrorCode::kNotFound,
                 .message = data_dir + " is not the data folder of one of several schedulers"};
  const Result<Json> read = Json::parse(*text);
  ReplicaGroup group;
  if (read.ok()) {
    group = {.cluster = number_of((*read)["cluster"]),
             .id = number_of((*read)["id"]),
             .term = number_of((*read)["term"]),
             .position = number_of((*read)["position"])};
    for (const Json& member : (*read)["members"].items())
      group.stores[number_of(member["id"])] = number_of(member["store"]);
  }
  const bool whole = group.cluster != 0 && group.stores.contains(group.id) && !group.stores.contains(0);
  if (whole) return group;
  return Error{.code = ErrorCode::kCorrupt,
               .message = path +
                          " does not say which replica this is; make the folder again with "
                          "gpu-scheduler members join"};
}

std::string replica_group_text(const ReplicaGroup& group) {
  JsonObjectWriter object;
  object.add_json("cluster", quoted(group.cluster));
  object.add_json("id", quoted(group.id));
  object.add_json("term", quoted(group.term));
  object.add_json("position", quoted(group.position));
  std::string members;
  for (const auto& [id, store] : group.stores) {
    JsonObjectWriter member;
    member.add_json("id", quoted(id));
    member.add_json("store", quoted(store));
    members += (members.empty() ? "" : ",") + member.text();
  }
  object.add_json("members", "[" + members + "]");
  return object.text() + "\n";
}

Result<Unit> check_folder_alone(const std::string& data_dir) {
  const Result<ReplicaGroup> group = read_replica_group(data_dir);
  if (!group.ok() && group.error().code == ErrorCode::kNotFound) return Unit{};
  if (!group.ok()) return group.error();
  return Error{.code = ErrorCode::kInvalidArgument,
               .message = data_dir + " is the data folder of replica " + std::to_string(group->id) +
                          " of several schedulers, and replica.peers is empty: list them there, as on the "
                          "others"};
}

}  // namespace gpusched

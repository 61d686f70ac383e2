#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/contract/json_writer.h"
#include "api/contract/nodes.h"
#include "api/fields/shown_row.h"
#include "gpusched/v1/scheduler.pb.h"

/// A node and its devices as they are shown, a row a field: by the native API's messages, by the jobs door's
/// JSON, in the OpenAPI document and on the reference page.
namespace gpusched::api {

void write_node(const NodeView& node, v1::Node& out);
/// As the jobs door shows it.
void write_door_node(const NodeView& node, JsonWriter& json);

/// Words on a field of Node, NodeDevice, NodeLink or MigSlice; nothing for another message.
std::optional<FieldWords> node_words(const google::protobuf::Descriptor& type, int number);
/// A field of one of these as the jobs door shows it.
struct NodeDoorField {
  int number = 0;  ///< In the message; 0: that has none.
  std::string_view door;
  std::string_view meaning;
};
/// Those of Node, NodeDevice or MigSlice, in their order.
std::vector<NodeDoorField> node_door_fields(const google::protobuf::Descriptor& type);
/// The text of docs/reference/node-fields.md.
std::string node_fields_markdown();

}  // namespace gpusched::api

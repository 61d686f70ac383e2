#include "api/fields/node_rows.h"

#include "api/contract/names.h"
#include "base/check.h"

namespace gpusched::api {
namespace {

struct DeviceOfNode {
  const NodeView& node;
  const DeviceView& device;
};

std::vector<std::string> job_names(const std::vector<JobId>& jobs) {
  std::vector<std::string> names;
  for (const JobId job : jobs) names.push_back(job_name(job));
  return names;
}

#define SHOWS(View, number, name, door, meaning, ...) \
  shown_row<View, [](const View& view, auto& out) { __VA_ARGS__; }>(number, name, door, meaning)

#define SLICE(number, name, meaning, ...) SHOWS(SliceView, number, name, name, meaning, __VA_ARGS__)

constexpr ShownRow<SliceView> kSliceRows[] = {
    SLICE(1, "job_id", "the job that has it", out.text(job_name(view.job))),
    SLICE(2, "profile", "MIG profile, such as `1g.10gb`", out.text(view.profile)),
    SLICE(3, "start", "first memory slot of the GPU that it occupies", out.number(view.start)),
    SLICE(4, "draining", "its job has ended, but the node has not yet confirmed that it is empty",
          out.flag(view.draining)),
};

#define HOLDER(number, name, meaning, ...) SHOWS(HolderView, number, name, "", meaning, __VA_ARGS__)

constexpr bool is_part(const HolderView& view) { return view.milli > 0; }
constexpr bool is_dated(const HolderView& view) { return view.since.valid(); }

constexpr ShownRow<HolderView> kHolderRows[] = {
    HOLDER(1, "job_id", "the job", out.text(job_name(view.job))),
    HOLDER(2, "tenant_id", "its tenant", out.text(tenant_name(view.tenant))),
    HOLDER(3, "owner", "who submitted it, such as `person ana`", out.text(view.owner)),
    HOLDER(4, "since", "time of its placement", out.time(view.since)).if_any(is_dated),
    HOLDER(5, "gpu_milli", "its share or slice, in thousandths of the GPU; absent for all of it",
           out.number(view.milli))
        .if_any(is_part),
};

#define LINK(number, name, meaning, ...) SHOWS(LinkView, number, name, "", meaning, __VA_ARGS__)

constexpr ShownRow<LinkView> kLinkRows[] = {
    LINK(1, "from", "index of a device", out.number(view.from)),
    LINK(2, "to", "index of another device", out.number(view.to)),
    LINK(3, "kind", "`NVLink`, `xGMI`, `PIX`, `PXB`, `PHB`, `NODE` or `SYS`", out.text(view.kind)),
    LINK(4, "bandwidth_gbs", "GB/s in one direction; 0: unknown", out.number(view.bandwidth_gbs)),
};

#define DEVICE(number, name, door, meaning, ...) SHOWS(DeviceOfNode, number, name, door, meaning, __VA_ARGS__)

constexpr bool is_quarantined(const DeviceOfNode& view) { return !view.device.quarantined_by.empty(); }
constexpr bool has_fault(const DeviceOfNode& view) { return view.device.fault != FaultClass::kNone; }
constexpr bool is_mig(const DeviceOfNode& view) { return view.device.mig; }

// In the order in which the jobs door shows them.
constexpr ShownRow<DeviceOfNode> kDeviceRows[] = {
    DEVICE(1, "id", "id", "`<node>-gpu-<index>`", out.text(gpu_name(view.node.name, view.device.index))),
    DEVICE(2, "uuid", "uuid", "id given by its driver", out.text(view.device.uuid)),
    DEVICE(3, "model", "model", "model, such as `A100`", out.text(view.device.model)),
    DEVICE(4, "memory_mb", "memory_mb", "its memory", out.number(view.device.memory_mb)),
    DEVICE(5, "state", "state", "`free`, `held`, `draining`, `quarantined` or `shared`",
           out.text(view.device.state)),
    DEVICE(6, "condition", "condition", "`ok`, `unhealthy`, `missing`, `hot` or `faulty`",
           out.text(view.device.condition)),
    DEVICE(7, "detail", "detail", "one sentence about state and condition", out.text(view.device.detail)),
    DEVICE(15, "quarantined_by", "quarantined_by", "who quarantined it: an operator, or `scheduler`",
           out.text(view.device.quarantined_by))
        .if_any(is_quarantined),
    DEVICE(16, "quarantine_reason", "quarantine_reason", "the reason",
           out.text(view.device.quarantine_reason))
        .if_any(is_quarantined),
    DEVICE(60, "fault", "fault",
           "class of its fault: `note`, `drain`, `reset` or `replace` ([faults](gpu-faults.md))",
           out.text(has_fault(view) ? to_string(view.device.fault) : ""))
        .if_any(has_fault),
    DEVICE(61, "fault_code", "fault_code", "code of the fault, such as `xid 79` or `ecc_uncorrected`",
           out.text(view.device.fault_code))
        .if_any(has_fault),
    DEVICE(62, "fault_detail", "fault_detail",
           "the driver's message, which names processes; only for callers who see all jobs",
           out.text(view.device.fault_detail))
        .if_any(has_fault),
    DEVICE(63, "fault_at", "fault_at", "time of the fault", out.time(view.device.fault_at)).if_any(has_fault),
    DEVICE(70, "mig", "mig", "in MIG mode: it is allocated only in slices ([mig](mig.md))",
           out.flag(view.device.mig))
        .if_any(is_mig),
    DEVICE(71, "mig_room", "mig_room",
           "slices that still fit, each alternative by itself, such as `1x 3g.40gb, 4x 1g.10gb`",
           out.text(view.device.mig_room))
        .if_any(is_mig),
    DEVICE(72, "slices", "slices", "its present slices",
           out.list(view.device.slices,
                    [](const SliceView& slice, auto& one) { write_rows(kSliceRows, slice, one); }))
        .if_any(is_mig),
    DEVICE(8, "held_by", "held_by", "the job that has the whole device",
           out.text(view.device.held_by.valid() ? job_name(view.device.held_by) : "")),
    DEVICE(9, "utilization_percent", "utilization_percent", "as reported by its driver",
           out.number(view.device.utilization_percent)),
    DEVICE(10, "memory_used_mb", "memory_used_mb", "as reported by its driver",
           out.number(view.device.memory_used_mb)),
    DEVICE(11, "temperature_celsius", "temperature_celsius", "as reported by its driver",
           out.number(view.device.temperature_celsius)),
    DEVICE(12, "shared_milli", "", "total of its shares, in thousandths of the GPU",
           out.number(view.device.milli_used)),
    DEVICE(13, "shared_memory_mb", "", "total memory of its shares", out.number(view.device.memory_mb_given)),
    DEVICE(14, "shared_by", "", "the jobs that have its shares", out.words(job_names(view.device.shared_by))),
    DEVICE(17, "holders", "", "the jobs that have it or shares of it, each with `since` when",
           out.list(view.device.holders,
                    [](const HolderView& holder, auto& one) { write_rows(kHolderRows, holder, one); })),
    DEVICE(18, "gpu_id", "", "a number of its own in the cluster, for as long as its node is known",
           out.number(view.device.gpu_id)),
    DEVICE(50, "numa_node", "", "its NUMA node; absent if unknown",
           if (view.device.numa_node) out.number(*view.device.numa_node)),
    DEVICE(51, "pci_bus_id", "", "PCI address", out.text(view.device.pci_bus_id)),
    DEVICE(52, "island", "",
           "devices with the same number are connected by NVLink or xGMI; absent if connected to none",
           if (view.device.island) out.number(*view.device.island)),
};

/// The devices of a node, so that each knows its node.
std::vector<DeviceOfNode> devices_of(const NodeView& node) {
  std::vector<DeviceOfNode> devices;
  for (const DeviceView& device : node.devices) devices.push_back({node, device});
  return devices;
}

#define NODE(number, name, door, meaning, ...) SHOWS(NodeView, number, name, door, meaning, __VA_ARGS__)

constexpr bool is_suspect(const NodeView& view) { return !view.suspect.empty(); }

// In the order in which the jobs door shows them.
constexpr ShownRow<NodeView> kNodeRows[] = {
    NODE(1, "node_id", "id", "`node-<digits>`", out.text("node-" + std::to_string(view.id.value))),
    NODE(2, "name", "name", "name of the node, as configured for its agent", out.text(view.name)),
    NODE(3, "state", "state", "`validating`, `ready`, `draining`, `drained` or `down`", out.text(view.state)),
    NODE(13, "contact", "contact", "`connected`, `unreachable`, `lost` or `dead`",
         out.text(contact_name(view.contact))),
    NODE(14, "state_by", "state_by", "who set `state`: `scheduler`, `agent` or an operator",
         out.text(view.state_by)),
    NODE(15, "state_reason", "state_reason", "the reason", out.text(view.state_reason)),
    NODE(16, "state_since", "state_since",
         "time since which it has that state; of a node that does not report, when it was last heard",
         out.time(view.state_since)),
    NODE(60, "suspect", "suspect", "why an operator should examine it; absent if there is no reason",
         out.text(view.suspect))
        .if_any(is_suspect),
    NODE(61, "suspect_since", "suspect_since", "time since which that is so", out.time(view.suspect_since))
        .if_any(is_suspect),
    NODE(4, "cpu_milli", "cpu_cores", "CPU cores; in the native API in thousandths",
         out.cores(view.cpu_milli)),
    NODE(5, "cpu_milli_free", "cpu_cores_free", "CPU cores not allocated to jobs",
         out.cores(view.cpu_milli_free)),
    NODE(6, "memory_mb", "memory_mb", "its memory", out.number(view.memory_mb)),
    NODE(7, "memory_mb_free", "memory_mb_free", "memory not allocated to jobs",
         out.number(view.memory_mb_free)),
    NODE(9, "attempts", "attempts", "number of attempts that run or are being stopped",
         out.number(view.attempts)),
    NODE(10, "cpu_utilization", "cpu_utilization", "CPU utilization of its machine, 0 to 1",
         out.fraction(view.cpu_utilization)),
    NODE(11, "memory_utilization", "memory_utilization", "memory utilization of its machine, 0 to 1",
         out.fraction(view.memory_utilization)),
    NODE(12, "version", "version", "version of its agent", out.text(view.version)),
    NODE(17, "labels", "", "labels of its agent; those set by operators take precedence",
         out.labels(view.labels)),
    NODE(18, "features", "", "capabilities that jobs can request", out.words(view.features)),
    NODE(19, "boot_id", "", "id of the present boot of its machine", out.text(view.boot_id)),
    NODE(8, "devices", "gpus", "its GPUs",
         out.list(devices_of(view),
                  [](const DeviceOfNode& device, auto& one) { write_rows(kDeviceRows, device, one); })),
    NODE(51, "topology_note", "", "source of `links`, or why they are unknown", out.text(view.topology_note)),
    NODE(50, "links", "", "links between each two of its devices, if known",
         out.list(view.links, [](const LinkView& link, auto& one) { write_rows(kLinkRows, link, one); })),
};

#undef NODE
#undef DEVICE
#undef LINK
#undef SLICE
#undef HOLDER
#undef SHOWS

std::optional<FieldWords> words_in(const auto& rows, int number) {
  for (const auto& row : rows) {
    if (row.number == number) return FieldWords{.meaning = row.meaning};
  }
  return std::nullopt;
}

std::vector<NodeDoorField> door_fields(const auto& rows) {
  std::vector<NodeDoorField> fields;
  for (const auto& row : rows) {
    if (!row.door.empty()) fields.push_back({row.number, row.door, row.meaning});
  }
  return fields;
}

std::string table_of(std::string_view title, const auto& rows) {
  std::string out =
      "\n## " + std::string(title) + "\n\n| native API | jobs door | meaning |\n|---|---|---|\n";
  for (const auto& row : rows) out += reference_line(row.name, row.door, row.meaning);
  return out;
}

}  // namespace

void write_node(const NodeView& node, v1::Node& out) {
  MessageFields fields(out);
  write_rows(kNodeRows, node, fields);
}

void write_door_node(const NodeView& node, JsonWriter& json) {
  json.begin_object();
  JsonFields fields(json, JsonFields::Unset::kNull);
  write_rows(kNodeRows, node, fields);
  json.end_object();
}

std::optional<FieldWords> node_words(const google::protobuf::Descriptor& type, int number) {
  if (&type == v1::Node::descriptor()) return words_in(kNodeRows, number);
  if (&type == v1::NodeDevice::descriptor()) return words_in(kDeviceRows, number);
  if (&type == v1::NodeLink::descriptor()) return words_in(kLinkRows, number);
  if (&type == v1::MigSlice::descriptor()) return words_in(kSliceRows, number);
  if (&type == v1::DeviceHolder::descriptor()) return words_in(kHolderRows, number);
  return std::nullopt;
}

std::vector<NodeDoorField> node_door_fields(const google::protobuf::Descriptor& type) {
  if (&type == v1::Node::descriptor()) return door_fields(kNodeRows);
  if (&type == v1::NodeDevice::descriptor()) return door_fields(kDeviceRows);
  CHECK(&type == v1::MigSlice::descriptor());
  return door_fields(kSliceRows);
}

std::string node_fields_markdown() {
  return "# Fields of a node\n\nWhat is shown of a node and its devices: the field's name in the native API "
         "([native REST](native-rest.md), and the\nsame over gRPC) and at the jobs door ([REST](rest.md)), "
         "which omits empty fields about quarantines, faults and MIG.\nFields without a name in a column are "
         "not shown there.\n\nThis page is generated from `src/api/fields/node_rows.cc`; a test compares the "
         "two.\n" +
         table_of("A node", kNodeRows) + table_of("A device", kDeviceRows) +
         table_of("A MIG slice", kSliceRows) + table_of("A holder", kHolderRows) +
         table_of("A link", kLinkRows);
}

}  // namespace gpusched::api

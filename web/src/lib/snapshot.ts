import type { Caller, Cluster, Device, JobPage, Node } from "./types";

// The compact form of nodes, as src/api/doors/dashboard/dashboard_snapshot.cc writes it: arrays, in which words that
// repeat are numbers of the table `words`.
type DeviceRow = [number, number, number, number, number, number, number, number, number, [string, number, number][]];
type NodeRow = [string, number, number, DeviceRow[], number, number, number, number, number, string, string];
export interface CompactNodes {
  nodes: NodeRow[];
  words: string[];
}

export interface Snapshot {
  version: string;
  sign_in: boolean;
  caller: Caller | null;
  refused?: { code: string; message: string };
  cluster?: Cluster | null;
  nodes?: CompactNodes | null;
  tenants?: Record<string, string> | null;
  line?: JobPage | null;
  problems?: Record<string, string>;
}

export function readNodes(compact: CompactNodes): Node[] {
  const word = (number: number) => compact.words[number] ?? "";
  return compact.nodes.map(([name, state, contact, devices, cpu, cpuFree, memory, memoryFree, attempts, reason, suspect]) => ({
    name,
    state: word(state),
    contact: word(contact),
    devices: devices.map(
      ([index, model, deviceState, condition, use, celsius, used, total, milli, holders]): Device => ({
        index,
        id: `${name}-gpu-${index}`,
        model: word(model),
        state: word(deviceState),
        condition: word(condition),
        use,
        celsius,
        memory_used_mb: used,
        memory_mb: total,
        milli_used: milli,
        holders: holders.map(([job, tenant, share]) => ({ job, tenant: word(tenant), milli: share })),
      }),
    ),
    cpu_milli: cpu,
    cpu_milli_free: cpuFree,
    memory_mb: memory,
    memory_mb_free: memoryFree,
    attempts,
    reason,
    suspect,
  }));
}

/** The data in the page itself; null where a page was cut short. */
export function embeddedSnapshot(): Snapshot | null {
  const element = document.getElementById("snapshot");
  if (!element?.textContent) return null;
  try {
    return JSON.parse(element.textContent) as Snapshot;
  } catch {
    return null;
  }
}

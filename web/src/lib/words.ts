// States as shapes and words: colour alone never says anything.
import type { Device, Job, Node } from "./types";

export type Tone = "quiet" | "accent" | "good" | "warn" | "bad";
export interface Mark {
  shape: "ring" | "disc" | "half" | "check" | "cross" | "dash" | "pause" | "triangle";
  word: string;
  tone: Tone;
}

export function jobMark(job: Pick<Job, "state" | "held" | "warnings">): Mark {
  switch (job.state) {
    case "pending":
      return job.held ? { shape: "pause", word: "held", tone: "quiet" } : { shape: "ring", word: "waiting", tone: "quiet" };
    case "scheduled":
      return { shape: "half", word: "starting", tone: "accent" };
    case "running":
      return job.warnings?.length
        ? { shape: "triangle", word: "running, with a warning", tone: "warn" }
        : { shape: "disc", word: "running", tone: "accent" };
    case "completed":
      return { shape: "check", word: "completed", tone: "good" };
    case "failed":
      return { shape: "cross", word: "failed", tone: "bad" };
    case "cancelled":
      return { shape: "dash", word: "cancelled", tone: "quiet" };
    case "preempted":
      return { shape: "half", word: "being ended for another", tone: "warn" };
    default:
      return { shape: "ring", word: job.state || "unknown", tone: "quiet" };
  }
}

export function nodeMark(node: Pick<Node, "state" | "contact">): Mark {
  if (node.contact !== "connected") return { shape: "cross", word: node.contact, tone: "bad" };
  switch (node.state) {
    case "ready":
      return { shape: "disc", word: "ready", tone: "good" };
    case "draining":
      return { shape: "half", word: "draining", tone: "warn" };
    case "drained":
      return { shape: "dash", word: "drained", tone: "warn" };
    case "validating":
      return { shape: "ring", word: "validating", tone: "quiet" };
    default:
      return { shape: "cross", word: node.state, tone: "bad" };
  }
}

export type DeviceLook = "free" | "held" | "shared" | "draining" | "fault" | "away";
export const deviceLooks: { look: DeviceLook; word: string }[] = [
  { look: "held", word: "in use" },
  { look: "shared", word: "shared" },
  { look: "free", word: "free" },
  { look: "draining", word: "emptying" },
  { look: "fault", word: "out of use" },
  { look: "away", word: "not in service" },
];

export function deviceLook(node: Node, device: Device): DeviceLook {
  if (node.contact !== "connected" || node.state === "down") return "away";
  if (device.state === "quarantined" || !["ok", "hot", ""].includes(device.condition)) return "fault";
  if (device.state === "held") return "held";
  if (device.state === "shared") return "shared";
  if (device.state === "draining") return "draining";
  return node.state === "ready" ? "free" : "away";
}

export function deviceWords(node: Node, device: Device): string {
  const look = deviceLook(node, device);
  const word = deviceLooks.find((one) => one.look === look)!.word;
  const held = device.holders.map((one) => one.job).join(", ");
  const parts = [device.id, device.model, look === "fault" ? `${word}: ${device.condition === "ok" ? device.state : device.condition}` : word];
  if (held) parts.push(held);
  return parts.join(" · ");
}

export const isFinal = (state: string) => state === "completed" || state === "failed" || state === "cancelled";

/** A word of the API as people read it: "gpus_busy" is "gpus busy", "NodeAdded" is "node added". */
export const plain = (word: string | undefined) => (word ?? "").replaceAll("_", " ").replace(/([a-z])([A-Z])/g, "$1 $2").toLowerCase();

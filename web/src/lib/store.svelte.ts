// All that is live: one snapshot, then deltas. Pages read it; nothing else holds a connection for it.
import { untrack } from "svelte";
import { ApiError, credential, get, keepCredential, query, Unreachable, watchAnswers } from "./api";
import { Watch, type WatchEvent } from "./live";
import { embeddedSnapshot, readNodes, type CompactNodes, type Snapshot } from "./snapshot";
import type { ApiFailure, Caller, Cluster, Job, JobPage, Node } from "./types";

export const listedFields =
  "job_id,tenant_id,spec.name,resources,state,reason,message,priority,max_runtime_ms,submitted_at,started_at," +
  "completed_at,exit_code,signal,node_name,allocated_gpus,held,owner";

/** starting: nothing was said yet. asleep: the tab is hidden, and the stream is put down. */
export type Link = "starting" | "live" | "waiting" | "signed-out" | "asleep";

const NODES_ONE_BY_ONE = 16;
const READINGS_MS = 5000;
const READINGS_OF_MANY_MS = 15_000;
const MANY_DEVICES = 2000;

class Store {
  version = $state("");
  signIn = $state(false);
  caller = $state.raw<Caller | null>(null);
  refused = $state.raw<ApiFailure | null>(null);
  cluster = $state.raw<Cluster | null>(null);
  nodes = $state.raw<Node[]>([]);
  nodesKnown = $state(false);
  tenants = $state.raw<Record<string, string>>({});
  line = $state.raw<JobPage | null>(null);
  problems = $state.raw<Record<string, string>>({});
  link = $state<Link>("starting");
  linkMessage = $state("");
  retryAt = $state(0);
  heardAt = $state(Date.now());
  now = $state(Date.now());

  private watch: Watch | null = null;
  private nodeOfJob = new Map<string, string>();
  private dirtyNodes = new Set<string>();
  private allNodesDirty = false;
  private clusterDirty = false;
  private jobListeners = new Set<(job: Job | null) => void>();
  private backListeners = new Set<() => void>();
  private flushTimer = 0;
  private readers = 0;
  private readingsAt = 0;

  begin(): void {
    watchAnswers((status, message) => this.noteAnswer(status, message));
    setInterval(() => this.tick(), 1000);
    document.addEventListener("visibilitychange", () => this.visible());
    addEventListener("online", () => this.retry());
    addEventListener("offline", () => this.watch?.suspect());
    const first = embeddedSnapshot();
    // A credential of this tab is not in the request for the page: its data comes by a call of its own.
    if (first && !credential()) this.take(first);
    else {
      this.version = first?.version ?? "";
      this.signIn = first?.sign_in ?? false;
      void this.reload();
    }
  }

  tenant(id: string): string {
    return this.tenants[id] || id;
  }

  /** Someone may act on a cluster's nodes by the roles that are known; the scheduler decides. */
  get operates(): boolean {
    return !!this.caller && (this.caller.kind === "operator" || this.caller.roles.some((one) => one.role === "operator" || one.role === "admin"));
  }

  private take(snapshot: Snapshot): void {
    this.version = snapshot.version;
    this.signIn = snapshot.sign_in;
    this.caller = snapshot.caller;
    this.refused = snapshot.refused ?? null;
    if (!snapshot.caller) {
      if (snapshot.refused && !["unauthenticated", "permission_denied"].includes(snapshot.refused.code)) {
        this.link = "waiting";
        this.linkMessage = snapshot.refused.message;
        this.retryLater(3000);
      } else {
        this.link = "signed-out";
      }
      return;
    }
    this.problems = snapshot.problems ?? {};
    if (snapshot.cluster) this.cluster = snapshot.cluster;
    if (snapshot.tenants) this.tenants = snapshot.tenants;
    this.line = snapshot.line ?? null;
    if (snapshot.nodes) this.setNodes(readNodes(snapshot.nodes));
    this.heardAt = Date.now();
    this.follow(snapshot.cluster?.sequence ?? 0);
  }

  private setNodes(nodes: Node[]): void {
    this.nodes = nodes;
    this.nodesKnown = true;
    this.readingsAt = Date.now();
    this.nodeOfJob.clear();
    for (const node of nodes) for (const device of node.devices) for (const one of device.holders) this.nodeOfJob.set(one.job, node.name);
  }

  private follow(sequence: number): void {
    this.watch?.stop();
    this.watch = new Watch(sequence, listedFields, {
      event: (event) => this.onEvent(event),
      state: (state, message, retryAt) => {
        const wasAway = this.link !== "live";
        if (state === "live") {
          this.link = "live";
          this.linkMessage = "";
          if (wasAway) this.changedElsewhere();
        } else if (state === "refused") {
          this.signedOut(message);
        } else if (this.link !== "asleep") {
          this.link = "waiting";
          this.linkMessage = message;
        }
        this.retryAt = retryAt;
      },
    });
    if (document.hidden) this.link = "asleep";
    else this.watch.start();
  }

  /** Lists anew whatever pages show: the stream was away. */
  private changedElsewhere(): void {
    this.clusterDirty = true;
    for (const told of this.backListeners) told();
    this.flushSoon();
  }

  async reload(): Promise<void> {
    try {
      this.take(await get<Snapshot>("/ui/snapshot"));
      for (const told of this.backListeners) told();
    } catch (error) {
      if (error instanceof ApiError && (error.status === 401 || error.status === 403)) return this.signedOut(error.message);
      this.link = "waiting";
      this.linkMessage = error instanceof Error ? error.message : String(error);
      this.retryLater(error instanceof ApiError ? error.retryAfterMs : 0);
    }
  }

  private retryLater(ms: number): void {
    const wait = Math.max(ms, 3000);
    this.retryAt = Date.now() + wait;
    setTimeout(() => {
      if (this.link === "waiting" && !this.caller) void this.reload();
    }, wait);
  }

  /** Now, not when it would be tried next. */
  retry(): void {
    if (this.link !== "waiting") return;
    if (this.caller) this.watch?.hurry();
    else void this.reload();
  }

  private noteAnswer(status: number, message: string): void {
    if (status === 401) this.signedOut(message);
    else if (status === 0 && this.link === "live") this.watch?.suspect();
    else if (status > 0) this.heardAt = Date.now();
  }

  signedOut(message: string): void {
    this.watch?.stop();
    this.refused = { code: "unauthenticated", message };
    this.link = "signed-out";
  }

  async signInWith(text: string): Promise<string> {
    const before = credential();
    keepCredential(text);
    try {
      const snapshot = await get<Snapshot>("/ui/snapshot");
      if (!snapshot.caller) throw new Error(snapshot.refused?.message ?? "It is not taken.");
      this.refused = null;
      this.take(snapshot);
      for (const told of this.backListeners) told();
      return "";
    } catch (error) {
      keepCredential(before);
      return error instanceof Error ? error.message : String(error);
    }
  }

  async signOut(): Promise<void> {
    keepCredential("");
    this.watch?.stop();
    this.caller = null;
    this.nodes = [];
    this.nodesKnown = false;
    this.line = null;
    this.cluster = null;
    this.link = "starting";
    await this.reload();
  }

  /** Calls `told` at each change of a job; with null when many may have changed. Returns how to end that. */
  onJob(told: (job: Job | null) => void): () => void {
    this.jobListeners.add(told);
    return () => this.jobListeners.delete(told);
  }
  onBack(told: () => void): () => void {
    this.backListeners.add(told);
    return () => this.backListeners.delete(told);
  }
  /** While somebody looks at readings they are kept fresh. */
  readReadings(): () => void {
    this.readers += 1;
    return () => (this.readers -= 1);
  }

  private onEvent(event: WatchEvent): void {
    this.heardAt = Date.now();
    if (event.name === "job") {
      const job = event.data as Job;
      const before = this.nodeOfJob.get(job.job_id);
      if (before) this.dirtyNodes.add(before);
      if (job.node_name && job.allocated_gpus?.length) {
        this.dirtyNodes.add(job.node_name);
        for (const gpu of job.allocated_gpus) this.dirtyNodes.add(gpu.replace(/-gpu-\d+$/, ""));
      }
      for (const told of this.jobListeners) told(job);
    } else if (event.name === "node") {
      this.dirtyNodes.add((event.data as { name: string }).name);
    } else if (event.name === "overflow" || event.name === "resync") {
      this.allNodesDirty = true;
      for (const told of this.jobListeners) told(null);
    } else if (event.name !== "forgotten") {
      return;
    }
    this.clusterDirty = true;
    this.flushSoon();
  }

  private flushSoon(): void {
    if (this.flushTimer) return;
    this.flushTimer = window.setTimeout(() => void this.flush(), 400);
  }

  /** Brings what changed: a few nodes by name, or all of them. */
  private async flush(): Promise<void> {
    try {
      const names = [...this.dirtyNodes];
      const all = this.allNodesDirty || names.length > NODES_ONE_BY_ONE;
      this.dirtyNodes.clear();
      this.allNodesDirty = false;
      if (this.nodesKnown && (all || names.length > 0)) await this.bringNodes(all ? [] : names);
      if (this.clusterDirty) {
        this.clusterDirty = false;
        this.cluster = { ...this.cluster, ...(await get<Cluster>("/v1/cluster")) };
      }
    } catch (error) {
      if (!(error instanceof Unreachable) && !(error instanceof ApiError)) throw error;
    } finally {
      this.flushTimer = 0;
    }
    if (this.dirtyNodes.size > 0 || this.allNodesDirty || this.clusterDirty) this.flushSoon();
  }

  private async bringNodes(names: string[]): Promise<void> {
    const text = names.map((name) => `name=${encodeURIComponent(name)}`).join("&");
    const brought = readNodes(await get<CompactNodes>(`/ui/nodes${text ? `?${text}` : ""}`));
    if (names.length === 0) return this.setNodes(brought);
    const asked = new Set(names);
    const next = this.nodes.filter((node) => !asked.has(node.name)).concat(brought);
    next.sort((a, b) => (a.name < b.name ? -1 : 1));
    const readAt = this.readingsAt;
    this.setNodes(next);
    this.readingsAt = readAt;
  }

  private tick(): void {
    this.now = Date.now();
    if (this.link !== "live" || this.readers === 0 || document.hidden) return;
    const devices = this.cluster?.total_gpus ?? 0;
    if (this.now - this.readingsAt < (devices > MANY_DEVICES ? READINGS_OF_MANY_MS : READINGS_MS)) return;
    this.readingsAt = this.now;
    this.allNodesDirty = true;
    this.clusterDirty = true;
    this.flushSoon();
  }

  /** A hidden tab holds no connection; what it missed is told when it is looked at again. */
  private visible(): void {
    if (!this.watch || this.link === "signed-out") return;
    if (document.hidden) {
      this.watch.stop();
      this.link = "asleep";
      return;
    }
    this.now = Date.now();
    this.link = "waiting";
    this.linkMessage = "";
    this.watch.start();
  }
}

export const store = new Store();

/** Something that a page asks for: kept while it is asked for again, so that nothing flickers. */
export class Loaded<T> {
  value = $state.raw<T | null>(null);
  error = $state.raw<Error | null>(null);
  busy = $state(false);
  private again = false;
  private timer = 0;
  private number = 0;

  constructor(private readonly load: () => Promise<T>) {}

  /** `fresh`: what is shown belongs to another question, and goes. An effect that calls it depends on nothing of it. */
  refresh(fresh = false): Promise<void> {
    return untrack(() => this.run(fresh));
  }

  private async run(fresh: boolean): Promise<void> {
    if (fresh) {
      this.value = null;
      this.error = null;
    } else if (this.busy) {
      this.again = true;
      return;
    }
    const number = ++this.number;
    this.busy = true;
    try {
      const value = await this.load();
      if (number !== this.number) return;
      this.value = value;
      this.error = null;
    } catch (error) {
      if (number !== this.number) return;
      this.error = error instanceof Error ? error : new Error(String(error));
    } finally {
      if (number === this.number) {
        this.busy = false;
        if (this.again) {
          this.again = false;
          this.soon();
        }
      }
    }
  }

  /** Refreshes once, a moment later, however often it is called until then. */
  soon(ms = 800): void {
    if (this.timer) return;
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      void this.refresh();
    }, ms);
  }
}

export { query };

// The watch of changes: Server-Sent Events read by fetch, which can send a credential as a header. It begins behind a
// number, so that a stream that broke off, or was put down while the tab was hidden, goes on without a gap.
import { ApiError, request, Unreachable } from "./api";

export interface WatchEvent {
  name: string;
  data: unknown;
}

interface Handlers {
  event: (event: WatchEvent) => void;
  /** The stream stands, or why it does not; the next try is at `retryAt`. */
  state: (state: "live" | "waiting" | "refused", message: string, retryAt: number) => void;
}

const SILENCE_MS = 40_000; // The scheduler sends a comment every 15 s.
const WAITS_MS = [500, 1000, 2000, 5000, 10_000];

export class Watch {
  private sequence: number;
  private running = false;
  private stopper: AbortController | null = null;
  private tries = 0;
  private timer = 0;

  constructor(
    sequence: number,
    private readonly fields: string,
    private readonly handlers: Handlers,
  ) {
    this.sequence = sequence;
  }

  start(): void {
    if (this.running) return;
    this.running = true;
    void this.connect();
  }

  stop(): void {
    this.running = false;
    clearTimeout(this.timer);
    this.stopper?.abort();
  }

  /** Tries at once what would be tried later. */
  hurry(): void {
    if (!this.running || this.stopper) return;
    clearTimeout(this.timer);
    void this.connect();
  }

  /** Another call got no answer: the stream may be as dead, and is begun again. */
  suspect(): void {
    this.stopper?.abort();
  }

  private async connect(): Promise<void> {
    const stopper = new AbortController();
    this.stopper = stopper;
    let message = "The connection ended.";
    let refused = false;
    let after = 0;
    try {
      const path = `/v1/watch?nodes=true&fields=${encodeURIComponent(this.fields)}&after_sequence=${this.sequence}`;
      const response = await request("GET", path, undefined, stopper.signal);
      this.tries = 0;
      this.handlers.state("live", "", 0);
      await this.read(response, stopper);
    } catch (error) {
      if (error instanceof ApiError) {
        message = error.message;
        refused = error.status === 401 || error.status === 403;
        after = error.retryAfterMs;
      } else if (error instanceof Unreachable) {
        message = error.message;
      }
    }
    this.stopper = null;
    if (!this.running) return;
    const wait = Math.max(after, WAITS_MS[Math.min(this.tries, WAITS_MS.length - 1)]!);
    this.tries += 1;
    this.handlers.state(refused ? "refused" : "waiting", message, refused ? 0 : Date.now() + wait);
    if (refused) {
      this.running = false;
      return;
    }
    this.timer = window.setTimeout(() => void this.connect(), wait);
  }

  private async read(response: Response, stopper: AbortController): Promise<void> {
    const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let silence = 0;
    const heard = () => {
      clearTimeout(silence);
      silence = window.setTimeout(() => stopper.abort(), SILENCE_MS);
    };
    try {
      for (heard(); ; heard()) {
        const { value, done } = await reader.read();
        if (done) return;
        rest += value;
        const blocks = rest.split("\n\n");
        rest = blocks.pop()!;
        for (const block of blocks) this.take(block);
      }
    } finally {
      clearTimeout(silence);
      void reader.cancel().catch(() => {});
    }
  }

  private take(block: string): void {
    let name = "";
    let data = "";
    let id = "";
    for (const line of block.split("\n")) {
      if (line.startsWith("event: ")) name = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
      else if (line.startsWith("id: ")) id = line.slice(4);
    }
    if (name) this.handlers.event({ name, data: data ? JSON.parse(data) : null });
    if (id) this.sequence = Number(id);
  }
}

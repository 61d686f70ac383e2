// Answers of the history: finished jobs and use over all time.
import { ApiError } from "./api";
import { span, trim, when } from "./format";

export interface PastJob {
  job_id: string;
  tenant_id: string;
  tenant_name?: string;
  user?: string;
  owner?: string;
  name?: string;
  state: string;
  reason?: string;
  cause?: string;
  exit_code?: number;
  signal?: number;
  priority?: number;
  gpu_count?: number;
  gpu_shares?: number;
  gpu_model?: string;
  submitted_at: string;
  scheduled_at?: string;
  started_at?: string;
  ended_at: string;
  attempts?: number;
  preempted_count?: number;
  node_name?: string;
  gpu_seconds?: number;
}

export interface PastPage {
  jobs?: PastJob[];
  next_page_token?: string;
}

export interface UsageRow {
  tenant?: string;
  user?: string;
  model?: string;
  node?: string;
  day?: string;
  month?: string;
  gpu_seconds?: number;
  share_gpu_seconds?: number;
  mig_gpu_seconds?: number;
  lost_gpu_seconds?: number;
  cpu_seconds?: number;
  memory_mb_seconds?: number;
  attempts?: number;
}

export interface UsageReport {
  rows?: UsageRow[];
  since?: string;
  until?: string;
}

/** The scheduler was configured to keep no history. */
export function isNotKept(error: Error | null): boolean {
  return error instanceof ApiError && error.status === 503 && /keeps no history/.test(error.message);
}

/** "2 × A100", "0.5 GPU", "1 + 0.5 GPU", "no GPU". */
export function asked(job: PastJob): string {
  const whole = job.gpu_count ?? 0;
  const part = job.gpu_shares ?? 0;
  if (!whole && !part) return "no GPU";
  const amount = [whole, part].filter((one) => one > 0).map((one) => Math.round(one * 1000) / 1000).join(" + ");
  return `${amount} ${job.gpu_model ? `× ${job.gpu_model}` : "GPU"}`;
}

/** How long it ran the last time; "–": it never did. */
export function ran(job: PastJob): string {
  const from = when(job.started_at);
  return Number.isNaN(from) ? "–" : span(Math.max(0, when(job.ended_at) - from));
}

/** "12", "0.4", "0.03": GPU-hours of seconds. */
export function hours(seconds: number | undefined): string {
  const value = (seconds ?? 0) / 3600;
  if (value === 0) return "0";
  if (value < 0.001) return "< 0.001";
  return value >= 1000 ? Math.round(value).toLocaleString("en") : value < 1 ? String(Number(value.toPrecision(2))) : trim(value);
}

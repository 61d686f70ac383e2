// Answers of the scheduler: the messages of proto/gpusched/v1 in JSON, as far as the dashboard reads them.

export interface Resources {
  gpu_count?: number;
  gpu_milli?: number;
  gpu_memory_mb?: number;
  gpu_model?: string;
  mig_profile?: string;
  cpu_milli?: number;
  memory_mb?: number;
  nodes?: number;
}

export interface Job {
  job_id: string;
  tenant_id: string;
  spec?: Record<string, unknown> & { name?: string };
  resources?: Resources;
  retry?: Record<string, unknown>;
  state: string;
  reason?: string;
  message?: string;
  priority?: number;
  max_runtime_ms?: number;
  submitted_at?: string;
  scheduled_at?: string;
  started_at?: string;
  completed_at?: string;
  exit_code?: number;
  signal?: number;
  attempts?: number;
  node_name?: string;
  allocated_gpus?: string[];
  queue_position?: number;
  held?: boolean;
  owner?: string;
  submitted_by?: string;
  deadline?: string;
  begin_at?: string;
  dependencies?: string[];
  unmet_dependencies?: string[];
  array_id?: string;
  array_index?: number;
  array?: { indexes: string; count: number; waiting: number; running: number; completed: number; failed: number; cancelled: number };
  warnings?: { kind: string; message: string; since?: string }[];
  members?: { part: number; node_name: string; allocated_gpus: string[]; state: string }[];
  usage?: Usage;
  reservation?: string;
  preempt_count?: number;
  moved?: string;
}

export interface Usage {
  peak_memory_bytes?: number;
  cpu_ms?: number;
  gpu_use_permille?: number;
  peak_gpu_memory_mb?: number;
}

export interface JobPage {
  jobs: Job[];
  total?: number;
  next_page_token?: string;
  starts_in_s?: Record<string, number>;
}

export interface Estimate {
  p50?: string;
  p90?: string;
  later_than?: string;
  at_latest?: string;
  stuck?: boolean;
  place?: number;
  made_at?: string;
}

export interface RequestChange {
  kind: string;
  flags: string;
  gpu_count?: number;
  gpu_memory_mb?: number;
  gpu_model?: string;
  cpu_milli?: number;
  memory_mb?: number;
  max_runtime_ms?: number;
  node_name?: string;
  gpus?: string[];
}

export interface Explanation {
  job_id: string;
  state: string;
  reason: string;
  message: string;
  lifted_by?: string[];
  queue_position?: number;
  estimated_start?: string;
  estimate?: Estimate;
  evidence?: Record<string, number>;
  changes?: RequestChange[];
}

export interface Plan {
  tenant_id: string;
  starts_now?: boolean;
  node_name?: string;
  gpus?: string[];
  displaces?: { job_id?: string; gpu_count?: number }[];
  reason?: string;
  message?: string;
  lifted_by?: string[];
  estimate?: Estimate;
  changes?: RequestChange[];
  run_p50_ms?: number;
  run_p90_ms?: number;
  gpu_seconds_reserved?: number;
  gpu_seconds_expected?: number;
  quota?: { tenant_id: string; resource: string; used_after: number; limit: number }[];
}

export interface HistoryLine {
  at: string;
  event: string;
  message: string;
  attempt?: number;
  node_name?: string;
  cause?: string;
  exit_code?: number;
  signal?: number;
  by?: string;
}

export interface Cluster {
  sequence: number;
  name?: string;
  total_nodes: number;
  online_nodes: number;
  total_gpus: number;
  available_gpus: number;
  total_jobs: number;
  running_jobs: number;
  pending_jobs: number;
  average_gpu_utilization: number;
  paused_since?: string | null;
  paused_by?: string;
  pause_reason?: string;
}

export interface Caller {
  kind: string;
  name: string;
  session: boolean;
  ends_at: string | null;
  roles: { role: string; tenant_id?: string }[];
}

export interface Device {
  index: number;
  id: string;
  model: string;
  state: string;
  condition: string;
  use: number;
  celsius: number;
  memory_used_mb: number;
  memory_mb: number;
  milli_used: number;
  holders: { job: string; tenant: string; milli: number }[];
}

export interface Node {
  name: string;
  state: string;
  contact: string;
  devices: Device[];
  cpu_milli: number;
  cpu_milli_free: number;
  memory_mb: number;
  memory_mb_free: number;
  attempts: number;
  reason: string;
  suspect: string;
}

export interface ApiFailure {
  code: string;
  message: string;
}

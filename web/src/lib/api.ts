// Calls of the scheduler. A credential that was typed in is kept for this tab alone and sent as a header; a browser's
// session is a cookie, which no script sees.

const KEPT = "gpu-scheduler.credential";
const PATIENCE_MS = 30_000;

export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly field = "",
    readonly retryAfterMs = 0,
  ) {
    super(message);
  }
}

/** The scheduler gave no answer at all. */
export class Unreachable extends Error {}

export function credential(): string {
  return sessionStorage.getItem(KEPT) ?? "";
}
export function keepCredential(text: string): void {
  if (text) sessionStorage.setItem(KEPT, text);
  else sessionStorage.removeItem(KEPT);
}

let onAnswer: (status: number, message: string) => void = () => {};
/** Calls `told` with each answer's status; 0: there was none. */
export function watchAnswers(told: (status: number, message: string) => void): void {
  onAnswer = told;
}

export async function request(method: string, path: string, body?: unknown, signal?: AbortSignal): Promise<Response> {
  const headers: Record<string, string> = { "X-Requested-By": "dashboard" };
  const held = credential();
  if (held) headers["Authorization"] = `Bearer ${held}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      signal,
      cache: "no-store",
      credentials: "same-origin",
    });
  } catch (error) {
    if (signal?.aborted) throw error;
    const message = "The scheduler does not answer.";
    onAnswer(0, message);
    throw new Unreachable(message);
  }
  if (response.ok) {
    onAnswer(response.status, "");
    return response;
  }
  const failure = await readFailure(response);
  onAnswer(response.status, failure.message);
  throw failure;
}

async function readFailure(response: Response): Promise<ApiError> {
  let told: { error?: unknown; detail?: unknown; code?: string; field?: string } = {};
  try {
    told = await response.json();
  } catch {
    // An answer that is no JSON: of a proxy, say. The status is told.
  }
  const text = typeof told.error === "string" ? told.error : typeof told.detail === "string" ? told.detail : "";
  const message = text ? sentence(text) : `The answer was ${response.status} ${response.statusText}.`;
  const after = Number(response.headers.get("Retry-After") ?? 0) * 1000;
  return new ApiError(response.status, told.code ?? "", message, told.field ?? "", after);
}

/** Messages begin as a part of a longer line does. */
export function sentence(text: string): string {
  if (!text) return "";
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(first) ? first : `${first}.`;
}

async function json<T>(method: string, path: string, body?: unknown): Promise<T> {
  const response = await request(method, path, body, AbortSignal.timeout(PATIENCE_MS));
  return (await response.json()) as T;
}

export const get = <T>(path: string) => json<T>("GET", path);
export const post = <T>(path: string, body: unknown = {}) => json<T>("POST", path, body);
export const patch = <T>(path: string, body: unknown) => json<T>("PATCH", path, body);
export const remove = <T>(path: string) => json<T>("DELETE", path);

/** A path's query; what is empty is left out. */
export function query(values: Record<string, string | number | boolean | undefined>): string {
  const all = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== "" && value !== false) all.append(name, String(value));
  }
  const text = all.toString();
  return text ? `?${text}` : "";
}

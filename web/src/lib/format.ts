// Times, spans and sizes for people.

const units: [number, string][] = [
  [86_400_000, "d"],
  [3_600_000, "h"],
  [60_000, "min"],
  [1000, "s"],
];

/** "3 min", "2 h 10 min": two units at most. */
export function span(ms: number): string {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1000) return ms < 1 ? "0 s" : `${Math.round(ms)} ms`;
  for (let i = 0; i < units.length; i++) {
    const [size, name] = units[i]!;
    if (ms < size) continue;
    const whole = Math.floor(ms / size);
    const next = units[i + 1];
    const rest = next ? Math.floor((ms % size) / next[0]) : 0;
    return next && rest > 0 && whole < 10 ? `${whole} ${name} ${rest} ${next[1]}` : `${whole} ${name}`;
  }
  return "0 s";
}

export function when(text: string | null | undefined): number {
  return text ? Date.parse(text) : NaN;
}

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const day = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false });

/** The time of day; with the date where it is not today. */
export function instant(text: string | null | undefined): string {
  const at = when(text);
  if (Number.isNaN(at)) return "–";
  const date = new Date(at);
  return date.toDateString() === new Date().toDateString() ? clock.format(date) : day.format(date);
}

/** "in 3 min", "2 h ago", "now". */
export function relative(text: string | null | undefined, now: number): string {
  const at = when(text);
  if (Number.isNaN(at)) return "–";
  const distance = at - now;
  if (Math.abs(distance) < 1000) return "now";
  return distance > 0 ? `in ${span(distance)}` : `${span(-distance)} ago`;
}

export function megabytes(mb: number | undefined): string {
  if (!mb) return "0";
  return mb >= 1024 ? `${trim(mb / 1024)} GB` : `${mb} MB`;
}

export function trim(value: number): string {
  return value >= 100 ? value.toFixed(0) : value.toFixed(1).replace(/\.0$/, "");
}

const grouped = new Intl.NumberFormat("en");
export const count = (value: number | undefined) => grouped.format(value ?? 0);

export function cores(milli: number | undefined): string {
  const value = (milli ?? 0) / 1000;
  return value === 1 ? "1 core" : `${trim(value)} cores`;
}

/** "2 × A100", "0.25 GPU", "1g.10gb", "no GPU". */
export function asks(resources: import("./types").Resources | undefined): string {
  if (!resources) return "–";
  const nodes = resources.nodes && resources.nodes > 1 ? ` on ${resources.nodes} nodes` : "";
  const model = resources.gpu_model ? ` ${resources.gpu_model}` : " GPU";
  if (resources.mig_profile) return `slice ${resources.mig_profile}`;
  if (resources.gpu_milli) return `${resources.gpu_milli / 1000}${model}`;
  if (!resources.gpu_count) return `${cores(resources.cpu_milli)}, no GPU`;
  return `${resources.gpu_count}${resources.gpu_model ? " ×" : ""}${model}${nodes}`;
}

/** "90m", "1h 30m", "2d": milliseconds; NaN where it is no span. */
export function readSpan(text: string): number {
  const clean = text.trim().toLowerCase();
  if (!clean) return 0;
  const sizes: Record<string, number> = { s: 1000, m: 60_000, min: 60_000, h: 3_600_000, d: 86_400_000 };
  let total = 0;
  for (const part of clean.match(/\d+(?:\.\d+)?\s*[a-z]*/g) ?? []) {
    const found = /^(\d+(?:\.\d+)?)\s*([a-z]*)$/.exec(part);
    const size = sizes[found?.[2] || "m"];
    if (!found || !size) return NaN;
    total += Number(found[1]) * size;
  }
  return /^[\d.\sa-z]+$/.test(clean) && total > 0 ? total : NaN;
}

/** "16G", "512M", "16": megabytes; NaN where it is no size. */
export function readMegabytes(text: string): number {
  const found = /^(\d+(?:\.\d+)?)\s*(t|g|m)?i?b?$/i.exec(text.trim());
  if (!text.trim()) return 0;
  if (!found) return NaN;
  const sizes: Record<string, number> = { t: 1024 * 1024, g: 1024, m: 1 };
  return Math.round(Number(found[1]) * sizes[(found[2] ?? "g").toLowerCase()]!);
}

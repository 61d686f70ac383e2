// A time range in a page's URL: `range=30d`, or `from=2026-01-01&to=2026-01-31`. Days are days in UTC, and `to` is in it.

export const ranges: { value: string; title: string }[] = [
  { value: "24h", title: "Last 24 hours" },
  { value: "7d", title: "Last 7 days" },
  { value: "30d", title: "Last 30 days" },
  { value: "90d", title: "Last 90 days" },
  { value: "365d", title: "Last year" },
  { value: "all", title: "All time" },
  { value: "days", title: "Between two days" },
];

const day_ms = 86_400_000;

export function isDay(text: string | undefined): text is string {
  return !!text && /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(`${text}T00:00:00Z`));
}

/** The bounds as the API takes them; empty: none. */
export function bounds(values: Record<string, string>, fallback: string): { since: string; until: string } {
  const range = values.range || fallback;
  if (range === "days") {
    return {
      since: isDay(values.from) ? `${values.from}T00:00:00Z` : "",
      until: isDay(values.to) ? new Date(Date.parse(`${values.to}T00:00:00Z`) + day_ms).toISOString() : "",
    };
  }
  return { since: range === "all" || !ranges.some((one) => one.value === range) ? "" : range, until: "" };
}

/** What is wrong with the two days; empty: nothing. */
export function wrongDays(values: Record<string, string>): string {
  return values.range === "days" && isDay(values.from) && isDay(values.to) && values.from > values.to
    ? "The first day is after the last one."
    : "";
}

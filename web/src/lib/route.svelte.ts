// The page's state is in the URL: #/queue?tenant=research. A link shows what its sender saw.

export interface Route {
  page: string;
  id: string;
  values: Record<string, string>;
}

function read(): Route {
  const [path = "", text = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [page = "", ...rest] = path.split("/");
  let id = rest.join("/");
  try {
    id = decodeURIComponent(id);
  } catch {
    // A broken escape names nothing that exists, and is shown as it is.
  }
  return { page: page || "now", id, values: Object.fromEntries(new URLSearchParams(text)) };
}

export const route = $state<{ now: Route }>({ now: read() });
addEventListener("hashchange", () => (route.now = read()));

export function href(page: string, id = "", values: Record<string, string | number | undefined> = {}): string {
  const text = new URLSearchParams(
    Object.entries(values).flatMap(([name, value]) => (value === undefined || value === "" ? [] : [[name, String(value)]])),
  ).toString();
  return `#/${page}${id ? `/${encodeURIComponent(id)}` : ""}${text ? `?${text}` : ""}`;
}

export function go(page: string, id = "", values: Record<string, string | number | undefined> = {}): void {
  location.hash = href(page, id, values);
}

/** Changes some values of this page's URL without a step in the browser's history. */
export function set(values: Record<string, string | number | undefined>): void {
  const { page, id, values: before } = route.now;
  history.replaceState(null, "", href(page, id, { ...before, ...values }));
  route.now = read();
}

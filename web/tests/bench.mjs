// How smooth the dashboard is with 10,000 GPUs while updates arrive at 10 a second, and when it first shows something.
//
//   node web/tests/bench.mjs [seconds]
//
// It serves web/dist with the data of a scheduler of 1,250 nodes with 8 GPUs each, which change at random.
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { chromium } from "playwright-core";

const seconds = Number(process.argv[2] ?? 8);
const dist = new URL("../dist/", import.meta.url);
const words = ["ready", "connected", "NVIDIA H100-SXM5-80GB", "free", "held", "ok", "tenant-2", "tenant-3", "tenant-4"];
const random = (most) => Math.floor(Math.random() * most);

function gpu(node, index) {
  const held = Math.random() < 0.8;
  const holders = held ? [[`job-${node * 8 + index + 1}`, 6 + (node % 3), 0]] : [];
  return [index, 2, held ? 4 : 3, 5, held ? random(100) : 0, 30 + random(50), held ? 60_000 : 0, 81_920, 0, holders];
}
const name = (node) => `n${String(node).padStart(4, "0")}`;
const node = (number) => [name(number), 0, 1, Array.from({ length: 8 }, (_, i) => gpu(number, i)), 64_000, 1000, 512_000, 1000, 8, "", ""];
const nodes = Array.from({ length: 1250 }, (_, i) => node(i));
const cluster = { sequence: 1, total_nodes: 1250, online_nodes: 1250, total_gpus: 10_000, running_jobs: 8000, pending_jobs: 100_000 };
const snapshot = {
  version: "bench", sign_in: false, caller: { kind: "operator", name: "bench", session: false, ends_at: null, roles: [] },
  cluster, nodes: { nodes, words }, tenants: {}, line: { jobs: [], total: 100_000 }, problems: {},
};
const page = `<!doctype html><html lang="en"><head><title>bench</title><link rel="stylesheet" href="/app.css">
<script type="module" src="/app.js"></script></head><body><div id="app"></div>
<script type="application/json" id="snapshot">${JSON.stringify(snapshot)}</script></body></html>`;

function answer(request, response) {
  const url = new URL(request.url, "http://bench");
  const json = (value) => response.setHeader("Content-Type", "application/json").end(JSON.stringify(value));
  if (url.pathname === "/") return response.setHeader("Content-Type", "text/html").end(page);
  if (url.pathname === "/app.js") return response.setHeader("Content-Type", "text/javascript").end(readFileSync(new URL("app.js", dist)));
  if (url.pathname === "/app.css") return response.setHeader("Content-Type", "text/css").end(readFileSync(new URL("app.css", dist)));
  if (url.pathname === "/v1/cluster") return json(cluster);
  if (url.pathname === "/ui/nodes") {
    const names = url.searchParams.getAll("name");
    return json({ nodes: names.length ? names.map((one) => node(Number(one.slice(1)))) : nodes, words });
  }
  if (url.pathname !== "/v1/watch") return json({ jobs: [], total: 0 });
  response.setHeader("Content-Type", "text/event-stream").write('event: begin\ndata: {"sequence":1}\nid: 1\n\n');
  const timer = setInterval(() => response.write(`event: node\ndata: {"name":"${name(random(1250))}"}\nid: 2\n\n`), 100);
  request.on("close", () => clearInterval(timer));
}

const server = createServer(answer).listen(0, "127.0.0.1");
await new Promise((done) => server.once("listening", done));
const browser = await chromium.launch({
  executablePath: process.env.GPUSCHED_CHROMIUM ?? "/usr/bin/chromium",
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"],
});
const tab = await browser.newPage({ viewport: { width: 1280, height: 860 } });
await tab.goto(`http://127.0.0.1:${server.address().port}/`);
await tab.waitForTimeout(2500);
const paints = await tab.evaluate(() => performance.getEntriesByType("paint").map((one) => [one.name, Math.round(one.startTime)]));
for (const [what, ms] of paints) console.log(`${what}: ${ms} ms`);
for (const by of ["state", "use", "heat", "tenant"]) {
  await tab.evaluate((way) => (location.hash = `#/now?by=${way}`), by);
  await tab.waitForTimeout(1500);
  const frames = await tab.evaluate(
    (ms) =>
      new Promise((done) => {
        const all = [];
        let before = performance.now();
        const end = before + ms;
        const step = (now) => {
          all.push(now - before);
          before = now;
          if (now < end) requestAnimationFrame(step);
          else done(all);
        };
        requestAnimationFrame(step);
      }),
    seconds * 1000,
  );
  frames.sort((a, b) => a - b);
  const part = (100 * frames.filter((ms) => ms < 33.4).length) / frames.length;
  console.log(`${by}: ${frames.length} frames, p50 ${frames[frames.length >> 1].toFixed(1)} ms, longest ${frames.at(-1).toFixed(0)} ms, ${part.toFixed(1)} % below 33 ms`);
}
await browser.close();
server.closeAllConnections();
server.close();

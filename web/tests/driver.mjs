// Drives one Chromium for the end-to-end tests (tests/e2e/web_browser.py): each line of its input is a script with its
// arguments, run with a page of Playwright; each line of its output is that script's result or error.
import { createRequire } from "node:module";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { chromium } from "playwright-core";

const require = createRequire(import.meta.url);
const axeSource = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const folder = mkdtempSync(join(tmpdir(), "gpusched-chromium-"));
const browser = await chromium.launch({
  executablePath: process.env.GPUSCHED_CHROMIUM ?? "/usr/bin/chromium",
  headless: true,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
});

const patience = Number(process.env.GPUSCHED_BROWSER_PATIENCE_MS ?? 60_000);
let context;
let page;
let noise = [];

/** A new browser, as if nobody had been here: nothing is kept, no cookie, no storage. */
async function fresh(options = {}) {
  await context?.close();
  noise = [];
  context = await browser.newContext({ viewport: { width: 1280, height: 860 }, reducedMotion: "reduce", ...options });
  context.setDefaultTimeout(patience);
  page = await context.newPage();
  page.on("pageerror", (error) => noise.push(`error: ${error.message}`));
  page.on("console", (message) => {
    // The browser writes a line of its own for each refused call; the page shows it to people.
    if (message.type() === "error" && !message.text().startsWith("Failed to load resource")) noise.push(message.text());
  });
  return page;
}

/** What axe finds wrong with the page as it is. */
async function axe() {
  await page.evaluate(axeSource);
  const found = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ["violations"] }));
  return found.violations.map((one) => `${one.id}: ${one.nodes.map((node) => `${node.target} ${node.failureSummary}`).join(" | ")}`);
}

const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;
for await (const line of createInterface({ input: process.stdin })) {
  const { script, args } = JSON.parse(line);
  let answer;
  try {
    const run = new AsyncFunction("page", "args", "axe", "fresh", "context", script);
    answer = { result: (await run(page, args, axe, fresh, context)) ?? null, noise };
  } catch (error) {
    answer = { error: String(error?.stack ?? error), noise };
    try {
      answer.text = (await page.innerText("body", { timeout: 2000 })).slice(0, 4000);
    } catch {
      // The page is gone; the error says the rest.
    }
  }
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
await browser.close();
rmSync(folder, { recursive: true, force: true });

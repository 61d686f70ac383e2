"""A real Chromium for the end-to-end tests of the dashboard, driven by Playwright (web/tests/driver.mjs)."""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from harness import PATIENCE_S, ROOT

WEB = ROOT / "web"
PLAYWRIGHT = WEB / "node_modules" / "playwright-core"


def missing():
    """What is not on this machine that the browser needs; nothing: all is there."""
    if chromium() is None:
        return "chromium is not installed (tools/install-deps --extra)"
    if shutil.which("node") is None:
        return "node is not installed"
    if not PLAYWRIGHT.is_dir():
        return "web/node_modules is not installed (tools/web install)"
    return ""


def chromium():
    return os.environ.get("GPUSCHED_CHROMIUM") or shutil.which("chromium")


def skip_or_fail():
    """Where it is missing the test is skipped by name; in CI it fails."""
    lacks = missing()
    if lacks and os.environ.get("CI"):
        pytest.fail(lacks)
    if lacks:
        pytest.skip(lacks)


class Browser:
    """One Chromium. `run` executes a script with `page`, `args`, `axe()` and `fresh()`; its noise must be none."""

    def __init__(self):
        environment = dict(os.environ, GPUSCHED_CHROMIUM=chromium(), GPUSCHED_BROWSER_PATIENCE_MS=str(int(PATIENCE_S * 1000)))
        self.process = subprocess.Popen(["node", str(WEB / "tests" / "driver.mjs")], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment, cwd=str(WEB))
        self.noise = []

    def run(self, script, **args):
        self.process.stdin.write(json.dumps({"script": script, "args": args}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "the browser's driver ended"
        answer = json.loads(line)
        self.noise = answer["noise"]
        assert "error" not in answer, f"{answer['error']}\n--- the page:\n{answer.get('text')}"
        return answer["result"]

    def open(self, url, **options):
        """A browser without a past, at that page."""
        self.run("page = await fresh(args.options); await page.goto(args.url)", url=url, options=options)

    def sees(self, text):
        """Waits until the page shows it."""
        self.run("await page.getByText(args.text).first().waitFor()", text=text)

    def shot(self, path, full=False):
        pathlib.Path(path).parent.mkdir(parents=True, exist_ok=True)
        self.run("await page.screenshot({ path: args.path, fullPage: args.full })", path=str(path), full=full)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

"""A month's statement of a real scheduler's history."""

import csv
import datetime
import io
import json
import subprocess

from harness import program
from test_history import native, wait_past

PRICES = """currency: EUR
time_zone: Europe/Berlin
prices:
  - {model: "*A100*", gpu_hour: 3600}
  - {gpu_hour: 0}
"""


def run(*words):
    return subprocess.run([program("gpu-scheduler"), "history", *map(str, words)], capture_output=True, text=True,
                          timeout=60, check=False)


def test_a_statement_has_what_each_tenant_held(world):
    api = world.api()
    tenant = api.post("/tenants", {"name": "vision, and more"}, expected=201)["id"]
    job = api.submit("sleep 1; exit 3", gpu_count=2, tenant_id=tenant)
    api.wait_for(job)
    held = wait_past(world, job)["gpu_seconds"]
    assert held > 2
    prices, copy = world.folder / "prices.yaml", world.folder / "history.db"
    prices.write_text(PRICES)
    made = run("copy", copy, "--api-url", f"http://127.0.0.1:{world.scheduler.ports['http']}", "--token-file",
               world.scheduler.data_dir / "token")
    assert made.returncode == 0, made.stderr
    month = datetime.datetime.now(datetime.timezone.utc).astimezone().strftime("%Y-%m")
    done = run("statement", copy, "--prices", prices, "--month", month, "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    (owed,) = report["tenants"]
    assert (owed["tenant_id"], owed["tenant"], report["currency"]) == (tenant, "vision, and more", "EUR")
    (line,) = owed["lines"]
    assert line["class"] == "whole" and line["price_per_gpu_hour"] == "3600.00"
    # At 3600 an hour, a second of a GPU costs 1.
    assert abs(float(line["amount"]) - held) < 0.011 and owed["total"] == line["amount"]
    (usage,) = native(world, "/usage?by=tenant")["rows"]
    assert abs(float(line["gpu_hours"]) * 3600 - usage["gpu_seconds"]) < 0.01
    table = list(csv.DictReader(io.StringIO(
        run("statement", copy, "--prices", prices, "--month", month, "--tenant", "vision, and more").stdout)))
    assert [(row["tenant"], row["amount"]) for row in table] == [("vision, and more", line["amount"])]
    assert json.loads(run("statement", copy, "--prices", prices, "--month", "2020-01", "--json").stdout)["tenants"] == []


def test_what_is_wrong_is_said(world):
    prices = world.folder / "prices.yaml"
    prices.write_text(PRICES.replace("Berlin", "Nowhere"))
    refused = run("statement", world.folder / "none.db", "--prices", prices)
    assert refused.returncode == 2 and "Europe/Nowhere" in refused.stderr
    prices.write_text(PRICES)
    missing = run("statement", world.folder / "none.db", "--prices", prices)
    assert missing.returncode == 1 and "none.db" in missing.stderr
    assert not (world.folder / "none.db").exists()
    assert run("statement", world.folder / "none.db", "--prices", prices, "--month", "May").returncode == 2

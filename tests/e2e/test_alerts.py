"""The alert rules that are shipped: their metrics exist, and each has its section in the runbook."""

import re
import urllib.request

from harness import ROOT

RULES = ROOT / "deploy" / "monitoring" / "alerts.yaml"
RUNBOOK = ROOT / "docs" / "operate" / "alerts.md"


def rules():
    """(name, text) of each rule; the file is simple enough to be read without a parser."""
    _, *texts = RULES.read_text().split("- alert: ")
    return [(text.split("\n", 1)[0], text) for text in texts]


def metrics_of(world):
    url = f"http://127.0.0.1:{world.scheduler.ports['metrics']}/metrics"
    with urllib.request.urlopen(url, timeout=30) as answer:
        return answer.read().decode()


def value_of(text, sample):
    found = re.search(rf"^{re.escape(sample)} (\S+)$", text, re.M)
    assert found, f"{sample} is not among:\n{text}"
    return float(found[1])


def test_every_rule_asks_for_metrics_that_are_there_and_has_a_section(world):
    api = world.api()
    api.wait_for(api.submit("true", gpu_count=1))
    metrics = metrics_of(world)
    told = {line.split("{")[0].split(" ")[0] for line in metrics.splitlines() if not line.startswith("#")}
    told.add("gpu_scheduler_snapshot_age_seconds")  # After the first snapshot.
    titles = set(re.findall(r"^## (\w+)$", RUNBOOK.read_text(), re.M))
    names = set()
    for name, text in rules():
        names.add(name)
        asked = set(re.findall(r"gpu_scheduler_\w+", text))
        assert asked or name == "SchedulerDown"
        assert asked <= told, f"{name} asks for {asked - told}"
        assert f'runbook: "docs/operate/alerts.md#{name.lower()}"' in text
    assert names == titles


def test_sums_are_what_the_cluster_is(world):
    api = world.api()
    runs = api.submit("sleep 1000", gpu_count=3)
    api.wait_for(runs, "running")
    waits = api.submit("true", gpu_count=4)
    world.cli("pause", expected=0)
    text = metrics_of(world)
    assert value_of(text, 'gpu_scheduler_nodes{state="ready"}') == 1
    assert value_of(text, 'gpu_scheduler_jobs{state="running"}') == 1
    assert value_of(text, 'gpu_scheduler_jobs{state="pending"}') == 1
    assert value_of(text, "gpu_scheduler_starts_paused") == 1
    assert value_of(text, "gpu_scheduler_storage_full") == 0
    assert value_of(text, 'gpu_scheduler_tenant_gpus_used{tenant="default"}') == 3
    assert value_of(text, "gpu_scheduler_journal_sync_seconds_count") > 0
    held = re.search(r'^gpu_scheduler_gpus\{state="held",model="[^"]+"\} 3$', text, re.M)
    assert held, text
    world.cli("resume", expected=0)
    api.cancel(runs)
    api.wait_for(waits)

"""What Prometheus gets: metrics and rules, judged by promtool."""

import re
import threading
import urllib.request

import pytest
from harness import PATIENCE_S, ROOT, wait_until
from prometheus import promtool

yaml = pytest.importorskip("yaml", reason="python3-yaml is not here (tools/install-deps --extra installs it)")

FOLDER = ROOT / "deploy" / "monitoring"


def metrics_of(port, token):
    request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
        return answer.read().decode()


# --- Rules. ---

def test_promtool_accepts_the_configuration_and_the_rules():
    assert "SUCCESS" in promtool("check", "config", str(FOLDER / "prometheus.yaml"))
    assert "SUCCESS" in promtool("check", "rules", str(FOLDER / "alerts.yaml"))


def test_each_rule_is_silent_when_all_is_well_and_fires_when_it_is_not():
    assert "SUCCESS" in promtool("test", "rules", str(FOLDER / "alerts_test.yaml"))
    rules = {rule["alert"] for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
             for rule in group["rules"]}
    looks = [look for test in yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
             for look in test["alert_rule_test"]]
    for fires in (False, True):
        assert {look["alertname"] for look in looks if bool(look["exp_alerts"]) == fires} == rules


# --- Metrics. ---

@pytest.fixture(name="busy")
def busy_fixture(new_world):
    """A scheduler and an agent with jobs of two tenants that come for as long as the test lasts."""
    world = new_world(SCHEDULER_POOL_ONLINE_PERCENT=25, SCHEDULER_POOL_BATCH_PERCENT=75, SCHEDULER_POOL_MODE="lending")
    world.scheduler.start()
    world.agent = world.add_agent("n1", arguments=["--metrics-port", "0"]).start()
    world.agent.set_gpus({index: {"power_watts": 300 + index, "temperature_celsius": 60}
                          for index in range(4)})
    world.cli("tenant", "create", "--name", "vision", "--max-gpus", "3", "--guarantee-gpus", "1", expected=0)
    over = threading.Event()

    def submit():
        while not over.is_set():
            for tenant in ("default", "vision"):
                world.cli("submit", "--tenant", tenant, "--gpus", "2", "--time", "1m", "--", "sleep", "1")
            over.wait(0.7)

    thread = threading.Thread(target=submit)
    thread.start()
    yield world
    over.set()
    thread.join()


def test_promtool_has_nothing_to_say_about_the_metrics(busy):
    agent_port = wait_until("the agent's port is told",
                            lambda: re.search(r'"event":"metrics_served".*?"port":(\d+)', busy.agent.log_text()))[1]
    port, token = busy.scheduler.ports["metrics"], busy.scheduler.token()
    # Scores are told once jobs have ended.
    wait_until("run times are scored", lambda: "run_times_covered_total{" in metrics_of(port, token))
    for text in (metrics_of(port, token), metrics_of(agent_port, token)):
        assert promtool("check", "metrics", text_in=text) == ""
        samples = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
        assert len(samples) == len(set(samples))
        families = re.findall(r"^# TYPE (\S+)", text, re.M)
        assert len(families) == len(set(families))

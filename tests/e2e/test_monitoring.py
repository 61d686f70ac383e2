"""What Prometheus and Grafana get: metrics, rules and dashboards, judged by Prometheus itself."""

import json
import math
import re
import threading
import time
import urllib.request

import pytest
from harness import PATIENCE_S, ROOT, wait_until
from prometheus import SCRAPE_S, Prometheus, promtool

yaml = pytest.importorskip("yaml", reason="python3-yaml is not here (tools/install-deps --extra installs it)")

FOLDER = ROOT / "deploy" / "monitoring"
BOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((FOLDER / "dashboards").glob("*.json"))}


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


# --- Metrics and dashboards. ---

def targets_of(board):
    return [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]


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


def replaced(expression):
    """A panel's query with Grafana's variables replaced, each of the dashboard's own standing for all its values."""
    for name, value in (("$__rate_interval", "1m"), ("$__range", "5m"), ("$tenant", ".*"), ("$node", ".*")):
        expression = expression.replace(name, value)
    assert "$" not in expression, expression
    return expression


def test_every_panel_of_every_dashboard_shows_data(busy):
    assert set(BOARDS) == {"cluster", "nodes", "tenants"}
    config = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
    (job,) = config["scrape_configs"]
    job["static_configs"] = [{"targets": [f"127.0.0.1:{busy.scheduler.ports['metrics']}"]}]
    # Without a credential there are only the tenants that anybody may know.
    key = busy.folder / "prometheus.key"
    busy.cli("key", "create", "prometheus", "--cluster", "--role", "metrics", "--out", str(key), expected=0)
    job["authorization"] = {"credentials_file": str(key)}
    interval = f"{SCRAPE_S}s"
    config["global"] = {"scrape_interval": interval, "evaluation_interval": interval}
    config["rule_files"] = [str(FOLDER / name) for name in config["rule_files"]]
    prometheus = Prometheus(busy.folder / "prometheus", config)
    try:
        prometheus.wait_ready()
        for board in BOARDS.values():
            for variable in board["templating"]["list"]:
                if variable["type"] == "query":
                    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()
                    wait_until(f"values of {label}", lambda: prometheus.label_values(metric, label))
        queries = [(f"{name}: {title}", expression) for name, board in BOARDS.items() for title, expression in targets_of(board)]
        assert len(queries) >= 50
        # An alert is pending while starts are paused: last, since nothing starts then.
        for title, expression in sorted(queries, key=lambda query: "ALERTS)" in query[1]):
            if "ALERTS)" in expression:
                busy.cli("pause", expected=0)
            wait_until(f"data for {title}: {expression}", lambda: has_data(prometheus, expression))
    finally:
        prometheus.end()


def has_data(prometheus, expression):
    # A figure of each full minute is asked for as of the next one.
    at = math.ceil(time.time() / 60) * 60 if ":1m]" in expression else None
    return any(math.isfinite(value) for _, value in prometheus.query(replaced(expression), at))

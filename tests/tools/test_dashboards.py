"""tools/dashboards: the dashboards that are committed are those that it writes."""

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy" / "monitoring" / "dashboards"
PYTHON = ROOT / "build" / "python" / "bin" / "python"
BOARDS = {path.name: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}


def has_sdk():
    return PYTHON.exists() and subprocess.run([PYTHON, "-c", "import grafana_foundation_sdk"], capture_output=True,
                                              check=False).returncode == 0


@pytest.mark.skipif(not has_sdk() and not os.environ.get("CI"), reason="run tools/install-python first")
def test_the_committed_files_are_what_it_writes(tmp_path):
    subprocess.run([PYTHON, "-B", ROOT / "tools" / "dashboards", tmp_path], check=True)
    written = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert written == {path.name: path.read_text() for path in FOLDER.iterdir()}, "run tools/dashboards"


@pytest.mark.parametrize("name", BOARDS)
def test_a_dashboard_is_well_formed(name):
    board = BOARDS[name]
    assert {one["uid"] for one in BOARDS.values()} == {f"gpu-scheduler-{path[:-5]}" for path in BOARDS}
    variables = {one["name"] for one in board["templating"]["list"]}
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len({panel["title"] for panel in panels}) == len(panels)
    for panel in panels:
        if panel["type"] == "row":
            continue
        assert panel["targets"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"} and "datasource" in variables
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        # A chosen tenant or node is asked for by every panel that names one.
        for target in panel["targets"]:
            for label in ("tenant", "node"):
                if f"by ({label})" in target["expr"] and label in variables:
                    assert f'{label}=~"${label}"' in target["expr"], panel["title"]
    cells = [(x, y) for at in (panel["gridPos"] for panel in panels)
             for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24  # No panel covers another.

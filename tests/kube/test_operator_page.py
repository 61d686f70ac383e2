"""The commands of docs/operate/kubernetes.md, from the first to the last, as an administrator would give them."""

import base64
import re
import subprocess

import chart
from control_plane import ROOT, harness

PAGE = (ROOT / "docs" / "operate" / "kubernetes.md").read_text()


def test_the_commands_of_the_page(own_control_plane, tmp_path):
    plane = own_control_plane
    plane.create("/api/v1/nodes", {"metadata": {"name": "n1"}})
    (tmp_path / "charts").symlink_to(ROOT / "charts")
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    environment = {"PATH": f"{plane.programs}:/usr/bin:/bin", "HOME": str(tmp_path), "KUBECONFIG": str(plane.admin)}
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 6
    outputs = []
    for block in blocks:
        done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=tmp_path, env=environment, capture_output=True,
                              text=True, check=False, timeout=harness.PATIENCE_S)
        assert done.returncode == 0, (block, done.stdout, done.stderr)
        assert "Warning" not in done.stderr, (block, done.stderr)
        outputs.append(done.stdout)
    installed, _, _, upgraded, _, plain = outputs
    assert "STATUS: deployed" in installed and "node/n1 labeled" in installed
    assert "REVISION: 2" in upgraded
    assert "statefulset.apps/gpu-scheduler-engine created" in plain
    # Pods get the rights that the page tells people to keep.
    token = plane.get("/api/v1/namespaces/gpu-scheduler/secrets/gpu-scheduler-token")["data"]["token"]
    assert base64.b64decode(token).decode() == (tmp_path / "token").read_text()


def test_the_page_names_parts_that_the_chart_has():
    names = {(one["kind"], one["metadata"]["name"]) for one in chart.objects(agent__enabled=True)}
    rows = re.findall(r"^\| (\w+) `([\w-]+)`(?:, `([\w-]+)`)? \|", PAGE, re.MULTILINE)
    assert len(rows) == 6
    for kind, *found in rows:
        for name in filter(None, found):
            assert (kind.removesuffix("s"), name) in names

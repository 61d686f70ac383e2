"""gpu-scheduler admin: tenants and labels as one file, applied again and again."""

import json
import os
import pty
import subprocess

import pytest
from harness import PATIENCE_S, program

CLUSTER = """
tenants:
  - name: vision
    parent: research
    max_gpus: 2
    priority_tier: high
    fair_share_weight: 1.5
  - name: research
    max_gpus: 3
    organization: Institute
"""


def admin(world, *words, text_in=None, expected=0):
    done = subprocess.run([program("gpu-scheduler"), "admin", *map(str, words)], capture_output=True, text=True, check=False,
                          input=text_in, timeout=PATIENCE_S, env=world.cli_environment())
    assert done.returncode == expected, (words, done.returncode, done.stdout, done.stderr)
    return done


def written(world, text):
    path = world.folder / "cluster.yaml"
    path.write_text(text)
    return path


def tenant(world, name):
    return world.api().get(f"/tenants/{name}")


def test_apply_makes_it_true_once(world):
    path = written(world, CLUSTER)
    dry = admin(world, "apply", "-f", path, "--dry-run").stdout
    assert "tenant research\n  new\n" in dry and "nothing was changed" in dry
    assert world.api().call("GET", "/api/v1/tenants/research")[0] == 404
    assert "2 changes made" in admin(world, "apply", "-f", path).stdout
    vision, research = tenant(world, "vision"), tenant(world, "research")
    assert vision["parent_id"] == research["id"]
    assert (vision["max_gpus"], vision["priority_tier"], vision["fair_share_weight"]) == (2, "high", 1.5)
    assert research["organization"] == "Institute"
    assert admin(world, "apply", "-f", path).stdout == "no changes are needed\n"
    # The quota holds, over the parent too.
    refused = world.api().post("/jobs", {"command": ["true"], "gpu_count": 3, "tenant_id": "vision"}, 403)
    assert refused["code"] == "quota_exceeded"


def test_only_what_differs_is_changed(world):
    admin(world, "apply", "-f", written(world, CLUSTER))
    path = written(world, CLUSTER.replace("max_gpus: 2", "max_gpus: null").replace("1.5", "2"))
    report = json.loads(admin(world, "apply", "-f", path, "--json").stdout)
    assert report["applied"] == 1
    assert report["changes"] == [{"what": "tenant vision", "applied": True,
                                  "lines": ["fair_share_weight: 1.500 -> 2.000", "max_gpus: 2 -> no limit"]}]
    assert tenant(world, "vision").get("max_gpus") is None
    assert tenant(world, "vision")["priority_tier"] == "high"


def test_what_is_exported_changes_nothing(world):
    admin(world, "apply", "-f", written(world, CLUSTER))
    exported = admin(world, "get").stdout
    assert "  - name: vision\n    parent: research\n" in exported
    assert admin(world, "apply", "-f", "-", text_in=exported).stdout == "no changes are needed\n"


def test_a_wrong_file_changes_nothing(world):
    for text, sentence in (
            ("pools:\n  - name: a100\n", "does not support pools"),
            (CLUSTER + "    max_gpu: 3\n", "did you mean max_gpus?"),
            (CLUSTER + "  - {name: x, parent: nobody}\n", "which does not exist"),
            ("tenants: [\n", "not valid YAML")):
        done = admin(world, "apply", "-f", written(world, text), expected=2)
        assert sentence in done.stderr
        assert "cluster.yaml:" in done.stderr
    assert [found["name"] for found in world.api().get("/tenants")["tenants"]] == ["default"]
    assert "/nowhere" in admin(world, "apply", "-f", "/nowhere", expected=2).stderr


def test_all_of_a_file_is_applied_or_nothing_and_a_dry_run_says_which(world):
    admin(world, "apply", "-f", written(world, CLUSTER))
    before = admin(world, "get").stdout
    # Everything but the last change could be made.
    path = written(world, CLUSTER.replace("max_gpus: 2", "max_gpus: 1") + """
  - name: extra
  - name: greedy
    parent: research
    max_gpus: 1
    guaranteed_gpus: 2
""")
    for words in (["--dry-run"], [], ["--json"]):
        done = admin(world, "apply", "-f", path, *words, expected=1)
        assert "tenant greedy" in done.stderr and "nothing was changed" in done.stderr, done.stderr
        assert admin(world, "get").stdout == before
    assert json.loads(done.stdout)["applied"] == 0
    good = written(world, path.read_text().replace("guaranteed_gpus: 2", "guaranteed_gpus: 0"))
    assert "would accept the changes" in admin(world, "apply", "-f", good, "--dry-run").stdout
    assert admin(world, "get").stdout == before
    assert "3 changes made" in admin(world, "apply", "-f", good).stdout
    assert tenant(world, "greedy")["parent_id"] == tenant(world, "research")["id"]


def test_another_parent_is_refused(world):
    admin(world, "apply", "-f", written(world, CLUSTER))
    moved = written(world, CLUSTER.replace("parent: research", "parent: default"))
    assert "cannot change the parent" in admin(world, "apply", "-f", moved, expected=2).stderr


def test_labels_of_nodes(world):
    if world.api().call("GET", "/v1/nodes")[0] == 404:
        pytest.skip("this scheduler serves no native REST")
    path = written(world, "nodes:\n  - name: n1\n    labels: {zone: a, rack: '12'}\n")
    assert "label zone: none -> a" in admin(world, "apply", "-f", path).stdout
    assert admin(world, "apply", "-f", path).stdout == "no changes are needed\n"
    assert 'labels: {rack: "12", zone: a}' in admin(world, "get").stdout
    path = written(world, "nodes:\n  - name: n1\n    labels: {zone: null}\n")
    assert "label zone: a -> none" in admin(world, "apply", "-f", path).stdout
    assert 'labels: {rack: "12"}' in admin(world, "get").stdout
    unknown = written(world, "nodes:\n  - {name: n7, labels: {a: b}}\n")
    assert "no node n7 has ever registered" in admin(world, "apply", "-f", unknown, expected=2).stderr


def test_nobody_there(new_world):
    world = new_world()
    done = admin(world, "get", expected=1)
    assert "no scheduler answers at" in done.stderr and "--api-url" in done.stderr


def at_a_terminal(world, path, answer):
    leader, follower = pty.openpty()
    process = subprocess.Popen([program("gpu-scheduler"), "admin", "apply", "-f", str(path)], stdin=follower,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=world.cli_environment())
    os.write(leader, answer)
    out, _ = process.communicate(timeout=PATIENCE_S)
    os.close(leader)
    os.close(follower)
    return process.returncode, out


def test_a_person_is_asked(world):
    path = written(world, CLUSTER)
    status, out = at_a_terminal(world, path, b"n\n")
    assert status == 1 and "Apply 2 changes? [y/N]" in out and "nothing was changed" in out
    assert world.api().call("GET", "/api/v1/tenants/vision")[0] == 404
    status, out = at_a_terminal(world, path, b"y\n")
    assert status == 0 and "2 changes made" in out

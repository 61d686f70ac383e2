"""The Helm chart as the objects that it makes."""

import json
import subprocess

import control_plane as kubernetes
import yaml

FOLDER = kubernetes.ROOT / "deploy" / "helm" / "gpu-scheduler"
KUBE_VERSION = kubernetes.VERSION


def helm(*words, expected=0):
    done = subprocess.run([kubernetes.programs() / "helm", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == expected, (words, done.stdout, done.stderr)
    return done


def flags(values):
    return [word for name, value in values.items() for word in ("--set-json", f"{name}={json.dumps(value)}")]


def template(release="gpu-scheduler", namespace="gpu-scheduler", **values):
    """What `helm template` prints; values by their names, with `__` for the dot."""
    values = {name.replace("__", "."): value for name, value in values.items()}
    return helm("template", release, FOLDER, "-n", namespace, "--kube-version", KUBE_VERSION, *flags(values)).stdout


def objects(**settings):
    """The objects of the chart, as dictionaries."""
    return [found for found in yaml.safe_load_all(template(**settings)) if found]


def of_kind(found, kind, name=None):
    """The only object of this kind, or of this kind and name."""
    chosen = [one for one in found if one["kind"] == kind and name in (None, one["metadata"]["name"])]
    assert len(chosen) == 1, (kind, name, [(one["kind"], one["metadata"]["name"]) for one in found])
    return chosen[0]


def containers(template):
    return [*template.get("initContainers", []), *template["containers"]]


def templates(found):
    """{name: the pods' specification} of what starts pods."""
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in found if "template" in one.get("spec", {})}

"""The chart's pods as processes of this machine: its command lines, users, capabilities, Secrets and configuration."""

import base64
import json
import os
import pathlib
import re
import shutil
import subprocess

import chart
import yaml
from control_plane import free_port, harness

VALUES = {"agent__enabled": True, "agent__simGpus": "2xA100-SXM4-80GB", "agent__defaultUser": "nobody",
          "agent__options": ["--user-min-uid=1"], "nodeAgent__simGpus": "2xA100-SXM4-80GB"}


class Pod:
    """One pod of the chart: a folder with what the kubelet would mount, and the process of its container."""

    def __init__(self, release, name, replica=0, node="n1"):
        self.release, self.spec, self.node = release, release.specs[name], node
        self.folder = release.folder / f"{name}-{replica}"
        self.folder.mkdir()
        self.port = free_port()  # The only port of a program.
        self.process = None
        self._mount()

    def place(self, path):
        """Where a folder of the pod is here."""
        return self.folder / str(path).lstrip("/").replace("/", "-")

    def words(self, text):
        """A text of the chart as it holds here: folders of the pod, ports that are free, this machine as its Services."""
        text = re.sub(r"/var/lib/gpu-(?:scheduler|agent)(?=/|$)|/etc/gpu-scheduler/(?:config|tls|token)(?=/|$)",
                      lambda match: str(self.place(match[0])), text, flags=re.MULTILINE)
        text = text.replace(f"gpu-scheduler-engine.{self.release.namespace}.svc:9090", f"localhost:{self.release.ports['9090']}")
        text = text.replace("--listen=:9443", f"--listen=127.0.0.1:{self.port}")
        text = text.replace("--secure-port=10259", f"--secure-port={self.port}")
        return text.replace("$(NODE_NAME)", self.node).replace("$(POD_IP)", "127.0.0.1")

    def configuration(self, text):
        """The scheduler's configuration, or that of the scheduler of pods, with what differs on this machine."""
        config = yaml.safe_load(self.words(text))
        if "api" in config:
            config["api"].update(http_port=self.release.ports["8080"], grpc_port=self.release.ports["9090"])
            config["metrics"]["port"] = self.release.ports["9091"]
            for key in ("tls_cert_path", "tls_key_path"):
                config["api"][key] = self.words(config["api"][key])
        else:
            config["clientConnection"]["kubeconfig"] = str(self.account())
            config["leaderElection"].update(leaseDuration="3s", renewDeadline="2s", retryPeriod="500ms")
        return yaml.safe_dump(config)

    def account(self):
        """A kubeconfig of the pod's service account that its user can read."""
        file = self.release.plane.service_account(self.release.namespace, self.spec["serviceAccountName"])
        mine = pathlib.Path(shutil.copy(file, self.folder / "account"))
        os.chown(mine, self.spec["securityContext"]["runAsUser"], -1)
        return mine

    def account_folder(self):
        """What the kubelet mounts for the service account: a token that names a pod of this kind on the pod's node."""
        plane, name = self.release.plane, f"{self.spec['serviceAccountName']}-{self.node}"
        plane.create(f"/api/v1/namespaces/{self.release.namespace}/pods", {"metadata": {"name": name}, "spec": {
            "nodeName": self.node, "serviceAccountName": self.spec["serviceAccountName"],
            "containers": [{"name": "main", "image": "image"}]}})
        file = plane.service_account(self.release.namespace, self.spec["serviceAccountName"], pod=name)
        folder = self.folder / "account"
        folder.mkdir()
        (folder / "token").write_text(json.loads(file.read_text())["users"][0]["user"]["token"])
        (folder / "ca.crt").write_bytes((plane.folder / "pki" / "ca.crt").read_bytes())
        return folder

    def _mount(self):
        group = self.spec["securityContext"].get("fsGroup", 0)
        mounts = {mount["name"]: mount["mountPath"] for one in chart.containers(self.spec) for mount in one.get("volumeMounts", [])}
        for volume in self.spec.get("volumes", []):
            if "secret" in volume:
                secret = chart.of_kind(self.release.found, "Secret", volume["secret"]["secretName"])["data"]
                keys = [item["key"] for item in volume["secret"].get("items", [])] or secret
                files = {key: base64.b64decode(secret[key]) for key in keys}
            elif "configMap" in volume:
                data = chart.of_kind(self.release.found, "ConfigMap", volume["configMap"]["name"])["data"]
                files = {name: self.configuration(text).encode() for name, text in data.items()}
            else:
                continue
            place = self.place(mounts[volume["name"]])
            place.mkdir()
            for name, content in files.items():
                (place / name).write_bytes(content)
                (place / name).chmod(volume.get("secret", {}).get("defaultMode", 0o644))
                os.chown(place / name, 0, group)
        if "data" in mounts:
            data = self.place(mounts["data"])
            data.mkdir()
            os.chown(data, 0, group)
            data.chmod(0o2770 if group else 0o755)

    def _run(self, container, *more):
        context = {**self.spec["securityContext"], **container["securityContext"]}
        user, group = context["runAsUser"], context.get("runAsGroup", 0)
        kept = ",".join("+" + name.lower() for name in context["capabilities"].get("add", []))
        limits = ["setpriv", f"--reuid={user}", f"--regid={group}", f"--groups={group}", "--no-new-privs",
                  f"--bounding-set=-all{',' + kept if kept else ''}", "--inh-caps=-all"]
        program, *words = [self.words(word) for word in (*container["command"], *container.get("args", []))]
        return self.release.plane.run(*limits, self.release.programs.get(program, program), *words, *more)

    def start(self, *more):
        """Runs the init containers, then starts the container; `more` are further arguments."""
        for container in self.spec.get("initContainers", []):
            first = self._run(container)
            assert first.wait(harness.PATIENCE_S) == 0, first.log.read_text()
        self.process = self._run(self.spec["containers"][0], *more)
        return self

    def log(self):
        return self.process.log.read_text(errors="replace")

    def kill(self):
        self.process.kill()
        self.process.wait()


class Release:
    """The chart in a namespace of a control plane. `programs` are the paths of programs by their names in images."""

    def __init__(self, plane, folder, namespace="gpu-scheduler", programs=()):
        self.plane, self.folder, self.namespace = plane, folder, namespace
        folder.mkdir()
        folder.chmod(0o755)
        self.found = chart.objects(namespace=namespace, **VALUES)
        self.specs = chart.templates(self.found)
        self.ports = {port: free_port() for port in ("8080", "9090", "9091")}
        self.programs = {name: harness.program(name) for name in ("gpu-scheduler", "gpu-agent")} | dict(programs)
        self.pods = []

    def add(self, name, replica=0, node="n1"):
        """A pod that is not started yet."""
        self.pods.append(Pod(self, name, replica, node))
        return self.pods[-1]

    def start(self, name, replica=0):
        return self.add(name, replica).start()

    def install(self):
        """Applies the chart's objects but those that start pods, with Services that lead to this machine."""
        self.plane.namespace(self.namespace)
        self.plane.apply(*[one for one in self.found if one["kind"] == "CustomResourceDefinition"])
        self.plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
        left_out = ("CustomResourceDefinition", "Deployment", "StatefulSet", "DaemonSet", "Service")
        self.plane.apply(*[one for one in self.found if one["kind"] not in left_out])

    def start_engine(self):
        engine = self.start("gpu-scheduler-engine")

        def serves():
            assert engine.process.poll() is None, engine.log()
            return self.cli("cluster").returncode == 0

        harness.wait_until("the scheduler serves", serves)
        return engine

    def cli(self, *words):
        """gpu-cli as the scheduler's own user, who may read its token."""
        engine = self.pods[0]
        access = [f"--api-url=https://localhost:{self.ports['8080']}", f"--token-file={engine.place('/var/lib/gpu-scheduler')}/token",
                  f"--ca-file={engine.place('/etc/gpu-scheduler/tls')}/ca.crt"]
        return subprocess.run(["setpriv", "--reuid=10001", "--regid=10001", "--clear-groups", harness.program("gpu-cli"),
                               *access, *words], capture_output=True, text=True, check=False, timeout=harness.PATIENCE_S,
                              env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder)})

    def end(self):
        for pod in reversed(self.pods):
            if pod.process is not None and pod.process.poll() is None:
                pod.process.terminate()
                try:
                    pod.process.wait(10)
                except subprocess.TimeoutExpired:
                    pod.kill()

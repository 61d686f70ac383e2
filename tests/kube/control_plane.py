"""A real Kubernetes control plane on loopback: etcd and kube-apiserver with TLS, RBAC and node restriction.

There is no controller manager: nothing makes `default` service accounts (namespace() does), nothing collects what an
ended owner leaves, and nothing starts pods.
"""

import base64
import contextlib
import http.client
import itertools
import json
import os
import pathlib
import signal
import ssl
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import harness  # noqa: E402
from ports import free_port  # noqa: E402

ROOT = harness.ROOT
TOOL = ROOT / "tools" / "control-plane"
VERSION = "1.36.3"
ADMIN_TOKEN = "admin-token"
SERVER_NAMES = ("IP:127.0.0.1,IP:10.0.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,"
                "DNS:kubernetes.default.svc")


def why_not(*names):
    """Why these programs of the control plane cannot be used here; None: they can."""
    done = subprocess.run([TOOL, "check", *names], capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else (done.stdout + done.stderr).strip()


def programs():
    """The folder of the built programs."""
    return pathlib.Path(subprocess.run([TOOL, "folder"], capture_output=True, text=True, check=True).stdout.strip())


def run_go(*words, **environment):
    """Runs the go command in the module of kube/; what it prints."""
    go = subprocess.run([TOOL, "go"], capture_output=True, text=True, check=True).stdout.strip()
    settings = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "auto", "GOFLAGS": "-buildvcs=false -mod=readonly -trimpath -p=2"}
    done = subprocess.run([go, *words], cwd=ROOT / "kube", capture_output=True, text=True, check=False,
                          env={**os.environ, **settings, **environment})
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


class Authority:
    """Keys and certificates in a folder, all signed by its one authority."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        self._key("ca")
        self._openssl("req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=test-ca", "-days", "30", "-out", "ca.crt",
                      "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign")

    def _openssl(self, *words):
        done = subprocess.run(["openssl", *words], cwd=self.folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, (words, done.stderr)

    def _key(self, name):
        self._openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", f"{name}.key")

    def signing_pair(self, name):
        """NAME.key and NAME.pub, with which service account tokens are signed and checked."""
        self._key(name)
        self._openssl("pkey", "-in", f"{name}.key", "-pubout", "-out", f"{name}.pub")

    def certificate(self, name, common_name, groups=(), names=""):
        """NAME.crt and NAME.key for a server (with alternative names) or a user (with groups)."""
        self._key(name)
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={common_name}"
        self._openssl("req", "-new", "-key", f"{name}.key", "-subj", subject, "-out", f"{name}.csr")
        extensions = "keyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n"
        (self.folder / f"{name}.ext").write_text(extensions + (f"subjectAltName={names}\n" if names else ""))
        self._openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days",
                      "30", "-out", f"{name}.crt", "-extfile", f"{name}.ext")

    def data(self, file):
        return base64.b64encode((self.folder / file).read_bytes()).decode()


class ControlPlane:
    """One control plane in one folder. stop() and start() keep what is stored; the ports stay.

    Programs run with the mark of the end-to-end harness in their environment: whatever is left of `mark` is ended with
    the test session, also when its process is killed. Not thread-safe but for api() and kubectl().
    """

    def __init__(self, folder, mark):
        self.folder, self.mark = pathlib.Path(folder), mark
        self.folder.mkdir()
        self.programs = programs()
        self.port, self._etcd_port, self._peer_port = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self._processes = {}
        self._serial = itertools.count(1)
        self.authority = Authority(self.folder / "pki")
        self.authority.signing_pair("accounts")
        self.authority.certificate("server", "kube-apiserver", names=SERVER_NAMES)
        self.authority.certificate("front", "front-proxy")
        (self.folder / "pki" / "tokens.csv").write_text(f'{ADMIN_TOKEN},admin,admin-uid,"system:masters"\n')
        self._tls = ssl.create_default_context(cafile=str(self.folder / "pki" / "ca.crt"))
        self.admin = self._write_kubeconfig("admin", {"token": ADMIN_TOKEN})

    # --- Its programs ---

    def start(self):
        """Returns when the API server says that it is ready (3 to 6 s after the first call)."""
        self.start_etcd()
        self.start_apiserver()
        harness.wait_until("the API server is ready", self._is_ready)

    def start_etcd(self):
        client, peer = (f"http://127.0.0.1:{port}" for port in (self._etcd_port, self._peer_port))
        self._launch("etcd", "--name=t", f"--data-dir={self.folder}/etcd", f"--listen-client-urls={client}",
                     f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
                     f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=t={peer}", "--unsafe-no-fsync",
                     "--log-level=warn")

    def start_apiserver(self):
        pki = self.folder / "pki"
        self._launch(
            "kube-apiserver", f"--etcd-servers=http://127.0.0.1:{self._etcd_port}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={self.port}", "--endpoint-reconciler-type=none",
            f"--tls-cert-file={pki}/server.crt", f"--tls-private-key-file={pki}/server.key",
            f"--client-ca-file={pki}/ca.crt", f"--token-auth-file={pki}/tokens.csv",
            "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={pki}/accounts.pub",
            f"--service-account-signing-key-file={pki}/accounts.key", "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction", "--service-cluster-ip-range=10.0.0.0/16",
            "--allow-privileged=true", f"--requestheader-client-ca-file={pki}/ca.crt",
            "--requestheader-allowed-names=front-proxy", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            "--requestheader-group-headers=X-Remote-Group", "--requestheader-username-headers=X-Remote-User",
            f"--proxy-client-cert-file={pki}/front.crt", f"--proxy-client-key-file={pki}/front.key", "--profiling=false",
            f"--cert-dir={self.folder}/generated")

    def kill(self, name):
        """kill -9 of `etcd` or `kube-apiserver`."""
        self._processes[name].kill()
        self._processes[name].wait()

    @contextlib.contextmanager
    def paused(self, name):
        """Meanwhile `etcd` or `kube-apiserver` does nothing."""
        self._processes[name].send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._processes[name].send_signal(signal.SIGCONT)

    def stop(self):
        for name in ("kube-apiserver", "etcd"):
            if name in self._processes:
                self._processes[name].terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._processes[name].wait(10)
                self.kill(name)

    def run(self, *command, environment=()):
        """Starts a program of ours with the session's mark; its output goes to the log that is named like it."""
        name = pathlib.Path(command[0]).name
        log = self.folder / f"{name}.{next(self._serial)}.log"
        with open(log, "ab") as sink:
            process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                                       cwd=self.folder, env=self._environment(dict(environment)))
        process.log = log
        return process

    def _launch(self, name, *arguments):
        self._processes[name] = self.run(self.programs / name, *arguments)

    def _environment(self, more):
        # kubectl keeps what it learns of a server below HOME.
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), harness.MARK: str(self.mark), **more}

    def _is_ready(self):
        for name, process in self._processes.items():
            assert process.poll() is None, f"{name} ended: {process.log.read_text()[-2000:]}"
        with contextlib.suppress(OSError, http.client.HTTPException):
            return self.api("GET", "/readyz")[0] == 200
        return False

    # --- Who calls ---

    def user(self, name, groups=()):
        """The path of a kubeconfig for a user with a certificate; RBAC says what this user may do."""
        file = f"user-{next(self._serial)}"
        self.authority.certificate(file, name, groups)
        return self._write_kubeconfig(file, {"client-certificate-data": self.authority.data(f"{file}.crt"),
                                             "client-key-data": self.authority.data(f"{file}.key")})

    def service_account(self, namespace, name, pod=None):
        """The path of a kubeconfig with a token of this service account, bound to a pod when one is named."""
        bound = ["--bound-object-kind=Pod", f"--bound-object-name={pod}"] if pod else []
        token = self.kubectl("create", "token", name, "-n", namespace, *bound).stdout.strip()
        return self._write_kubeconfig(f"account-{next(self._serial)}", {"token": token})

    def _write_kubeconfig(self, name, user):
        path = self.folder / f"{name}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority-data": self.authority.data("ca.crt")}
        path.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "t",
            "clusters": [{"name": "t", "cluster": cluster}], "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "t", "context": {"cluster": "t", "user": "u"}}]}))
        path.chmod(0o600)
        return path

    # --- What they say ---

    def kubectl(self, *words, text_in=None, user=None, expected=0):
        """Runs kubectl as the administrator or with another kubeconfig. `expected=None` takes any exit status."""
        done = subprocess.run([str(self.programs / "kubectl"), f"--kubeconfig={user or self.admin}", *map(str, words)],
                              input=text_in, capture_output=True, text=True, check=False, timeout=harness.PATIENCE_S,
                              env=self._environment({}))
        assert expected is None or done.returncode == expected, (words, done.stdout, done.stderr)
        return done

    def apply(self, *objects, user=None, server_side=False):
        """Objects as dictionaries; or one text in YAML."""
        text = objects[0] if isinstance(objects[0], str) else json.dumps({"apiVersion": "v1", "kind": "List",
                                                                          "items": list(objects)})
        return self.kubectl("apply", *(["--server-side"] if server_side else []), "-f", "-", text_in=text, user=user)

    def api(self, method, path, body=None, content_type="application/json", token=ADMIN_TOKEN):
        """(status, parsed answer) of one request. Raises OSError or HTTPException when there is no whole answer."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self._tls, timeout=harness.PATIENCE_S)
        with contextlib.closing(connection):
            headers = {"Authorization": f"Bearer {token}", "Content-Type": content_type}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            text = answer.read()
            is_json = "json" in (answer.getheader("Content-Type") or "")
            return answer.status, json.loads(text) if is_json else text.decode("utf-8", "replace")

    def get(self, path):
        status, body = self.api("GET", path)
        assert status == 200, (path, status, body)
        return body

    def create(self, path, body):
        status, answer = self.api("POST", path, body)
        assert status == 201, (path, status, answer)
        return answer

    def patch(self, path, body):
        status, answer = self.api("PATCH", path, body, "application/merge-patch+json")
        assert status == 200, (path, status, answer)
        return answer

    def namespace(self, name=None, labels=None):
        """Makes a namespace with its `default` service account; its name."""
        name = name or f"ns-{next(self._serial)}"
        self.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels or {}}})
        self.create(f"/api/v1/namespaces/{name}/serviceaccounts", {"metadata": {"name": "default"}})
        return name

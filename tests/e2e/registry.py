"""A small container registry for tests: images of one program, made here, served read-only by the OCI protocol.

It can ask for a password, fail a number of requests first, and hold a layer back until it is told to go on.
"""

import base64
import gzip
import hashlib
import http.server
import io
import json
import tarfile
import threading

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar+gzip"


def digest_of(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def shell_layer(busybox, extra=None):
    """An uncompressed tar of a file system in which a shell and its tools run."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        def add(name, data=None, mode=0o755, link=None, directory=False):
            info = tarfile.TarInfo(name)
            info.mode = mode
            if directory:
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            elif link:
                info.type, info.linkname = tarfile.SYMTYPE, link
                tar.addfile(info)
            else:
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))

        for folder, mode in (("bin", 0o755), ("etc", 0o755), ("proc", 0o555), ("sys", 0o555), ("dev", 0o755),
                             ("tmp", 0o1777), ("work", 0o777)):
            add(folder, mode=mode, directory=True)
        with open(busybox, "rb") as program:
            add("bin/busybox", program.read())
        for name in ("sh", "cat", "echo", "env", "sleep", "id", "true", "false", "kill", "ls", "pwd", "grep", "dd",
                     "head", "tail", "seq", "touch", "rm", "printf", "stat", "ulimit", "mount"):
            add(f"bin/{name}", link="busybox")
        add("etc/passwd", b"root:x:0:0:root:/:/bin/sh\n", mode=0o644)
        for name, data in (extra or {}).items():
            add(name, data, mode=0o755)
    return buffer.getvalue()


class Image:
    """A manifest with its config and layers, by digest."""

    def __init__(self, layers, config=None):
        self.blobs = {}
        described = []
        for layer in layers:
            packed = gzip.compress(layer, 1, mtime=0)
            self.blobs[digest_of(packed)] = packed
            described.append({"mediaType": LAYER_TYPE, "digest": digest_of(packed), "size": len(packed)})
        settings = {"architecture": "amd64", "os": "linux", "config": config or {"Env": ["PATH=/bin"], "Cmd": ["/bin/sh"]},
                    "rootfs": {"type": "layers", "diff_ids": [digest_of(layer) for layer in layers]}}
        text = json.dumps(settings).encode()
        self.blobs[digest_of(text)] = text
        self.layer_digests = [layer["digest"] for layer in described]
        self.manifest = json.dumps({
            "schemaVersion": 2, "mediaType": MANIFEST_TYPE,
            "config": {"mediaType": CONFIG_TYPE, "digest": digest_of(text), "size": len(text)},
            "layers": described}).encode()
        self.digest = digest_of(self.manifest)


class Registry:
    """Serves images at 127.0.0.1:port until it is closed."""

    def __init__(self, user=None, password=None):
        self.images = {}      # (repository, tag) -> Image
        self.every = {}       # repository -> [Image]
        self.requests = []    # (method, path) of all that was asked.
        self.failures = 0     # So many requests for manifests fail from now on.
        self.gate = threading.Event()  # Layers wait for it.
        self.gate.set()
        self.expected = None
        if user is not None:
            self.expected = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        registry = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, data=b"", kind="application/json", headers=None):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.end_headers()
                if self.command != "HEAD":
                    registry.send_slowly(self.wfile, data, kind)

            def do_GET(self):
                registry.requests.append((self.command, self.path))
                if registry.expected and self.headers.get("Authorization") != registry.expected:
                    return self.answer(401, b'{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}',
                                       headers={"WWW-Authenticate": 'Basic realm="test"'})
                return self.answer(*registry.find(self.path))

            do_HEAD = do_GET

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.host = f"127.0.0.1:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()

    def add(self, repository, tag, image):
        self.images[(repository, tag)] = image
        self.every.setdefault(repository, []).append(image)
        return f"{self.host}/{repository}:{tag}"

    def send_slowly(self, sink, data, kind):
        if kind == "application/octet-stream" and len(data) > 65536:
            sink.write(data[:len(data) // 2])
            sink.flush()
            self.gate.wait()
            data = data[len(data) // 2:]
        sink.write(data)

    def find(self, path):
        """(status, data, content type)."""
        if path.rstrip("/") == "/v2":
            return 200, b"{}", "application/json"
        words = path.split("/")
        repository, kind, name = "/".join(words[2:-2]), words[-2], words[-1]
        known = self.every.get(repository, [])
        if kind == "manifests":
            if self.failures > 0:
                self.failures -= 1
                return 503, b'{"errors":[{"code":"UNAVAILABLE","message":"try again"}]}', "application/json"
            image = self.images.get((repository, name)) or next((one for one in known if one.digest == name), None)
            if image:
                return 200, image.manifest, MANIFEST_TYPE
            return 404, b'{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}', "application/json"
        for image in known:
            if kind == "blobs" and name in image.blobs:
                return 200, image.blobs[name], "application/octet-stream"
        return 404, b'{"errors":[{"code":"BLOB_UNKNOWN","message":"blob unknown"}]}', "application/json"

    def layer_downloads(self):
        """How often each layer was asked for."""
        layers = {digest for images in self.every.values() for image in images for digest in image.layer_digests}
        found = {}
        for method, path in list(self.requests):
            name = path.rpartition("/")[2]
            if method == "GET" and name in layers:
                found[name] = found.get(name, 0) + 1
        return found

    def close(self):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

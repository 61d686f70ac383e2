"""PostgreSQL for the end-to-end tests: a server on loopback that takes passwords, with TLS if wanted."""

import contextlib
import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile

import harness
import pytest
from ports import free_port

PASSWORD = "gpu123"


def _programs():
    """The folder of the newest server's programs. Where there is none the test is skipped by name; in CI it fails."""
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not found and os.environ.get("CI"):
        pytest.fail("PostgreSQL is not installed: tools/install-deps --extra")
    return found[-1].parent if found else pytest.skip("PostgreSQL is not installed (Debian: postgresql)")


def _user():
    """Whom it runs as: it refuses root. None: as ourselves."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name for entry in pwd.getpwall()}
    return "postgres" if "postgres" in names else "nobody"


class Postgres:
    """A server with the user `postgres` and its password; `end` ends it and removes its folder."""

    def __init__(self, tls=False, port=None):
        self.programs = _programs()
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gpusched-postgres-"))
        self.port = port or free_port()
        self.process = None
        if _user():
            shutil.chown(self.folder, _user())
        word = self.folder / "password"
        word.write_text(PASSWORD + "\n")
        word.chmod(0o644)
        self._run(self.programs / "initdb", "-D", self.folder / "data", "-U", "postgres", "--auth=scram-sha-256",
                  f"--pwfile={word}", "-E", "UTF8", "--locale=C", "--no-sync")
        self.more = []
        if tls:
            self._run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                      "-addext", "subjectAltName=DNS:localhost", "-keyout", self.folder / "data" / "server.key", "-out",
                      self.folder / "data" / "server.crt")
            (self.folder / "data" / "server.key").chmod(0o600)
            self.more = ["-c", "ssl=on"]
        self.start()

    def _run(self, *words):
        done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, cwd="/",
                              user=_user(), timeout=harness.PATIENCE_S)
        assert done.returncode == 0, done.stdout + done.stderr

    def start(self):
        words = [self.programs / "postgres", "-D", self.folder / "data", "-k", self.folder, "-p", self.port, "-c",
                 "listen_addresses=127.0.0.1", "-c", "fsync=off", *self.more]
        with open(self.folder / "log", "ab") as sink:
            self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=sink,
                                            stderr=subprocess.STDOUT, cwd="/", user=_user(), start_new_session=True)

        def look():
            assert self.process.poll() is None, (self.folder / "log").read_text()
            return self.psql("SELECT 1", database="postgres", check=False) == "1"

        harness.wait_until("PostgreSQL answers", look)
        return self

    def stop_at_once(self):
        """All its processes end without a last word, as by a crash."""
        self.process.send_signal(3)
        self.process.wait(harness.PATIENCE_S)

    def psql(self, sql, database="gpu_scheduler", check=True):
        """The rows as text, columns with | between."""
        done = subprocess.run(["psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-d", database, "-XAtc",
                               sql], capture_output=True, text=True, check=False, timeout=harness.PATIENCE_S,
                              env={**os.environ, "PGPASSWORD": PASSWORD})
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout.strip()

    def make_database(self, name="gpu_scheduler"):
        self.psql(f"CREATE DATABASE {name}", database="postgres")
        return self

    def settings(self, **more):
        """For a scheduler."""
        return {"DATABASE_HOST": "127.0.0.1", "DATABASE_PORT": self.port, "DATABASE_USER": "postgres",
                "DATABASE_PASSWORD": PASSWORD, "DATABASE_DATABASE": "gpu_scheduler", **more}

    def end(self):
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(3)
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

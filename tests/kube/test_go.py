"""The Go packages: their format and their own tests; for those of the webhook with what `go test` has vet look for."""

import subprocess

import control_plane as kubernetes

VETTED = ("./webhook/...", "./cmd/gpu-scheduler-webhook/...")
# Vet looks at all that a package imports, for these at the whole of Kubernetes' scheduler.
OTHERS = ("./api/...", "./bridge/...", "./engine/...", "./leases/...", "./plugin/...")


def test_the_packages_are_formatted():
    gofmt = kubernetes.run_go("env", "GOROOT").strip() + "/bin/gofmt"
    done = subprocess.run([gofmt, "-l", kubernetes.ROOT / "kube"], capture_output=True, text=True, check=True)
    assert not done.stdout


def test_their_own_tests_pass():
    assert "ok" in kubernetes.run_go("test", *VETTED)
    assert "FAIL" not in kubernetes.run_go("test", "-vet=off", *OTHERS)

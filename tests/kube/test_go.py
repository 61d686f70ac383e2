"""The Go packages of the webhook: their format and their own tests, with what `go test` has vet look for."""

import subprocess

import control_plane as kubernetes

PACKAGES = ("./webhook/...", "./cmd/gpu-scheduler-webhook/...")


def test_the_packages_are_formatted():
    folders = [kubernetes.ROOT / "kube" / name.removesuffix("/...") for name in PACKAGES]
    gofmt = kubernetes.run_go("env", "GOROOT").strip() + "/bin/gofmt"
    done = subprocess.run([gofmt, "-l", *folders], capture_output=True, text=True, check=True)
    assert not done.stdout


def test_their_own_tests_pass():
    assert "ok" in kubernetes.run_go("test", *PACKAGES)

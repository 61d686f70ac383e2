#!/usr/bin/env bash
# `make demo`: real jobs through a scheduler and an agent of its own, on loopback, in a folder that it removes. Exit status 0
# only if every job ended exactly as it should.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${GPUSCHED_BIN:-build/bin}/gpu-scheduler" demo "$@"

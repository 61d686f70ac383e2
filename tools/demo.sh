#!/usr/bin/env bash
# `make demo`: real jobs through a scheduler and an agent of its own, on loopback, in a folder that it removes.
# Exit status 0 only if every job ended exactly as it should. Debian's python3 draws; nothing else is needed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec "${GPUSCHED_PYTHON:-/usr/bin/python3}" -B tools/demo.py "$@"

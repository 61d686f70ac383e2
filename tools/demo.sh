#!/usr/bin/env bash
# `make demo`: real jobs through a scheduler and an agent of its own, on loopback, in a folder that it removes. Exit status 0
# only if every job ended exactly as it should.
#
#   tools/demo.sh               the programs of build/bin (GPUSCHED_BIN: another folder)
#   tools/demo.sh --installed   those of an installed package; exit status 3 if there is none of this checkout's version and
#                               commit, if tracked files were changed, or with BUILD=1 or CI=true
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# same_as_checkout PROGRAM: it was built from what is checked out here.
same_as_checkout() {
  local version commit told
  version="$(sed -n 's/^project(gpu-scheduler VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)"
  commit="$(git -c safe.directory='*' rev-parse HEAD 2>/dev/null)" || return 1
  [[ -z "$(git -c safe.directory='*' status --porcelain --untracked-files=no)" ]] || return 1
  told="$("$1" --version 2>/dev/null)" || return 1
  [[ "$told" =~ ^gpu-scheduler\ ([0-9.]+)\ \(commit\ ([0-9a-f]{12,40})\  ]] || return 1
  [[ "${BASH_REMATCH[1]}" == "$version" && "$commit" == "${BASH_REMATCH[2]}"* ]]
}

if [[ "${1:-}" == --installed ]]; then
  shift
  installed="$(command -v gpu-scheduler || true)"
  if [[ -n "${BUILD:-}" || -n "${CI:-}" || -z "$installed" ]] || ! same_as_checkout "$installed"; then exit 3; fi
  echo "$installed has this version and commit, so nothing is built (BUILD=1 make demo builds)"
  exec "$installed" demo "$@"
fi
exec "${GPUSCHED_BIN:-build/bin}/gpu-scheduler" demo "$@"

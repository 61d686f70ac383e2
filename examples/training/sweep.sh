#!/bin/sh
# A sweep over learning rates: one element of an array each, and a job that picks the best when all have ended.
#
#   examples/training/sweep.sh RESULTS    RESULTS: a folder that every node sees
set -eu
results="$1"

# The element's index chooses its rate. In place of the loop stands a training run; this one minimizes (x - 2)^2.
sweep="$(gpu-cli submit --name sweep --array 1-8 --gpus 1 --env RESULTS="$results" -- sh -c '
  awk -v i="$GPU_SCHEDULER_ARRAY_INDEX" "BEGIN {
    rate = i / 10; x = 0
    for (step = 0; step < 3; ++step) x -= rate * 2 * (x - 2)
    printf \"%.6f rate=%.1f\n\", (x - 2) ^ 2, rate
  }" > "$RESULTS/$GPU_SCHEDULER_ARRAY_INDEX"')"
gpu-cli submit --name best --after "ok:$sweep" --env RESULTS="$results" --wait --logs -- \
  sh -c 'sort -n "$RESULTS"/[1-8] | head -n 1'

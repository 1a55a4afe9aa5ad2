#!/usr/bin/env bash
# Three scenarios and what Windlass would do about them. Run by `make plans`.
set -euo pipefail
cd "$(dirname "$0")/.."
windlass="${BIN:-.venv/bin}/windlass"

tell() { printf '\n%s\n' "$*"; }
ask() { printf '\n$ windlass plan %s\n\n' "$1"; "$windlass" plan "$1"; }

tell "1. A small cluster in the middle of a working day. What fits is placed, what is missing is bought, what is idle
   goes. What waits is told why, group by group, and what would help."
ask examples/small-cluster.yaml

tell "2. TPU slices: several hosts that live and die together, and gangs that start whole or not at all. A slice that
   was being drained is wanted again, which is cheaper than a new one."
ask examples/tpu-slices.yaml

tell "3. The least dollars per hour for all of the work together."
ask examples/cheapest.yaml

tell "Change a number in one of the files under examples/ and ask again; a mistake is told with its path:"
printf '\n$ windlass plan - <<< "groups: {gpu: {resources: {gpu: 4}, min: 4, max: 2}}"\n\n'
"$windlass" plan - <<< "groups: {gpu: {resources: {gpu: 4}, min: 4, max: 2}}" || true

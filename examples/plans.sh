#!/usr/bin/env bash
# Prints the plans of three scenarios. `make plans` runs it.
set -euo pipefail
cd "$(dirname "$0")/.."
windlass="${BIN:-.venv/bin}/windlass"

tell() { printf '\n%s\n' "$*"; }
ask() { printf '\n$ windlass plan %s\n\n' "$1"; "$windlass" plan "$1"; }

tell "1. A small cluster in the middle of a working day. Tasks are placed where they fit, machines are bought for
   the rest, and idle machines are released. Each waiting job has its reason for every group, and what would help."
ask examples/small-cluster.yaml

tell "2. TPU slices: machines of several hosts that start and end together, and gangs that start as a whole or not at all.
   A slice that was being drained is used again, which is cheaper than a new one."
ask examples/tpu-slices.yaml

tell "3. The lowest cost per hour for all work together."
ask examples/cheapest.yaml

tell "Change a number in one of the files under examples/ and ask again; a mistake is told with its path:"
printf '\n$ windlass plan - <<< "groups: {gpu: {resources: {gpu: 4}, min: 4, max: 2}}"\n\n'
"$windlass" plan - <<< "groups: {gpu: {resources: {gpu: 4}, min: 4, max: 2}}" || true

#!/usr/bin/env bash
# A run on one machine, all of its GPUs in one process.
#
#   gpu_box.sh [--dry-run] STEM [OPTION ...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=launch/scripts/common.sh
. launch/scripts/common.sh
[ $# -ge 1 ] || usage

run env -u REPRO_PROCESSES RESTARTS="${RESTARTS:-3}" launch/scripts/worker.sh "$@"

#!/usr/bin/env bash
# A run on all machines of a Cloud TPU slice, through gcloud.
#
#   tpu_pod.sh [--dry-run] setup NAME ZONE                         copies this checkout there and installs it
#   tpu_pod.sh [--dry-run] run NAME ZONE RUNS STEM [OPTION ...]    starts, or continues, `repro run STEM OPTION ...`
#
# RUNS is a folder that all machines see (a mounted bucket or disk). With spot machines: when the slice is there again,
# the same command continues.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=launch/scripts/common.sh
. launch/scripts/common.sh
[ $# -ge 3 ] || usage
what=$1 name=$2 zone=$3
shift 3

on_all() {
  run gcloud compute tpus tpu-vm ssh "$name" --zone="$zone" --worker=all --command="$1"
}

case $what in
  setup)
    [ $# -eq 0 ] || usage
    bundle=${TMPDIR:-/tmp}/repro.bundle # with its history, so that records name their commit
    run git bundle create --quiet "$bundle" HEAD
    run gcloud compute tpus tpu-vm scp "$bundle" "$name:repro.bundle" --zone="$zone" --worker=all
    install=".venv/bin/python -m pip install --no-deps -r requirements/tpu.txt"
    on_all "rm -rf repro && git clone --quiet repro.bundle repro && cd repro && make venv && $install"
    ;;
  run)
    [ $# -ge 2 ] || usage
    runs=$1
    shift
    settings="REPRO_PROCESSES=auto REPRO_RUNS=$(typed "$runs") RESTARTS=${RESTARTS:-3}"
    on_all "cd repro && $settings launch/scripts/worker.sh $(typed "$@")"
    ;;
  *) usage ;;
esac

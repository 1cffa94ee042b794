#!/usr/bin/env bash
# What every machine of a run does; the other scripts start it. Arguments: those of `repro run`.
#
#   REPRO_PROCESSES  auto, or NUMBER/COUNT@HOST:PORT; unset for a machine on its own
#   REPRO_RUNS       a folder that all machines see, for checkpoints and results
#   RESTARTS         how often to begin again after a failure, such as the loss of another machine (default 0)
#
# The run continues from its newest whole checkpoint, so starting again is always the same command.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
left=${RESTARTS:-0}
trap 'kill -TERM "$child" 2>/dev/null' TERM INT # the run saves, then stops

while true; do
  "$PYTHON" -m launch run "$@" &
  child=$!
  wait "$child"
  status=$?
  if kill -0 "$child" 2>/dev/null; then # a signal ended the first wait
    wait "$child"
    status=$?
  fi
  # 2 is wrong use, 128 + n was asked for: beginning again would not help.
  if [ "$status" -eq 0 ] || [ "$status" -eq 2 ] || [ "$status" -eq 143 ] || [ "$status" -eq 130 ] || [ "$left" -le 0 ]; then
    exit "$status"
  fi
  left=$((left - 1))
  echo "worker: ended with status $status; begins again in 10 s, $left more times" >&2
  sleep "${PAUSE:-10}"
done

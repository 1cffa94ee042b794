#!/usr/bin/env bash
# What every machine of a run does; the other scripts start it. Arguments: those of `repro run`.
#
#   REPRO_PROCESSES  auto, or NUMBER/COUNT@HOST:PORT; unset for a machine on its own
#   REPRO_RUNS       a folder that all machines see, for checkpoints and results
#   RESTARTS         how often to begin again after a failure, such as the loss of another machine (default 0)
#   PAUSE            seconds before that (default 10)
#
# The run continues from its newest whole checkpoint, so starting again is always the same command.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit

PYTHON=${PYTHON:-$([ -x .venv/bin/python ] && echo .venv/bin/python || echo python3)}
left=${RESTARTS:-0} pause=${PAUSE:-10} child='' stopped=''
for number in "$left" "$pause"; do
  case $number in
    '' | *[!0-9]*) echo "worker: RESTARTS and PAUSE are whole numbers, got '$number'" >&2 && exit 2 ;;
  esac
done

# The run saves, then stops. However many signals come, this waits for it.
stop() {
  stopped=$1
  [ -z "$child" ] || kill -TERM "$child" 2>/dev/null
}
trap 'stop 143' TERM HUP
trap 'stop 130' INT

while true; do
  "$PYTHON" -m launch run "$@" &
  child=$!
  [ -z "$stopped" ] || kill -TERM "$child" # it came before there was a child
  wait "$child"
  status=$?
  while kill -0 "$child" 2>/dev/null; do # a signal ended that wait
    wait "$child"
    status=$?
  done
  child=''
  # 134: JAX itself ends a process that lost the first one, with a trace.
  [ "$status" -ne 134 ] || echo "worker: the first process of the run is gone, or was not found at its address" >&2
  # 2 is wrong use, 128 + n was asked for: beginning again would not help.
  case $status in 0 | 2 | 130 | 143) exit "$status" ;; esac
  [ -z "$stopped" ] || exit "$stopped"
  [ "$left" -gt 0 ] || exit "$status"
  left=$((left - 1))
  echo "worker: ended with status $status; begins again in $pause s, $left more times" >&2
  sleep "$pause" &
  child=$!
  wait "$child"
  kill "$child" 2>/dev/null
  child=''
  [ -z "$stopped" ] || exit "$stopped"
done

#!/usr/bin/env bash
# What one GPU says about Reformer, in under six minutes: the attention profile (Figure 5 right), then Table 2 at the
# paper's length as far as the time allows. Needs the packages of requirements/bare.txt; TensorFlow and seqio are not used.
#
#     bash launch/gpu_check.sh             # everything goes below runs/gpu_check; OUT=DIR chooses another place
#     LIMIT=600 SCALE=tiny bash launch/gpu_check.sh
#
# Running it again continues where the time ran out: what is trained stays trained.
set -uo pipefail
cd "$(dirname "$0")/.."

PYTHON=${PYTHON:-python3}
OUT=${OUT:-runs/gpu_check}
LIMIT=${LIMIT:-340}
SCALE=${SCALE:-short}
export PYTHONUNBUFFERED=1 XLA_PYTHON_CLIENT_PREALLOCATE=false

left() { echo $((LIMIT - SECONDS)); }
missing=$("$PYTHON" - <<'PYTHON_END'
import importlib.util
needed = {"jax": "jax", "flax": "flax", "optax": "optax", "orbax": "orbax-checkpoint", "gin": "gin-config", "rich": "rich"}
print(" ".join(package for name, package in needed.items() if importlib.util.find_spec(name) is None))
PYTHON_END
) || { echo "gpu_check: cannot run $PYTHON; set PYTHON=/path/to/python3 (3.11 or newer)" >&2; exit 2; }
if [ -n "$missing" ]; then
  echo "gpu_check: missing $missing; install with: $PYTHON -m pip install --no-deps -r requirements/bare.txt" >&2
  exit 2
fi
"$PYTHON" -c 'import jax; print("devices:", jax.devices())' || exit 1

failed=0
echo "== attention profile (at most $((LIMIT / 2)) s)"
timeout $((LIMIT / 2)) "$PYTHON" -m launch profile attention --kinds shared,lsh1,lsh2,lsh4,lsh8 \
  --lengths 1024,4096,16384 --repeats 3 --limit 5 --out "$OUT/profile"
case $? in
  0) ;;
  124) echo "== the profile did not end in time: raise LIMIT, or run \`repro profile attention\` alone" ;;
  *) failed=1 ;;
esac

for row in full lsh4 lsh2 lsh1; do
  if [ "$(left)" -lt 20 ]; then
    echo "== $row: no time left; run this script again to go on"
    continue
  fi
  echo "== reformer/table2/$row, scale $SCALE ($(left) s left)"
  # SIGTERM makes the trainer save and stop; a record is written only by a run that reached its end.
  timeout --signal=TERM --kill-after=20 "$(left)" "$PYTHON" -m launch run "reformer/table2/$row" --scale "$SCALE" \
    --workdir "$OUT/runs" --records "$OUT/records"
  status=$?
  if [ $status -ne 0 ] && [ $status -ne 143 ] && [ $status -ne 124 ]; then failed=1; fi
done

mkdir -p "$OUT/records"
"$PYTHON" -m launch compare reformer/table2 --records "$OUT/records"
echo "== $SECONDS s; profile, runs and records are in $OUT"
exit $failed

#!/usr/bin/env bash
# A run on several machines of a Slurm cluster, one process for each GPU.
#
#   slurm.sh [--dry-run] MACHINES GPUS STEM [OPTION ...]
#
# Call it from a checkout that all machines see. SBATCH_* variables (account, partition, time) are Slurm's own. The job
# is put back into the queue when it is preempted, and continues; SIGTERM comes a minute before the time is over.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
# shellcheck source=launch/scripts/common.sh
. launch/scripts/common.sh
[ $# -ge 3 ] || usage
machines=$1 gpus=$2
shift 2

export REPRO_PROCESSES=auto REPRO_RUNS=${REPRO_RUNS:-$PWD/runs}
run sbatch --job-name=repro --nodes="$machines" --ntasks-per-node="$gpus" --gpus-per-node="$gpus" --requeue \
  --open-mode=append --signal=TERM@60 --export=ALL,REPRO_PROCESSES,REPRO_RUNS \
  --wrap="srun --kill-on-bad-exit=1 launch/scripts/worker.sh $(typed "$@")"
